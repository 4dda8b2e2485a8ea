"""Stores for tests: of a table, encoded as training in memory would encode it, or of numbered rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.rows import FOLDS, PARTS, EncodedRows, Layout
from fielddep.encoding.split import Parts
from fielddep.store.store import MemoryWriter, Store, StoreWriter
from fielddep.training.prepare import prepare
from tests.streamed import learned


def write_store(
    folder: Path, frame: pl.DataFrame, config: Config, *, chunk_rows: int = 32, parts: Parts | None = None
) -> Store:
    """A store of a table, with the encoder and the split that `prepare` gives it."""
    store = prepare(frame, config, parts=parts).store
    folder.mkdir(parents=True)
    writer = StoreWriter(folder, encoder=store.encoder, config=config, chunk_rows=chunk_rows, shard_rows=4 * chunk_rows)
    folds = {} if store.encoder.evidence is None else {FOLDS: store.folds(0, len(frame))}
    writer.append({**store.read(0, len(frame)).arrays, PARTS: store.parts(0, len(frame)), **folds})
    return writer.finish()


def numbered_store(folder: Path | None, parts: np.ndarray, *, chunk_rows: int = 8) -> Store:
    """Rows whose target is their number and whose weight is one more; the first field has id 2 + number % 3.

    They lie in memory where no folder is given.
    """
    frame = pl.DataFrame({"a": ["x", "y", "z"] * 20, "b": ["u", "v"] * 30, "size": np.arange(60) / 7, "y": [0, 1] * 30})
    config = Config().replace(
        {
            "data.target": "y",
            "data.crosses": "none",
            "data.numeric": "scale",
            "data.kinds": {"size": "numerical"},
            "data.weight": "w",
        }
    )
    frame = frame.with_columns(w=1.0)
    encoder = learned(frame, config)
    writer: StoreWriter | MemoryWriter
    if folder is None:
        writer = MemoryWriter(encoder=encoder, config=config, n_rows=len(parts), chunk_rows=chunk_rows)
    else:
        folder.mkdir(parents=True)
        writer = StoreWriter(folder, encoder=encoder, config=config, chunk_rows=chunk_rows, shard_rows=2 * chunk_rows)
    writer.append({**numbered_rows(encoder.layout, len(parts)).arrays, PARTS: parts.astype(np.uint8)})
    return writer.finish()


def numbered_rows(layout: Layout, n_rows: int) -> EncodedRows:
    number = np.arange(n_rows)
    return EncodedRows(
        layout=layout,
        arrays={
            "ids": np.stack([2 + number % 3, 2 + number % 2, np.ones_like(number)], axis=1).astype(np.int32),
            "numbers": (number / 10).astype(np.float32)[:, np.newaxis],
            "measures": (number / 20).astype(np.float32)[:, np.newaxis],
            "target": number.astype(np.float32),
            "weight": number.astype(np.float32) + 1,
        },
    )
