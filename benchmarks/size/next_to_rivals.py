"""fielddep, LightGBM and CatBoost with their defaults where trees with categories suffer: many rows, many classes.

    python benchmarks/size/next_to_rivals.py --scratch FOLDER
    python benchmarks/size/next_to_rivals.py --scratch FOLDER --tables clicks --rows 40000 --minutes 5

Tables (`rival_tables.py`): a click log of 4 million rows x 22 fields, and 34,000 rows of 75 classes. Every model is
fitted in its own process (`rival_fit.py`), with the same threads and the same time limit. `rivals.csv` gets a row for
each: a model that is not done after `--minutes` is recorded as such, with the memory it had taken by then. Rows that
are in the file are not measured again, unless `--again` is given, so an interrupted benchmark resumes.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measured import HERE, PROJECT, keep_rows, origin, script

ROWS = {"clicks": 4_000_000, "classes": 34_000}
TARGETS = {"clicks": "click", "classes": "team"}
TASKS = {"clicks": "binary", "classes": "multiclass"}
MODELS = ("fielddep", "lightgbm", "catboost")
MINUTES = 120.0
KEY = ("table", "rows", "model")
COLUMNS = (
    *("table", "rows", "n_fields", "n_classes", "model", "threads", "outcome", "fit_seconds", "cpu_seconds", "peak_mb"),
    *("model_mb", "n_trees", "logloss", "base_logloss", "library", "machine", "commit"),
)
DONE = "finished"
FIGURES = "figures.json"


def make_table(name: str, n_rows: int, scratch: Path) -> tuple[Path, dict[str, Any]]:
    """The table, made if it does not exist, and its facts."""
    path, facts = scratch / f"{name}-{n_rows}.parquet", scratch / f"{name}-{n_rows}.json"
    if not facts.exists():
        text = script("rival_tables.py", name, path.name, "--rows", str(n_rows), cwd=scratch).output
        facts.write_text(text, "utf-8")  # last, so that a table that was cut off is made again
    found: dict[str, Any] = json.loads(facts.read_text("utf-8"))
    return path, found


def fit_limited(words: list[str], folder: Path, minutes: float, threads: int) -> dict[str, Any]:
    """Run a fit; its figures, or how it ended, with the memory and time that the process took."""
    settings = {"PYTHONPATH": str(PROJECT / "src"), "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    settings["POLARS_MAX_THREADS"] = str(threads)
    folder.mkdir(parents=True, exist_ok=True)
    said, complained = folder / FIGURES, folder / "errors.txt"
    started = time.monotonic()
    with said.open("wb") as out, complained.open("wb") as err:
        process = subprocess.Popen(words, cwd=folder, env={**os.environ, **settings}, stdout=out, stderr=err)
        try:
            status, usage, in_time = _wait(process.pid, started + 60 * minutes, process)
        except BaseException:
            process.kill()
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024
    taken = {"peak_mb": round(usage.ru_maxrss * unit / 1e6)}
    if not in_time:
        cpu_seconds = round(usage.ru_utime + usage.ru_stime, 1)
        return {**taken, "cpu_seconds": cpu_seconds, "outcome": f"not finished in {minutes:g} minutes"}
    if process.returncode:
        last = complained.read_text("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        return {**taken, "outcome": f"failed with code {process.returncode}: {last[0][:200]}"}
    found: dict[str, Any] = json.loads(said.read_text("utf-8").splitlines()[-1])
    return {**found, **taken, "outcome": DONE, "logloss": round(found["logloss"], 5)}


def _wait(pid: int, deadline: float, process: subprocess.Popen[bytes]) -> tuple[int, Any, bool]:
    """Status and usage of a process, and whether it ended before the deadline, which kills it."""
    in_time = True
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage, in_time
        if in_time and time.monotonic() > deadline:
            in_time = False
            process.kill()
        time.sleep(0.05)


def measured_rows(path: Path) -> set[tuple[str, ...]]:
    """Keys of the rows that a file has."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}


def measure(name: str, model: str, table: Path, facts: dict[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """One row of the results."""
    folder = given.scratch / f"{table.stem}-{model}"
    shutil.rmtree(folder, ignore_errors=True)
    words = [sys.executable, str(HERE / "rival_fit.py"), model, str(table), "--target", TARGETS[name]]
    words += ["--task", TASKS[name], "--out", str(folder / "fit"), "--threads", str(given.threads)]
    words += ["--trees", str(given.trees)]
    try:
        found = fit_limited(words, folder, given.minutes, given.threads)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    facts = {**facts, "base_logloss": round(facts["base_logloss"], 5)}
    row = {"table": name, "rows": given.rows or ROWS[name], "model": model, "threads": given.threads, **facts, **found}
    return {column: {**row, **origin()}.get(column, "") for column in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for tables, stores and models")
    parser.add_argument("--tables", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--models", nargs="+", choices=(*MODELS, "blend"), default=list(MODELS))
    parser.add_argument("--rows", type=int, help="instead of the planned number")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="limit of one fit")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trees", type=int, default=1000, help="most trees; CatBoost's default")
    parser.add_argument("--again", action="store_true", help="also measure what the results have")
    parser.add_argument("--keep", action="store_true", help="keep stores and models")
    parser.add_argument("--out", type=Path, default=HERE / "rivals.csv")
    given = parser.parse_args()
    given.scratch = given.scratch.resolve()
    given.scratch.mkdir(parents=True, exist_ok=True)
    for name in given.tables:
        wanted = given.rows or ROWS[name]
        done = set() if given.again else measured_rows(given.out)
        models = [model for model in given.models if (name, str(wanted), model) not in done]
        if not models:
            continue
        table, facts = make_table(name, wanted, given.scratch)
        for model in models:
            row = measure(name, model, table, facts, given)
            keep_rows(given.out, [row], key=KEY)
            print(name, model, {column: row[column] for column in COLUMNS[6:13]}, flush=True)
        if not given.keep:
            for path in (table, given.scratch / f"{name}-{wanted}.json"):
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
