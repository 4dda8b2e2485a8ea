"""What does loading cost compared with a training step?

    python benchmarks/speed/loading.py

Writes a store of Avazu's shape (22 fields, 2 million ids, skewed) from synthetic ids, and measures for it and for the
same rows in memory:

- ms_per_batch: CPU time of all threads to prepare one batch of 2048 rows, shuffled, with joint ids; nothing else runs.
- wait_ms: how long a training step waits for its batch, during training.
- ms_per_step: CPU time of such a step, including its batch.
- share: ms_per_batch / ms_per_step. CPU time, because the thread that prepares batches uses the same cores.

Results go to `loading.csv`.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch

from fielddep.config.defaults import fill_defaults
from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.target import Target
from fielddep.encoding.vocabulary import Vocabulary
from fielddep.nn import build_model
from fielddep.store.loader import Loader
from fielddep.store.shards import MemoryShards, StorePart
from fielddep.store.store import Store, StoreWriter
from fielddep.training.trainer import Trainer
from fielddep.training.unknown import UnknownTraining
from shapes import SHAPES, Shape

TARGET = Target(name="y", task="binary", classes=(0, 1))
TRAIN_SHARE = 0.8
CHUNK_ROWS = 1 << 18


def encoder_of(shape: Shape, n_rows: int) -> Encoder:
    """An encoder with as many values per field as the shape; their names do not matter."""
    fields = tuple(Field(name=name, kind="categorical") for name in shape.fields)
    vocabularies = [
        Vocabulary(values=pl.int_range(len(count) - 2, eager=True).cast(pl.String), counts=count.astype(np.int64))
        for count in shape.counts(n_rows)
    ]
    field_encoders = tuple(
        FieldEncoder(field=field, codec=vocabulary, missing_values=("",))
        for field, vocabulary in zip(fields, vocabularies, strict=True)
    )
    schema = Schema(fields=fields, target=TARGET)
    return Encoder(schema=schema, field_encoders=field_encoders, missing_values=("",), handle_unknown="rare")


def make_store(shape: Shape, n_rows: int, folder: Path) -> Store:
    """Rows of the shape, of which eight tenths are for training."""
    writer = StoreWriter(folder, encoder=encoder_of(shape, n_rows), config=Config())
    rng = np.random.default_rng(0)
    for first in range(0, n_rows, CHUNK_ROWS):
        size = min(CHUNK_ROWS, n_rows - first)
        parts = (rng.random(size) > TRAIN_SHARE).astype(np.uint8)
        writer.append({**shape.table(size, seed=first).arrays, "parts": parts})
    return writer.finish()


def rows_in_memory(store: Store) -> StorePart:
    """The training rows of the same store in memory."""
    shards = MemoryShards(rows=store.read(0, store.n_rows), row_parts=store.parts(0, store.n_rows))
    return StorePart(shards=shards, name="train")


def trainer_of(shape: Shape, store: Store, loader: Loader) -> Trainer:
    """A trainer with the settings that `fit` would choose, including replacement by the rare id."""
    settings = {"model.d_embed": shape.d_embed, "train.batch_size": shape.batch_rows}
    config = fill_defaults(Config().replace(settings), n_rows=loader.n_rows)
    return Trainer(
        build_model(store.layout, TARGET.n_outputs, config.model),
        TARGET,
        config.train,
        train=loader,
        validation=store.part("validation"),
        prepare=UnknownTraining(store.layout, store.encoder.counts, rate=config.train.unknown_rate, seed=0),
    )


def loading_ms(loader: Loader) -> float:
    """CPU milliseconds per batch over one epoch."""
    start = time.process_time()
    n_batches = sum(1 for _ in loader.batches(0))
    return (time.process_time() - start) / n_batches * 1e3


def training_ms(trainer: Trainer, n_steps: int) -> tuple[float, float]:
    """CPU milliseconds per training step, and median milliseconds of waiting for its batch."""
    batches: Iterator = trainer.train.batches(0)
    for _ in range(3):
        trainer.train_step(next(batches))
    waits = []
    start = time.process_time()
    for _ in range(n_steps):
        asked = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - asked)
        trainer.train_step(batch)
    seconds = time.process_time() - start
    return seconds / n_steps * 1e3, float(np.median(waits)) * 1e3


def measure(shape: Shape, *, n_rows: int, n_steps: int, folder: Path) -> list[dict[str, object]]:
    """One row for the store and one for the table in memory."""
    store = make_store(shape, n_rows, folder)
    sources: dict[str, StorePart] = {"store": store.part("train"), "in-memory": rows_in_memory(store)}
    found = []
    for name, rows in sources.items():
        loader = Loader(rows, batch_size=shape.batch_rows, seed=0)
        alone = loading_ms(loader)
        step, wait = training_ms(trainer_of(shape, store, loader), n_steps)
        share = alone / step
        print(f"{name}: {alone:.3f} ms a batch, {step:.1f} ms a step, share {share:.2%}, {wait:.3f} ms waiting")
        found.append(
            {
                "source": name,
                "shape": shape.name,
                "rows": n_rows,
                "batch_rows": shape.batch_rows,
                "ms_per_batch": round(alone, 4),
                "ms_per_step": round(step, 2),
                "share": round(share, 5),
                "wait_ms": round(wait, 4),
                "steps": n_steps,
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="avazu")
    parser.add_argument("--scratch", type=Path, help="folder for the store while it is measured")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "loading.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        shape = SHAPES[arguments.shape]
        rows = measure(shape, n_rows=arguments.rows, n_steps=arguments.steps, folder=Path(folder))
    machine = {"threads": arguments.threads, "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *machine, "commit"])
        writer.writeheader()
        writer.writerows({**row, **machine, "commit": commit} for row in rows)


if __name__ == "__main__":
    main()
