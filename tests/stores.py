"""Stores for tests: of a table, encoded as training in memory would encode it, or of numbered rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import torch

from fielddep.config import Config
from fielddep.data.batch import FieldLayout
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.schema import infer_schema
from fielddep.data.splits import Split
from fielddep.data.store.store import PART_NAMES, Store, StoreWriter
from fielddep.prepared import prepare


def write_store(
    folder: Path, frame: pl.DataFrame, config: Config, *, block_rows: int = 32, split: Split | None = None
) -> Store:
    """A store of a table, with the encoder and the split that `prepare` gives it."""
    prepared = prepare(frame, config, split=split)
    marks = np.zeros(len(frame), dtype=np.uint8)
    for mark, name in enumerate(PART_NAMES):
        marks[getattr(prepared.split, name)] = mark
    folder.mkdir(parents=True)
    writer = StoreWriter(
        folder, encoder=prepared.encoder, config=config, block_rows=block_rows, shard_rows=4 * block_rows
    )
    writer.append(prepared.encoder.encode(frame, with_target=True, handle_unknown="rare"), marks)
    return writer.finish()


def numbered_store(folder: Path, parts: np.ndarray, *, block_rows: int = 8) -> Store:
    """Rows whose target is their number and whose weight is one more; the first field has id 2 + number % 3."""
    folder.mkdir(parents=True)
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
    encoder = TableEncoder.fit(frame, infer_schema(frame, config), config.data)
    writer = StoreWriter(folder, encoder=encoder, config=config, block_rows=block_rows, shard_rows=2 * block_rows)
    writer.append(numbered_rows(encoder.layout, len(parts)), parts.astype(np.uint8))
    return writer.finish()


def numbered_rows(layout: FieldLayout, n_rows: int) -> EncodedTable:
    number = torch.arange(n_rows)
    ids_RF = torch.stack([2 + number % 3, 2 + number % 2, torch.ones_like(number)], dim=1).int()
    return EncodedTable(
        layout=layout,
        ids_RF=ids_RF,
        numbers_RN=(number / 10).float().unsqueeze(1),
        target_R=number.float(),
        weight_R=number.float() + 1,
    )
