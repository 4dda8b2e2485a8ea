"""Time training, prediction of large batches and of single rows, and measure peak memory.

    python benchmarks/speed/run.py                                       everything
    python benchmarks/speed/run.py --shapes frappe --what train row      some of it
    python benchmarks/speed/run.py --programs fielddep --rounds 15

The programs (`programs.py`) take turns in one process, a step each; figures are medians over the rounds after warm-up.
The peak memory of each program is that of a fresh process that trains some steps and evaluates once. Measured rows
replace the same rows of `results.csv`; all others stay.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

import rowwise
from programs import PROGRAMS, build_programs
from results import RESULTS, Row, origin, write_rows
from shapes import SHAPES, Shape
from timing import ROUNDS, WARM_UP, in_turn, latencies, peak_in_fresh_process, peak_mb, rates

PREDICT_ROWS = 8192
WHAT = ("train", "predict", "row")
T = TypeVar("T")


def measure_batches(shape: Shape, whats: list[str], names: list[str], rounds: int) -> list[dict[str, object]]:
    """Rows per second of training steps and of large batches, all programs in turn."""
    programs = build_programs(shape, names)
    rows: list[dict[str, object]] = []
    for what, batch_rows in (("train", shape.batch_rows), ("predict", PREDICT_ROWS)):
        if what not in whats:
            continue
        batches = shape.batches(WARM_UP + rounds, batch_rows=batch_rows)
        works = {name: _each(getattr(program, what), batches) for name, program in programs.items()}
        for name, seconds in in_turn(works, rounds=rounds).items():
            figures = rates(seconds, batch_rows)
            rows.append({"what": what, "program": name, "batch_rows": batch_rows, "rounds": rounds, **figures})
    return rows


def measure_rows(shape: Shape, names: list[str], n_rows: int) -> list[dict[str, object]]:
    """Milliseconds of one row through `Predictor`, all programs in turn."""
    frames = rowwise.one_row_frames(shape, rowwise.WARM_UP_ROWS + n_rows)
    works = {name: _each(answer, frames) for name, answer in rowwise.answers(shape, names).items()}
    found = in_turn(works, rounds=n_rows, warm_up=rowwise.WARM_UP_ROWS)
    return [
        {"what": "row", "program": name, "batch_rows": 1, "rounds": n_rows, **rates(s, 1), **latencies(s)}
        for name, s in found.items()
    ]


def _each(do: Callable[[T], object], things: Sequence[T]) -> Callable[[int], object]:
    """Apply the work to the item of a round."""
    return lambda number: do(things[number])


def measure_peaks(rows: list[dict[str, object]], shape: Shape, threads: int) -> None:
    """Add peak memory to the rows of training."""
    for row in rows:
        if row["what"] == "train":
            arguments = ("--peak", "--shapes", shape.name, "--programs", str(row["program"]), "--threads", str(threads))
            found = peak_in_fresh_process(Path(__file__), *arguments)
            row["peak_mb"] = None if found is None else round(found, 1)


def peak_of(shape: Shape, name: str) -> float:
    """Peak memory of this process after building one program, training it briefly and evaluating it."""
    PROGRAMS[name](shape).fit()
    return peak_mb()


def measure(shape: Shape, arguments: argparse.Namespace) -> list[Row]:
    """Everything asked for, for one shape."""
    rows = []
    if {"train", "predict"} & set(arguments.what):
        rows += measure_batches(shape, arguments.what, arguments.programs, arguments.rounds)
        gc.collect()  # frees the tables of one measurement before the next one needs memory
        if not arguments.no_peak:
            measure_peaks(rows, shape, arguments.threads)
    if "row" in arguments.what:
        rows += measure_rows(shape, arguments.programs, arguments.rows)
    return [{"shape": shape.name, **origin(), **row} for row in rows]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--what", nargs="+", choices=WHAT, default=list(WHAT))
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed steps of each program")
    parser.add_argument("--rows", type=int, default=rowwise.N_ROWS, help="single rows timed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peak", action="store_true", help="leave the peak of memory out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--peak", action="store_true", help="print the peak of one program on one shape, and no more")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        print(peak_of(SHAPES[arguments.shapes[0]], arguments.programs[0]))
        return
    for name in arguments.shapes:
        rows = measure(SHAPES[name], arguments)
        write_rows(arguments.out, rows)
        for row in rows:
            print(*(f"{key}={value}" for key, value in row.items() if key not in ("machine", "commit")), flush=True)


if __name__ == "__main__":
    main()
