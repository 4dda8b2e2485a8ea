"""The distribution behind Dunnett's test: the largest of several t statistics that share a control and a variance.

With group sizes n_i, control size n_0 and s^2 = chi2(df) / df, the statistics are

    T_i = (a_i Z_i + b_i Z_0) / s ,  b_i = sqrt(n_i / (n_i + n_0)) ,  a_i = sqrt(1 - b_i^2)

with independent standard normal Z. Given Z_0 and s they are independent, which leaves an integral over two variables
however many groups there are. Both are taken by the trapezoidal rule, which converges exponentially for such smooth,
quickly falling functions. Tails are summed as such (never as one minus a probability), so a p value of 1e-60 is as
exact as one of 0.05, and the same input gives the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from fielddep.errors import UserError

Array = npt.NDArray[np.float64]

# Normal densities beyond this are below the smallest float.
_REACH = 38.5
# Points per standard deviation of the narrowest feature; at 4 the error of the rule is about exp(-300).
_POINTS_PER_WIDTH = 4


def upper_tail(t: float, *, control_size: int, sizes: Sequence[int], df: int) -> float:
    """P(max_i T_i >= t) where no group differs from the control: Dunnett's one-sided p value of a statistic.

    Args:
        t: the statistic, positive in the direction of the alternative.
        control_size: observations of the control (n_0).
        sizes: observations of every other group (n_i), the tested one among them.
        df: degrees of freedom of the pooled variance.

    Raises:
        UserError: for no groups, an empty group or no degrees of freedom.

    Example:
        Two groups of five against a control of five; Dunnett (1955) gives 2.11 as the 5 % point.

        >>> round(upper_tail(2.11, control_size=5, sizes=[5, 5], df=12), 3)
        0.05
    """
    _check(t, control_size, sizes, df)
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    log_s, step = _log_scale_grid(t, df)
    tails = _normal_tail(t * np.exp(log_s), control_size, Counter(sizes))
    weights = np.exp(_log_density(log_s, df))
    return min(1.0, float(np.sum(weights * tails) * step))


def _check(t: float, control_size: int, sizes: Sequence[int], df: int) -> None:
    if math.isnan(t):
        raise UserError("expected a t statistic, given NaN; a group without spread or runs has none")
    if not sizes or min(control_size, df, *sizes) < 1:
        raise UserError(
            "Dunnett's test needs at least one group, one observation in each and one degree of freedom; "
            f"given {control_size=}, sizes={list(sizes)}, {df=}; run more seeds"
        )


def _log_scale_grid(t: float, df: int) -> tuple[Array, float]:
    """Points and step of log s that cover the bulk of s and the small s at which a large t is reached."""
    width = 1 / math.sqrt(2 * df)
    tail_peak = 0.5 * math.log(df / (df + t * t))
    low = tail_peak - 10 * width - 45 / df
    step = min(width / _POINTS_PER_WIDTH, 0.1)
    n_points = math.ceil((10 * width - low) / step) + 1
    grid: Array = low + step * np.arange(n_points, dtype=np.float64)
    return grid, step


def _log_density(log_s: Array, df: int) -> Array:
    """Log density of log s, s^2 = chi2(df) / df."""
    half = df / 2
    constant = math.log(2) + half * math.log(half) - math.lgamma(half)
    density: Array = constant + df * log_s - half * np.exp(2 * log_s)
    return density


def _normal_tail(x: Array, control_size: int, counts: Counter[int]) -> Array:
    """P(max_i (a_i Z_i + b_i Z_0) >= x) for every x; groups of equal size are treated at once."""
    a = {size: math.sqrt(control_size / (size + control_size)) for size in counts}
    step = min(0.25, min(a.values()) / _POINTS_PER_WIDTH)
    n_half = math.ceil(_REACH / step)
    z: Array = step * np.arange(-n_half, n_half + 1, dtype=np.float64)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return np.array([float(np.sum(density * _any_above(v, z, a, counts))) * step for v in x])


def _any_above(x: float, z: Array, a: dict[int, float], counts: Counter[int]) -> Array:
    """P(some a_i Z_i + b_i z >= x) at every z."""
    log_below = np.zeros_like(z)
    for size, n_groups in counts.items():
        b = math.sqrt(1 - a[size] ** 2)
        log_below += n_groups * log_ndtr((x - b * z) / a[size])
    above: Array = -np.expm1(log_below)
    return above
