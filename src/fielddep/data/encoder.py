"""Encoder: a table in, ids and numbers out. Learnt from training rows, saved with the model.

Shape legend: R rows, F fields, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.config import DataConfig
from fielddep.data.batch import FieldLayout
from fielddep.data.cross_search import find_crosses
from fielddep.data.crosses import Cross, cross_name
from fielddep.data.encoded import EncodedTable
from fielddep.data.fieldcoder import Coding, EncodedField, FieldCoder
from fielddep.data.numeric import QuantileBins, ScaledNumbers
from fielddep.data.schema import Field, Schema
from fielddep.data.target import nearest
from fielddep.data.values import as_number
from fielddep.data.vocabulary import FRAME_SCHEMA, Vocabulary
from fielddep.errors import BundleError, ConfigError, SchemaError

CROSS_PREFIX = "\x00cross "
"""Start of a cross's name in the vocabulary's file; no column can be called so."""


@dataclass(frozen=True, kw_only=True)
class UnknownReport:
    """How many values of each field were unknown or missing in encoded rows.

    Unknown means not in the vocabulary: never seen in training, or seen fewer than `min_count` times.
    """

    n_rows: int
    unknown: dict[str, int]
    missing: dict[str, int]

    @property
    def unknown_shares(self) -> dict[str, float]:
        """Share of rows with an unknown value, per field."""
        return {name: count / max(self.n_rows, 1) for name, count in self.unknown.items()}

    @property
    def missing_shares(self) -> dict[str, float]:
        """Share of rows with a missing value, per field."""
        return {name: count / max(self.n_rows, 1) for name, count in self.missing.items()}

    def merge(self, other: UnknownReport) -> UnknownReport:
        """The report of both sets of rows together."""
        return UnknownReport(
            n_rows=self.n_rows + other.n_rows,
            unknown={name: count + other.unknown[name] for name, count in self.unknown.items()},
            missing={name: count + other.missing[name] for name, count in self.missing.items()},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TableEncoder:
    """Turns tables of one schema into ids. Fit it with `TableEncoder.fit`.

    Attributes:
        schema: fields and target; a regression target with mean and scale of the training rows.
        coders: one per field.
        missing_values: texts that mean missing.
        handle_unknown: what a value never seen in training does.
        crosses: pairs of fields whose joint values have ids too, in columns behind the fields.
    """

    schema: Schema
    coders: tuple[FieldCoder, ...]
    missing_values: tuple[str, ...]
    handle_unknown: Literal["rare", "error"]
    crosses: tuple[Cross, ...] = ()

    @classmethod
    def fit(
        cls, table: pl.DataFrame, schema: Schema, config: DataConfig, *, count_table: pl.DataFrame | None = None
    ) -> TableEncoder:
        """Learn vocabularies, scales and bins from training rows.

        Args:
            table: training rows, and only those.
            schema: fields and target.
            config: settings of the encoding.
            count_table: all rows, for `counts_from = "all"` only.
        """
        if config.counts_from == "all" and count_table is None:
            raise ConfigError("data.counts_from = 'all' needs all rows as count_table; given none")
        counted = count_table if config.counts_from == "all" and count_table is not None else table
        check_columns(table.columns, schema.field_names)
        if schema.target is not None and schema.target.name in table.columns:
            target = schema.target.fit_scale(table[schema.target.name], config.missing_values)
            schema = replace(schema, target=target)
        encoder = cls(
            schema=schema,
            coders=tuple(FieldCoder.fit(field, table, config, counted) for field in schema.fields),
            missing_values=config.missing_values,
            handle_unknown=config.handle_unknown,
        )
        return replace(encoder, crosses=_fit_crosses(encoder, table, config))

    @property
    def layout(self) -> FieldLayout:
        """What a model must know of the fields."""
        names = self.schema.field_names
        return FieldLayout(
            names=names + tuple(cross_name(names[c.left], names[c.right]) for c in self.crosses),
            n_ids=tuple(len(counts) for counts in self.counts),
            numerical=tuple(f for f, field in enumerate(self.schema.fields) if field.numeric == "scale"),
            crosses=tuple((c.left, c.right) for c in self.crosses),
            counts=self.counts,
        )

    @property
    def counts(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Counted rows of each local id, per column of ids."""
        return tuple(coder.counts for coder in self.coders) + tuple(cross.counts for cross in self.crosses)

    def encode(
        self,
        table: pl.DataFrame,
        *,
        with_target: bool = False,
        first_row: int = 0,
        handle_unknown: Literal["rare", "error"] | None = None,
    ) -> EncodedTable:
        """Encode rows; see `encode_with_report`."""
        return self.encode_with_report(
            table, with_target=with_target, first_row=first_row, handle_unknown=handle_unknown
        )[0]

    def encode_with_report(
        self,
        table: pl.DataFrame,
        *,
        with_target: bool = False,
        first_row: int = 0,
        handle_unknown: Literal["rare", "error"] | None = None,
        by_value: bool = False,
    ) -> tuple[EncodedTable, UnknownReport]:
        """Encode rows and count unknown and missing values.

        Columns that are no fields are ignored, target and weight too unless `with_target`.

        Args:
            table: rows, possibly one chunk of a longer table.
            with_target: also encode target and, where the schema has one, the weight.
            first_row: number of the first row in the longer table, for error messages.
            handle_unknown: instead of the encoder's own; validation rows are encoded with "rare".
            by_value: look up value by value, for many calls of a few rows each; see `FieldCoder.encode`.

        Raises:
            SchemaError: names all fields that are no columns of the table.
            UnknownValueError: for a value never seen in training, with `handle_unknown = "error"`.
        """
        check_columns(table.columns, self.schema.field_names)
        refuse = (handle_unknown or self.handle_unknown) == "error"
        ids_RF = np.empty((len(table), len(self.coders) + len(self.crosses)), dtype=np.int32)
        columns = []
        for f, coder in enumerate(self.coders):
            cells = table[coder.field.name]
            column = coder.encode(cells, first_row=first_row, refuse_unknown=refuse, by_value=by_value)
            ids_RF[:, f] = column.ids
            columns.append(column)
        for position, cross in enumerate(self.crosses, start=len(self.coders)):
            ids_RF[:, position] = cross.encode(ids_RF)
        encoded = EncodedTable(
            layout=self.layout,
            ids_RF=torch.from_numpy(ids_RF),
            numbers_RN=_stack_numbers(columns, len(table)),
            target_R=self.encode_target(table, first_row=first_row) if with_target else None,
            weight_R=self.encode_weight(table, first_row=first_row) if with_target else None,
        )
        return encoded, self._report(columns, len(table))

    def encode_target(self, table: pl.DataFrame, *, first_row: int = 0) -> torch.Tensor:
        """Targets as models want them, see `Target.encode`."""
        if self.schema.target is None:
            raise SchemaError("the target cannot be encoded: this schema has none; fit with data.target")
        check_columns(table.columns, (self.schema.target.name,))
        return self.schema.target.encode(table[self.schema.target.name], self.missing_values, first_row=first_row)

    def encode_weight(self, table: pl.DataFrame, *, first_row: int = 0) -> torch.Tensor | None:
        """Sample weights, float32; None where the schema has no weight column."""
        name = self.schema.weight
        if name is None:
            return None
        check_columns(table.columns, (name,))
        weights = weight_numbers(table[name], self.missing_values, first_row=first_row)
        return torch.from_numpy(weights.to_numpy().astype(np.float32))

    def decode(self, encoded: EncodedTable) -> pl.DataFrame:
        """Values of encoded rows: canonical texts, intervals of bins, numbers; null for missing."""
        ids_RF, numbers_RN = encoded.ids_RF.numpy(), encoded.numbers_RN.numpy()
        position = {f: n for n, f in enumerate(encoded.layout.numerical)}
        return pl.DataFrame(
            [
                coder.decode(ids_RF[:, f], numbers_RN[:, position[f]] if f in position else None)
                for f, coder in enumerate(self.coders)
            ]
        )

    def values(self, field: str) -> pl.Series:
        """Text label of each local id of a field."""
        if field not in self.schema.field_names:
            raise SchemaError(f"{field!r} is no field; {nearest(field, self.schema.field_names)}")
        return self.coders[self.schema.field_names.index(field)].labels()

    def to_json(self) -> dict[str, Any]:
        """Schema and numeric state; the vocabularies are in `vocabulary_frame`."""
        return {
            "schema": self.schema.to_json(),
            "numeric": {c.field.name: c.state() for c in self.coders if c.state() is not None},
            "missing_values": list(self.missing_values),
            "handle_unknown": self.handle_unknown,
            "crosses": [[cross.left, cross.right] for cross in self.crosses],
        }

    def vocabulary_frame(self) -> pl.DataFrame:
        """All vocabularies in one frame: field, value, id (local), count."""
        parts = {c.field.name: c.coding.to_frame() for c in self.coders if isinstance(c.coding, Vocabulary)}
        # A cross is named by number here, as a field of the user may well be called "month x day".
        parts |= {f"{CROSS_PREFIX}{n}": cross.to_frame() for n, cross in enumerate(self.crosses)}
        frames = [part.insert_column(0, pl.lit(name).alias("field")) for name, part in parts.items()]
        return pl.concat(frames) if frames else pl.DataFrame(schema={"field": pl.String, **FRAME_SCHEMA})

    @classmethod
    def from_parts(cls, state: Mapping[str, Any], frame: pl.DataFrame) -> TableEncoder:
        """Rebuild from `to_json` and `vocabulary_frame`.

        Raises:
            BundleError: if the two do not fit together.
        """
        schema = Schema.from_json(state["schema"])
        parts = {str(key[0]): part for key, part in frame.partition_by("field", as_dict=True).items()}
        missing, unknown = tuple(state["missing_values"]), state["handle_unknown"]
        coders = tuple(
            FieldCoder(
                field=field, coding=_coding(field, state["numeric"], parts, unknown == "error"), missing_values=missing
            )
            for field in schema.fields
        )
        encoder = cls(schema=schema, coders=coders, missing_values=missing, handle_unknown=unknown)
        return replace(encoder, crosses=_read_crosses(state.get("crosses", []), parts, encoder.layout.n_ids))

    def _report(self, columns: list[EncodedField], n_rows: int) -> UnknownReport:
        names = self.schema.field_names
        return UnknownReport(
            n_rows=n_rows,
            unknown={name: column.n_unknown for name, column in zip(names, columns, strict=True)},
            missing={name: column.n_missing for name, column in zip(names, columns, strict=True)},
        )


