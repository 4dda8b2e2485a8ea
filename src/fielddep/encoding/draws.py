"""Draws: keyed random numbers of rows, and places in sorted order found without sorting.

numpy's generators are not used, as their numbers may change from version to version and depend on what was drawn
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Draws = npt.NDArray[np.uint64]
DrawnRows = Iterable[tuple[Draws, Numbers | None]]
"""Chunks of rows: their draws and strata. None: all rows are of stratum 0. Below 0: the row takes no part."""

_GOLDEN = 0x9E3779B97F4A7C15
_HIGHEST = (1 << 64) - 1
_DIGIT_BITS = 16


def draw(seed: int, stream: int, numbers: Numbers) -> Draws:
    """A uniform 64-bit number for each number of a row, by splitmix64.

    Streams of one seed are independent. Within a stream no two numbers draw the same, as every step can be undone.
    """
    key = _mix(np.array([(seed + _GOLDEN) & _HIGHEST], dtype=np.uint64))
    key = _mix(key + np.uint64(stream))
    return _mix((numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) + key)


def _mix(z: Draws) -> Draws:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def one_of(draws: Draws, n: int) -> Numbers:
    """A number from 0 to n - 1 for each draw, all equally likely."""
    numbers: Numbers = ((draws >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)
    return numbers


def select_smallest(chunks: Callable[[], DrawnRows], sizes: Numbers, wanted: Numbers) -> Draws:
    """Bounds below which lie exactly the wanted number of draws of every stratum.

    Draws are uniform, so the k-th smallest of n is close to k / n: only draws near that place are kept, the others
    are counted. One pass and O(sqrt n) memory; where a bound is not among the draws kept (probability below 1e-14),
    another pass looks further around.

    Args:
        chunks: all rows, as often as they are asked for.
        sizes: rows of each stratum (S,).
        wanted: rows to have below each bound (T, S).

    Returns:
        Exclusive bounds (T, S).
    """
    if not wanted.any():
        return np.zeros(wanted.shape, dtype=np.uint64)
    width = 8.0
    while (bounds := _select(chunks(), sizes, wanted, width)) is None:
        width *= 8
    return bounds


def _select(chunks: DrawnRows, sizes: Numbers, wanted: Numbers, width: float) -> Draws | None:
    n = np.maximum(sizes, 1)
    share = wanted / n
    slack = (width * np.sqrt(n * share * (1 - share)) + 2 * width) / n
    low, high = _as_draw(share - slack), _as_draw(share + slack)
    n_below = np.zeros(wanted.shape, dtype=np.int64)
    near: list[list[tuple[Draws, Numbers]]] = [[] for _ in wanted]
    for draws, strata in chunks:
        if strata is None:
            strata = np.broadcast_to(np.zeros(1, dtype=np.int64), draws.shape)
        elif (strata < 0).any():
            draws, strata = draws[strata >= 0], strata[strata >= 0]
        for t in range(len(wanted)):
            lowest, highest = (low[t, 0], high[t, 0]) if len(sizes) == 1 else (low[t][strata], high[t][strata])
            is_below = draws < lowest
            is_near = (draws <= highest) & ~is_below
            n_below[t] += np.bincount(strata[is_below], minlength=len(sizes))
            near[t].append((draws[is_near], strata[is_near]))
    found = [_bounds(*row) for row in zip(near, n_below, wanted, strict=True)]
    known = [bounds for bounds in found if bounds is not None]
    return np.stack(known) if len(known) == len(found) else None


def _as_draw(share: Floats) -> Draws:
    scaled = (np.clip(share, 0, 1 - 2.0**-53) * 2.0**64).astype(np.uint64)
    return np.where(share >= 1, np.uint64(_HIGHEST), scaled)


def _bounds(near: Sequence[tuple[Draws, Numbers]], n_below: Numbers, wanted: Numbers) -> Draws | None:
    """One above the last wanted draw of each stratum; None where it is not among those near."""
    draws = np.concatenate([np.empty(0, dtype=np.uint64), *(draws for draws, _ in near)])
    strata = np.concatenate([np.empty(0, dtype=np.int64), *(strata for _, strata in near)])
    order = np.lexsort((draws, strata))
    ends = np.cumsum(np.bincount(strata, minlength=len(wanted)))
    starts = np.concatenate([[0], ends[:-1]])
    last = starts + wanted - n_below - 1
    some = wanted > 0
    if ((last < starts) | (last >= ends))[some].any():
        return None
    bounds = np.zeros(len(wanted), dtype=np.uint64)
    bounds[some] = draws[order[last[some]]] + np.uint64(1)
    return bounds


def order_statistics(chunks: Callable[[], Iterable[Floats]], places: Numbers) -> Floats:
    """The numbers at these places, counted from 0, of all numbers in ascending order.

    Digit by digit, from the highest: four passes, memory for the counts of one digit a place. NaN comes last.

    Args:
        chunks: all numbers, as often as they are asked for.
        places: places below the count of numbers.
    """
    prefix, rest = np.zeros(len(places), dtype=np.uint64), places.copy()
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        counts = {key: np.zeros(1 << _DIGIT_BITS, dtype=np.int64) for key in prefix.tolist()}
        for chunk in chunks():
            heads = _sortable(chunk) >> np.uint64(shift)
            for key, count in counts.items():
                digits = heads - np.uint64(key << _DIGIT_BITS)  # wraps around for a lower key
                count += np.bincount(digits[digits < len(count)].astype(np.int64), minlength=len(count))
        for i, key in enumerate(prefix.tolist()):
            ends = np.cumsum(counts[key])
            digit = int(np.searchsorted(ends, rest[i], side="right"))
            rest[i] -= ends[digit] - counts[key][digit]
            prefix[i] = (key << _DIGIT_BITS) + digit
    return _from_sortable(prefix)


def _sortable(numbers: Floats) -> Draws:
    """Bits that sort as the numbers do."""
    bits = (numbers + 0.0).view(np.int64)  # adding 0 makes -0.0 the same as 0.0
    keys: Draws = (bits ^ ((bits >> 63) | np.int64(-(1 << 63)))).view(np.uint64)
    return keys


def _from_sortable(keys: Draws) -> Floats:
    bits = keys.view(np.int64)
    numbers: Floats = (bits ^ (~(bits >> 63) | np.int64(-(1 << 63)))).view(np.float64)
    return numbers
