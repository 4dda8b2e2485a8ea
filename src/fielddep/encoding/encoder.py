"""Encoder: a table in, ids and numbers out. Learned from training rows, saved with the model.

Shape legend: R rows, F fields and crosses, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.crosses import CROSS_PREFIX, Cross, cross_name
from fielddep.encoding.evidence import Evidence
from fielddep.encoding.field import Codec, EncodedField, FieldCells, FieldEncoder, RowCells, list_kind
from fielddep.encoding.measures import Measure
from fielddep.encoding.numbers import QuantileBins, ScaledNumbers
from fielddep.encoding.one_row import is_plain
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import (
    EVIDENCE,
    IDS,
    MEASURES,
    NUMBERS,
    TARGET,
    WEIGHT,
    Array,
    EncodedRows,
    Layout,
    RowArray,
    RowNumbers,
    list_name,
)
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.unknown import UnknownReport, best_ids
from fielddep.encoding.values import as_number
from fielddep.encoding.vocabulary import FRAME_SCHEMA, MISSING_ID, RARE_ID, Vocabulary
from fielddep.errors import BundleError, SchemaError
from fielddep.wording import count, did_you_mean, listing, nearest

Ids = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float32]

MAX_NAMES = 5
"""Columns that an error names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """Turns tables of one schema into ids. Get one from `learn.learn_encoder`, or from a saved model.

    Attributes:
        schema: fields and target; a regression target with mean and scale of the training rows.
        field_encoders: one per field.
        missing_values: texts that mean missing.
        handle_unknown: what a value never seen in training does.
        crosses: pairs of fields whose joint values have ids too, in columns behind the fields.
        related: positions of the fields that MDL relates to each other; None means all.
        evidence: what training rows with the same values did; None if it is not used.
    """

    schema: Schema
    field_encoders: tuple[FieldEncoder, ...]
    missing_values: tuple[str, ...]
    handle_unknown: Literal["rare", "error"]
    crosses: tuple[Cross, ...] = ()
    related: tuple[int, ...] | None = None
    evidence: Evidence | None = None

    @cached_property
    def layout(self) -> Layout:
        """What a model must know about the fields."""
        names = self.schema.field_names
        return Layout(
            names=names + tuple(cross_name(names[c.left], names[c.right]) for c in self.crosses),
            n_ids=tuple(len(counts) for counts in self.counts),
            numerical=tuple(f for f, field in enumerate(self.schema.fields) if field.numeric == "scale"),
            crosses=tuple((c.left, c.right) for c in self.crosses),
            measured=tuple(f for f, encoder in enumerate(self.field_encoders) if encoder.measure is not None),
            related=self.related,
            evidence=() if self.evidence is None else self.evidence.combinations,
            evidence_width=0 if self.evidence is None else self.evidence.width,
            counts=self.counts,
            lists=tuple(f for f, field in enumerate(self.schema.fields) if list_kind(field) is not None),
            shares=tuple(
                (f, names.index(field.shares)) for f, field in enumerate(self.schema.fields) if field.shares is not None
            ),
        )

    @cached_property
    def digest(self) -> str:
        """Checksum of everything that decides the ids of a row; encoders with the same digest give the same ids.

        It covers the content, so it does not depend on the library that writes the files. Evidence has no part in it.
        """
        content = {name: part for name, part in self.to_json().items() if name != "evidence"}
        state = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
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
        fields, crosses = (field.counts for field in self.field_encoders), (cross.counts for cross in self.crosses)
        return (*fields, *crosses)

    def encode(
        self,
        table: pl.DataFrame,
        *,
        with_target: bool = False,
        first_row: int = 0,
        handle_unknown: Literal["rare", "error"] | None = None,
        row_by_row: bool = False,
    ) -> tuple[EncodedRows, UnknownReport]:
        """Encode rows and count unknown and missing values.

        Columns that are not fields are ignored, including target and weight unless `with_target`.

        Args:
            table: rows, possibly one chunk of a longer table.
            with_target: also encode the target and, if the schema has one, the weight.
            first_row: number of the first row in the longer table, for error messages.
            handle_unknown: overrides the encoder's own; validation rows are encoded with "rare".
            row_by_row: look up value by value, for many calls with a few rows each; see `FieldEncoder.encode`.

        Raises:
            SchemaError: names all fields that the table lacks.
            UnknownValueError: for a value never seen in training, with `handle_unknown = "error"`.
        """
        check_columns(table.columns, self.schema.columns)
        cells = FieldCells(table.__getitem__, self.missing_values)
        refuse = (handle_unknown or self.handle_unknown) == "error"
        columns = [
            c.encode(cells.of(c.field), first_row=first_row, refuse_unknown=refuse, row_by_row=row_by_row)
            for c in self.field_encoders
        ]
        arrays = self._join(columns, len(table))
        if with_target:
            arrays |= self._target_arrays(table, first_row)
        return EncodedRows(layout=self.layout, arrays=arrays), self._report(columns, len(table))

    def encode_row(self, row: Mapping[str, object]) -> EncodedRows | None:
        """One row of Python values, without a frame; None if it takes `encode` to handle or refuse one of them.

        Raises:
            SchemaError: names all fields that the row lacks.
        """
        check_columns(row, self.schema.columns)
        cells, columns = RowCells(row, self.missing_values), []
        for field_encoder in self.field_encoders:
            plain = _is_plain_cell(row[field_encoder.field.column])
            column = field_encoder.encode_values([cells.of(field_encoder.field)]) if plain else None
            if column is None or (column.n_unknown and self.handle_unknown == "error"):
                return None
            columns.append(column)
        return EncodedRows(layout=self.layout, arrays=self._join(columns, 1))

    def _join(self, columns: Sequence[EncodedField], n_rows: int) -> dict[str, RowArray]:
        """The arrays of all fields, with the ids of the crosses."""
        ids_RF = np.empty((n_rows, len(columns) + len(self.crosses)), dtype=np.int32)
        for position, column in enumerate(columns):
            ids_RF[:, position] = column.ids
        for position, cross in enumerate(self.crosses, start=len(columns)):
            ids_RF[:, position] = cross.encode(ids_RF)
        arrays: dict[str, RowArray] = {IDS: ids_RF}
        numbers = [column.numbers for column in columns if column.numbers is not None]
        measures = [column.measures for column in columns if column.measures is not None]
        arrays |= {name: np.stack(found, axis=1) for name, found in ((NUMBERS, numbers), (MEASURES, measures)) if found}
        arrays |= {list_name(f): column.lists for f, column in enumerate(columns) if column.lists is not None}
        return arrays | self.evidence_arrays(arrays)

    def evidence_arrays(self, arrays: Mapping[str, RowArray]) -> dict[str, RowArray]:
        """The array of statements about rows that were not counted, given their ids and lists; none if not used."""
        if self.evidence is None:
            return {}
        ids_RF, lists = arrays[IDS], {f: arrays[list_name(f)] for f in self.layout.lists}
        assert not isinstance(ids_RF, Ragged)
        ragged = {f: one for f, one in lists.items() if isinstance(one, Ragged)}
        return {EVIDENCE: self.evidence.encode(ids_RF, ragged)}

    def _target_arrays(self, table: pl.DataFrame, first_row: int) -> dict[str, Array]:
        """The arrays of the target and, if the schema has one, of the weight."""
        target, weight = self.schema.target, self.schema.weight
        if target is None:
            raise SchemaError("the target cannot be encoded, because this schema has none; fit with data.target")
        check_columns(table.columns, (target.name,) if weight is None else (target.name, weight))
        targets = target.encode(table[target.name], self.missing_values, first_row=first_row)
        if weight is None:
            return {TARGET: targets}
        numbers = range(first_row, first_row + len(table))
        return {TARGET: targets, WEIGHT: encode_weights(table[weight], self.missing_values, numbers)}

    def decode(self, encoded: EncodedRows) -> pl.DataFrame:
        """Values of encoded rows: canonical texts, intervals of bins, numbers, joined lists; null for missing."""
        ids_RF, numbers_RN = encoded.ids_RF, encoded.numbers_RN
        position = {f: n for n, f in enumerate(encoded.layout.numerical)}
        return pl.DataFrame(
            [
                field_encoder.decode(
                    ids_RF[:, f],
                    numbers_RN[:, position[f]] if f in position else None,
                    encoded.lists_R(f) if f in encoded.layout.lists else None,
                )
                for f, field_encoder in enumerate(self.field_encoders)
            ]
        )

    def values(self, field: str) -> pl.Series:
        """Text label of each local id of a field."""
        if field not in self.schema.field_names:
            advice = did_you_mean(field, self.schema.field_names, what="fields")
            raise SchemaError(f"{field!r} is not a field; {advice}")
        return self.field_encoders[self.schema.field_names.index(field)].labels()

    def to_json(self) -> dict[str, Any]:
        """Schema and numeric state; the vocabularies are in `vocabulary_frame`."""
        return {
            "schema": self.schema.to_json(),
            "numeric": {
                c.field.name: c.codec.to_json() for c in self.field_encoders if not isinstance(c.codec, Vocabulary)
            },
            "missing_values": list(self.missing_values),
            "handle_unknown": self.handle_unknown,
            "crosses": [[cross.left, cross.right] for cross in self.crosses],
            **({} if self.related is None else {"related": list(self.related)}),
            **({"measures": self._measures()} if self.layout.measured else {}),
            **({} if self.evidence is None else {"evidence": self.evidence.to_json()}),
        }

    def _measures(self) -> dict[str, Any]:
        return {c.field.name: c.measure.to_json() for c in self.field_encoders if c.measure is not None}

    def vocabulary_frame(self) -> pl.DataFrame:
        """All vocabularies in one frame: field, value, id (local), count."""
        parts = {
            c.field.name: c.codec.to_frame()
            for c in self.field_encoders
            if isinstance(c.codec, Vocabulary) and c.field.shares is None
        }
        # A cross is named by its number, because a column may be called "month x day" too.
        parts |= {f"{CROSS_PREFIX}{n}": cross.to_frame() for n, cross in enumerate(self.crosses)}
        frames = [part.insert_column(0, pl.lit(name).alias("field")) for name, part in parts.items()]
        return pl.concat(frames) if frames else pl.DataFrame(schema={"field": pl.String, **FRAME_SCHEMA})

    def cells(self) -> dict[str, Array] | None:
        """The cells of the evidence as arrays; None without evidence."""
        return None if self.evidence is None else self.evidence.arrays()

    @classmethod
    def from_parts(
        cls, state: Mapping[str, Any], frame: pl.DataFrame, cells: Mapping[str, Array] | None = None
    ) -> Encoder:
        """Rebuild from `to_json`, `vocabulary_frame` and `cells`.

        Raises:
            BundleError: if the two do not fit together.
        """
        schema = Schema.from_json(state["schema"])
        parts = {str(key[0]): part for key, part in frame.partition_by("field", as_dict=True).items()}
        missing, unknown = tuple(state["missing_values"]), state["handle_unknown"]
        measures = {name: Measure(**values) for name, values in state.get("measures", {}).items()}
        field_encoders = tuple(
            FieldEncoder(
                field=f,
                codec=_codec(f, state["numeric"], parts, unknown == "error"),
                missing_values=missing,
                measure=measures.get(f.name),
            )
            for f in schema.fields
        )
        related = tuple(state["related"]) if "related" in state else None
        encoder = cls(
            schema=schema,
            field_encoders=field_encoders,
            missing_values=missing,
            handle_unknown=unknown,
            related=related,
            evidence=None if cells is None else Evidence.from_parts(state["evidence"], cells),
        )
        return replace(encoder, crosses=_read_crosses(state.get("crosses", []), parts, encoder.layout.n_ids))

    def report(self, rows: EncodedRows) -> UnknownReport:
        """Unknown and missing values of encoded rows; values that were rare in training count as unknown."""
        unknown, missing = {}, {}
        for f, field_encoder in enumerate(self.field_encoders):
            name, codec = field_encoder.field.name, field_encoder.codec
            ids_R = best_ids(rows, f)
            n_missing = int((ids_R == MISSING_ID).sum())
            n_rare = 0 if isinstance(codec, ScaledNumbers) else int((ids_R == RARE_ID).sum())
            # A number is never unknown: the rare id of bins means missing if training rows had none missing.
            is_bins = isinstance(codec, QuantileBins)
            unknown[name], missing[name] = (0, n_missing + n_rare) if is_bins else (n_rare, n_missing)
        return UnknownReport(n_rows=len(rows), unknown=unknown, missing=missing)

    def _report(self, columns: list[EncodedField], n_rows: int) -> UnknownReport:
        names = self.schema.field_names
        return UnknownReport(
            n_rows=n_rows,
            unknown={name: column.n_unknown for name, column in zip(names, columns, strict=True)},
            missing={name: column.n_missing for name, column in zip(names, columns, strict=True)},
        )


