"""Measures: numbers of a field on a scale of its own, and whether the order of whole numbers says something.

A model sees the numbers of a measured field directly, next to the ids of the field. Whole numbers may be codes (a
user), amounts (a duration), or both (an age): then the field has ids and numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.values import try_numbers
from fielddep.quantiles import quantile_edges

MAX_MEASURE = 1e6
"""Measures are clipped to this many units, so that they stay finite in float32."""

_NORMAL_QUARTILES = 1.349
"""Distance between the quartiles of a normal distribution, in standard deviations."""
_STRONG = 3.0
_SHARE_OF_LARGEST = 0.6
_SHRINK_ROWS = 5.0
_N_BINS = (8, 16, 32, 64)
_NEARLY = 0.01
HALVES = ("n_first", "n_second", "sum_first", "sum_second")
"""Columns of a frame of different values: rows of each half, and sums of their target minus base rate."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Measures = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A scale with 0 at the median of the training rows and a unit that one absurd number cannot change.

    Attributes:
        centre: the median.
        unit: the distance between the quartiles, as a standard deviation; of all numbers if the quartiles are equal.
        n_missing: training rows without a number. If there are none, nothing trains what a missing number means, and
            it is taken for the median.
    """

    centre: float
    unit: float
    n_missing: int = 0

    @classmethod
    def of(cls, distinct: Floats, counts: Counts, n_missing: int = 0) -> Measure:
        """Learn from ascending different numbers and the rows of each."""
        if not len(distinct):
            return cls(centre=0.0, unit=1.0, n_missing=n_missing)
        ends = np.cumsum(counts)
        low, centre, high = distinct[np.searchsorted(ends, ends[-1] * np.array([0.25, 0.5, 0.75]))]
        with np.errstate(over="ignore", invalid="ignore"):
            unit = (high - low) / _NORMAL_QUARTILES or float(
                np.sqrt(np.average((distinct - centre) ** 2, weights=counts))
            )
        unit = float(unit) if 0 < unit < math.inf else 1.0
        return cls(centre=float(centre), unit=unit, n_missing=n_missing)

    def encode(self, numbers: Floats) -> Measures:
        """Numbers on the scale; NaN for missing, or 0 if none was missing in training."""
        with np.errstate(over="ignore"):
            scaled = np.clip((numbers - self.centre) / self.unit, -MAX_MEASURE, MAX_MEASURE).astype(np.float32)
        return scaled if self.n_missing else np.nan_to_num(scaled)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `Measure(**values)`."""
        return {"centre": self.centre, "unit": self.unit, "n_missing": self.n_missing}


