"""Orders of rows: by keyed random draws, and by time. Places in sorted order are found without sorting.

Draws do not come from numpy's generators, whose numbers may change between versions and depend on earlier draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.coded import CodedTable
from fielddep.encoding.dates import typed_times
from fielddep.errors import SplitError

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Draws = npt.NDArray[np.uint64]
DrawnRows = Iterable[tuple[Draws, Numbers | None]]
"""Chunks of rows: their draws and strata. None: all rows are in stratum 0. Below 0: the row does not take part."""
Times = npt.NDArray[Any]
"""Numbers, or ranks of times."""

FOLD_ROWS = 1 << 16
"""About so many rows decide where folds by time are cut."""
MAX_FOLDS = 256
"""Folds of all rows, at most: a store keeps the fold of a row in a byte."""
_SAMPLE_STREAM = (1 << 32) + 2
"""Stream of the draws that choose these rows."""
_GOLDEN = 0x9E3779B97F4A7C15
_HIGHEST = (1 << 64) - 1
_DIGIT_BITS = 16


def draw(seed: int, stream: int, numbers: Numbers) -> Draws:
    """A uniform 64-bit draw for each row number, by splitmix64.

    Streams of one seed are independent. Within a stream, no two numbers have the same draw, because every step is
    invertible.
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
    are counted. This takes one pass and O(sqrt n) memory. If a bound is not among the draws that were kept (probability
    below 1e-14), another pass keeps more of them.

    Args:
        chunks: called once per pass; all rows.
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
    """One above the last wanted draw of each stratum; None if one of them was not kept."""
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
    """The numbers at these places, counted from 0, of all numbers in ascending order; NaN comes last.

    A radix search: one pass for each of four digits, with counts of one digit per place in memory. `chunks` is called
    once per pass.
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
    """Bits that sort like the numbers."""
    bits = (numbers + 0.0).view(np.int64)  # adding 0 makes -0.0 the same as 0.0
    keys: Draws = (bits ^ ((bits >> 63) | np.int64(-(1 << 63)))).view(np.uint64)
    return keys


def _from_sortable(keys: Draws) -> Floats:
    bits = keys.view(np.int64)
    numbers: Floats = (bits ^ (~(bits >> 63) | np.int64(-(1 << 63)))).view(np.float64)
    return numbers


# --- by time --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class InOrder:
    """The rule of a split by time: rows before the first cut train, those from the second cut on test.

    Attributes:
        rank: rank of the time of every code; None if keys are the times.
        cuts: time and number of the first validation row and of the first test row.
        sample: times of some training and validation rows, ascending.
        n_train: how many of these are of training rows.
    """

    rank: Numbers | None
    cuts: Sequence[tuple[float, int]]
    sample: Times
    n_train: int = 0

    def parts(self, rows: Numbers, keys: Times | None) -> npt.NDArray[np.uint8]:
        """Parts of rows, by time and row number."""
        times = self._times(keys)
        parts = np.zeros(len(rows), dtype=np.uint8)
        for time, row in self.cuts:
            parts += (times > time) | ((times == time) & (rows >= row))
        return parts

    def folds(self, rows: Numbers, keys: Times | None, n: int, number: int) -> Numbers:
        """Folds from oldest to newest; rows of one time share a fold.

        Training rows have folds 0 to n - 1. Validation rows have as many more as it takes for folds of the same size.
        """
        times = self._times(keys)
        place = np.searchsorted(self.sample, times)
        last = np.where(times < self.cuts[0][0], n, MAX_FOLDS) - 1
        folds: Numbers = np.minimum(place * n // max(self.n_train, 1), last)
        return folds

    def _times(self, keys: Times | None) -> Times:
        assert keys is not None
        return keys if self.rank is None else self.rank[keys]


def split_by_time(
    table: CodedTable, name: str, *, n_validation: int, n_test: int, seed: int
) -> tuple[InOrder, tuple[int, int, int]]:
    """The rule, and the rows of each part: oldest rows train, newest rows test.

    Rows of one time stay together unless a part would be empty because of that. `seed` chooses the sample that decides
    the folds.
    """
    order, n_rows = _TimeOrder.of(table, name), table.n_rows
    end = order.change_near(n_rows - n_test, n_rows)
    middle = max(order.change_near(end - n_validation, end), 0)
    rule = InOrder(rank=None, cuts=[order.row_at(middle), order.row_at(end)], sample=np.empty(0))
    sample, n_train = [rule.sample], 0
    for start, times in order.chunks():
        rows = np.arange(start, start + len(times))
        is_drawn = one_of(draw(seed, _SAMPLE_STREAM, rows), n_rows) < FOLD_ROWS
        parts = rule.parts(rows, times)
        sample.append(times[is_drawn & (parts < 2)])
        n_train += int(np.count_nonzero(is_drawn & (parts == 0)))
    rule = replace(rule, rank=order.rank, sample=np.sort(np.concatenate(sample)), n_train=n_train)
    return rule, (middle, end - middle, n_rows - end)


@dataclass(frozen=True, kw_only=True, eq=False)
class _TimeOrder:
    """Rows in the order of their times; rows of one time in the order of the table.

    Attributes:
        table: all rows.
        name: the column of times.
        rank: rank of the time of every code; None if the column is kept as numbers.
        ends: rows up to each rank.
    """

    table: CodedTable
    name: str
    rank: Numbers | None = None
    ends: Numbers | None = None

    @classmethod
    def of(cls, table: CodedTable, name: str) -> _TimeOrder:
        if table.columns[name].mode == "numbers":
            missing = table.missing_rows(name)
            if len(missing):
                raise _missing_times(name, len(missing), int(missing[0]))
            return cls(table=table, name=name)
        counts = table.code_counts(name)
        rank = _ranks(table, name, counts)
        sizes = np.bincount(rank, weights=counts).astype(np.int64)
        return cls(table=table, name=name, rank=rank, ends=np.cumsum(sizes))

    def chunks(self) -> Iterator[tuple[int, Times]]:
        """First row and times of each chunk."""
        for start, stop in self.table.chunks():
            keys = self.table.keys(self.name, start, stop)
            yield start, keys if self.rank is None else self.rank[keys]

    def locate(self, place: int) -> tuple[float, int, int]:
        """Time of the row at a place, and the places where rows of this time start and stop."""
        if self.ends is not None:
            rank = int(np.searchsorted(self.ends, place, side="right"))
            return rank, int(self.ends[rank - 1]) if rank else 0, int(self.ends[rank])
        time = float(order_statistics(lambda: (times for _, times in self.chunks()), np.array([place]))[0])
        before = sum(int(np.count_nonzero(times < time)) for _, times in self.chunks())
        return time, before, before + sum(int(np.count_nonzero(times == time)) for _, times in self.chunks())

    def change_near(self, place: int, stop: int) -> int:
        """The nearest place between 0 and `stop` where the time changes; `place` itself if there is none."""
        if not 0 < place < stop:
            return place
        changes = [change for change in self.locate(place)[1:] if 0 < change < stop]
        return min(changes, key=lambda change: abs(change - place), default=place)

    def row_at(self, place: int) -> tuple[float, int]:
        """Time and number of the row at a place; after all rows if there is none."""
        if place >= self.table.n_rows:
            return np.inf, self.table.n_rows
        time, before, _ = self.locate(place)
        for start, times in self.chunks():
            found = np.flatnonzero(times == time)
            if place - before < len(found):
                return time, start + int(found[place - before])
            before += len(found)
        raise LookupError(f"no row at place {place}")


def _ranks(table: CodedTable, name: str, counts: Numbers) -> Numbers:
    """Rank of the time of every code; unlike a float, it orders any type without rounding."""
    seen = counts > 0
    column = table.columns[name]
    typed = typed_times(column.values.filter(pl.Series(seen)), column.date_format, column.missing_values)
    if typed.null_count():
        missing = np.zeros(len(counts), dtype=np.bool_)
        missing[np.flatnonzero(seen)[typed.is_null().to_numpy()]] = True
        raise _missing_times(name, int(counts[missing].sum()), table.first_row(name, missing))
    rank = np.zeros(len(counts), dtype=np.int64)
    rank[seen] = typed.rank("dense").to_numpy()
    return rank


def _missing_times(name: str, n_missing: int, row: int) -> SplitError:
    return SplitError(
        f"split.column {name!r} must have a time in every row; given {n_missing} missing, the first in row {row} "
        "(counted from 0). Fill them, or choose another column"
    )
