"""Run the accuracy benchmark: `fielddep compare` on every table, with the same tuning budget for all models of a table.

    python benchmarks/accuracy/compare.py --scratch DIR                 all tables
    python benchmarks/accuracy/compare.py frappe --scratch DIR          one of them
    python benchmarks/accuracy/compare.py --scratch DIR --gather        only gather what is done

DIR keeps stores, searches and runs, so an interrupted benchmark resumes where it stopped. Settings in by-hand/TABLE/
are used as they are, all others are searched. What is gathered here:

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
BY_HAND = "by-hand"
"""Folder of settings that no search found: TABLE/MODEL.toml."""
KEY = ["dataset", "model", "variant"]
PAPER = ("lr", "fm", "ffm", "xdeepfm", "afn", "ifm", "inn", "llfm", "rafm", "fwl")
"""The baselines that the paper reports on Frappe and ML-Rating."""
OTHERS = ("wide_deep", "deepfm", "node", "tabnet", "tabtransformer", "saint", "finalmlp")
TREES = ("lightgbm", "catboost")
MDL = ("mdl", "blend", "mdl-wo-dep")
SHORT = ("lr", "fm", "deepfm", "xdeepfm", "finalmlp", *TREES, *MDL)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The models of one table, the settings of its encoding, and the budget of each search."""

    models: tuple[str, ...]
    settings: tuple[str, ...] = ()
    trials: int = 10
    minutes: float = 5.0


BENCHES = {
    "frappe": Bench(models=(*PAPER, *OTHERS, *TREES, *MDL)),
    "ml-rating": Bench(models=(*PAPER, *TREES, *MDL)),
    # Crosses are found on training rows, as in `fielddep fit` by default; trees get none and find their own.
    "flights": Bench(models=SHORT, settings=("data.crosses=auto",)),
    "diabetes130": Bench(models=SHORT, settings=("data.crosses=auto",)),
    "ml-tag-part": Bench(models=SHORT, settings=("data.crosses=auto",)),
}


def command(name: str, given: argparse.Namespace) -> list[str]:
    """The call of `fielddep compare` for one table."""
    bench = BENCHES[name]
    by_hand = HERE / BY_HAND / name
    options = {
        "--models": ",".join(given.models or bench.models),
        "--seeds": given.seeds,
        "--configs": by_hand if by_hand.exists() else None,
        "--trials": given.trials or bench.trials,
        "--search-minutes": given.minutes or bench.minutes,
        "--rows": given.rows,
        "--threads": given.threads,
        "--jobs": given.jobs,
        "--raw": tables.data_home(),
        "--out": given.scratch / name,
    }
    words = [word for option, value in options.items() if value is not None for word in (option, str(value))]
    words += [word for setting in bench.settings for word in ("--set", setting)]
    return [sys.executable, "-m", "fielddep", "compare", name, *words]


def run(words: list[str]) -> None:
    """Run a command with the library of this checkout; if it fails, exit with its code."""
    code = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(PROJECT / "src")}).returncode
    if code:
        sys.exit(code)


def gather(name: str, done: Path, here: Path = HERE) -> None:
    """Copy results, tables, settings and trials of a finished comparison."""
    fresh = pl.read_csv(done / "results.csv", infer_schema_length=None)
    path = here / "results.csv"
    frames = [fresh.with_columns(pl.col("value").round(6), pl.col("train_seconds").round(1))]
    if path.exists():
        old = pl.read_csv(path, infer_schema_length=None)
        frames.insert(0, old.join(fresh.select(KEY).unique(), on=KEY, how="anti"))
    merged = pl.concat(frames, how="diagonal_relaxed")
    merged.select(*COLUMNS, pl.exclude(COLUMNS)).write_csv(path)
    target = here / "comparison" / name
    shutil.rmtree(target, ignore_errors=True)  # it may hold tables of metrics that no longer exist
    target.mkdir(parents=True)
    for table in (*done.glob("comparison.[mct]*"), *done.glob("dunnett-*")):
        if table.suffix != ".json":
            shutil.copyfile(table, target / table.name)
    for folder, found in {"configs": done.glob("configs/*.toml"), "search": done.glob("search/*/trials.csv")}.items():
        (here / folder).mkdir(exist_ok=True)
        for file in found:
            model = file.stem if folder == "configs" else file.parent.name
            shutil.copyfile(file, here / folder / f"{model}-{name}{file.suffix}")


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
    parser.add_argument("--rows", help="tune on a sample, as in `fielddep compare`")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--gather", action="store_true", help="run nothing, gather what is done")
    given = parser.parse_args()
    for name in given.tables:
        if name not in BENCHES:
            parser.error(f"expected tables among {', '.join(BENCHES)}, given {name}")
        if not given.gather:
            run(command(name, given))
            write_machine()
        if (given.scratch / name / "results.csv").exists():
            gather(name, given.scratch / name)


if __name__ == "__main__":
    main()