def lenient_numbers(column: pl.Series, missing_values: tuple[str, ...]) -> Floats:
    """Numbers of a column; NaN for missing values and for all that is not a number."""
    numbers = try_numbers(column, missing_values)
    if numbers is None:
        text = column.cast(pl.String).str.strip_chars()
        listed = text.is_in(list(missing_values))
        numbers = pl.select(pl.when(~listed).then(text.cast(pl.Float64, strict=False))).to_series()
    found: Floats = numbers.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
    return np.where(np.isfinite(found), found, np.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueTargets:
    """Targets of training rows by value, in two halves of the rows, so that one half can judge the other.

    Attributes:
        numbers_V: different numbers, ascending.
        n_2V: rows of each value in each half.
        sum_2V: sum of target minus base rate over these rows.
    """

    numbers_V: Floats
    n_2V: Floats
    sum_2V: Floats

    @classmethod
    def of(cls, counted: pl.DataFrame, numbers: Floats) -> ValueTargets | None:
        """From a frame with the columns of `count_halves`, and the number of each line; None without these columns."""
        if not set(HALVES) <= set(counted.columns):
            return None
        distinct, place = np.unique(numbers, return_inverse=True)
        sums = [np.bincount(place, weights=counted[name].to_numpy(), minlength=len(distinct)) for name in HALVES]
        return cls(numbers_V=distinct, n_2V=np.stack(sums[:2]), sum_2V=np.stack(sums[2:]))

    @classmethod
    def centred(cls, counts_4V: Floats) -> ValueTargets:
        """From the result of `count_halves`, with the places of values as numbers."""
        counts_4V = centre(counts_4V)
        return cls(numbers_V=np.arange(counts_4V.shape[1], dtype=np.float64), n_2V=counts_4V[:2], sum_2V=counts_4V[2:])

    def gain(self, group_V: npt.NDArray[np.int64]) -> float:
        """How much the mean target of a group in one half explains of the other half; values are put into groups."""
        n_2G, sum_2G = (np.stack([np.bincount(group_V, weights=half) for half in a]) for a in (self.n_2V, self.sum_2V))
        mean_2G = sum_2G / (n_2G + _SHRINK_ROWS)
        other_n, other_sum = n_2G[::-1], sum_2G[::-1]
        return float((2 * mean_2G * other_sum - mean_2G**2 * other_n).sum())

    def best_n_bins(self, at_most: int) -> int:
        """Number of quantile bins whose means explain most of rows that they were not learned from."""
        tried = {n: self._gain_of_bins(n) for n in _N_BINS if n <= at_most} or {at_most: 0.0}
        enough = max(tried.values()) - _NEARLY * abs(max(tried.values()))
        return next(n for n, gain in tried.items() if gain >= enough)

    def bins_are_better(self) -> bool:
        """Whether bins of numbers explain more than single values do."""
        every = np.arange(len(self.numbers_V))
        return max(self._gain_of_bins(n) for n in _N_BINS) >= self.gain(every)

    def _gain_of_bins(self, n_bins: int) -> float:
        edges = quantile_edges(self.numbers_V, self.n_2V.sum(axis=0).astype(np.int64), n_bins)
        return self.gain(np.searchsorted(edges, self.numbers_V, side="right"))


def order_matters(targets: ValueTargets) -> bool:
    """Whether neighbours among the values of a field have alike targets, so that their order says something.

    If order meant nothing, the products of neighbours would have random signs, and their sum over the root of the sum
    of their squares would be about normal. It cannot exceed the root of the number of products, so a few values are
    judged by a share of that.

    Example:
        >>> def targets(sums):
        ...     return ValueTargets(numbers_V=np.arange(40.0), n_2V=np.ones((2, 40)), sum_2V=np.stack([sums, sums]))
        >>> rising = np.linspace(-1, 1, 40)
        >>> order_matters(targets(rising)), order_matters(targets(rising * (-1) ** np.arange(40)))
        (True, False)
    """
    if len(targets.numbers_V) < 3:
        return False
    score_V = targets.sum_2V.sum(axis=0) / np.sqrt(np.maximum(targets.n_2V.sum(axis=0), 1.0))
    products = score_V[:-1] * score_V[1:]
    size = math.sqrt(float((products**2).sum()))
    bound = min(_STRONG, _SHARE_OF_LARGEST * math.sqrt(len(products)))
    return size > 0 and float(products.sum()) / size > bound


def half_of_rows(start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Whether each row from `start` to `stop` belongs to the second half: a hash of its number, not of its place."""
    rows = np.arange(start, stop, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    is_second: npt.NDArray[np.bool_] = rows >> np.uint64(63) == 1
    return is_second


def count_halves(code_R: npt.NDArray[Any], score_R: Floats, second_R: npt.NDArray[np.bool_], n_codes: int) -> Floats:
    """For every code: rows of the two halves and sums of their scores, in the order of `HALVES` (4, codes)."""
    place_R = code_R + second_R * np.int64(n_codes)
    n = np.bincount(place_R, minlength=2 * n_codes).reshape(2, n_codes)
    sums = np.bincount(place_R, weights=score_R, minlength=2 * n_codes).reshape(2, n_codes)
    return np.concatenate([n, sums])


def add_halves(counted: pl.DataFrame, column: pl.Series, score_R: Floats) -> pl.DataFrame:
    """`distinct_values` of a column with the columns `HALVES`, from the score of every row."""
    numbered = counted.with_row_index("code")
    codes = pl.DataFrame({"value": column}).join(
        numbered, on="value", how="left", nulls_equal=True, maintain_order="left"
    )
    halves_4V = centre(count_halves(codes["code"].to_numpy(), score_R, half_of_rows(0, len(column)), len(counted)))
    return counted.with_columns([pl.Series(name, half_V) for name, half_V in zip(HALVES, halves_4V, strict=True)])


def centre(counts_4V: Floats) -> Floats:
    """The result of `count_halves` with sums of score minus mean score."""
    n_2V, sum_2V = counts_4V[:2], counts_4V[2:]
    return np.concatenate([n_2V, sum_2V - n_2V * (sum_2V.sum() / max(n_2V.sum(), 1.0))])
