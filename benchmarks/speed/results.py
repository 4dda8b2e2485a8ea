"""The committed figures as CSV files, and their origin. New measurements replace old ones of the same thing."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
KEY = ("shape", "what", "program")
COLUMNS = (
    *KEY,
    *("rows_per_s", "rows_per_s_low", "rows_per_s_high", "p50_ms", "p99_ms", "peak_mb"),
    *(
        "seconds",
        "limit_s",
        "prepare_s",
        "validation_loss",
        "fielddep_rows_per_s",
        "batch_rows",
        "rounds",
        "threads",
        "machine",
        "commit",
    ),
)

Row = Mapping[str, object]


def write_rows(
    path: Path,
    rows: Iterable[Row],
    *,
    columns: Sequence[str] = COLUMNS,
    key: Sequence[str] = KEY,
    whole: Sequence[str] | None = None,
) -> None:
    """Write measurements into a CSV file, sorted by key; rows of the same key are replaced, all others stay.

    Args:
        path: CSV file, created if necessary.
        rows: measurements; missing columns stay empty.
        columns: header of the file.
        key: columns that say what is measured.
        whole: fewer columns than `key`; all rows that agree in these are replaced together.
    """
    fresh = [{column: _text(row.get(column)) for column in columns} for row in rows]
    replaced = {tuple(row[c] for c in whole or key) for row in fresh}
    kept = [row for row in read_rows(path) if tuple(row[c] for c in whole or key) not in replaced]
    merged = {tuple(row[k] for k in key): row for row in (*kept, *fresh)}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(merged[k] for k in sorted(merged, key=_sort_key))


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100_000 else f"{value:.6g}"


def _sort_key(key: tuple[str, ...]) -> tuple[tuple[bool, float, str], ...]:
    """Numbers by size, then texts in alphabetical order."""
    parts = []
    for part in key:
        try:
            parts.append((False, float(part), ""))
        except ValueError:
            parts.append((True, 0.0, part))
    return tuple(parts)


def origin() -> dict[str, object]:
    """Where figures come from: threads, machine and commit."""
    return {"threads": torch.get_num_threads(), "machine": machine(), "commit": commit()}


def machine() -> str:
    """Processor, cores, system and torch."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, torch {torch.__version__}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """Short hash of the commit; a plus sign means that `src` had uncommitted changes."""
    short = _git("rev-parse", "--short", "HEAD")
    return f"{short}+" if _git("status", "--porcelain", "--", str(HERE.parents[1] / "src")) else short


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip()
