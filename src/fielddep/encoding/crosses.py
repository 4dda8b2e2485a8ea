"""Crosses: the joint values of two fields as one more categorical field, such as month x day.

A network of pairwise products finds it hard to treat every single date on its own; a field of dates makes it easy.
A cross lives behind the fields of the user: it has embeddings and takes part in the interactions, but it is no field
of the dependencies, which stay those of the user's table.

Shape legend: R rows, F fields.

Which pairs of fields are worth a cross, found on training rows alone.

For every pair: how much do the means of its cells, taken from one half of the rows, lower the squared error on the
other half, beyond what both fields say on their own? That gain is honest (no row helps to predict itself), so noise
has a gain below zero and nothing needs a significance level. The best pair is taken, its effect is subtracted, and the
search goes on until no pair gains enough.

Shape legend: R rows, F fields, K outputs (classes, or one).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.vocabulary import FIRST_ID, FRAME_SCHEMA, RARE_ID

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
    def from_counts(
        cls,
        codes: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        n_ids: Sequence[int],
        pair: tuple[int, int],
        min_count: int,
    ) -> Cross:
        """Keep the pairs that at least `min_count` training rows hold, by falling count.

        Args:
            codes: different codes of pairs.
            counts: training rows of each.
            n_ids: local ids of every field.
            pair: positions of the two fields.
            min_count: rows that a kept pair must have.
        """
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


Floats = npt.NDArray[np.float64]
TakeRows = Callable[[npt.NDArray[np.int64] | slice], tuple[Ids, Floats]]

MIN_SEARCH_ROWS, MAX_SEARCH_ROWS = 20_000, 300_000
MAX_CELL_VISITS = 3e8
"""Rows times pairs of a search; with hundreds of fields fewer rows are looked at."""
CELLS_A_ROW = 2.0
"""A pair with more possible cells than this many a row is not looked at: most cells would be empty."""
SHRINKAGE = 20.0
"""Rows that a cell's mean is shrunk by."""
MIN_GAIN = 0.002
"""Smallest share of the target's variance that a cross must explain on rows it has not seen."""
MAX_CROSSES = 6
N_CANDIDATES = 40
"""Pairs that stay in the race after the first round."""
MAX_CLASSES = 5


def find_crosses(n_rows: int, n_ids: Sequence[int], take: TakeRows, *, seed: int = 0) -> list[tuple[int, int]]:
    """Positions of the fields of each cross worth having, best first.

    Args:
        n_rows: number of training rows.
        n_ids: local ids of every field.
        take: gives local ids and targets of ascending row numbers, or of all rows by `slice(None)`. A target is a
            regression target, 0/1, or a class index; more than two classes are looked at one by one.
        seed: of the sample and of the halves.
    """
    rng = np.random.default_rng(seed)
    n_pairs = len(n_ids) * (len(n_ids) - 1) // 2
    n_sample = int(np.clip(MAX_CELL_VISITS / max(n_pairs, 1), MIN_SEARCH_ROWS, MAX_SEARCH_ROWS))
    sampled = n_rows > n_sample
    ids_RF, target_R = take(np.sort(rng.choice(n_rows, n_sample, replace=False)) if sampled else slice(None))
    outputs_RK = _outputs(target_R)
    variance = float(outputs_RK.var(axis=0).sum())
    pairs = [p for p in itertools.combinations(range(len(n_ids)), 2) if _fits(p, n_ids, len(ids_RF))]
    if not pairs or variance == 0:
        return []
    residual_RK = _without_main_effects(ids_RF, n_ids, outputs_RK)
    first_half_R = rng.random(len(ids_RF)) < 0.5
    found: list[tuple[int, int]] = []
    while pairs and len(found) < MAX_CROSSES:
        gains = [_gain(ids_RF, n_ids, pair, residual_RK, first_half_R) / variance for pair in pairs]
        best = int(np.argmax(gains))
        if gains[best] < MIN_GAIN:
            break
        found.append(pairs[best])
        residual_RK = residual_RK - _cell_means(pair_codes(ids_RF, pairs[best], n_ids[pairs[best][1]]), residual_RK)
        order = np.argsort(gains)[::-1][: N_CANDIDATES + 1]
        pairs = [pairs[i] for i in order if i != best and gains[i] > 0]
    return found


def _fits(pair: tuple[int, int], n_ids: Sequence[int], n_rows: int) -> bool:
    return n_ids[pair[0]] * n_ids[pair[1]] <= CELLS_A_ROW * n_rows


def _outputs(target_R: Floats) -> Floats:
    """The target as columns: itself, or an indicator for each of the commonest classes."""
    classes, counts = np.unique(target_R, return_counts=True)
    whole = bool((classes == np.round(classes)).all())
    if whole and 2 < len(classes) <= 1000 and classes.min() >= 0:
        common = classes[np.argsort(-counts)[:MAX_CLASSES]]
        return np.equal(target_R[:, None], common[None, :]).astype(np.float64)
    return target_R.astype(np.float64).reshape(-1, 1)


def _without_main_effects(ids_RF: Ids, n_ids: Sequence[int], outputs_RK: Floats) -> Floats:
    """What remains after each field's own shrunken effect, by two rounds of backfitting."""
    residual_RK: Floats = outputs_RK - outputs_RK.mean(axis=0)
    for _ in range(2):
        for f in range(len(n_ids)):
            residual_RK = residual_RK - _cell_means(ids_RF[:, f].astype(np.int64), residual_RK)
    return residual_RK


def _cell_means(codes_R: npt.NDArray[np.int64], values_RK: Floats) -> Floats:
    """Shrunken mean of every row's cell."""
    n_cells = int(codes_R.max()) + 1
    counts = np.bincount(codes_R, minlength=n_cells)
    means = [np.bincount(codes_R, v, minlength=n_cells) / (counts + SHRINKAGE) for v in values_RK.T]
    return np.stack([m[codes_R] for m in means], axis=1)


def _gain(
    ids_RF: Ids,
    n_ids: Sequence[int],
    pair: tuple[int, int],
    residual_RK: Floats,
    first_half_R: npt.NDArray[np.bool_],
) -> float:
    """Fall of the squared error a row when cell means of one half predict the other, both ways."""
    codes_R = pair_codes(ids_RF, pair, n_ids[pair[1]])
    n_cells = n_ids[pair[0]] * n_ids[pair[1]]
    halves = [(codes_R[half], residual_RK[half]) for half in (first_half_R, ~first_half_R)]
    counts = [np.bincount(codes, minlength=n_cells) for codes, _ in halves]
    gain = 0.0
    for k in range(residual_RK.shape[1]):
        sums = [np.bincount(codes, values[:, k], minlength=n_cells) for codes, values in halves]
        for a, b in ((0, 1), (1, 0)):
            mean = sums[a] / (counts[a] + SHRINKAGE)
            gain += float((2 * mean * sums[b] - counts[b] * mean**2).sum())
    return gain / len(codes_R)
