"""Crosses: the joint values of two fields as one more categorical field, such as month x day.

A network of pairwise products finds it hard to treat every single date on its own; a field of dates makes it easy.
A cross lives behind the fields of the user: it has embeddings and takes part in the interactions, but it is no field
of the dependencies, which stay those of the user's table.

Shape legend: R rows, F fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.vocabulary import FIRST_ID, FRAME_SCHEMA, RARE_ID

Ids = npt.NDArray[np.int32]

MAX_TABLE = 1 << 22
"""Codes of pairs below this are looked up in a table, which is many times faster than by searching."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cross:
    """Pairs of local ids of two fields, with ids of their own.

    Attributes:
        left: position of the first field.
        right: position of the second field.
        n_right: local ids of the second field.
        codes: kept pairs as left id * n_right + right id; position p has local id p + 2.
        counts: training rows of each local id; id 0 (missing) is never used, id 1 is every pair not kept.
    """

    left: int
    right: int
    n_right: int
    codes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def fit(cls, ids_RF: Ids, n_ids: Sequence[int], pair: tuple[int, int], min_count: int) -> Cross:
        """Keep the pairs that training rows hold at least `min_count` times, by falling count."""
        codes, counts = np.unique(pair_codes(ids_RF, pair, n_ids[pair[1]]), return_counts=True)
        return cls.from_counts(codes, counts, n_ids, pair, min_count)

    @classmethod
    def from_counts(
        cls,
        codes: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        n_ids: Sequence[int],
        pair: tuple[int, int],
        min_count: int,
    ) -> Cross:
        """The same from different codes of pairs and the rows of each."""
        left, right = pair
        order = np.lexsort((codes, -counts))
        codes, counts = codes[order], counts[order].astype(np.int64)
        kept = counts >= min_count
        reserved = np.array([0, counts[~kept].sum()], dtype=np.int64)
        return cls(
            left=left,
            right=right,
            n_right=n_ids[right],
            codes=codes[kept].astype(np.int64),
            counts=np.concatenate([reserved, counts[kept]]),
        )

    def encode(self, ids_RF: Ids) -> Ids:
        """Local ids of the pairs of rows; the rare id for a pair that was not kept."""
        if not len(self.codes):
            return np.full(len(ids_RF), RARE_ID, dtype=np.int32)
        codes_R = pair_codes(ids_RF, (self.left, self.right), self.n_right)
        if len(self._ids_of_codes):
            ids: Ids = self._ids_of_codes[np.minimum(codes_R, len(self._ids_of_codes) - 1)]
            return ids
        place = np.minimum(np.searchsorted(self.codes, codes_R, sorter=self._order), len(self._order) - 1)
        found = self._order[place]
        return np.where(self.codes[found] == codes_R, found + FIRST_ID, RARE_ID).astype(np.int32)

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        return np.argsort(self.codes)

    @cached_property
    def _ids_of_codes(self) -> Ids:
        """Id of every code and, in the last place, of any larger one; empty where codes are too large for a table."""
        largest = int(self.codes.max())
        if largest >= MAX_TABLE:
            return np.empty(0, dtype=np.int32)
        ids = np.full(largest + 2, RARE_ID, dtype=np.int32)
        ids[self.codes] = np.arange(FIRST_ID, FIRST_ID + len(self.codes))
        return ids

    def to_frame(self) -> pl.DataFrame:
        """Columns value (the pair's code), id, count, as a vocabulary has them."""
        values = [None, None, *map(str, self.codes.tolist())]
        return pl.DataFrame({"value": values, "id": range(len(values)), "count": self.counts}, schema=FRAME_SCHEMA)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, pair: tuple[int, int], n_right: int) -> Cross:
        """Read what `to_frame` wrote."""
        own = frame.sort("id")
        return cls(
            left=pair[0],
            right=pair[1],
            n_right=n_right,
            codes=own["value"].slice(FIRST_ID).cast(pl.Int64).to_numpy(),
            counts=own["count"].to_numpy().astype(np.int64),
        )


def cross_name(left: str, right: str) -> str:
    """Name of a cross.

    Example:
        >>> cross_name("month", "day")
        'month x day'
    """
    return f"{left} x {right}"


def pair_codes(ids_RF: Ids, pair: tuple[int, int], n_right: int) -> npt.NDArray[np.int64]:
    """One number a row for the ids of two fields."""
    return ids_RF[:, pair[0]].astype(np.int64) * n_right + ids_RF[:, pair[1]]


class PairCounts:
    """Counts codes of pairs over portions of rows.

    Args:
        n_ids: local ids of every field.
        pair: positions of the two fields.
    """

    def __init__(self, n_ids: Sequence[int], pair: tuple[int, int]) -> None:
        self.n_ids, self.pair = n_ids, pair
        n_cells = n_ids[pair[0]] * n_ids[pair[1]]
        self._dense = np.zeros(n_cells, dtype=np.int64) if n_cells <= MAX_TABLE else None
        self._codes = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []

    def add(self, ids_RF: Ids) -> None:
        """Count the pairs of more rows."""
        codes_R = pair_codes(ids_RF, self.pair, self.n_ids[self.pair[1]])
        if self._dense is not None:
            self._dense += np.bincount(codes_R, minlength=len(self._dense))
            return
        self._waiting.append(np.unique(codes_R, return_counts=True))
        # Merging as much as is known already keeps the work of all merges in proportion to the rows.
        if sum(len(codes) for codes, _ in self._waiting) > max(len(self._codes), MAX_TABLE):
            self._merge()

    def cross(self, min_count: int) -> Cross:
        """The cross of all rows counted."""
        self._merge()
        codes, counts = self._codes, self._counts
        if self._dense is not None:
            codes = np.flatnonzero(self._dense)
            counts = self._dense[codes]
        return Cross.from_counts(codes, counts, self.n_ids, self.pair, min_count)

    def _merge(self) -> None:
        codes = np.concatenate([self._codes, *(codes for codes, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        self._codes, place = np.unique(codes, return_inverse=True)
        self._counts = np.zeros(len(self._codes), dtype=np.int64)
        np.add.at(self._counts, place, counts)
        self._waiting = []
