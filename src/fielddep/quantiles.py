"""Quantiles of numbers of which some are frequent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def quantile_edges(distinct: Floats, counts: npt.NDArray[np.int64], n_bins: int) -> Floats:
    """Edges of bins with about equal mass, all of them numbers of the table.

    A number that fills a bin by itself, such as the zeros of a count, gets its own bin, and the others share the rest.
    Plain quantiles would put 90 % zeros and all other numbers into one bin. Such a number may cut a bin in two, which
    gives a few more than `n_bins`.

    Args:
        distinct: ascending different numbers.
        counts: the rows of each.
        n_bins: bins to aim at.
    """
    heavy = counts * n_bins >= counts.sum()
    after_heavy = np.flatnonzero(heavy[:-1]) + 1
    light, ends = distinct[~heavy], np.cumsum(counts[~heavy])
    n_light = max(n_bins - int(heavy.sum()), 1)
    if len(light):
        cuts = np.arange(1, n_light) * int(ends[-1]) // n_light
        light = light[np.searchsorted(ends, cuts, side="right")]
    edges = np.concatenate([distinct[heavy], distinct[after_heavy], light])
    return np.unique(edges[edges > distinct[0]])
