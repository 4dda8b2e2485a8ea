"""The guide: every command and Python block is run, on small tables; what it shows is what is printed.

Commands on the flights are run on generated rows of the same columns, so figures are compared only where a page makes
its own table. What the pictures show is not checked, only that they are there and small.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from fielddep.config import NETWORKS
from fielddep.config.settings import Config, settings_reference
from fielddep.datasets import flights
from tests.documents import PageRunner, find_blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIRST = "first-model.md"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
OTHERS = [name for name in PAGES if name != FIRST and find_blocks((DOCS / name).read_text("utf-8"))]
SMALLER = {"--sample": "100", "--seeds": "1", "--trials": "2", "--models": "mdl,fm", "--what": "depth"}
"""Options of long commands, as every training of theirs is a process of its own; `test_ablate.py` asks the rest."""
MAX_PICTURE_BYTES = 200_000
N_FLIGHTS = 3200


def flights_like(n_rows: int = N_FLIGHTS, seed: int = 0) -> pl.DataFrame:
    """Text fields with the names of the flights' and a target that depends on month and hour together."""
    rng = np.random.default_rng(seed)
    n_values = {"month": 6, "day": 28, "weekday": 7, "hour": 6, "carrier": 5, "flight": 60, "tailnum": 80}
    n_values |= {"origin": 3, "dest": 20}
    ids = {name: rng.integers(0, n, n_rows) for name, n in n_values.items()}
    late = (ids["month"] + ids["hour"]) % 3 == 0
    columns = {name: pl.Series(values, dtype=pl.Int64).cast(pl.String) for name, values in ids.items()}
    columns["carrier"] = columns["carrier"].replace("0", "UA")
    return pl.DataFrame(columns).with_columns(late=pl.Series(late ^ (rng.random(n_rows) < 0.1)).cast(pl.Int8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first page was worked through; all others build on it."""
    path = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flights, "load_flights", flights_like)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.chdir(path)
        PageRunner(smaller=SMALLER).run((DOCS / FIRST).read_text("utf-8"))
    return path


def test_the_first_page_runs(folder: Path) -> None:
    assert (folder / "run" / "report.html").stat().st_size > 10_000
    predicted = pl.read_csv(folder / "predictions.csv")
    assert len(predicted) == 3


@pytest.mark.parametrize("name", OTHERS)
def test_a_page_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner fails where a command fails, or prints something else than the page shows."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    page = (DOCS / name).read_text("utf-8")
    PageRunner(smaller=SMALLER).run(page)
    if name == "comparing.md":
        shown = "| model | logloss | AUC | calibration error |"
        assert shown in page
        assert shown.removesuffix(" |") in (folder / "comparison" / "comparison.md").read_text("utf-8")


def test_figures_are_those_of_the_benchmarks() -> None:
    figures = _load(DOCS / "make_figures.py")
    used: set[str] = set()
    for path in figures.PAGES:
        page = path.read_text("utf-8")
        used |= {mark["name"] for mark in figures.MARKED.finditer(page)}
        assert figures.filled(page) == page, f"{path.name} is not up to date; run python docs/make_figures.py"
    assert used == set(figures.FIGURES)


def test_settings_that_are_named_exist() -> None:
    known = {info.path for name in NETWORKS for info in settings_reference(Config().replace({"model.name": name}))}
    named = re.compile(r"(?<![\w/])((?:data|split|model|train)\.[a-z_0-9]+)(?=[`=. ]|$)", re.M)
    for page in PAGES:
        found = set(named.findall((DOCS / page).read_text("utf-8")))
        assert found <= known, f"{page} names {sorted(found - known)}"


def test_pictures_are_there_and_small() -> None:
    shown = {name for page in PAGES for name in re.findall(r"\((pictures/[^)]+)\)", (DOCS / page).read_text("utf-8"))}
    there = {f"pictures/{path.name}": path.stat().st_size for path in (DOCS / "pictures").glob("*.png")}
    assert shown <= set(there)
    assert max(there.values()) < MAX_PICTURE_BYTES


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {path.name for path in pages} >= {name.replace(".md", ".html") for name in PAGES}
    loads = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')
    for page in pages:
        for found in loads.findall(page.read_text("utf-8")):
            assert not re.match(r"(?:https?:)?//", "".join(found)), f"{page.name} loads {found}"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
