"""How do time and memory of `fielddep encode` grow with the rows of the table?

    python benchmarks/size/encode.py --scratch FOLDER
    python benchmarks/size/encode.py --scratch FOLDER --rows 100000 1000000

For each number of rows: writes a synthetic click log as CSV, encodes it in a fresh process, adds the figures to
`encode.csv` and deletes table and store. Finally draws `encode.png` from all rows of the CSV. Sizes that do not fit on
the disk are skipped with a message.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from measured import HERE, SETTINGS, fielddep, folder_bytes, keep_rows, origin, script

ROWS = (100_000, 1_000_000, 4_000_000, 10_000_000, 40_000_000)
DISK_BYTES_A_ROW = 400
"""Table, work files and store together, with some room."""


def measure(n_rows: int, scratch: Path, settings: list[str], categories: list[str], keep: bool) -> dict[str, Any]:
    """Measure one size: generate, encode, inspect the store, delete."""
    table, store = scratch / f"clicks-{n_rows}.csv", scratch / f"clicks-{n_rows}.store"
    made = script("clicks.py", table.name, "--rows", str(n_rows), *categories, cwd=scratch)
    print(f"{n_rows:,} rows written in {made.seconds:.1f} s", flush=True)
    set_ = [word for setting in settings for word in ("--set", setting)]
    command = ["encode", table.name, "--target", "click", "--out", store.name, "--force", "--quiet", *set_]
    try:
        took = fielddep(*command, cwd=scratch)
        facts = json.loads(script("facts.py", store.name, cwd=scratch).output)
        sizes = {"csv_bytes": table.stat().st_size, "store_bytes": folder_bytes(store)}
    finally:
        if not keep:
            table.unlink(missing_ok=True)
            shutil.rmtree(store, ignore_errors=True)
    return {
        "rows": n_rows,
        "csv_bytes": sizes["csv_bytes"],
        "seconds": round(took.seconds, 2),
        "rows_per_s": round(n_rows / took.seconds),
        "peak_mb": round(took.peak_mb, 1),
        "store_bytes": sizes["store_bytes"],
        "n_categories": facts["n_categories"],
        **origin(),
        "command": took.command,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, required=True, help="folder for the tables and stores")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of encode")
    parser.add_argument("--categories", type=int, help="values of all fields; default: two million")
    parser.add_argument("--keep", action="store_true", help="keep tables and stores")
    parser.add_argument("--out", type=Path, default=HERE / "encode.csv")
    arguments = parser.parse_args()
    scratch = arguments.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    categories = ["--categories", str(arguments.categories)] if arguments.categories else []
    for n_rows in arguments.rows:
        if shutil.disk_usage(scratch).free < n_rows * DISK_BYTES_A_ROW:
            print(f"{n_rows:,} rows skipped: they need about {n_rows * DISK_BYTES_A_ROW / 1e9:.0f} GB of disk")
            continue
        row = measure(n_rows, scratch, [*SETTINGS, *arguments.set], categories, arguments.keep)
        keep_rows(arguments.out, [row], key=("rows",))
        print(f"{n_rows:,} rows encoded in {row['seconds']} s: {row['rows_per_s']:,} rows/s, {row['peak_mb']} MB")
    script("plot.py", str(arguments.out.resolve()), cwd=scratch)


if __name__ == "__main__":
    main()
