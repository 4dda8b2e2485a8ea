"""Run a command in a fresh process, and keep the measurements as rows of a CSV file.

Only the standard library is imported here and in the scripts that measure. The system counts the memory of the
process that starts a command as part of that command's peak, so the starting process must stay small.
"""

from __future__ import annotations

import csv
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
SEED = 0
SETTINGS = ("data.crosses=[]",)
"""Settings of every `encode`: the 22 fields alone, as in Avazu's shape, without joint columns."""


@dataclass(frozen=True)
class Measured:
    """What one command took.

    Attributes:
        command: as a user would type it.
        seconds: from start to end, including the start of Python.
        peak_mb: largest resident memory, including pages of mapped files.
        output: what it printed to stdout.
    """

    command: str
    seconds: float
    peak_mb: float
    output: str


def fielddep(*arguments: str, cwd: Path) -> Measured:
    """Run a `fielddep` command and measure it."""
    return run_measured([sys.executable, "-m", "fielddep", *arguments], f"fielddep {shlex.join(arguments)}", cwd)


def script(name: str, *arguments: str, cwd: Path) -> Measured:
    """Run a script of this folder and measure it."""
    return run_measured([sys.executable, str(HERE / name), *arguments], f"{name} {shlex.join(arguments)}", cwd)


def run_measured(command: Sequence[str], shown: str, cwd: Path) -> Measured:
    """Run a command of this checkout in its own process; if it fails, stop with its last words."""
    inherited = os.environ.get("PYTHONPATH")
    paths = [str(PROJECT / "src"), *([inherited] if inherited else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    output, errors = cwd / "measured.out", cwd / "measured.err"
    start = time.perf_counter()
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=out, stderr=err)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    said, complained = output.read_text("utf-8"), errors.read_text("utf-8")
    output.unlink()
    errors.unlink()
    if process.returncode:
        sys.exit(f"{shown} ended with {process.returncode}:\n{complained[-2000:]}")
    # Linux gives kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return Measured(shown, seconds, usage.ru_maxrss * unit / 1e6, said)


def origin() -> dict[str, str]:
    """Columns that say where a row was measured; a plus sign after the commit: `src` had uncommitted changes."""
    commit = _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "--", "src") else "")
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {gigabytes:.0f} GB"
    return {"machine": machine, "commit": commit}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=PROJECT)
    return done.stdout.strip()


def keep_rows(path: Path, rows: list[dict[str, Any]], key: tuple[str, ...]) -> None:
    """Write rows to a CSV file, sorted by key; they replace rows with the same key."""
    old = []
    if path.exists():
        with path.open(newline="") as file:
            old = list(csv.DictReader(file))
    keys = {tuple(str(row[name]) for name in key) for row in rows}
    kept = [row for row in old if tuple(row.get(name) for name in key) not in keys]
    columns = list(dict.fromkeys(name for row in [*rows, *kept] for name in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda row: [_sortable(row[name]) for name in key]))


def folder_bytes(folder: Path) -> int:
    """Size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _sortable(value: object) -> tuple[float, str]:
    text = str(value)
    return (float(text), "") if text.isdigit() else (float("inf"), text)
