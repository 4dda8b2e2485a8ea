"""Ranking: rows in order of their scores, exactly, in little memory. What AUC and calibration are taken from.

A row is one number of 64 bits: 32 bits of its score, written such that whole numbers sort like the scores, 31 bits of
its place and one of its label. The numbers are sorted in place (8 bytes a row) and walked through in chunks, so that
40 million rows need no more than these 8 bytes a row and what the caller keeps. Equal scores stay in the order of
their rows.
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
    """Rows that follow each other in the ranking."""

    scores: npt.NDArray[np.float32]
    labels: Labels
    weights: npt.NDArray[np.float64]


class Column:
    """Numbers of rows that grow batch by batch, in one array that is not copied when it grows.

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
            # Nobody else holds the array; the system moves large ones by changing its tables, without a copy.
            self._room.resize(-(-stop // GROWTH_ROWS) * GROWTH_ROWS, refcheck=False)
        self._room[self._n_rows : stop] = values
        self._n_rows = stop

    def values(self) -> npt.NDArray[Any]:
        """A copy-free look at all numbers, good until the next `append`."""
        return self._room[: self._n_rows]


def check_n_rows(n_rows: int) -> None:
    """Refuse more rows than can be ranked.

    Raises:
        TrainingError: says how many.
    """
    if n_rows >= MAX_ROWS:
        raise TrainingError(f"metrics can be taken of fewer than {MAX_ROWS:,} rows; given {n_rows:,}; use a part")


class Ranking:
    """Rows by rising score.

    Args:
        scores: scores of the rows; taken as float32. A score that is no number comes first or last.
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
        """The places behind the last rows that have the same scores as those at `places`."""
        ends = self._keys[places] | np.uint64((1 << 32) - 1)
        stops: Places = np.searchsorted(self._keys, ends, side="right")
        return stops

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        """Rows of the places from `start` to `stop` of the ranking, some at a time."""
        stop = len(self) if stop is None else stop
        for first in range(start, stop, CHUNK_ROWS):
            keys = self._keys[first : min(first + CHUNK_ROWS, stop)]
            places = (keys >> np.uint64(1)) & np.uint64(MAX_ROWS - 1)
            weights = np.ones(len(keys)) if self.weights is None else self.weights[places].astype(np.float64)
            yield Chunk(scores=_scores(keys), labels=(keys & np.uint64(1)).astype(np.bool_), weights=weights)


def _keys(scores: Floats, labels: Labels, first: int) -> npt.NDArray[np.uint64]:
    """Numbers that sort like the scores, then like the places."""
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
    """Exact area under the ROC curve, ties counted half; None where one class is absent."""
    area = below = 0.0
    tied = _Tie(score=np.float32(np.nan))
    positive = 0.0
    for chunk in ranking.chunks():
        starts = np.flatnonzero(np.r_[True, chunk.scores[1:] != chunk.scores[:-1]])
        positive_at = np.add.reduceat(chunk.weights * chunk.labels, starts)
        negative_at = np.add.reduceat(chunk.weights * ~chunk.labels, starts)
        positive += positive_at.sum()
        if chunk.scores[0] == tied.score:  # the last tie continues into this chunk
            positive_at[0] += tied.positive
            negative_at[0] += tied.negative
        else:
            area += tied.positive * (below + tied.negative / 2)
            below += tied.negative
        tied = _Tie(score=chunk.scores[-1], positive=positive_at[-1], negative=negative_at[-1])
        before = below + np.cumsum(negative_at[:-1]) - negative_at[:-1]
        area += float((positive_at[:-1] * (before + negative_at[:-1] / 2)).sum())
        below += float(negative_at[:-1].sum())
    area += tied.positive * (below + tied.negative / 2)
    negative = below + tied.negative
    return float(area / (positive * negative)) if positive and negative else None


@dataclass(frozen=True, kw_only=True)
class _Tie:
    """Rows of the highest score so far, whose number may still grow."""

    score: np.float32
    positive: float = 0.0
    negative: float = 0.0


def tie_stops_of(scores: Floats) -> Callable[[Places], Places]:
    """What `bin_stops` asks of rising scores that are all in memory."""
    return lambda places: np.searchsorted(scores, scores[places], side="right")


def bin_stops(n_rows: int, n_bins: int, tie_stops: Callable[[Places], Places]) -> list[int]:
    """Where bins of equally many rows end, in rows by rising score.

    Rows of equal score are in one bin, so that the order in which they were given does not matter; a bin that would end
    among them ends behind them.

    Args:
        n_rows: rows to put into bins.
        n_bins: number of bins at most.
        tie_stops: for places of rows, the places behind the last rows with the same scores.

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
        n_bins: number of bins at most.
        probability: probabilities of scores; must not fall where the scores rise.
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
