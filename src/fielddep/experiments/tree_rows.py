"""Rows for tree models: the same encoded rows that the other models get, as columns of codes and numbers.

- A categorical field gives its local ids as codes of categories; 0 (missing) and 1 (rare or unknown) are categories.
- A numerical field gives numbers that keep its order: the standardised number, the number of its quantile bin or the
  paper's bin of a count. A missing number is NaN.
- Crosses are left out: trees find their own.

Shape legend: R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.fieldcoder import FieldCoder
from fielddep.data.store.loader import Rows
from fielddep.data.vocabulary import FIRST_ID, MISSING_ID

EXACT_IN_FLOAT32 = 1 << 24
"""Whole numbers up to this one are float32 numbers."""

Column = npt.NDArray[np.int32] | npt.NDArray[np.float32]
Vector = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TreeColumns:
    """How the columns of encoded rows become those of a tree model.

    Attributes:
        numbers_of: one a field: None for categories, else the number of every local id, NaN for none.
        scaled: place among the standardised numbers of each field that is given as such.
        n_ids: ids of every field.
    """

    numbers_of: tuple[npt.NDArray[np.float32] | None, ...]
    scaled: dict[int, int]
    n_ids: tuple[int, ...]

    @classmethod
    def of(cls, encoder: TableEncoder) -> TreeColumns:
        """The columns of an encoder's fields."""
        layout = encoder.layout
        return cls(
            numbers_of=tuple(_numbers_of(coder) for coder in encoder.coders),
            scaled={field: place for place, field in enumerate(layout.numerical)},
            n_ids=layout.n_ids[: len(encoder.coders)],
        )

    @property
    def categorical(self) -> list[int]:
        """Places of the fields that hold codes of categories."""
        return [field for field, numbers in enumerate(self.numbers_of) if numbers is None]

    def columns(self, rows: EncodedTable) -> list[Column]:
        """One array a field: int32 codes, or float32 numbers."""
        return [self._column(rows, field) for field in range(len(self.numbers_of))]

    def _column(self, rows: EncodedTable, field: int) -> Column:
        ids_R: npt.NDArray[np.int32] = rows.ids_RF[:, field].numpy()
        numbers = self.numbers_of[field]
        if numbers is None:
            return ids_R
        if field not in self.scaled:
            return numbers[ids_R]
        scaled_R = rows.numbers_RN[:, self.scaled[field]].numpy()
        return np.where(ids_R == MISSING_ID, np.float32(np.nan), scaled_R)

    def matrix(self, columns: Sequence[Column]) -> npt.NDArray[np.floating]:
        """All columns in one array, of a type that holds every code exactly."""
        exact = all(self.n_ids[field] <= EXACT_IN_FLOAT32 for field in self.categorical)
        matrix = np.empty((len(columns[0]), len(columns)), dtype=np.float32 if exact else np.float64)
        for place, column in enumerate(columns):
            matrix[:, place] = column
        return matrix


@dataclass(frozen=True, kw_only=True)
class TreeTable:
    """All rows of a part in memory.

    Attributes:
        columns: one array a field.
        target: class, or standardised number of a regression.
        weight: weights of the rows, where there are some.
    """

    columns: list[Column]
    target: Vector
    weight: Vector | None

    @classmethod
    def of(cls, columns: TreeColumns, rows: Rows) -> TreeTable:
        """Read the rows of a part."""
        blocks = list(rows.blocks())
        parts = [columns.columns(block) for block in blocks]
        targets = [block.target_R.numpy() for block in blocks if block.target_R is not None]
        weights = [block.weight_R.numpy() for block in blocks if block.weight_R is not None]
        return cls(
            columns=[np.concatenate(pieces) for pieces in zip(*parts, strict=True)],
            target=np.concatenate(targets),
            weight=np.concatenate(weights) if weights else None,
        )

    def __len__(self) -> int:
        return len(self.target)


def _numbers_of(coder: FieldCoder) -> npt.NDArray[np.float32] | None:
    """The number of every local id of a numerical field; None for a categorical one."""
    if coder.field.numeric is None:
        return None
    numbers = np.arange(max(len(coder.counts), FIRST_ID), dtype=np.float32)
    if coder.field.numeric == "log2":
        numbers = coder.coding.labels().cast(pl.Float32, strict=False).fill_null(np.nan).to_numpy().copy()
    numbers[:FIRST_ID] = np.nan
    return numbers
