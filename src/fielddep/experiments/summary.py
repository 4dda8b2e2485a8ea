"""Summary: mean and spread of a figure over repeated runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fielddep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean and spread of repeated runs.

    Attributes:
        mean: mean of the values.
        sd: standard deviation with n - 1 in the denominator; 0 for a single value.
        n: number of values.

    Raises:
        UserError: for no values, a negative deviation or numbers that are not finite.
    """

    mean: float
    sd: float
    n: int

    def __post_init__(self) -> None:
        if self.n < 1 or not self.sd >= 0 or not math.isfinite(self.mean + self.sd):
            raise UserError(
                f"a summary needs a finite mean, a deviation of at least 0 and at least one run; given {self}; "
                "leave the runs out that failed"
            )

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summary of at least one value.

        Example:
            >>> Summary.of([1.0, 2.0, 3.0])
            Summary(mean=2.0, sd=1.0, n=3)
        """
        if not values or not all(map(math.isfinite, values)):
            raise UserError(f"expected finite values of at least one run, given {list(values)}; leave failed runs out")
        # The statistics module sums exactly: equal values have a deviation of exactly 0.
        sd = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(mean=statistics.fmean(values), sd=sd, n=len(values))
