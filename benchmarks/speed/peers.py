"""Comparison with what a user might choose instead: DeepCTR-Torch (DeepFM, xDeepFM) and LightGBM.

    sh benchmarks/speed/peers_env.sh                          once: the environment of DeepCTR-Torch
    python benchmarks/speed/peers.py                          everything
    python benchmarks/speed/peers.py --what train --shapes frappe avazu
    python benchmarks/speed/peers.py --what best --shapes frappe --programs fielddep-tuned

*train*: seconds of a training step without the loader, with the batch and embedding size of the shape. Each program
runs in its own process, ours and theirs in turn, `--turns` times; the figure is the median over all steps.
`fielddep_rows_per_s` is what the library did in the same turns.

*best*: complete trainings on Frappe and flights by each program's own loop, stopped early on the validation rows, on
the splits of `benchmarks/accuracy`. `seconds` is the time to the evaluation with the lowest validation loss, including
evaluations; `prepare_s` is what came before (encoding, search for crosses, binning; empty for DeepCTR-Torch, which gets
our ids). A training of DeepCTR-Torch that still improves at `--limit-minutes` ends with that epoch; `limit_s` says so.
The median of `--turns` seeds is kept; `curves.csv` has every evaluation of all seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from peers_call import DEEPCTR, PEERS_PYTHON, Caller, save_rows
from peers_local import PROGRAMS as LOCAL
from peers_local import encoded, has_settings
from results import HERE, RESULTS, origin, write_rows
from shapes import BATCH_ROWS, SHAPES
from timing import ROUNDS, WARM_UP, rates

CURVES = HERE / "curves.csv"
CURVE_KEY = ("shape", "program", "seed", "point")
CURVE_COLUMNS = (*CURVE_KEY, "seconds", "validation_loss", "threads", "machine", "commit")
TABLES = {"frappe": 40, "flights": 16}
"""Real tables, with the embedding size of the peers on them."""
STEPPERS = ("deepctr-deepfm", "deepctr-xdeepfm")


def measure_steps(shape: str, call: Caller, rounds: int, turns: int, folder: Path) -> list[dict[str, object]]:
    """Rows per second of the training steps of ours and theirs, in turn."""
    data, d_embed = step_data(shape, rounds, folder)
    found: dict[str, list[dict[str, Any]]] = {program: [] for program in ("fielddep", *STEPPERS)}
    for _ in range(turns):
        for program, results in found.items():
            result = call("steps", program, data, None, d_embed)
            results += [] if result is None else [result]
    figures = {p: _rates([s for r in results for s in r["seconds"]]) for p, results in found.items() if results}
    ours = figures.get("fielddep", {}).get("rows_per_s")
    rows = [
        {"program": p, **f, "peak_mb": max(r["peak_mb"] for r in found[p]), "fielddep_rows_per_s": ours}
        for p, f in figures.items()
        if p != "fielddep" or shape not in SHAPES  # on the shapes `run.py` measures the library too
    ]
    facts = {"shape": shape, "what": "train", "batch_rows": BATCH_ROWS, "rounds": turns * rounds, **origin()}
    return [{**facts, **row} for row in rows]


def _rates(seconds: list[float]) -> dict[str, object]:
    return rates(seconds, BATCH_ROWS)


def step_data(shape: str, rounds: int, folder: Path) -> tuple[Path, int]:
    """File with batches of a shape or a real table, and the embedding size."""
    n_rows = (WARM_UP + rounds) * BATCH_ROWS
    if shape in SHAPES:
        return save_rows(folder / "steps.npz", {"train": SHAPES[shape].table(n_rows)}), SHAPES[shape].d_embed
    train = encoded(shape).parts["train"].rows()
    rows = torch.randint(len(train), (n_rows,), generator=torch.Generator().manual_seed(0)).numpy()
    return save_rows(folder / "steps.npz", {"train": train.take(rows)}), TABLES[shape]


def measure_best(
    table: str, programs: list[str], call: Caller, turns: int, folder: Path
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Time to the best validation loss of every program, and all evaluations."""
    parts = encoded(table).parts
    data = save_rows(folder / "best.npz", {name: parts[name].rows() for name in ("train", "validation")})
    found: dict[str, list[dict[str, Any]]] = {p: [] for p in programs if has_settings(p, table)}
    for seed in range(turns):
        for program, results in found.items():
            result = call("best", program, data, table, TABLES[table], seed)
            results += [] if result is None else [result]
            print(
                table, program, seed, None if result is None else min(loss for _, loss in result["curve"]), flush=True
            )
    facts = {"shape": table, "rounds": turns, **origin()}
    rows = [{**facts, **row} for p, results in found.items() if results for row in best_rows(p, results)]
    curves = [
        {**facts, "program": p, "seed": seed, "point": point, "seconds": seconds, "validation_loss": loss}
        for p, results in found.items()
        for seed, result in enumerate(results)
        for point, (seconds, loss) in enumerate(result["curve"])
    ]
    return rows, curves