def _fit_crosses(encoder: TableEncoder, table: pl.DataFrame, config: DataConfig) -> tuple[Cross, ...]:
    """Crosses that the settings ask for, or that are found on training rows."""
    if config.crosses == "none" or encoder.schema.target is None:
        return ()
    ids_RF = encoder.encode(table, handle_unknown="rare").ids_RF.numpy()
    n_ids, names = encoder.layout.n_ids, encoder.schema.field_names
    if config.crosses == "auto":
        pairs = find_crosses(ids_RF, n_ids, encoder.encode_target(table).numpy())
    else:
        pairs = [cross_positions(pair, names) for pair in config.crosses]
    return tuple(Cross.fit(ids_RF, n_ids, pair, config.cross_min_count) for pair in pairs)


def cross_positions(pair: tuple[str, ...], names: tuple[str, ...]) -> tuple[int, int]:
    """Positions of the two fields that a cross of the settings names."""
    if len(pair) != 2 or pair[0] == pair[1]:
        raise SchemaError(f"a cross joins two different fields; given {list(pair)} in data.crosses")
    for name in pair:
        if name not in names:
            raise SchemaError(f"data.crosses names {name!r}, which is no field; {nearest(name, names)}")
    left, right = sorted((names.index(pair[0]), names.index(pair[1])))
    return left, right


