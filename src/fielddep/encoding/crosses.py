"""Crosses: the joint values of two fields as one more categorical field, such as month x day.

A network of pairwise products can hardly learn a separate effect for every date; a field of dates can. A cross comes
after the fields of the table: it has embeddings and takes part in the interactions, but not in the dependencies.

The search for crosses uses training rows only. For every pair of fields it asks how much the means of the cells in one
half of the rows lower the squared error on the other half, beyond the effects of the two fields alone. No row helps to
predict itself, so the gain of noise is below zero and no significance level is needed. The search takes the best pair,
subtracts its effect and repeats until no pair gains enough.

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
from fielddep.errors import SchemaError
from fielddep.wording import did_you_mean

Ids = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_TABLE = 1 << 22
"""Codes below this are looked up in a table, which is many times faster than a binary search."""
CROSS_PREFIX = "\x00cross "
"""Start of a cross's name in the vocabulary file; no column has such a name."""


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
    codes: Codes
    counts: Codes

    @classmethod
    def from_counts(
        cls, codes: Codes, counts: Codes, n_ids: Sequence[int], pair: tuple[int, int], min_count: int
    ) -> Cross:
        """Keep the pairs that occur in at least `min_count` training rows, by falling count; `codes` are distinct."""
        left, right = pair
        order = np.lexsort((codes, -counts))
        codes, counts = codes[order].astype(np.int64), counts[order].astype(np.int64)
        kept = counts >= min_count
        all_counts = np.concatenate([[0, counts[~kept].sum()], counts[kept]])
        return cls(left=left, right=right, n_right=n_ids[right], codes=codes[kept], counts=all_counts)

    def encode(self, ids_RF: Ids) -> Ids:
        """Local id of each row's pair; the rare id for a pair that was not kept."""
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
    def _order(self) -> Codes:
        return np.argsort(self.codes)

    @cached_property
    def _ids_of_codes(self) -> Ids:
        """Id of every code and, at the end, of any larger one; empty if the codes are too large for a table."""
        largest = int(self.codes.max())
        if largest >= MAX_TABLE:
            return np.empty(0, dtype=np.int32)
        ids = np.full(largest + 2, RARE_ID, dtype=np.int32)
        ids[self.codes] = np.arange(FIRST_ID, FIRST_ID + len(self.codes))
        return ids

    def to_frame(self) -> pl.DataFrame:
        """Columns value (the pair's code), id and count, like those of a vocabulary."""
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


def cross_positions(pair: Sequence[str], names: Sequence[str]) -> tuple[int, int]:
    """Positions of the two fields of a cross named in the settings.

    Raises:
        SchemaError: unless `pair` names two different fields.
    """
    if len(pair) != 2 or pair[0] == pair[1]:
        raise SchemaError(f"a cross joins two different fields; data.crosses holds {list(pair)}")
    for name in pair:
        if name not in names:
            advice = did_you_mean(name, names, what="fields")
            raise SchemaError(f"data.crosses names {name!r}, which is not a field; {advice}")
    left, right = sorted(map(names.index, pair))
    return left, right


def pair_codes(ids_RF: Ids, pair: tuple[int, int], n_right: int) -> Codes:
    """One number per row for the ids of two fields."""
    return ids_RF[:, pair[0]].astype(np.int64) * n_right + ids_RF[:, pair[1]]


class PairCounts:
    """Counts the pairs of two fields, chunk by chunk.

    Args:
        n_ids: local ids of every field.
        pair: positions of the two fields.
    """

    def __init__(self, n_ids: Sequence[int], pair: tuple[int, int]) -> None:
        self.n_ids, self.pair = n_ids, pair
        n_cells = n_ids[pair[0]] * n_ids[pair[1]]
        self._dense = np.zeros(n_cells, dtype=np.int64) if n_cells <= MAX_TABLE else None
        self._sparse = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        """Ascending codes and the rows of each."""
        self._waiting: list[tuple[Codes, Codes]] = []

    def add(self, ids_RF: Ids) -> None:
        """Count the pairs of more rows."""
        codes_R = pair_codes(ids_RF, self.pair, self.n_ids[self.pair[1]])
        if self._dense is not None:
            self._dense += np.bincount(codes_R, minlength=len(self._dense))
            return
        self._waiting.append(np.unique(codes_R, return_counts=True))
        # Waiting for as many codes as are known already keeps the total work in proportion to the rows.
        if sum(len(codes) for codes, _ in self._waiting) > max(len(self._sparse[0]), MAX_TABLE):
            self._add_up()

    def merge(self, other: PairCounts) -> PairCounts:
        """The counts of both sets of rows together."""
        merged = PairCounts(self.n_ids, self.pair)
        if self._dense is not None and other._dense is not None:
            merged._dense = self._dense + other._dense
        merged._waiting = [self._sparse, *self._waiting, other._sparse, *other._waiting]
        merged._add_up()
        return merged

    def cross(self, min_count: int) -> Cross:
        """The cross of all rows counted."""
        self._add_up()
        codes, counts = self._sparse
        if self._dense is not None:
            codes = np.flatnonzero(self._dense)
            counts = self._dense[codes]
        return Cross.from_counts(codes, counts, self.n_ids, self.pair, min_count)

    def _add_up(self) -> None:
        codes, counts = map(np.concatenate, zip(self._sparse, *self._waiting, strict=True))
        distinct, place = np.unique(codes, return_inverse=True)
        sums = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(sums, place, counts)
        self._sparse, self._waiting = (distinct, sums), []


