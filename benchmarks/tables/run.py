"""How good are the defaults of fielddep on public tables, next to LightGBM and CatBoost with theirs?

    python benchmarks/tables/run.py
    python benchmarks/tables/run.py --models fielddep --tables adult housing --seeds 0 1
    python benchmarks/tables/run.py --force-model fielddep

Every run has its own process, and its figures are added to `results.csv` when it ends; runs that are in the file are
not repeated. The seed decides the split, 8:1:1 and the same for all models. `summary.py` makes the README's tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.speed.results import commit, machine, read_rows, write_rows
from fielddep.errors import UserError
from fielddep.experiments.processes import Outcome, Task, run_tasks
from loaders import SOURCES, load
from measure import MODELS, Measurement, measure

RESULTS = Path(__file__).parent / "results.csv"
RUN = ("table", "model", "seed")
KEY = (*RUN, "metric")
COLUMNS = (
    *(*KEY, "value", "rows", "columns", "seconds", "cpu_seconds", "peak_mb"),
    *("threads", "library", "machine", "commit"),
)
SEEDS = range(5)
THREADS = 2
THREAD_SETTINGS = {
    "OMP_NUM_THREADS": str(THREADS),
    "POLARS_MAX_THREADS": str(THREADS),
    # Threads that wait for each other sleep. They would spin, which next to other programs on the same cores makes
    # LightGBM ten times slower, and counts as processor time.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Environment of every run."""

Run = tuple[str, str, int]


def wanted_runs(tables: Sequence[str], models: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Runs of all tables with the first seed, then with the next; a line says why a table is skipped."""
    present = [table for table in tables if _is_present(table)]
    return [(table, model, seed) for seed in seeds for table in present for model in models]


def _is_present(table: str) -> bool:
    try:
        load(table)
    except UserError as error:
        print(f"{table} skipped: {error}", flush=True)
        return False
    return True


def finished_runs(results: Path) -> set[Run]:
    """The runs that have figures of the table as it is; those of an earlier number of rows are run again."""
    return {
        (row["table"], row["model"], int(row["seed"]))
        for row in read_rows(results)
        if row["table"] in SOURCES and int(row["rows"]) == SOURCES[row["table"]].rows
    }


def forget(results: Path, model: str) -> None:
    """Drop the figures of a model."""
    kept = [row for row in read_rows(results) if row["model"] != model]
    results.unlink(missing_ok=True)
    write_rows(results, kept, columns=COLUMNS, key=KEY)


def keep(results: Path, run: Run, outcome: Outcome[Measurement]) -> None:
    """Add the figures of a run, and print them."""
    found = outcome.value
    if found is None:
        print(*run, "failed:", outcome.failure, flush=True)
        return
    source = SOURCES[run[0]]
    facts = {
        **dict(zip(RUN, run, strict=True)),
        "rows": source.rows,
        "columns": source.columns,
        "seconds": round(found.seconds, 2),
        "cpu_seconds": round(found.cpu_seconds, 2),
        "peak_mb": round(found.peak_mb),
        "threads": THREADS,
        "library": found.library,
        "machine": machine(),
        "commit": commit(),
    }
    rows = [{**facts, "metric": metric, "value": value} for metric, value in found.metrics.items()]
    write_rows(results, rows, columns=COLUMNS, key=KEY)
    figures = {metric: round(value, 4) for metric, value in found.metrics.items()}
    print(*run, figures, f"{found.seconds:.1f} s, CPU {found.cpu_seconds:.1f} s", flush=True)


def run_all(runs: Sequence[Run], results: Path) -> int:
    """Run one after another; the number of those that failed."""
    os.environ.update(THREAD_SETTINGS)
    with tempfile.TemporaryDirectory() as logs:
        tasks = [
            Task(
                title=" ".join(map(str, run)),
                call=partial(measure, *run, THREADS),
                log=Path(logs) / "run.log",
                on_end=partial(keep, results, run),
            )
            for run in runs
        ]
        return sum(outcome.value is None for outcome in run_tasks(tasks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tables", nargs="+", choices=SOURCES, default=SOURCES, metavar="TABLE", help=", ".join(SOURCES)
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--force-model", choices=MODELS, help="drop the figures of a model and run it again")
    parser.add_argument("--results", type=Path, default=RESULTS, help="CSV file")
    arguments = parser.parse_args()
    if arguments.force_model:
        forget(arguments.results, arguments.force_model)
    done = finished_runs(arguments.results)
    runs = wanted_runs(arguments.tables, arguments.models, arguments.seeds)
    n_failed = run_all([run for run in runs if run not in done], arguments.results)
    if n_failed:
        sys.exit(f"{n_failed} runs failed; call this again to repeat them")


if __name__ == "__main__":
    main()
