"""Rows for tree models: the encoded rows that all other models get, as columns of codes and numbers.

- A categorical field gives its local ids as codes of categories, including 0 (missing) and 1 (rare or unknown).
- A field with numbers gives them: as measured, standardised, the number of its quantile bin, or the paper's bin of a
  count. A missing number is NaN.
- A list or text gives the number of its values, and a column of 0 and 1 for each of its most frequent values.
- Evidence, if it is wanted, gives all statements; then the codes of categories may be left out.
- Crosses are skipped, because trees find their own.

Shape legend: R rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.vocabulary import FIRST_ID, MISSING_ID
from fielddep.store.shards import StorePart
from fielddep.training.unknown import UnknownTraining

N_LIST_VALUES = 50
"""Most frequent values of a list that have a column of their own."""
EXACT_IN_FLOAT32 = 1 << 24
"""float32 holds all whole numbers up to this one."""

Column = npt.NDArray[np.int32] | npt.NDArray[np.float32]
Vector = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TreeColumns:
    """How the columns of encoded rows become those of a tree model.

    Attributes:
        codes: fields that give codes of categories; their columns come first.
        numbers: fields that give numbers.
        numbers_of: for fields with bins, the number of every local id, NaN if it has none.
        scaled: column of the standardised numbers, for fields that have one.
        measured: column of the measures, for fields that have one.
        n_ids: number of ids per field.
        lists: for fields with several values per row, how many of the values have columns, behind those of all fields.
        evidence: whether statements are the last columns.
    """

    codes: tuple[int, ...]
    numbers: tuple[int, ...]
    numbers_of: Mapping[int, npt.NDArray[np.float32]]
    scaled: Mapping[int, int]
    measured: Mapping[int, int]
    n_ids: tuple[int, ...]
    lists: Mapping[int, int]
    evidence: bool = False

    @classmethod
    def of(cls, encoder: Encoder, *, evidence: bool = False, categories: bool = True) -> TreeColumns:
        """The columns of an encoder's fields; without evidence, categories are kept in any case."""
        layout, fields = encoder.layout, range(len(encoder.field_encoders))
        found = {f: _numbers_of(encoder.field_encoders[f]) for f in fields}
        numbers_of = {f: numbers for f, numbers in found.items() if numbers is not None}
        evidence = evidence and bool(layout.evidence)
        plain = (f for f in fields if f not in numbers_of and f not in layout.lists)
        return cls(
            codes=tuple(plain) if categories or not evidence else (),
            numbers=tuple(f for f in fields if f in numbers_of or f in layout.lists or f in layout.measured),
            numbers_of=numbers_of,
            scaled={field: place for place, field in enumerate(layout.numerical)},
            measured={field: place for place, field in enumerate(layout.measured)},
            n_ids=layout.n_ids[: len(fields)],
            lists={field: min(layout.n_ids[field] - FIRST_ID, N_LIST_VALUES) for field in layout.lists},
            evidence=evidence,
        )

    @property
    def categorical(self) -> list[int]:
        """Positions of the columns of codes."""
        return list(range(len(self.codes)))

    def columns(self, rows: EncodedRows) -> list[Column]:
        """One array per column, int32 codes or float32 numbers."""
        found: list[Column] = [rows.ids_RF[:, field] for field in self.codes]
        found += [self._numbers(rows, field) for field in self.numbers]
        found += [column for field in self.lists for column in self._values(rows, field)]
        if self.evidence:
            assert rows.evidence_RE is not None
            found += list(rows.evidence_RE.astype(np.float32).T)
        return found

    def _values(self, rows: EncodedRows, field: int) -> list[Column]:
        """For each of the most frequent values of a list, which have the lowest ids, whether a row has it."""
        lists = rows.lists_R(field)
        present = np.zeros((len(rows), FIRST_ID + self.lists[field]), dtype=np.float32)
        frequent_V = lists.values < present.shape[1]
        present[lists.row_V[frequent_V], lists.values[frequent_V]] = 1.0
        return list(present.T[FIRST_ID:])

    def _numbers(self, rows: EncodedRows, field: int) -> npt.NDArray[np.float32]:
        if field in self.lists:
            lists = rows.lists_R(field)
            empty_R = lists.values[lists.offsets[:-1]] == MISSING_ID
            return np.where(empty_R, 0, lists.lengths).astype(np.float32)
        if field in self.measured:
            assert rows.measures_RM is not None
            measures_R: npt.NDArray[np.float32] = rows.measures_RM[:, self.measured[field]]
            return measures_R
        ids_R = rows.ids_RF[:, field]
        if field not in self.scaled:
            return self.numbers_of[field][ids_R]
        scaled_R = rows.numbers_RN[:, self.scaled[field]]
        return np.where(ids_R == MISSING_ID, np.float32(np.nan), scaled_R)

    def matrix(self, columns: Sequence[Column]) -> npt.NDArray[np.floating]:
        """All columns in one array, whose type holds every code exactly."""
        exact = all(self.n_ids[field] <= EXACT_IN_FLOAT32 for field in self.codes)
        return np.stack(columns, axis=1, dtype=np.float32 if exact else np.float64)


@dataclass(frozen=True, kw_only=True)
class TreeTable:
    """All rows of a part in memory; the target is a class, or a standardised number for regression."""

    columns: list[Column]
    target: Vector
    weight: Vector | None

    @classmethod
    def of(cls, columns: TreeColumns, rows: StorePart, hide: UnknownTraining | None = None) -> TreeTable:
        """Read the rows of a part; with `hide`, some values are replaced as in the training of a network."""
        chunks = list(rows.chunks())
        if hide is not None:
            chunks = [hide.rows(chunk, step) for step, chunk in enumerate(chunks)]
        parts = [columns.columns(chunk) for chunk in chunks]
        targets = [chunk.target_R for chunk in chunks if chunk.target_R is not None]
        weights = [chunk.weight_R for chunk in chunks if chunk.weight_R is not None]
        return cls(
            columns=[np.concatenate(arrays) for arrays in zip(*parts, strict=True)],
            target=np.concatenate(targets),
            weight=np.concatenate(weights) if weights else None,
        )

    def __len__(self) -> int:
        return len(self.target)


def _numbers_of(field_encoder: FieldEncoder) -> npt.NDArray[np.float32] | None:
    """The number of every local id of a numerical field; None for a categorical one."""
    if field_encoder.field.numeric is None:
        return None
    numbers = np.arange(max(len(field_encoder.counts), FIRST_ID), dtype=np.float32)
    if field_encoder.field.numeric == "log2":
        numbers = field_encoder.codec.labels().cast(pl.Float32, strict=False).fill_null(np.nan).to_numpy().copy()
    numbers[:FIRST_ID] = np.nan
    return numbers
