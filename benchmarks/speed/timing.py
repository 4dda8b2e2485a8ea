"""How programs are timed: in turn within one process, without the warm-up, as medians; memory in a fresh process.

Programs that take turns meet the same disturbances of a shared machine, so their ratio is steadier than their times.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

WARM_UP = 2
ROUNDS = 7


def in_turn(
    works: Mapping[str, Callable[[int], object]], *, rounds: int, warm_up: int = WARM_UP
) -> dict[str, list[float]]:
    """Seconds of every call, program by program.

    Args:
        works: what to time, by program; each is called with the number of the round.
        rounds: timed calls of each.
        warm_up: untimed calls before that.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(warm_up + rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work(number)
            elapsed = time.perf_counter() - start
            if number >= warm_up:
                seconds[name].append(elapsed)
    return seconds


def rates(seconds: Sequence[float], n_rows: int) -> dict[str, object]:
    """Rows per second: the median, and the quartiles as its spread."""
    slow, median, fast = np.quantile(seconds, [0.75, 0.5, 0.25])
    return {
        "rows_per_s": round(float(n_rows / median), 1),
        "rows_per_s_low": round(float(n_rows / slow), 1),
        "rows_per_s_high": round(float(n_rows / fast), 1),
    }


def latencies(seconds: Sequence[float]) -> dict[str, object]:
    """Milliseconds of one row: median and 99th percentile."""
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1e3
    return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


def peak_mb() -> float:
    """Largest resident memory of this process so far (VmHWM), in millions of bytes."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError("peak memory is unknown: expected a line VmHWM in /proc/self/status")


def peak_in_fresh_process(script: Path, *arguments: str) -> float | None:
    """The peak that a script prints as its last line; None if it ran out of memory."""
    done = subprocess.run([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{script.name} {' '.join(arguments)}: ended with {done.returncode}, no peak", flush=True)
        return None
    return float(done.stdout.split()[-1])


def matmul_gflops(size: int = 2048, *, repeats: int = 5) -> float:
    """What a plain float32 matrix product of torch reaches here, with the current threads."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    seconds = in_turn({"product": lambda _: a @ b}, rounds=repeats)["product"]
    return 2 * size**3 / float(np.median(seconds)) / 1e9
