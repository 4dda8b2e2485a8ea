"""Times: columns read as times, and splits that follow them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.coded import CodedTable
from fielddep.encoding.draws import Numbers, draw, one_of, order_statistics
from fielddep.encoding.values import try_numbers
from fielddep.errors import SplitError

Parts = npt.NDArray[np.uint8]
Times = npt.NDArray[Any]
"""Numbers, or ranks of times."""

FOLD_ROWS = 1 << 16
"""About so many rows tell where the folds of training rows are cut."""
SAMPLE_STREAM = (1 << 32) + 2
"""Draws that choose these rows."""
_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S%.fZ",
    "%Y-%m-%dT%H:%M:%S%.f%z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%Y/%m/%d",
)


# --- reading --------------------------------------------------------------------------------------------------


def typed_times(column: pl.Series) -> pl.Series:
    """Times in a type that sorts as time does; null for missing."""
    typed = column if column.dtype.is_numeric() or column.dtype.is_temporal() else _parse(column)
    return typed.fill_nan(None) if typed.dtype.is_float() else typed


def time_numbers(column: pl.Series) -> tuple[pl.Series, bool]:
    """Times as Float64, null for missing, and whether they are times of a clock (microseconds) or plain numbers."""
    typed = typed_times(column)
    is_clock = typed.dtype.is_temporal()
    if typed.dtype in (pl.Date, pl.Datetime):
        typed = typed.cast(pl.Datetime("us"))
    numbers: pl.Series = typed.to_physical().cast(pl.Float64)
    return numbers, is_clock


def _parse(column: pl.Series) -> pl.Series:
    text = column.cast(pl.String).str.strip_chars().replace("", None)
    numbers = try_numbers(text)
    if numbers is not None:
        return numbers
    for time_format in _FORMATS:
        dtype = pl.Date if "%H" not in time_format else pl.Datetime("us", "UTC" if "%z" in time_format else None)
        times: pl.Series = text.str.strptime(dtype, time_format, strict=False)
        if times.null_count() == text.null_count():
            return times
    raise SplitError(
        f"split.column {column.name!r} must hold numbers, dates or ISO times of one format, such as 2024-01-31 or "
        f"2024-01-31T12:00:00; given values such as {text.drop_nulls().first()!r}. Convert them"
    )


# --- splitting ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class InOrder:
    """Rows before the first cut train, those from the second on test.

    Attributes:
        rank: rank of the time of every code; None where keys are the times.
        cuts: time and number of the first validation row and of the first test row.
        sample: times of some training rows, ascending.
    """

    rank: Numbers | None
    cuts: Sequence[tuple[float, int]]
    sample: Times

    def parts(self, rows: Numbers, keys: Times | None) -> Parts:
        """Parts of rows, by time and row number."""
        times = self._times(keys)
        parts = np.zeros(len(rows), dtype=np.uint8)
        for time, row in self.cuts:
            parts += (times > time) | ((times == time) & (rows >= row))
        return parts

    def folds(self, rows: Numbers, keys: Times | None, n: int, number: int) -> Numbers:
        """Folds of training rows, from oldest to newest; rows of one time are of one fold."""
        place = np.searchsorted(self.sample, self._times(keys))
        folds: Numbers = np.minimum(place * n // max(len(self.sample), 1), n - 1)
        return folds

    def _times(self, keys: Times | None) -> Times:
        assert keys is not None
        return keys if self.rank is None else self.rank[keys]


def split_by_time(
    table: CodedTable, name: str, *, n_validation: int, n_test: int, seed: int
) -> tuple[InOrder, tuple[int, int, int]]:
    """Oldest rows train, newest test. Rows of one time stay together unless a part would be empty by it.

    Args:
        table: all rows.
        name: the column of times.
        n_validation: rows wanted for validation.
        n_test: rows wanted for test.
        seed: of the sample that folds are cut by.

    Returns:
        The rule, and the rows of each part.
    """
    order, n_rows = _TimeOrder.of(table, name), table.n_rows
    end = order.change_near(n_rows - n_test, n_rows)
    middle = max(order.change_near(end - n_validation, end), 0)
    rule = InOrder(rank=None, cuts=[order.row_at(middle), order.row_at(end)], sample=np.empty(0))
    sample = [rule.sample]
    for start, times in order.chunks():
        rows = np.arange(start, start + len(times))
        is_drawn = one_of(draw(seed, SAMPLE_STREAM, rows), n_rows) < FOLD_ROWS
        sample.append(times[is_drawn & (rule.parts(rows, times) == 0)])
    rule = replace(rule, rank=order.rank, sample=np.sort(np.concatenate(sample)))
    return rule, (middle, end - middle, n_rows - end)


@dataclass(frozen=True, kw_only=True, eq=False)
class _TimeOrder:
    """Rows in the order of their times, and rows of one time as in the table.

    Attributes:
        table: all rows.
        name: the column of times.
        rank: rank of the time of every code; None where the column is kept as numbers.
        ends: rows up to each rank.
    """

    table: CodedTable
    name: str
    rank: Numbers | None = None
    ends: Numbers | None = None

    @classmethod
    def of(cls, table: CodedTable, name: str) -> _TimeOrder:
        if table.columns[name].mode == "numbers":
            order = cls(table=table, name=name)
            missing = np.concatenate([np.flatnonzero(np.isnan(times)) + start for start, times in order.chunks()])
            if len(missing):
                raise _missing_times(name, len(missing), int(missing[0]))
            return order
        counts = table.code_counts(name)
        rank = _ranks(table, name, counts)
        sizes = np.bincount(rank, weights=counts).astype(np.int64)
        return cls(table=table, name=name, rank=rank, ends=np.cumsum(sizes))

    def chunks(self) -> Iterator[tuple[int, Times]]:
        """First row and times of all rows, chunk by chunk."""
        for start, stop in self.table.chunks():
            keys = self.table.keys(self.name, start, stop)
            yield start, keys if self.rank is None else self.rank[keys]

    def locate(self, place: int) -> tuple[float, int, int]:
        """Time of the row at a place, and the places where rows of this time begin and end."""
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
        """Time and number of the row at a place; behind all rows if there is none."""
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
    """Rank of the time of every code; it keeps the order of any type without rounding."""
    seen = counts > 0
    typed = typed_times(table.columns[name].values.filter(pl.Series(seen)))
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