def _read_crosses(
    pairs: list[list[int]], frames: Mapping[str, pl.DataFrame], n_ids: tuple[int, ...]
) -> tuple[Cross, ...]:
    crosses = []
    for n, (left, right) in enumerate(pairs):
        frame = frames.get(f"{CROSS_PREFIX}{n}")
        if frame is None:
            raise BundleError(f"the vocabulary must hold cross {n} of the encoder, but does not; save the model anew")
        crosses.append(Cross.from_frame(frame.drop("field"), (left, right), n_ids[right]))
    return tuple(crosses)


def _coding(field: Field, numeric: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], keep_rare: bool) -> Coding:
    is_numeric = field.numeric in ("scale", "quantile")
    if field.name not in (numeric if is_numeric else frames):
        part = "encoder state" if is_numeric else "vocabulary"
        raise BundleError(f"the {part} must hold field {field.name!r} of the schema, but does not; save the model anew")
    if field.numeric == "scale":
        return ScaledNumbers.from_json(numeric[field.name])
    if field.numeric == "quantile":
        return QuantileBins.from_json(numeric[field.name])
    return Vocabulary.from_frame(frames[field.name].drop("field"), keep_rare=keep_rare)


def _stack_numbers(columns: list[EncodedField], n_rows: int) -> torch.Tensor:
    numbers = [column.numbers for column in columns if column.numbers is not None]
    if not numbers:
        return torch.empty((n_rows, 0), dtype=torch.float32)
    return torch.from_numpy(np.stack(numbers, axis=1))


def weight_numbers(column: pl.Series, missing_values: Iterable[str], *, first_row: int = 0) -> pl.Series:
    """Sample weights as Float64.

    Raises:
        SchemaError: names the first row whose weight is missing, below 0 or no number.
    """
    weights = as_number(column, missing_values, first_row=first_row)
    bad = (weights.is_null() | (weights < 0)).fill_null(True)
    if bad.any():
        row = first_row + int(bad.arg_true()[0])
        raise SchemaError(f"weights {column.name!r} must be 0 or more, none missing; see row {row} (counted from 0)")
    return weights


def check_columns(columns: Sequence[str], wanted: Sequence[str]) -> None:
    """Name all absent columns at once, each with the nearest present one."""
    absent = [name for name in wanted if name not in columns]
    if absent:
        advice = "; ".join(f"{name!r}: {nearest(name, columns)}" for name in absent)
        raise SchemaError(f"the table must have the columns {', '.join(map(repr, absent))}, which are absent; {advice}")
