"""Predictor: a bundle in, predictions for any table, store or single row out, in bounded memory and in row order."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import resolve_bundle
from fielddep.config.data import DataConfig, Kind
from fielddep.encoding.encoder import MAX_NAMES, check_columns
from fielddep.encoding.one_row import FEW_ROWS
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.encoding.unknown import UnknownReport
from fielddep.encoding.with_target import warn_of_dropped
from fielddep.errors import SplitError
from fielddep.nn.model import predictions
from fielddep.store.store import PART_NAMES, Store, is_store, stored_rows
from fielddep.tables.readers import read_memory
from fielddep.tables.row_stream import in_memory, open_rows
from fielddep.training.fit import check_device
from fielddep.training.metrics import measure
from fielddep.wording import percent

CHUNK_ROWS = 65_536
WARNED_ROWS = 10
"""Fewer rows get no warning: a new value in a single row is nothing unusual."""
MUCH_UNKNOWN = 0.1
"""Share of unknown values of a field above which `Predictor.predict` warns."""
ALL = "all"
"""Name of all parts of a store together."""


class Predictor:
    """Predicts with a bundle, which stays unchanged.

    Args:
        bundle: a `Bundle`, or the folder of a bundle or run.
        device: torch device.
        chunk_rows: rows read and encoded at a time. Memory does not grow with the table, except in `predict`, which
            returns all predictions at once, and in `evaluate` (see there).

    A table is anything that `read_table` takes, a store, one row as a dict of values, or several rows as a list of
    such dicts, where a row without a key has no value there. A dict of columns remains a table: it has a list or array
    under every name. The target and extra columns are ignored, unknown and missing values are accepted, and an error
    names absent fields. Files are read like the training table, unless `config` says otherwise.

    Attributes:
        unknown: share of unknown values of every field in the last `predict`; empty if there were no rows.
    """

    def __init__(self, bundle: Bundle | str | Path, *, device: str = "cpu", chunk_rows: int = CHUNK_ROWS) -> None:
        check_device(device)
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.load(resolve_bundle(bundle), device=device)
        self.device = torch.device(device)
        self.chunk_rows = chunk_rows
        self.unknown: dict[str, float] = {}
        self.bundle.model.to(self.device).eval()

    @property
    def target(self) -> Target:
        """What is predicted."""
        target = self.bundle.encoder.schema.target
        assert target is not None
        return target

    def predict(self, table: Any, *, config: DataConfig | None = None) -> pl.DataFrame:
        """Predictions for every row.

        Classification gives the likeliest class as `prediction` and one column `probability_<class>` per class.
        Regression gives the value as `prediction`. If more than a tenth of the values of a field are unknown, in ten
        rows or more, one `UserWarning` names all such fields; `unknown` has the shares of all fields.
        """
        found = list(self.stream(table, config=config))
        if not found:
            self.unknown = {}
            return prediction_frame(torch.empty(0, self.target.n_outputs), self.target)
        report = reduce(UnknownReport.merge, (report for _, report in found))
        self.unknown = report.unknown_shares
        if report.n_rows >= WARNED_ROWS:
            _warn_of_unknown(self.unknown)
        return pl.concat([frame for frame, _ in found])

    def predict_row(self, row: Mapping[str, object]) -> dict[str, Any]:
        """The prediction for one row of plain values, under the column names of `predict`; the last bit may differ.

        Plain values take a path without a frame, which is faster. A row with a value that this path cannot handle
        exactly, such as a date, goes through a frame. There is no warning of unknown values.

        Raises:
            SchemaError: names fields that the row lacks.

        Example:
            >>> from fielddep.config.settings import Config
            >>> from fielddep.training.fit import fit
            >>> table = pl.DataFrame({"colour": ["red", "blue"] * 40, "size": [1, 1, 2, 2] * 20, "price": [3, 5] * 40})
            >>> trained = fit(table, Config().replace({"data.target": "price", "train.max_epochs": 3}))
            >>> predictor = Predictor(Bundle.of(trained))
            >>> list(predictor.predict_row({"colour": "red", "size": 2}))
            ['prediction', 'probability_3', 'probability_5']
            >>> predictor.predict_row({"colour": "green", "size": None})["prediction"] in (3, 5)  # unseen, missing
            True
        """
        rows = self.bundle.encoder.encode_row(row)
        if rows is None:
            columns = self.bundle.encoder.schema.columns
            frame = pl.DataFrame({name: [row[name]] for name in columns})
            return next(self.stream(frame))[0].row(0, named=True)
        values = predictions(self.logits(rows), self.target)[0].cpu().numpy()
        if self.target.task == "regression":
            return {"prediction": values.item()}
        labels = {"prediction": self.target.classes[values.argmax()]}
        return labels | dict(zip(_probability_names(self.target), values.tolist(), strict=True))

    def stream(self, table: Any, *, config: DataConfig | None = None) -> Iterator[tuple[pl.DataFrame, UnknownReport]]:
        """Predictions chunk by chunk, each with its count of unknown and missing values."""
        for chunk, report in self.encoded(table, config):
            yield prediction_frame(self.logits(chunk), self.target), report

    def evaluate(self, table: Any, *, config: DataConfig | None = None, part: str | None = None) -> dict[str, float]:
        """Metrics over all rows of a table that holds the target, or over one part of a store.

        The AUC of a binary target takes 13 bytes per row, 17 with weights; everything else is a running sum.

        Args:
            table: rows with the target.
            config: how to read the table.
            part: train, validation, test or all, for a store; None means `default_part`.

        Raises:
            SplitError: if the part of a store has no rows, or a part of a table is requested.
        """
        source = Store.open(table) if is_store(table) else table
        chosen = part or default_part(source, refit=self.bundle.config.train.refit)
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
            for rows, report in stored_rows(store, encoder, part=_checked_part(store, part), with_target=with_target):
                yield encoder.as_new(rows), report
            return
        if part != ALL:
            raise SplitError(f"only a store knows its {part} rows. Encode the table, or drop --part")
        table = _columns_of_rows(table)
        frame = read_memory(table) if in_memory(table) else None
        # The last chunk of a long stream is short as well, but not worth an index over the vocabularies.
        row_by_row = frame is not None and len(frame) <= FEW_ROWS
        drops = with_target and (config or self.bundle.config.data).missing_target == "drop"
        first_row = n_dropped = 0
        for chunk in self._chunks(table if frame is None else frame, config, with_target=with_target):
            kept = self._with_target(chunk) if drops else chunk
            if len(kept) or not drops:
                yield encoder.encode(kept, with_target=with_target, first_row=first_row, row_by_row=row_by_row)
            first_row += len(chunk)
            n_dropped += len(chunk) - len(kept)
        warn_of_dropped(self.target.name, n_dropped, first_row)

    def _with_target(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(self.target.is_known(rows[self.target.name], self.bundle.encoder.missing_values))

    def _chunks(self, table: Any, config: DataConfig | None, *, with_target: bool) -> Iterator[pl.DataFrame]:
        """The needed columns of a file or stream; all columns of a table in memory, where skipping saves nothing."""
        wanted = list(self.bundle.encoder.schema.columns)
        if with_target:
            wanted += [name for name in (self.target.name, self.bundle.encoder.schema.weight) if name is not None]
        if isinstance(table, pl.DataFrame):
            check_columns(table.columns, wanted)
            return table.iter_slices(self.chunk_rows)
        source = open_rows(table, read_options(self.bundle, config or self.bundle.config.data), has_target=with_target)
        check_columns(source.schema.names(), wanted)
        return source.frames(wanted, self.chunk_rows)


def _warn_of_unknown(shares: Mapping[str, float]) -> None:
    """Warn of fields with many unknown values, the worst first."""
    many = sorted((name for name, share in shares.items() if share > MUCH_UNKNOWN), key=lambda name: -shares[name])
    if many:
        shown = ", ".join(f"{name!r} ({percent(shares[name])})" for name in many[:MAX_NAMES])
        more = f" and {len(many) - MAX_NAMES} more" if len(many) > MAX_NAMES else ""
        warnings.warn(
            f"many values are unknown to the model, in {shown}{more}. Are they written as in training?",
            UserWarning,
            stacklevel=3,
        )


def _columns_of_rows(table: Any) -> Any:
    """A row or a list of rows, given as dicts, as a dict of columns; anything else as it is."""
    rows = [table] if isinstance(table, Mapping) and not all(map(_is_column, table.values())) else table
    if not isinstance(rows, (list, tuple)) or not rows or not all(isinstance(row, Mapping) for row in rows):
        return table
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _is_column(values: object) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, (str, bytes))


def prediction_frame(logits_BC: torch.Tensor, target: Target) -> pl.DataFrame:
    """Predictions as a table; see `Predictor.predict` for its columns."""
    values = predictions(logits_BC, target).cpu().numpy()
    if target.task == "regression":
        return pl.DataFrame({"prediction": values})
    labels = pl.Series("prediction", target.classes).gather(values.argmax(axis=1))
    return pl.DataFrame({"prediction": labels, **dict(zip(_probability_names(target), values.T, strict=True))})


def _probability_names(target: Target) -> list[str]:
    return [f"probability_{label}" for label in target.classes]


def default_part(table: Any, *, refit: bool = False) -> str:
    """Which rows `Predictor.evaluate` takes by default.

    For a store, the rows that no training on it has seen: test rows, or validation rows if there are none and the model
    was not refitted on them. All rows for a table, or for a store without such rows.
    """
    if not isinstance(table, Store):
        return ALL
    return next((part for part in ("test", "validation")[: 2 - refit] if table.n_rows_of[part]), ALL)


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
    """How to read a table for a model: sparse text does not say which fields it has, nor their kinds."""
    schema = bundle.encoder.schema
    assert schema.target is not None
    numerical: dict[str, Kind] = {
        f.name: "numerical" for f in schema.fields if f.kind == "numerical" and f.part is None
    }
    kinds = {**bundle.config.data.kinds, **numerical}
    return replace(base, target=schema.target.name, fields=schema.columns, kinds=kinds)
