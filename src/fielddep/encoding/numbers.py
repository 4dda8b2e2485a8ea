"""Numerical fields: standardised numbers, quantile bins, or the paper's bins of counts.

Each class holds what was learned from training rows. It turns numbers (float64, NaN or null for missing) into local ids
and, for `ScaledNumbers`, the number that multiplies the vector of the field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.values import canonical
from fielddep.encoding.vocabulary import FIRST_ID, MISSING, MISSING_ID, RARE, RARE_ID
from fielddep.quantiles import quantile_edges

MAX_SCALED = 8.0
"""Standardised numbers are clipped to +-8, so one absurd cell cannot spoil a batch."""

NUMBER_ID = 1
NUMBER = "<number>"
"""Label of the id that all numbers of a scaled field share."""

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def default_n_bins(n_rows: int) -> int:
    """Number of quantile bins: about 50 rows each, at least 8 and at most 64."""
    return int(np.clip(n_rows // 50, 8, 64))


@dataclass(frozen=True, kw_only=True)
class ScaledNumbers:
    """A field given as `value x vector`: id 0 is missing, id 1 a number.

    A missing cell has the number 1, so value x vector is the missing vector itself. If training rows had no missing
    cell, that vector was never trained, and a missing cell is the mean (id 1, number 0) instead. If they had no number,
    every cell is missing.
    """

    mean: float
    std: float
    n_missing: int
    n_numbers: int

    @classmethod
    def of(cls, moments: Moments, n_missing: int) -> ScaledNumbers:
        """From the moments of the training rows and the number of rows without a number."""
        return cls(mean=moments.mean, std=moments.std, n_missing=n_missing, n_numbers=moments.n_rows)

    @property
    def counts(self) -> Counts:
        """Training rows of each local id."""
        return np.array([self.n_missing, self.n_numbers], dtype=np.int64)

    def encode(self, numbers: pl.Series | Floats) -> tuple[Ids, npt.NDArray[np.float32]]:
        """Local ids and standardised numbers."""
        given = np.asarray(numbers)
        missing = np.isnan(given)
        values = np.where(missing, self.mean, given)
        scaled = np.clip((values - self.mean) / self.std, -MAX_SCALED, MAX_SCALED)
        if not self.n_numbers:
            missing = np.ones_like(missing)
        elif not self.n_missing:
            missing = np.zeros_like(missing)
        ids = np.where(missing, MISSING_ID, NUMBER_ID).astype(np.int32)
        return ids, np.where(missing, 1.0, scaled).astype(np.float32)

    def decode(self, ids: Ids, scaled: npt.NDArray[np.float32]) -> pl.Series:
        """Numbers, up to rounding and clipping; null for missing."""
        numbers = pl.Series(scaled.astype(np.float64) * self.std + self.mean)
        return pl.select(pl.when(pl.Series(ids != MISSING_ID)).then(numbers)).to_series()

    def labels(self) -> pl.Series:
        """One text per local id."""
        return pl.Series("value", [MISSING, NUMBER])

    def to_json(self) -> dict[str, Any]:
        """Plain values for `from_json`."""
        return {"mean": self.mean, "std": self.std, "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> ScaledNumbers:
        """Read what `to_json` wrote."""
        n_missing, n_numbers = state["counts"]
        return cls(mean=state["mean"], std=state["std"], n_missing=n_missing, n_numbers=n_numbers)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileBins:
    """Bins of about equal mass: bin b has local id 2 + b. The end bins are open, so no number is unknown.

    A missing cell takes the rare id if training rows had none missing; a number takes it if they had no number.
    """

    edges: Floats
    counts: Counts

    @classmethod
    def from_counts(cls, distinct: Floats, counts: Counts, n_missing: int, n_bins: int) -> QuantileBins:
        """Learn from ascending different numbers and the rows of each; edges are among them, so no bin is empty."""
        if not len(distinct):
            return cls(edges=np.empty(0), counts=np.array([n_missing, 0], dtype=np.int64))
        edges = quantile_edges(distinct, counts, n_bins)
        bins = np.searchsorted(edges, distinct, side="right")
        bin_counts = np.bincount(bins, weights=counts).astype(np.int64)
        return cls(edges=edges, counts=np.concatenate([[n_missing, 0], bin_counts]))

    def encode(self, numbers: pl.Series | Floats) -> Ids:
        """Local ids: bin b holds edges[b - 1] <= x < edges[b]."""
        given = np.asarray(numbers)
        missing = np.isnan(given)
        bins = np.searchsorted(self.edges, np.where(missing, 0.0, given), side="right")
        ids = (FIRST_ID + bins).astype(np.int32) if len(self.counts) > FIRST_ID else np.full(len(bins), RARE_ID)
        ids[missing] = MISSING_ID if self.counts[MISSING_ID] else RARE_ID
        return ids.astype(np.int32)

    def labels(self) -> pl.Series:
        """One text per local id; a bin is written as its interval."""
        if len(self.counts) == FIRST_ID:
            return pl.Series("value", [MISSING, RARE])
        ends = ["-inf", *(f"{edge:.6g}" for edge in self.edges), "inf"]
        bins = [f"{'[' if b else '('}{low}, {ends[b + 1]})" for b, low in enumerate(ends[:-1])]
        return pl.Series("value", [MISSING, RARE, *bins])

    def to_json(self) -> dict[str, Any]:
        """Plain values for `from_json`."""
        return {"edges": self.edges.tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> QuantileBins:
        """Read what `to_json` wrote."""
        return cls(edges=np.array(state["edges"], dtype=np.float64), counts=np.array(state["counts"], dtype=np.int64))


def number_counts(numbers: pl.Series, counts: Counts | None = None) -> tuple[Floats, Counts, int]:
    """Ascending different numbers, the rows of each, and the rows without a number.

    Each given number counts as one row, or as many as `counts` says.
    """
    rows = np.ones(len(numbers), dtype=np.int64) if counts is None else counts
    known = numbers.is_not_null().to_numpy()
    distinct, place = np.unique(numbers.drop_nulls().to_numpy(), return_inverse=True)
    sums = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sums, place, rows[known])
    return distinct, sums, int(rows[~known].sum())


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and standard deviation of numbers that arrive chunk by chunk.

    Merging the same chunks in the same order gives the same bits. Sums are in units of a power of two near the largest
    number, because squares of numbers beyond 1e154 would overflow; this loses no digit.

    Attributes:
        n_rows: how many numbers.
        unit: unit of `centre` and `squares`.
        centre: mean, in units.
        squares: sum of squared distances from the mean, in squared units.
        low: smallest number.
        high: largest number.
    """

    n_rows: int = 0
    unit: float = 1.0
    centre: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, numbers: Floats, counts: Counts | None = None) -> Moments:
        """Moments of known numbers, each counted once or as often as `counts` says.

        Numbers with counts should be ascending, as from `number_counts`, so sums do not depend on the order of rows.
        """
        if counts is not None:
            numbers, counts = numbers[counts > 0], counts[counts > 0]
        if not len(numbers):
            return cls()
        low, high = float(numbers.min()), float(numbers.max())
        unit = 2.0 ** (math.frexp(max(abs(low), abs(high)))[1] - 1)
        small = numbers / unit
        centre = float(np.average(small, weights=counts))
        spread = float(np.average((small - centre) ** 2, weights=counts))
        n_rows = len(numbers) if counts is None else int(counts.sum())
        return cls(n_rows=n_rows, unit=unit, centre=centre, squares=spread * n_rows, low=low, high=high)

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of numbers together."""
        if not self.n_rows or not other.n_rows:
            return self if self.n_rows else other
        unit, n_rows = max(self.unit, other.unit), self.n_rows + other.n_rows
        a, b = self.unit / unit, other.unit / unit
        gap = other.centre * b - self.centre * a
        return Moments(
            n_rows=n_rows,
            unit=unit,
            centre=self.centre * a + gap * other.n_rows / n_rows,
            squares=self.squares * a * a + other.squares * b * b + gap**2 * self.n_rows * other.n_rows / n_rows,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    @property
    def mean(self) -> float:
        """0 if there are no numbers; exact for a constant."""
        if not self.n_rows:
            return 0.0
        return self.low if self.low == self.high else self.centre * self.unit

    @property
    def std(self) -> float:
        """Standard deviation; 1 if there are no numbers, and for a constant."""
        if not self.n_rows or self.low == self.high:
            return 1.0
        return math.sqrt(self.squares / self.n_rows) * self.unit or 1.0


def log2_texts(numbers: pl.Series) -> pl.Series:
    """The paper's categories of a count: floor(ln(x)^2) above 2, else x - 2, both after dropping the fraction.

    The two never collide: the first gives 1 or more, the second 0 or less.

    Example:
        >>> log2_texts(pl.Series([0.0, 2.0, 3.0, 100.0, None])).to_list()
        ['-2', '0', '1', '21', None]
    """
    whole = np.floor(numbers.fill_null(0.0).to_numpy())
    squares = np.floor(np.log(np.maximum(whole, 1.0)) ** 2)
    binned = pl.Series(numbers.name, np.where(whole > 2, squares, whole - 2))
    return canonical(pl.select(pl.when(numbers.is_not_null()).then(binned)).to_series())


def log2_intervals(bins: pl.Series) -> pl.Series:
    """The numbers of each bin that `log2_texts` gives, as an interval.

    Example:
        >>> log2_intervals(pl.Series(["-2", "0", "1", "21"])).to_list()
        ['[0, 1)', '[2, 3)', '[3, 5)', '[98, 109)']
    """
    numbers = bins.cast(pl.Float64).to_numpy()
    ends = zip(_bin_starts(numbers), _bin_starts(numbers + 1), strict=True)
    return pl.Series(bins.name, [f"[{_edge_text(low)}, {_edge_text(high)})" for low, high in ends], dtype=pl.String)


def _bin_starts(bins: Floats) -> Floats:
    """The smallest whole number of each bin of `log2_texts`, or of the next bin if it is empty."""
    with np.errstate(over="ignore"):
        starts = np.ceil(np.exp(np.sqrt(np.maximum(bins, 1.0))))
    # Rounding may put a start into the previous bin.
    starts += np.floor(np.log(starts) ** 2) < bins
    return np.where(bins > 0, starts, bins + 2)


def _edge_text(edge: float) -> str:
    """All digits of whole numbers, so neighbours differ; six digits of very large ones."""
    return f"{edge:.0f}" if abs(edge) < 1e15 else f"{edge:.6g}"
