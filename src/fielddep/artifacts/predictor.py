"""Predictor: a bundle in, predictions on any table or store out, in bounded memory and in the order of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.config.settings import DataConfig, Kind
from fielddep.encoding.encoder import UnknownReport, check_columns
from fielddep.encoding.one_row import FEW_ROWS
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.errors import SplitError
from fielddep.nn.model import predictions
from fielddep.store.store import PART_NAMES, Store, is_store, stored_rows
from fielddep.tables.readers import read_memory
from fielddep.tables.row_stream import in_memory, open_rows
from fielddep.training.fit import check_device
from fielddep.training.metrics import measure

CHUNK_ROWS = 65_536
ALL = "all"
"""Name of all parts of a table together."""


class Predictor:
    """Predicts with a saved or loaded bundle. Predicting changes nothing in it.

    Args:
        bundle: a `Bundle` or the folder of one.
        device: torch device.
        chunk_rows: rows read and encoded at a time. Memory does not grow with the table, except in `predict`, which
            returns all predictions at once, and in `evaluate` (see there).

    A table may be anything `read_table` takes, or a store. The target and extra columns are ignored, absent fields are
    named in the error, unknown and missing values are accepted. A file is read as the training table was, unless
    `config` says otherwise.
    """

    def __init__(self, bundle: Bundle | str | Path, *, device: str = "cpu", chunk_rows: int = CHUNK_ROWS) -> None:
        check_device(device)
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.load(bundle, device=device)
        self.device = torch.device(device)
        self.chunk_rows = chunk_rows
        self.bundle.model.to(self.device).eval()

    @property
    def target(self) -> Target:
        """What is predicted."""
        target = self.bundle.encoder.schema.target
        assert target is not None
        return target

    def predict(self, table: Any, *, config: DataConfig | None = None) -> pl.DataFrame:
        """Predictions of every row.

        Classification gives the likeliest class as `prediction` and one column `probability_<class>` a class;
        regression gives the value as `prediction`.
        """
        frames = [frame for frame, _ in self.stream(table, config=config)]
        return pl.concat(frames) if frames else self._frame(torch.empty(0, self.target.n_outputs))

    def stream(self, table: Any, *, config: DataConfig | None = None) -> Iterator[tuple[pl.DataFrame, UnknownReport]]:
        """Predictions chunk by chunk, each with its count of unknown and missing values."""
        for chunk, report in self.encoded(table, config, with_target=False):
            yield self._frame(self.logits(chunk)), report

    def evaluate(self, table: Any, *, config: DataConfig | None = None, part: str | None = None) -> dict[str, float]:
        """Metrics over all rows of a table that holds the target, or over one part of a store.

        The AUC of a binary target takes 13 bytes a row that is evaluated, 17 with weights; all else is running sums.

        Args:
            table: rows with the target.
            config: how to read the table.
            part: of a store train, validation, test or all; None means `default_part`.

        Raises:
            SplitError: when a part is asked of a table, which has none, or a part has no rows.
        """
        source = Store.open(table) if is_store(table) else table
        chosen = part or default_part(source)
        chunks = (chunk for chunk, _ in self.encoded(source, config, with_target=True, part=chosen))
        return measure(self.logits, self.target, chunks).metrics

    def logits(self, rows: EncodedRows) -> torch.Tensor:
        """Raw outputs (rows, C) of encoded rows."""
        return self.bundle.model.outputs(rows)

    def encoded(
        self, table: Any, config: DataConfig | None = None, *, with_target: bool = False, part: str = ALL
    ) -> Iterator[tuple[EncodedRows, UnknownReport]]:
        """Encoded rows chunk by chunk, each with its count of unknown and missing values."""
        encoder = self.bundle.encoder
        if isinstance(table, Store) or is_store(table):
            store = table if isinstance(table, Store) else Store.open(table)
            yield from stored_rows(store, encoder, part=_checked_part(store, part), with_target=with_target)
            return
        if part != ALL:
            raise SplitError(
                f"only a store knows which rows are its {part} rows. Encode the table, or leave out --part"
            )
        frame = read_memory(table) if in_memory(table) else None
        # The last rows of a long stream are few as well, but not worth an index over the vocabularies.
        row_by_row = frame is not None and len(frame) <= FEW_ROWS
        first_row = 0
        for chunk in self._chunks(table if frame is None else frame, config, with_target=with_target):
            yield encoder.encode_with_report(chunk, with_target=with_target, first_row=first_row, row_by_row=row_by_row)
            first_row += len(chunk)

    def _chunks(self, table: Any, config: DataConfig | None, *, with_target: bool) -> Iterator[pl.DataFrame]:
        """The columns that are needed; of a table in memory all, as nothing is gained by leaving some out."""
        wanted = list(self.bundle.encoder.schema.field_names)
        if with_target:
            wanted += [name for name in (self.target.name, self.bundle.encoder.schema.weight) if name is not None]
        if isinstance(table, pl.DataFrame):
            check_columns(table.columns, wanted)
            return table.iter_slices(self.chunk_rows)
        reading = read_options(self.bundle, config or self.bundle.config.data)
        source = open_rows(table, reading, has_target=with_target)
        check_columns(source.schema.names(), wanted)
        return source.frames(wanted, self.chunk_rows)

    def _frame(self, logits_BC: torch.Tensor) -> pl.DataFrame:
        return prediction_frame(logits_BC, self.target)


def prediction_frame(logits_BC: torch.Tensor, target: Target) -> pl.DataFrame:
    """Predictions of rows as a table; see `Predictor.predict` for its columns."""
    values = predictions(logits_BC, target).cpu().numpy()
    if target.task == "regression":
        return pl.DataFrame({"prediction": values})
    labels = pl.Series("prediction", target.classes)
    columns = {f"probability_{label}": values[:, c] for c, label in enumerate(target.classes)}
    return pl.DataFrame({"prediction": labels.gather(values.argmax(axis=1)), **columns})


def default_part(table: Any) -> str:
    """Which rows `Predictor.evaluate` takes by default.

    Of a store those that no training on it has seen: its test rows, or its validation rows where there are none. Of a
    table, and of a store that was not split, all.
    """
    if not isinstance(table, Store):
        return ALL
    return next((part for part in ("test", "validation") if table.n_rows_of[part]), ALL)


def _checked_part(store: Store, part: str) -> str | None:
    """The part of a store to read; None for all."""
    if part == ALL:
        return None
    if part not in PART_NAMES:
        raise SplitError(f"a part is one of {', '.join(PART_NAMES)} or {ALL}; given {part!r}")
    if not store.n_rows_of[part]:
        raise SplitError(f"store {store.folder} has no {part} rows; choose another part")
    return part


def read_options(bundle: Bundle, base: DataConfig) -> DataConfig:
    """How to read a table for a model; sparse text alone does not say which fields it has, or of which kind."""
    schema = bundle.encoder.schema
    assert schema.target is not None
    numerical: dict[str, Kind] = {f.name: "numerical" for f in schema.fields if f.kind == "numerical"}
    kinds = {**bundle.config.data.kinds, **numerical}
    return replace(base, target=schema.target.name, fields=schema.field_names, kinds=kinds)
