"""Ranking: rows in exact order of their scores, in little memory, for AUC and calibration.

A row becomes one number of 64 bits: 32 bits of its score, written so that whole numbers sort like scores, 31 bits of
its row number and one of its label. These keys are sorted in place and read in chunks, so the ranking takes 8 bytes per
row. Rows with equal scores keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fielddep.errors import TrainingError

CHUNK_ROWS = 1 << 18
GROWTH_ROWS = 1 << 18
MAX_ROWS = 1 << 31
_SIGN = np.uint32(1 << 31)

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive rows of the ranking."""

    scores: npt.NDArray[np.float32]
    labels: Labels
    weights: npt.NDArray[np.float64]


class Column:
    """An array that grows batch by batch without being copied.

    Thousands of small arrays would leave gaps between them, which can take as much memory as they do.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._room = np.empty(0, dtype=dtype)
        self._n_rows = 0

    def __len__(self) -> int:
        return self._n_rows

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add the numbers of a batch."""
        stop = self._n_rows + len(values)
        if stop > len(self._room):
            # Nobody else holds the array, and the system moves large ones by remapping pages, without a copy.
            self._room.resize(-(-stop // GROWTH_ROWS) * GROWTH_ROWS, refcheck=False)
        self._room[self._n_rows : stop] = values
        self._n_rows = stop

    def values(self) -> npt.NDArray[Any]:
        """A view of all numbers, valid until the next `append`."""
        return self._room[: self._n_rows]


def check_n_rows(n_rows: int) -> None:
    """Raise `TrainingError` for more rows than can be ranked."""
    if n_rows >= MAX_ROWS:
        raise TrainingError(f"metrics need fewer than {MAX_ROWS:,} rows; given {n_rows:,}. Use a part of them")


class Ranking:
    """Rows by rising score.

    Args:
        scores: converted to float32; NaN comes first or last.
        labels: whether a row is of the positive class.
        weights: sample weights; None means one each.
    """

    def __init__(self, scores: Floats, labels: Labels, weights: Floats | None = None) -> None:
        n_rows = len(scores)
        check_n_rows(n_rows)
        self.weights = weights
        self._keys = np.empty(n_rows, dtype=np.uint64)
        for first in range(0, n_rows, CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            self._keys[rows] = _keys(scores[rows], labels[rows], first)
        self._keys.sort()

    def __len__(self) -> int:
        return len(self._keys)

    def tie_stops(self, places: Places) -> Places:
        """For rows at `places`, the places after the last rows with the same scores."""
        ends = self._keys[places] | np.uint64((1 << 32) - 1)
        stops: Places = np.searchsorted(self._keys, ends, side="right")
        return stops

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        """Rows from `start` to `stop` of the ranking, chunk by chunk."""
        stop = len(self) if stop is None else stop
        for first in range(start, stop, CHUNK_ROWS):
            keys = self._keys[first : min(first + CHUNK_ROWS, stop)]
            places = (keys >> np.uint64(1)) & np.uint64(MAX_ROWS - 1)
            weights = np.ones(len(keys)) if self.weights is None else self.weights[places].astype(np.float64)
            yield Chunk(scores=_scores(keys), labels=(keys & np.uint64(1)).astype(np.bool_), weights=weights)


def _keys(scores: Floats, labels: Labels, first: int) -> npt.NDArray[np.uint64]:
    """Keys that sort by score, then by row number."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # adding 0 makes -0 and 0 the same
    # Positive numbers sort by their bits above all negative ones, whose bits fall as the number rises.
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    places = np.arange(first, first + len(scores), dtype=np.uint64)
    keys: npt.NDArray[np.uint64] = (ordered << np.uint64(32)) | (places << np.uint64(1)) | labels.astype(np.uint64)
    return keys


def _scores(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    ordered = (keys >> np.uint64(32)).astype(np.uint32)
    scores: npt.NDArray[np.float32] = np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).view(np.float32)
    return scores


def area_under_curve(ranking: Ranking) -> float | None:
    """Exact area under the ROC curve, ties counted half; None if a class is absent.

    Example:
        >>> scores, labels = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
        >>> area_under_curve(Ranking(scores, labels))
        0.75
    """
    area = positive = negative = 0.0
    for positive_T, negative_T in _ties(ranking):
        below_T = negative + np.cumsum(negative_T) - negative_T
        area += float((positive_T * (below_T + negative_T / 2)).sum())
        positive += float(positive_T.sum())
        negative += float(negative_T.sum())
    return area / (positive * negative) if positive and negative else None


def average_precision(ranking: Ranking) -> float | None:
    """Exact mean, over the rows of the positive class, of the precision among rows with at least their score.

    Rows with equal scores count together. None if a class is absent.

    Example:
        >>> scores, labels = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
        >>> round(average_precision(Ranking(scores, labels)), 4)
        0.8333
    """
    totals = [(float(positive_T.sum()), float(negative_T.sum())) for positive_T, negative_T in _ties(ranking)]
    positive, negative = np.sum(totals, axis=0) if totals else (0.0, 0.0)
    if not positive or not negative:
        return None
    area, caught, false = 0.0, positive, negative
    for positive_T, negative_T in _ties(ranking):
        caught_T = caught - np.cumsum(positive_T) + positive_T
        false_T = false - np.cumsum(negative_T) + negative_T
        has_rows = positive_T > 0
        area += float((positive_T * caught_T / np.where(has_rows, caught_T + false_T, 1.0)).sum())
        caught, false = caught - float(positive_T.sum()), false - float(negative_T.sum())
    return float(area / positive)


def _ties(ranking: Ranking) -> Iterator[tuple[Floats, Floats]]:
    """Weights of both classes, positive first, at every different score (T), by rising score and chunk by chunk.

    The highest score of a chunk waits for the next one, which may have more rows of it.
    """
    waiting, held = np.float32(np.nan), np.zeros((2, 0))
    for chunk in ranking.chunks():
        starts = np.flatnonzero(np.r_[True, chunk.scores[1:] != chunk.scores[:-1]])
        of_labels = np.stack([chunk.weights * chunk.labels, chunk.weights * ~chunk.labels])
        weights_T = np.add.reduceat(of_labels, starts, axis=1)
        if chunk.scores[0] == waiting:
            weights_T[:, :1] += held
            held = held[:, :0]
        complete = np.concatenate([held, weights_T[:, :-1]], axis=1)
        yield complete[0], complete[1]
        waiting, held = chunk.scores[-1], weights_T[:, -1:]
    yield held[0], held[1]


def tie_stops_of(scores: Floats) -> Callable[[Places], Places]:
    """The `tie_stops` of `bin_stops` for an array of rising scores."""
    return lambda places: np.searchsorted(scores, scores[places], side="right")


def bin_stops(n_rows: int, n_bins: int, tie_stops: Callable[[Places], Places]) -> list[int]:
    """Where bins of equally many rows end, in rows by rising score.

    Rows with equal scores share a bin, so their order does not matter: a bin that would end among them ends after them.

    Args:
        n_rows: rows to put into bins.
        n_bins: most bins.
        tie_stops: for places of rows, the places after the last rows with the same scores.

    Example:
        >>> scores = np.array([1.0, 2.0, 2.0, 2.0, 5.0, 6.0])
        >>> bin_stops(6, 3, tie_stops_of(scores))
        [4, 6]
    """
    size, n_larger = divmod(n_rows, n_bins)
    stops = np.cumsum(size + (np.arange(n_bins) < n_larger))
    found: list[int] = np.unique(tie_stops(stops[stops > 0] - 1)).tolist()
    return found


def binned_gap(ranking: Ranking, n_bins: int, probability: Callable[[npt.NDArray[np.float32]], Floats]) -> float:
    """Expected calibration error over the bins of `bin_stops`.

    Args:
        ranking: rows by score.
        n_bins: most bins.
        probability: probabilities of scores, a rising function.
    """
    stops = bin_stops(len(ranking), n_bins, ranking.tie_stops)
    gaps = weight = 0.0
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        gap = 0.0
        for chunk in ranking.chunks(start, stop):
            gap += float((chunk.weights * (probability(chunk.scores) - chunk.labels)).sum())
            weight += float(chunk.weights.sum())
        gaps += abs(gap)
    return gaps / max(weight, 1e-300)
