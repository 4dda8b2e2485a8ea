"""The benchmarks of size: what they measure with, and a small run from table to figures.

The figures themselves are not judged here.
"""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SIZE = Path(__file__).resolve().parents[2] / "benchmarks" / "size"


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    """The module by its path: the folders of the benchmarks have files of the same names."""
    spec = importlib.util.spec_from_file_location("measured", SIZE / "measured.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measured"] = module
    spec.loader.exec_module(module)
    return module


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_measured_process(measured: ModuleType, tmp_path: Path) -> None:
    code = "import time; x = b'a' * 300_000_000; time.sleep(.3); del x; print('done')"
    # A small process starts the measured one, as the scripts do: this one is large.
    outer = (
        f"import sys; sys.path.insert(0, {str(SIZE)!r}); import measured, pathlib\n"
        f"m = measured.run_measured([sys.executable, '-c', {code!r}], 'shown', pathlib.Path('.'))\n"
        "print(m.command, m.output.strip(), 300 < m.peak_mb < 330, .3 < m.seconds < 30)"
    )
    done = subprocess.run([sys.executable, "-c", outer], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["shown", "done", "True", "True"]
    assert list(tmp_path.iterdir()) == []


def test_failing_command_stops_with_its_last_words(measured: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)nonsense.* 2:.*nonsense"):
        measured.fielddep("nonsense", cwd=tmp_path)


def test_rows_are_replaced_by_key(measured: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "figures.csv"
    measured.keep_rows(path, [{"rows": 1000, "seconds": 1.5}, {"rows": 20, "seconds": 0.5}], key=("rows",))
    measured.keep_rows(path, [{"rows": 1000, "seconds": 2.5, "note": "a, b"}], key=("rows",))
    assert rows_of(path) == [
        {"rows": "20", "seconds": "0.5", "note": ""},
        {"rows": "1000", "seconds": "2.5", "note": "a, b"},
    ]


def run_script(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, str(SIZE / name), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_recipes_from_raw_files_to_figures(tmp_path: Path) -> None:
    """Prepare, train and evaluate from generated raw files of each format."""
    settings = ("--set", "model.d_embed=2", "--set", "train.threads=1", "--set", "train.max_epochs=3")
    common = ("--scratch", "scratch", "--rows", "3000", "--models", "mdl", "--out", "recipes.csv")
    run_script("recipes.py", *common, *settings, cwd=tmp_path)
    rows = rows_of(tmp_path / "recipes.csv")
    assert [(row["recipe"], row["what"]) for row in rows] == [
        (name, what) for name in ("avazu", "criteo", "kdd2012") for what in ("evaluate", "fit", "prepare")
    ]
    assert [row["rows"] for row in rows[-3:]] == ["600", "1920", "3000"]
    assert {row["n_fields"] for row in rows} == {"22", "39", "11"}
    for evaluated, fitted, prepared in (rows[start : start + 3] for start in (0, 3, 6)):
        assert 0 < float(evaluated["logloss"]) < 1
        assert 0.3 < float(evaluated["auc"]) < 0.9
        assert (fitted["model"], fitted["d_embed"]) == ("mdl", "2")
        assert prepared["command"].startswith(
            f"fielddep data prepare {prepared['recipe']} --raw raw --out recipe.store"
        )
        assert int(prepared["raw_bytes"]) > 3000 * 50
    assert list((tmp_path / "scratch").iterdir()) == []


def test_from_table_to_figures(tmp_path: Path) -> None:
    """Encode one size, then train and evaluate from its store."""
    common = ("--scratch", "scratch", "--categories", "500", "--keep")
    run_script("encode.py", *common, "--rows", "4000", "--out", "encode.csv", cwd=tmp_path)
    (row,) = rows_of(tmp_path / "encode.csv")
    assert row["rows"] == "4000"
    assert 400 < int(row["n_categories"]) <= 500
    assert row["command"].startswith("fielddep encode clicks-4000.csv --target click --out clicks-4000.store")
    assert int(row["csv_bytes"]) == (tmp_path / "scratch" / "clicks-4000.csv").stat().st_size
    assert float(row["peak_mb"]) > 50
    assert int(row["rows_per_s"]) == pytest.approx(4000 / float(row["seconds"]), rel=0.01)
    assert (tmp_path / "encode.png").read_bytes().startswith(b"\x89PNG")

    settings = ("--set", "model.d_embed=4", "--set", "train.threads=1", "--set", "train.batch_size=64")
    store = ("--store", "clicks-4000.store", "--out", "train.csv")
    run_script("train.py", *common, *store, *settings, cwd=tmp_path)
    evaluated, fitted = rows_of(tmp_path / "train.csv")
    assert (evaluated["what"], fitted["what"]) == ("evaluate", "fit")
    assert int(fitted["rows"]) + 2 * int(evaluated["rows"]) == pytest.approx(4000, rel=0.05)
    assert float(evaluated["best_auc"]) > 0.75
    assert 0.3 < float(evaluated["auc"]) < float(evaluated["best_auc"])
    assert float(evaluated["best_logloss"]) < float(evaluated["base_logloss"])
    assert (fitted["d_embed"], fitted["batch"], fitted["threads"]) == ("4", "64", "1")
    assert fitted["auc"] == ""
