"""Crosses: the joint values of two fields as one more categorical field, such as month x day.

A network of pairwise products finds it hard to treat every single date on its own; a field of dates makes it easy.
A cross lives behind the fields of the user: it has embeddings and takes part in the interactions, but it is no field
of the dependencies, which stay those of the user's table.

Shape legend: R rows, F fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.vocabulary import FIRST_ID, FRAME_SCHEMA, RARE_ID

Ids = npt.NDArray[np.int32]


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
        left, right = pair
        codes_R = pair_codes(ids_RF, pair, n_ids[right])
        codes, counts = np.unique(codes_R, return_counts=True)
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
        order = np.argsort(self.codes)
        codes_R = pair_codes(ids_RF, (self.left, self.right), self.n_right)
        place = np.minimum(np.searchsorted(self.codes, codes_R, sorter=order), len(order) - 1)
        found = order[place]
        return np.where(self.codes[found] == codes_R, found + FIRST_ID, RARE_ID).astype(np.int32)

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
