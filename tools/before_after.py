"""Is a change slower than the commit before it? Two checkouts, one machine, turn by turn.

    python tools/before_after.py OLD NEW --scratch FOLDER [--rounds 5] [--rows 4000000]

OLD and NEW are checkouts with compiled kernels. Measured are commands that both understand: fitting flights for two
epochs on one thread, encoding a click log, and one row at a time through `Predictor`. What counts is the ratio of
median processor times, because other work on the machine changes it least; wall time and peak memory are kept too. The
figures go to `tools/before_after.csv`.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

FIT = (
    *("fit", "flights.parquet", "--target", "late", "--out", "run", "--force", "--no-report", "--quiet"),
    *("--set", "train.max_epochs=2", "--set", "train.patience=1000", "--set", "train.threads=1"),
)
ENCODE = (
    "encode",
    "clicks.csv",
    "--target",
    "click",
    "--out",
    "store",
    "--force",
    "--quiet",
    "--set",
    "data.crosses=[]",
)
ONE_ROW = """
import statistics, sys, time
import polars as pl, torch
from fielddep import Predictor
torch.set_num_threads(1)
predictor = Predictor("run/bundle")
rows = [row for row in pl.read_parquet("flights.parquet").drop("late").head(2000).iter_slices(1)]
for row in rows[:200]:
    predictor.predict(row)
taken = []
for row in rows:
    start = time.process_time()
    predictor.predict(row)
    taken.append(time.process_time() - start)
print(statistics.median(taken))
"""
FLIGHTS = "from fielddep.datasets.flights import load_flights; load_flights().write_parquet('flights.parquet')"


def measured(checkout: Path, command: list[str], cwd: Path) -> tuple[float, float, float, str]:
    """Processor seconds, wall seconds, peak memory in MB and output of a command."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "FIELDDEP_KERNELS": "native"}
    start = time.perf_counter()
    with (cwd / "out").open("wb") as out:
        process = subprocess.Popen([sys.executable, *command], cwd=cwd, env=environment, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} failed in {checkout}")
    seconds = time.perf_counter() - start
    return usage.ru_utime + usage.ru_stime, seconds, usage.ru_maxrss * 1024 / 1e6, (cwd / "out").read_text("utf-8")


def commit_of(checkout: Path) -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=checkout, capture_output=True, text=True)
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for tables, runs and stores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the click log")
    arguments = parser.parse_args()
    scratch: Path = arguments.scratch.resolve()
    checkouts = {"old": arguments.old.resolve(), "new": arguments.new.resolve()}
    for which, checkout in checkouts.items():
        (scratch / which).mkdir(parents=True, exist_ok=True)
        if not (scratch / which / "flights.parquet").exists():
            measured(checkout, ["-c", FLIGHTS], scratch / which)
    clicks = scratch / "clicks.csv"
    if not clicks.exists():
        generate = str(checkouts["new"] / "benchmarks" / "size" / "clicks.py")
        measured(checkouts["new"], [generate, str(clicks), "--rows", str(arguments.rows)], scratch)
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for _ in range(arguments.rounds):
        for which, checkout in checkouts.items():
            folder = scratch / which
            link = folder / "clicks.csv"
            if not link.exists():
                link.symlink_to(clicks)
            for name, command in (
                ("fit flights, two epochs", ["-m", "fielddep", *FIT]),
                (f"encode {arguments.rows:,} rows", ["-m", "fielddep", *ENCODE]),
                ("one row", ["-c", ONE_ROW]),
            ):
                cpu, wall, peak, output = measured(checkout, command, folder)
                cpu = float(output) if name == "one row" else cpu
                found.setdefault((name, which), []).append((cpu, wall, peak))
                print(name, which, round(cpu, 6), round(wall, 2), round(peak), flush=True)
    write(found, checkouts)


def write(found: dict[tuple[str, str], list[tuple[float, float, float]]], checkouts: dict[str, Path]) -> None:
    """Write one line per measurement, with the ratio of median processor times."""
    out = Path(__file__).with_suffix(".csv")
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("what", "which", "cpu_s", "wall_s", "peak_mb", "rounds", "cpu_ratio", "commit", "machine"))
        for (name, which), rows in sorted(found.items()):
            cpu, wall, peak = (statistics.median(column) for column in zip(*rows, strict=True))
            old = statistics.median(row[0] for row in found[name, "old"])
            facts = (f"{cpu:.6g}", f"{wall:.4g}", f"{peak:.1f}", len(rows), f"{cpu / old:.3f}")
            writer.writerow((name, which, *facts, commit_of(checkouts[which]), machine))


if __name__ == "__main__":
    main()
