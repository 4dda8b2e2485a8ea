"""Encoder: a table in, ids and numbers out. Learnt from training rows, saved with the model.

Shape legend: R rows, F fields, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.crosses import Cross, cross_name
from fielddep.encoding.field import Coding, EncodedField, FieldEncoder
from fielddep.encoding.numbers import QuantileBins, ScaledNumbers
from fielddep.encoding.rows import IDS, NUMBERS, TARGET, WEIGHT, Array, EncodedRows, Layout
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.values import as_number
from fielddep.encoding.vocabulary import FRAME_SCHEMA, MISSING_ID, RARE_ID, Vocabulary
from fielddep.errors import BundleError, SchemaError
from fielddep.wording import did_you_mean

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
class Encoder:
    """Turns tables of one schema into ids. Get one from `learn.learn_encoder`, or from a saved model.

    Attributes:
        schema: fields and target; a regression target with mean and scale of the training rows.
        field_encoders: one per field.
        missing_values: texts that mean missing.
        handle_unknown: what a value never seen in training does.
        crosses: pairs of fields whose joint values have ids too, in columns behind the fields.
    """

    schema: Schema
    field_encoders: tuple[FieldEncoder, ...]
    missing_values: tuple[str, ...]
    handle_unknown: Literal["rare", "error"]
    crosses: tuple[Cross, ...] = ()

    @cached_property
    def layout(self) -> Layout:
        """What a model must know of the fields."""
        names = self.schema.field_names
        return Layout(
            names=names + tuple(cross_name(names[c.left], names[c.right]) for c in self.crosses),
            n_ids=tuple(len(counts) for counts in self.counts),
            numerical=tuple(f for f, field in enumerate(self.schema.fields) if field.numeric == "scale"),
            crosses=tuple((c.left, c.right) for c in self.crosses),
            counts=self.counts,
        )

    @cached_property
    def digest(self) -> str:
        """Checksum of all that decides which ids a row gets: encoders with the same digest give the same ids.

        It is taken of the content, so it does not depend on the library that writes the files.
        """
        state = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode())
        frame = self.vocabulary_frame()
        for name in ("field", "value"):
            state.update(frame[name].str.len_bytes().fill_null(-1 % (1 << 32)).cast(pl.UInt32).to_numpy().tobytes())
            state.update(frame[name].str.join("").item().encode())
        for name in ("id", "count"):
            state.update(frame[name].to_numpy().tobytes())
        return state.hexdigest()

    @property
    def counts(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Counted rows of each local id, per column of ids."""
        return tuple(field_encoder.counts for field_encoder in self.field_encoders) + tuple(
            cross.counts for cross in self.crosses
        )

    def encode(
        self,
        table: pl.DataFrame,
        *,
        with_target: bool = False,
        first_row: int = 0,
        handle_unknown: Literal["rare", "error"] | None = None,
    ) -> EncodedRows:
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
        row_by_row: bool = False,
    ) -> tuple[EncodedRows, UnknownReport]:
        """Encode rows and count unknown and missing values.

        Columns that are no fields are ignored, target and weight too unless `with_target`.

        Args:
            table: rows, possibly one chunk of a longer table.
            with_target: also encode target and, where the schema has one, the weight.
            first_row: number of the first row in the longer table, for error messages.
            handle_unknown: instead of the encoder's own; validation rows are encoded with "rare".
            row_by_row: look up value by value, for many calls of a few rows each; see `FieldEncoder.encode`.

        Raises:
            SchemaError: names all fields that are no columns of the table.
            UnknownValueError: for a value never seen in training, with `handle_unknown = "error"`.
        """
        check_columns(table.columns, self.schema.field_names)
        refuse = (handle_unknown or self.handle_unknown) == "error"
        ids_RF = np.empty((len(table), len(self.field_encoders) + len(self.crosses)), dtype=np.int32)
        columns = []
        for f, field_encoder in enumerate(self.field_encoders):
            cells = table[field_encoder.field.name]
            column = field_encoder.encode(cells, first_row=first_row, refuse_unknown=refuse, row_by_row=row_by_row)
            ids_RF[:, f] = column.ids
            columns.append(column)
        for position, cross in enumerate(self.crosses, start=len(self.field_encoders)):
            ids_RF[:, position] = cross.encode(ids_RF)
        arrays: dict[str, Array] = {IDS: ids_RF}
        if numbers := [column.numbers for column in columns if column.numbers is not None]:
            arrays[NUMBERS] = np.stack(numbers, axis=1)
        if with_target:
            arrays |= self._target_arrays(table, first_row=first_row)
        return EncodedRows(layout=self.layout, arrays=arrays), self._report(columns, len(table))

    def encode_target(self, table: pl.DataFrame, *, first_row: int = 0) -> Array:
        """Targets as models want them, see `Target.encode`."""
        if self.schema.target is None:
            raise SchemaError("the target cannot be encoded: this schema has none; fit with data.target")
        check_columns(table.columns, (self.schema.target.name,))
        return self.schema.target.encode(table[self.schema.target.name], self.missing_values, first_row=first_row)

    def encode_weight(self, table: pl.DataFrame, *, first_row: int = 0) -> npt.NDArray[np.float32] | None:
        """Sample weights, float32; None where the schema has no weight column."""
        name = self.schema.weight
        if name is None:
            return None
        check_columns(table.columns, (name,))
        weights = weight_numbers(table[name], self.missing_values, first_row=first_row)
        return weights.to_numpy().astype(np.float32)

    def decode(self, encoded: EncodedRows) -> pl.DataFrame:
        """Values of encoded rows: canonical texts, intervals of bins, numbers; null for missing."""
        ids_RF, numbers_RN = encoded.ids_RF, encoded.numbers_RN
        position = {f: n for n, f in enumerate(encoded.layout.numerical)}
        return pl.DataFrame(
            [
                field_encoder.decode(ids_RF[:, f], numbers_RN[:, position[f]] if f in position else None)
                for f, field_encoder in enumerate(self.field_encoders)
            ]
        )

    def values(self, field: str) -> pl.Series:
        """Text label of each local id of a field."""
        if field not in self.schema.field_names:
            raise SchemaError(f"{field!r} is no field; {did_you_mean(field, self.schema.field_names, what='fields')}")
        return self.field_encoders[self.schema.field_names.index(field)].labels()

    def to_json(self) -> dict[str, Any]:
        """Schema and numeric state; the vocabularies are in `vocabulary_frame`."""
        return {
            "schema": self.schema.to_json(),
            "numeric": {c.field.name: c.state() for c in self.field_encoders if c.state() is not None},
            "missing_values": list(self.missing_values),
            "handle_unknown": self.handle_unknown,
            "crosses": [[cross.left, cross.right] for cross in self.crosses],
        }

    def vocabulary_frame(self) -> pl.DataFrame:
        """All vocabularies in one frame: field, value, id (local), count."""
        parts = {c.field.name: c.codec.to_frame() for c in self.field_encoders if isinstance(c.codec, Vocabulary)}
        # A cross is named by number here, as a field of the user may well be called "month x day".
        parts |= {f"{CROSS_PREFIX}{n}": cross.to_frame() for n, cross in enumerate(self.crosses)}
        frames = [part.insert_column(0, pl.lit(name).alias("field")) for name, part in parts.items()]
        return pl.concat(frames) if frames else pl.DataFrame(schema={"field": pl.String, **FRAME_SCHEMA})

    @classmethod
    def from_parts(cls, state: Mapping[str, Any], frame: pl.DataFrame) -> Encoder:
        """Rebuild from `to_json` and `vocabulary_frame`.

        Raises:
            BundleError: if the two do not fit together.
        """
        schema = Schema.from_json(state["schema"])
        parts = {str(key[0]): part for key, part in frame.partition_by("field", as_dict=True).items()}
        missing, unknown = tuple(state["missing_values"]), state["handle_unknown"]
        field_encoders = tuple(
            FieldEncoder(
                field=field, codec=_coding(field, state["numeric"], parts, unknown == "error"), missing_values=missing
            )
            for field in schema.fields
        )
        encoder = cls(schema=schema, field_encoders=field_encoders, missing_values=missing, handle_unknown=unknown)
        return replace(encoder, crosses=_read_crosses(state.get("crosses", []), parts, encoder.layout.n_ids))

    def _target_arrays(self, table: pl.DataFrame, *, first_row: int) -> dict[str, Array]:
        """The arrays of the target and, where the schema has one, of the weight."""
        arrays: dict[str, Array] = {TARGET: self.encode_target(table, first_row=first_row)}
        weights = self.encode_weight(table, first_row=first_row)
        return arrays if weights is None else {**arrays, WEIGHT: weights}

    def report(self, ids_RF: npt.NDArray[np.int32]) -> UnknownReport:
        """Unknown and missing values of rows of which only ids are known; values rare in training count as unknown."""
        unknown, missing = {}, {}
        for f, field_encoder in enumerate(self.field_encoders):
            is_missing, is_rare = ids_RF[:, f] == MISSING_ID, ids_RF[:, f] == RARE_ID
            if not isinstance(
                field_encoder.codec, Vocabulary
            ):  # a number is never unknown, and a missing one may be rare
                is_missing |= is_rare & isinstance(field_encoder.codec, QuantileBins)
                is_rare = np.zeros_like(is_rare)
            unknown[field_encoder.field.name], missing[field_encoder.field.name] = (
                int(is_rare.sum()),
                int(is_missing.sum()),
            )
        return UnknownReport(n_rows=len(ids_RF), unknown=unknown, missing=missing)

    def _report(self, columns: list[EncodedField], n_rows: int) -> UnknownReport:
        names = self.schema.field_names
        return UnknownReport(
            n_rows=n_rows,
            unknown={name: column.n_unknown for name, column in zip(names, columns, strict=True)},
            missing={name: column.n_missing for name, column in zip(names, columns, strict=True)},
        )


