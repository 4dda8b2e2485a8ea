"""Does a training step cost the same however many categories there are?

    python benchmarks/speed/sparse_step.py

Times complete training steps (forward, backward, optimizer) of one model over 20 thousand and one over 2 million ids,
interleaved in one process, and writes the ratio of the medians to `sparse_step.csv`. The ranks of the ids follow the
same power law in both, so the larger model also sees more distinct ids per batch, as in practice.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

from fielddep.config.settings import Config
from fielddep.encoding.rows import Batch, EncodedRows, Inputs, Layout
from fielddep.encoding.target import Target
from fielddep.nn import build_model
from fielddep.store.loader import Loader
from fielddep.store.shards import StorePart
from fielddep.training.trainer import Trainer

N_FIELDS = 22
BATCH_ROWS = 2048
TARGET = Target(name="y", task="binary", classes=(0, 1))


def trainer_of(n_ids: int, optimizer: str, d_embed: int) -> Trainer:
    layout = Layout(names=tuple(f"f{i}" for i in range(N_FIELDS)), n_ids=(n_ids // N_FIELDS,) * N_FIELDS)
    settings = {
        "model.d_embed": d_embed,
        "train.lr": 0.01,
        "train.eval_every": 1.0,
        "train.embedding_l2": 0.01,
        "train.optimizer": optimizer,
    }
    config = Config().replace(settings)
    model = build_model(layout, 1, config.model)
    nothing = EncodedRows(layout=layout, arrays={"ids": np.zeros((2, N_FIELDS), dtype=np.int32)})
    loader = Loader(nothing, batch_size=BATCH_ROWS)
    trainer = Trainer(model, TARGET, config.train, train=loader, validation=StorePart.of(nothing))
    for state in trainer.optimizer.state().values():
        state.zero_()  # touches the memory, which the system allocates only now; later steps have no such delay
    return trainer


def batches(trainer: Trainer, n_batches: int, seed: int) -> list[Batch]:
    """Skewed ids: each field's rank follows a power law over its ids."""
    rng = np.random.default_rng(seed)
    n_ids = trainer.model.layout.n_ids[0]
    offsets = np.array(trainer.model.layout.offsets)
    found = []
    for _ in range(n_batches):
        rank = np.floor(n_ids ** rng.random((BATCH_ROWS, N_FIELDS))).astype(np.int64) - 1
        found.append(
            Batch(
                inputs=Inputs(torch.from_numpy(np.minimum(rank, n_ids - 1) + offsets), torch.empty(BATCH_ROWS, 0)),
                target_B=torch.from_numpy((rng.random(BATCH_ROWS) < 0.2).astype(np.float32)),
            )
        )
    return found


def compare(optimizer: str, sizes: tuple[int, int], n_steps: int, d_embed: int) -> dict[int, float]:
    """Median seconds per step of each size, the steps in turn."""
    trainers = {n: trainer_of(n, optimizer, d_embed) for n in sizes}
    work = {n: batches(t, n_steps + 3, seed=0) for n, t in trainers.items()}
    seconds: dict[int, list[float]] = {n: [] for n in sizes}
    for step in range(n_steps + 3):
        for n, trainer in trainers.items():
            start = time.perf_counter()
            trainer.train_step(work[n][step])
            if step >= 3:
                seconds[n].append(time.perf_counter() - start)
    return {n: float(np.median(s)) for n, s in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--d-embed", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "sparse_step.csv")
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    small, large = 20_000, 2_000_000
    rows = []
    for optimizer in ("adagrad", "adam"):
        medians = compare(optimizer, (small, large), arguments.steps, arguments.d_embed)
        ratio = medians[large] / medians[small]
        print(f"{optimizer}: {medians[small] * 1e3:.1f} ms with {small:,} ids, {medians[large] * 1e3:.1f} ms with "
              f"{large:,} ids, ratio {ratio:.3f}")  # fmt: skip
        rows += [
            {
                "optimizer": optimizer,
                "n_ids": n,
                "n_fields": N_FIELDS,
                "d_embed": arguments.d_embed,
                "batch_rows": BATCH_ROWS,
                "median_ms": round(medians[n] * 1e3, 2),
                "ratio_to_small": round(medians[n] / medians[small], 3),
                "steps": arguments.steps,
                "threads": torch.get_num_threads(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "commit": commit,
            }
            for n in (small, large)
        ]
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