# --- the search -----------------------------------------------------------------------------------------------


TakeRows = Callable[[Codes | slice], tuple[Ids, Floats]]

MIN_SEARCH_ROWS, MAX_SEARCH_ROWS = 20_000, 300_000
MAX_CELL_VISITS = 3e8
"""Rows times pairs of a search; with hundreds of fields it uses fewer rows."""
CELLS_PER_ROW = 2.0
"""A pair with more possible cells per row is skipped, because most of its cells would be empty."""
SHRINKAGE = 20.0
"""Rows of mean 0 that are added to every cell."""
MIN_GAIN = 0.002
"""Smallest share of the target's variance that a cross must explain on held-out rows."""
MAX_CROSSES = 6
N_CANDIDATES = 40
"""Pairs that are kept after the first round."""
MAX_CLASSES = 5


def find_crosses(n_rows: int, n_ids: Sequence[int], take: TakeRows, *, seed: int = 0) -> list[tuple[int, int]]:
    """Positions of the fields of each cross worth having, best first.

    Args:
        n_rows: number of training rows.
        n_ids: local ids of every field.
        take: returns local ids and targets of ascending row numbers, or of all rows for `slice(None)`. A target is a
            number, 0/1 or a class index; of more than two classes, each counts as a target of its own.
        seed: seed of the sample and of the halves.
    """
    rng = np.random.default_rng(seed)
    n_pairs = len(n_ids) * (len(n_ids) - 1) // 2
    n_sample = int(np.clip(MAX_CELL_VISITS / max(n_pairs, 1), MIN_SEARCH_ROWS, MAX_SEARCH_ROWS))
    rows = np.sort(rng.choice(n_rows, n_sample, replace=False)) if n_rows > n_sample else slice(None)
    ids_RF, target_R = take(rows)
    outputs_RK = _outputs(target_R)
    variance = float(outputs_RK.var(axis=0).sum())
    max_cells = CELLS_PER_ROW * len(ids_RF)
    pairs = [(a, b) for a, b in itertools.combinations(range(len(n_ids)), 2) if n_ids[a] * n_ids[b] <= max_cells]
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


def _outputs(target_R: Floats) -> Floats:
    """The target as columns: itself, or one indicator for each of the most frequent classes."""
    classes, counts = np.unique(target_R, return_counts=True)
    whole = bool((classes == np.round(classes)).all())
    if whole and 2 < len(classes) <= 1000 and classes.min() >= 0:
        common = classes[np.argsort(-counts)[:MAX_CLASSES]]
        return np.equal(target_R[:, None], common[None, :]).astype(np.float64)
    return target_R.astype(np.float64).reshape(-1, 1)


def _without_main_effects(ids_RF: Ids, n_ids: Sequence[int], outputs_RK: Floats) -> Floats:
    """The residual after each field's own shrunken effect, by two rounds of backfitting."""
    residual_RK: Floats = outputs_RK - outputs_RK.mean(axis=0)
    for _ in range(2):
        for f in range(len(n_ids)):
            residual_RK = residual_RK - _cell_means(ids_RF[:, f].astype(np.int64), residual_RK)
    return residual_RK


def _cell_means(codes_R: Codes, values_RK: Floats) -> Floats:
    """Shrunken mean of each row's cell."""
    n_cells = int(codes_R.max()) + 1
    counts = np.bincount(codes_R, minlength=n_cells)
    means = [np.bincount(codes_R, v, minlength=n_cells) / (counts + SHRINKAGE) for v in values_RK.T]
    return np.stack([m[codes_R] for m in means], axis=1)


def _gain(
    ids_RF: Ids, n_ids: Sequence[int], pair: tuple[int, int], residual_RK: Floats, first_half_R: npt.NDArray[np.bool_]
) -> float:
    """By how much the squared error per row falls if cell means of one half predict the other, both ways."""
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
