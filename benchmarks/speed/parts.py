"""Share of a training step per part, and the arithmetic it achieves compared with a plain matrix product.

    python benchmarks/speed/parts.py
    python benchmarks/speed/parts.py --shapes frappe avazu --programs fielddep

The shares come from profiled steps (`sections.py`), rows and operations per second from steps without a profiler, the
operations of a row from `flops.py`. The compiled form gathers, refines and interacts in one function. There, *interact*
is the time of that function in the same model without dependencies, including the gathering of embeddings, and *refine*
is what the dependencies add. Rows go to `parts.csv`; the part *step* is the complete step.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from flops import PARTS, training_flops
from programs import FieldDep, fielddep_plain
from results import HERE, origin, write_rows
from sections import FUSED, WHOLE, section_seconds
from shapes import SHAPES, Shape
from timing import ROUNDS, WARM_UP, in_turn, matmul_gflops, rates

PARTS_CSV = HERE / "parts.csv"
KEY = ("shape", "program", "part")
COLUMNS = (
    *KEY,
    *("share", "ms", "flops_per_row", "gflops", "matmul_gflops", "rows_per_s", "rows_per_s_low", "rows_per_s_high"),
    *("batch_rows", "rounds", "threads", "machine", "commit"),
)
PROGRAMS = {"fielddep": FieldDep, "fielddep-plain": fielddep_plain}

Seconds: TypeAlias = dict[str, float]


def part_seconds(shape: Shape, program: str, rounds: int) -> Seconds:
    """Median seconds of every part of a training step."""
    whole_model, without_loop = PROGRAMS[program](shape), PROGRAMS[program](shape, dependencies="none")
    steps: list[Seconds] = []
    for batch in shape.batches(WARM_UP + rounds):
        # In turn, because their difference is needed.
        step = section_seconds(lambda batch=batch: whole_model.train(batch))  # type: ignore[misc]  # binds the batch
        if FUSED in step:
            alone = section_seconds(lambda batch=batch: without_loop.train(batch))  # type: ignore[misc]  # the same
            step["interact"] = min(alone[FUSED], step[FUSED])
            step["refine"] = step.pop(FUSED) - step["interact"]
        step["other"] = step[WHOLE] - sum(seconds for part, seconds in step.items() if part != WHOLE)
        steps.append(step)
    return {part: float(np.median([step.get(part, 0.0) for step in steps[WARM_UP:]])) for part in PARTS}


def measure(shape: Shape, program: str, rounds: int) -> list[dict[str, object]]:
    """The rows of one shape and program."""
    parts = part_seconds(shape, program, rounds)
    timed, batches = PROGRAMS[program](shape), shape.batches(WARM_UP + rounds)
    seconds = in_turn({program: lambda number: timed.train(batches[number])}, rounds=rounds)[program]
    flops, whole = training_flops(shape), sum(parts.values())
    step = float(np.median(seconds))
    rows = [_row(part, parts[part] / whole, step, flops[part], shape.batch_rows) for part in PARTS]
    rows.append({**_row("step", 1.0, step, sum(flops.values()), shape.batch_rows), **rates(seconds, shape.batch_rows)})
    facts = {"matmul_gflops": round(matmul_gflops(), 1), "batch_rows": shape.batch_rows, "rounds": rounds, **origin()}
    return [{"shape": shape.name, "program": program, **row, **facts} for row in rows]


def _row(part: str, share: float, step: float, flops: float, n_rows: int) -> dict[str, object]:
    seconds = share * step
    gflops = round(flops * n_rows / seconds / 1e9, 2) if flops and seconds else None
    return {"part": part, "share": round(share, 4), "ms": round(seconds * 1e3, 3), "flops_per_row": round(flops),
            "gflops": gflops}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=PARTS_CSV)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.shapes:
        for program in arguments.programs:
            rows = measure(SHAPES[name], program, arguments.rounds)
            write_rows(arguments.out, rows, columns=COLUMNS, key=KEY)
            shares = {row["part"]: row["share"] for row in rows}
            print(name, program, shares, rows[-1]["gflops"], "GFLOP/s of", rows[-1]["matmul_gflops"], flush=True)


if __name__ == "__main__":
    main()