def cross_positions(pair: tuple[str, ...], names: tuple[str, ...]) -> tuple[int, int]:
    """Positions of the two fields that a cross of the settings names."""
    if len(pair) != 2 or pair[0] == pair[1]:
        raise SchemaError(f"a cross joins two different fields; given {list(pair)} in data.crosses")
    for name in pair:
        if name not in names:
            raise SchemaError(
                f"data.crosses names {name!r}, which is no field; {did_you_mean(name, names, what='fields')}"
            )
    left, right = sorted((names.index(pair[0]), names.index(pair[1])))
    return left, right


def _read_crosses(
    pairs: list[list[int]], frames: Mapping[str, pl.DataFrame], n_ids: tuple[int, ...]
) -> tuple[Cross, ...]:
    crosses = []
    for n, (left, right) in enumerate(pairs):
        frame = frames.get(f"{CROSS_PREFIX}{n}")
        if frame is None:
            raise BundleError(f"the vocabulary lacks cross {n} of the encoder; save the model again")
        crosses.append(Cross.from_frame(frame.drop("field"), (left, right), n_ids[right]))
    return tuple(crosses)


def _coding(field: Field, numeric: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], keep_rare: bool) -> Coding:
    is_numeric = field.numeric in ("scale", "quantile")
    if field.name not in (numeric if is_numeric else frames):
        part = "encoder state" if is_numeric else "vocabulary"
        raise BundleError(f"the {part} lacks field {field.name!r} of the schema; save the model again")
    if field.numeric == "scale":
        return ScaledNumbers.from_json(numeric[field.name])
    if field.numeric == "quantile":
        return QuantileBins.from_json(numeric[field.name])
    return Vocabulary.from_frame(frames[field.name].drop("field"), keep_rare=keep_rare)


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
        advice = "; ".join(f"{name!r}: {did_you_mean(name, columns)}" for name in absent)
        raise SchemaError(f"the table must have the columns {', '.join(map(repr, absent))}, which are absent; {advice}")