def best_rows(program: str, results: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The training with the median time to its best loss; trees have no steps, so this gives their rate."""
    ends = sorted(
        ((*min(result["curve"], key=lambda point: point[1]), result) for result in results), key=lambda e: e[0]
    )
    seconds, loss, result = ends[len(ends) // 2]
    batch_rows = DEEPCTR[program][1] if program in DEEPCTR else result.get("batch_rows")
    row: dict[str, object] = {
        "program": program,
        "rows_per_s": round(result["rows_per_s"], 1),
        "batch_rows": batch_rows,
    }
    timed = {
        "seconds": round(seconds, 2),
        "limit_s": result.get("limit_s"),
        "prepare_s": None if result.get("prepare_s") is None else round(result["prepare_s"], 2),
        "validation_loss": round(loss, 5),
    }
    peak = {"peak_mb": round(result["peak_mb"], 1)}
    rows: list[dict[str, object]] = [{"what": "best", **row, **timed, **peak}]
    return [*rows, {"what": "train", **row, **peak}] if program.startswith("lightgbm") else rows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=["train", "best"], default=["train", "best"])
    parser.add_argument("--shapes", nargs="+", choices=[*SHAPES, "flights"], default=[*SHAPES, "flights"])
    parser.add_argument("--programs", nargs="+", choices=[*LOCAL, *DEEPCTR], default=[*LOCAL, *DEEPCTR])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed steps a turn")
    parser.add_argument("--turns", type=int, default=3, help="turns of every program, in best: seeds")
    parser.add_argument("--limit-minutes", type=float, default=15, help="of a whole training of DeepCTR-Torch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers-python", type=Path, default=PEERS_PYTHON)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--curves", type=Path, default=CURVES)
    return parser.parse_args()


def main() -> None:
    given = parse()
    needs_peers = "train" in given.what or not DEEPCTR.keys().isdisjoint(given.programs)
    if needs_peers and not given.peers_python.exists():
        sys.exit(f"the peers' environment is not at {given.peers_python}; make it with peers_env.sh")
    torch.set_num_threads(given.threads)
    call = Caller(python=given.peers_python, threads=given.threads, limit_s=60 * given.limit_minutes)
    with tempfile.TemporaryDirectory() as name:
        for shape in given.shapes:
            if "train" in given.what:
                rows = measure_steps(shape, call, given.rounds, given.turns, Path(name))
                write_rows(given.out, rows)
                print(shape, {row["program"]: row["rows_per_s"] for row in rows}, flush=True)
            if "best" in given.what and shape in TABLES:
                rows, curves = measure_best(shape, given.programs, call, given.turns, Path(name))
                write_rows(given.out, rows)
                write_rows(given.curves, curves, columns=CURVE_COLUMNS, key=CURVE_KEY, whole=("shape", "program"))


if __name__ == "__main__":
    main()