def _is_plain_cell(value: object) -> bool:
    return all(map(is_plain, value)) if isinstance(value, (list, tuple)) else is_plain(value)


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


def _codec(field: Field, numeric: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], keep_rare: bool) -> Codec:
    is_numeric, name = field.numeric in ("scale", "quantile"), field.shares or field.name
    if name not in (numeric if is_numeric else frames):
        part = "encoder state" if is_numeric else "vocabulary"
        raise BundleError(f"the {part} lacks field {name!r} of the schema; save the model again")
    if field.numeric == "scale":
        return ScaledNumbers.from_json(numeric[name])
    if field.numeric == "quantile":
        return QuantileBins.from_json(numeric[name])
    return Vocabulary.from_frame(frames[name].drop("field"), keep_rare=keep_rare)


def bad_weight(name: str, row: int) -> SchemaError:
    """The error for a weight that is missing or negative."""
    return SchemaError(f"weights {name!r} must be 0 or more, none missing; see row {row} (counted from 0)")


def encode_weights(column: pl.Series, missing_values: Iterable[str], numbers: Sequence[int] | RowNumbers) -> Numbers:
    """Weights of rows; an error names the bad row by its entry of `numbers`."""
    weights = as_number(column, missing_values, first_row=int(numbers[0]) if len(numbers) else 0)
    bad = (weights.is_null() | (weights < 0)).fill_null(True)
    if bad.any():
        raise bad_weight(column.name, int(numbers[bad.arg_true()[0]]))
    return weights.to_numpy().astype(np.float32)


def check_columns(columns: Collection[str], wanted: Sequence[str]) -> None:
    """Refuse a table that lacks columns, in one line however many they are."""
    absent = [name for name in wanted if name not in columns]
    if not absent:
        return
    others = [name for name in columns if name not in wanted]
    similar = ((name, nearest(name, others)) for name in absent[:MAX_NAMES])
    name, near = next((pair for pair in similar if pair[1] is not None), (None, None))
    has = f"did you mean {near!r} for {name!r}?" if near else f"it has {listing(list(columns), MAX_NAMES) or 'none'}"
    raise SchemaError(f"the table lacks {count(len(absent), 'column')}: {listing(absent, MAX_NAMES)}; {has}")
