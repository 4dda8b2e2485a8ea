"""Run the accuracy benchmark: `fielddep compare` on every table, with the same tuning budget for all models of a table.

    python benchmarks/accuracy/compare.py --scratch DIR                 all tables
    python benchmarks/accuracy/compare.py frappe --scratch DIR          one of them
    python benchmarks/accuracy/compare.py --scratch DIR --defaults      models of `SEARCHED` with their defaults
    python benchmarks/accuracy/compare.py --scratch DIR --gather        only gather what is done
    python benchmarks/accuracy/compare.py frappe --scratch DIR --models catboost --variant expert     another search

DIR keeps stores, searches and runs, so an interrupted benchmark resumes where it stopped. Models of `SEARCHED` are
searched; the others have the settings that an earlier search found (`configs/`), if there are some. What is gathered
here:

    results.csv                        one row per figure; the rows of a model on a table are replaced together
    comparison/TABLE/                  the tables made by `compare`
    configs/MODEL-TABLE.toml           the settings of the runs
    search/MODEL-TABLE.csv             every trial of the searches
    machine.json                       what it ran on
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

import tables

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
COLUMNS = ("dataset", "model", "variant", "seed", "split", "metric", "value", "train_seconds", "commit")
"""The first columns of `results.csv`."""
KNOWN = "known-configs"
"""Folder in the scratch folder: settings that earlier searches found, as `fielddep compare --configs` expects them."""
KEY = ["dataset", "model", "variant"]
PAPER = ("lr", "fm", "ffm", "xdeepfm", "afn", "ifm", "inn", "llfm", "rafm", "fwl")
"""The baselines that the paper reports on Frappe and ML-Rating."""
OTHERS = ("wide_deep", "deepfm", "node", "tabnet", "tabtransformer", "saint", "finalmlp")
TREES = ("lightgbm", "lightgbm-evidence", "catboost")
MDL = ("mdl", "blend", "mdl-wo-dep")
SEARCHED = (*TREES, *MDL)
"""Models with a search of their own in every comparison, all with the same budget and rows."""
SHORT = ("lr", "fm", "deepfm", "xdeepfm", "finalmlp", *SEARCHED)
EVIDENCE = "data.evidence=auto"
"""As `fielddep fit` has it by default. MDL, blend and lightgbm-evidence see it; all other models see ids and numbers
alone, which are the same without it."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The models of one table, the settings of its encoding, and the budget of each search.

    Attributes:
        rows: training rows of a search at most, the same for all models; the runs train on all rows.
    """

    models: tuple[str, ...]
    settings: tuple[str, ...] = (EVIDENCE,)
    trials: int = 20
    minutes: float = 60.0
    rows: int = 100_000


# Crosses are found on training rows, as in `fielddep fit` by default; trees get none and find their own.
WITH_CROSSES = (EVIDENCE, "data.crosses=auto")
BENCHES = {
    "frappe": Bench(models=(*PAPER, *OTHERS, *SEARCHED)),
    "ml-rating": Bench(models=(*PAPER, *SEARCHED)),
    "flights": Bench(models=SHORT, settings=WITH_CROSSES),
    "diabetes130": Bench(models=SHORT, settings=WITH_CROSSES),
    "ml-tag-part": Bench(models=(*PAPER, "deepfm", "finalmlp", *SEARCHED), settings=WITH_CROSSES, rows=200_000),
}


def known_settings(name: str, scratch: Path, configs: Path = HERE / "configs") -> Path:
    """A folder with the settings of all models but `SEARCHED` that an earlier search found for a table."""
    folder = scratch / KNOWN / name
    folder.mkdir(parents=True, exist_ok=True)
    for model in BENCHES[name].models:
        found = configs / f"{model}-{name}.toml"
        if model not in SEARCHED and found.is_file() and not (folder / f"{model}.toml").exists():
            shutil.copyfile(found, folder / f"{model}.toml")
    return folder


def command(name: str, given: argparse.Namespace) -> list[str]:
    """The call of `fielddep compare` for one table."""
    bench = BENCHES[name]
    options = {
        "--models": ",".join(given.models or (SEARCHED if given.defaults else bench.models)),
        "--seeds": given.seeds,
    }
    if not given.defaults:
        options |= {
            "--configs": given.scratch / KNOWN / name,
            "--trials": given.trials or bench.trials,
            "--search-minutes": given.minutes or bench.minutes,
            "--rows": given.rows or bench.rows,
        }
    options |= {
        "--threads": given.threads,
        "--jobs": given.jobs,
        "--raw": tables.data_home(),
        "--out": done_folder(name, given),
    }
    words = [word for option, value in options.items() if value is not None for word in (option, str(value))]
    words += ["--no-search"] if given.defaults else []
    words += [word for setting in bench.settings for word in ("--set", setting)]
    return [sys.executable, "-m", "fielddep", "compare", name, *words]


def done_folder(name: str, given: argparse.Namespace) -> Path:
    """Where the comparison of one table is kept."""
    folder: Path = given.scratch / (f"{name}-defaults" if given.defaults else name)
    return folder


def run(words: list[str]) -> None:
    """Run a command with the library of this checkout; if it fails, exit with its code."""
    code = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(PROJECT / "src")}).returncode
    if code:
        sys.exit(code)


def gather(name: str, done: Path, here: Path = HERE, variant: str | None = None) -> None:
    """Copy results, tables, settings and trials of a finished comparison; of a variant, without the tables."""
    fresh = pl.read_csv(done / "results.csv", infer_schema_length=None)
    if variant is not None:
        fresh = fresh.with_columns(variant=pl.lit(variant))
    path = here / "results.csv"
    frames = [fresh.with_columns(pl.col("value").round(6), pl.col("train_seconds").round(1))]
    if path.exists():
        old = pl.read_csv(path, infer_schema_length=None)
        frames.insert(0, old.join(fresh.select(KEY).unique(), on=KEY, how="anti"))
    merged = pl.concat(frames, how="diagonal_relaxed")
    merged.select(*COLUMNS, pl.exclude(COLUMNS)).write_csv(path)
    if set(fresh["variant"]) == {"default"}:
        return
    if variant is None:  # the tables are those of tuned models
        copy_tables(done, here / "comparison" / name)
    for folder, found in {"configs": done.glob("configs/*.toml"), "search": done.glob("search/*/trials.csv")}.items():
        (here / folder).mkdir(exist_ok=True)
        for file in found:
            model = file.stem if folder == "configs" else file.parent.name
            named = model if variant is None else f"{model}-{variant}"
            shutil.copyfile(file, here / folder / f"{named}-{name}{file.suffix}")


def copy_tables(done: Path, target: Path) -> None:
    """Copy the tables that `compare` made."""
    shutil.rmtree(target, ignore_errors=True)  # it may hold tables of metrics that no longer exist
    target.mkdir(parents=True)
    for table in (*done.glob("comparison.[mct]*"), *done.glob("dunnett-*")):
        if table.suffix != ".json":
            shutil.copyfile(table, target / table.name)


def write_machine(here: Path = HERE, n_threads: int | None = None) -> None:
    """Write what the results were measured on.

    Without `n_threads` every row has its own, and the number already in the file stays for rows that have none.
    """
    path = here / "machine.json"
    if n_threads is None and path.exists():
        n_threads = json.loads(path.read_text("utf-8")).get("threads")
    facts = {
        "cores": os.cpu_count(),
        **({} if n_threads is None else {"threads": n_threads}),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    path.write_text(json.dumps(facts, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(BENCHES), metavar="TABLE")
    parser.add_argument("--scratch", type=Path, required=True, help="folder of stores, searches and runs")
    parser.add_argument("--models", nargs="+", help="instead of the planned models")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, help="instead of the planned budget")
    parser.add_argument("--minutes", type=float, help="instead of the planned budget")
    parser.add_argument("--rows", help="instead of the planned sample for searches, as in `fielddep compare`")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--defaults", action="store_true", help="search nothing; the default settings of models")
    parser.add_argument("--variant", help="gather runs under this name, next to those of the comparison")
    parser.add_argument("--gather", action="store_true", help="run nothing, gather what is done")
    given = parser.parse_args()
    for name in given.tables:
        if name not in BENCHES:
            parser.error(f"expected tables among {', '.join(BENCHES)}, given {name}")
        if not given.gather:
            known_settings(name, given.scratch)
            run(command(name, given))
            write_machine()
        if (done_folder(name, given) / "results.csv").exists():
            gather(name, done_folder(name, given), variant=given.variant)


if __name__ == "__main__":
    main()
