"""Which pairs of fields are worth a cross, found on training rows alone.

For every pair: how much do the means of its cells, taken from one half of the rows, lower the squared error on the
other half, beyond what both fields say on their own? That gain is honest (no row helps to predict itself), so noise
has a gain below zero and nothing needs a significance level. The best pair is taken, its effect is subtracted, and the
search goes on until no pair gains enough.

Shape legend: R rows, F fields, K outputs (classes, or one).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fielddep.data.crosses import Ids, pair_codes

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


def find_crosses(ids_RF: Ids, n_ids: Sequence[int], target_R: Floats, *, seed: int = 0) -> list[tuple[int, int]]:
    """Positions of the fields of each cross worth having, best first.

    Args:
        ids_RF: local ids of training rows.
        n_ids: local ids of every field.
        target_R: regression target, 0/1, or class index; more than two classes are looked at one by one.
        seed: of the sample and of the halves.
    """

    def take(rows: npt.NDArray[np.int64] | slice) -> tuple[Ids, Floats]:
        return ids_RF[rows], target_R[rows]

    return find_crosses_of(len(ids_RF), n_ids, take, seed=seed)


def find_crosses_of(n_rows: int, n_ids: Sequence[int], take: TakeRows, *, seed: int = 0) -> list[tuple[int, int]]:
    """`find_crosses` of training rows that need not be in memory.

    Args:
        n_rows: number of training rows.
        n_ids: local ids of every field.
        take: gives local ids and targets of ascending row numbers, or of all rows by `slice(None)`.
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
