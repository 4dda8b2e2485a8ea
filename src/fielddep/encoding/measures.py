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

MAX_MEASURE = 1e6
"""Measures are clipped to this many units, so that they stay finite in float32."""

_NORMAL_QUARTILES = 1.349
"""Distance between the quartiles of a normal distribution, in standard deviations."""
_STRONG = 3.0
_SHARE_OF_LARGEST = 0.6

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Measures = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A scale with 0 at the median of the training rows and a unit that one absurd number cannot change.

    Attributes:
        centre: the median.
        unit: the distance between the quartiles, as a standard deviation; of all numbers if the quartiles are equal.
    """

    centre: float
    unit: float

    @classmethod
    def of(cls, distinct: Floats, counts: Counts) -> Measure:
        """Learn from ascending different numbers and the rows of each."""
        if not len(distinct):
            return cls(centre=0.0, unit=1.0)
        ends = np.cumsum(counts)
        low, centre, high = distinct[np.searchsorted(ends, ends[-1] * np.array([0.25, 0.5, 0.75]))]
        with np.errstate(over="ignore", invalid="ignore"):
            unit = (high - low) / _NORMAL_QUARTILES or float(
                np.sqrt(np.average((distinct - centre) ** 2, weights=counts))
            )
        return cls(centre=float(centre), unit=float(unit) if 0 < unit < math.inf else 1.0)

    def encode(self, numbers: Floats) -> Measures:
        """Numbers on the scale; NaN stays NaN."""
        with np.errstate(over="ignore"):
            return np.clip((numbers - self.centre) / self.unit, -MAX_MEASURE, MAX_MEASURE).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `Measure(**values)`."""
        return {"centre": self.centre, "unit": self.unit}


def lenient_numbers(column: pl.Series, missing_values: tuple[str, ...]) -> Floats:
    """Numbers of a column; NaN for missing values and for all that is not a number."""
    numbers = try_numbers(column, missing_values)
    if numbers is None:
        text = column.cast(pl.String).str.strip_chars()
        listed = text.is_in(list(missing_values))
        numbers = pl.select(pl.when(~listed).then(text.cast(pl.Float64, strict=False))).to_series()
    found: Floats = numbers.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def order_matters(sums: Floats) -> bool:
    """Whether neighbours among the values of a field have alike targets, so that their order says something.

    If order meant nothing, the products of neighbours would have random signs, and their sum over the root of the sum
    of their squares would be about normal. It cannot exceed the root of the number of products, so a few values are
    judged by a share of that.

    Args:
        sums: for every different number, ascending, the sum of target minus base rate over its training rows.

    Example:
        >>> rising = np.linspace(-1, 1, 40)
        >>> order_matters(rising), order_matters(rising * (-1) ** np.arange(40))
        (True, False)
    """
    if len(sums) < 3:
        return False
    products = sums[:-1] * sums[1:]
    size = math.sqrt(float((products**2).sum()))
    bound = min(_STRONG, _SHARE_OF_LARGEST * math.sqrt(len(products)))
    return size > 0 and float(products.sum()) / size > bound
