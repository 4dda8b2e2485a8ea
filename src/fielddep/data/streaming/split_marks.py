"""Split marks: the part of every row of an interned table, span after span, in bounded memory.

The methods of `splits` decide from the different values and their counts, so `group`, `time` and `column` give the
parts that they give in memory. `time` does so up to 2 million different times; beyond that it cuts by a sample, and
rows of one time stay together. `random` and `stratified` draw within blocks of rows from a generator keyed by seed and
block: other rows than in memory, with the same number of rows in every part and, when stratified, of every class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config import SplitConfig
from fielddep.data.splits import (
    STRATA_OF_NUMBERS,
    dense_rank,
    missing_times,
    parts_by_name,
    parts_of_groups,
    split_column,
    time_cuts,
    typed_times,
    wanted_rows,
)
from fielddep.data.store.store import BLOCK_ROWS
from fielddep.data.streaming.interned import InternedTable
from fielddep.data.streaming.number_summary import sample_numbers
from fielddep.data.target import guess_task
from fielddep.data.values import canonical, try_numbers

Marks = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Marker = Callable[[int, int], Marks]
"""Gives the marks of rows; called for one span after another, each starting where a block does."""


def split_marker(table: InternedTable, config: SplitConfig, target: str) -> Marker:
    """How the rows of a table are shared out.

    Raises:
        SplitError: if the column is absent or unusable.
    """
    if config.method == "random":
        draw = StrataDraw(np.array([table.n_rows]), config)
        return lambda start, stop: draw.marks(start, np.zeros(stop - start, dtype=np.int64))
    if config.method == "stratified":
        return _stratified(table, config, target)
    column = split_column(list(table.columns), config.column, "split.column")
    if config.method == "time":
        return _by_time(table, column, config)
    counts = code_counts(table, column)
    if config.method == "group":
        key = dense_rank(canonical(table.columns[column].values))
        sizes = np.bincount(key, weights=counts).astype(np.int64)
        parts = parts_of_groups(sizes, config, np.random.default_rng(config.seed))[key].astype(np.uint8)
        return lambda start, stop: parts[table.codes(column, start, stop)]
    return _by_column(table, column, counts, config)


def code_counts(table: InternedTable, name: str) -> Numbers:
    """Rows of every code of a column."""
    counts = np.zeros(len(table.columns[name].values), dtype=np.int64)
    for start, stop in table.spans():
        counts += np.bincount(table.codes(name, start, stop), minlength=len(counts))
    return counts


class StrataDraw:
    """Draws the same share of every stratum, block after block, exact over the whole table.

    Strata follow each other on a line as long as the table, and a share of the line is taken by rounding its running
    total, so the sum is exact, every stratum is right within a row, and strata too small for a row take turns.

    Args:
        sizes: rows of each stratum.
        config: shares and seed.
    """

    def __init__(self, sizes: Numbers, config: SplitConfig) -> None:
        n_rows = int(sizes.sum())
        self._seed = config.seed
        order = np.random.default_rng(config.seed).permutation(len(sizes))
        self._test = _Line(sizes, order, wanted_rows(config.test, n_rows))
        rest = sizes - self._test.taken_of_all(sizes)
        self._validation = _Line(rest, order, min(wanted_rows(config.validation, n_rows), int(rest.sum())))

    def marks(self, start: int, strata: Numbers) -> Marks:
        """Marks of the rows from `start` on, given the stratum of each; -1 for a row that takes no part."""
        marks = np.zeros(len(strata), dtype=np.uint8)
        for first in range(0, len(strata), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            marks[block] = self._draw((start + first) // BLOCK_ROWS, strata[block])
        return marks

    def _draw(self, block: int, strata: Numbers) -> Marks:
        shuffled = np.random.default_rng([self._seed, block]).permutation(len(strata))
        shuffled = shuffled[strata[shuffled] >= 0]
        if self._test.n_strata > 1:
            shuffled = shuffled[np.argsort(strata[shuffled], kind="stable")]
        of_row = strata[shuffled]
        sizes = np.bincount(of_row, minlength=self._test.n_strata)
        n_test = self._test.take(sizes)
        n_validation = self._validation.take(sizes - n_test)
        place = np.arange(len(of_row)) - (np.cumsum(sizes) - sizes)[of_row]
        drawn = np.where(place < n_test[of_row], 2, place < (n_test + n_validation)[of_row])
        marks = np.zeros(len(strata), dtype=np.uint8)
        marks[shuffled] = drawn
        return marks


class _Line:
    """Strata one behind the other, and how far along each of them rows were taken."""

    def __init__(self, sizes: Numbers, order: Numbers, n_wanted: int) -> None:
        self.n_strata = len(sizes)
        self._share = n_wanted / max(int(sizes.sum()), 1)
        self._at = np.zeros(len(sizes), dtype=np.int64)
        self._at[order] = np.cumsum(sizes[order]) - sizes[order]

    def taken_of_all(self, sizes: Numbers) -> Numbers:
        """Rows that will be taken of whole strata."""
        return self._mark(self._at + sizes) - self._mark(self._at)

    def take(self, sizes: Numbers) -> Numbers:
        """How many of the next rows of each stratum to take."""
        before = self._mark(self._at)
        self._at = self._at + sizes
        return self._mark(self._at) - before

    def _mark(self, at: Numbers) -> Numbers:
        marks: Numbers = np.floor(at * self._share + 0.5).astype(np.int64)
        return marks


def _stratified(table: InternedTable, config: SplitConfig, target: str) -> Marker:
    column = table.columns[target]
    if column.mode == "numbers":
        edges = _tenths(table, target)
        sizes = sum(
            (np.bincount(_bins(table, target, edges, *span), minlength=len(edges) + 1) for span in table.spans()),
            start=np.zeros(len(edges) + 1, dtype=np.int64),
        )
        draw = StrataDraw(sizes, config)
        return lambda start, stop: draw.marks(start, _bins(table, target, edges, start, stop))
    counts = code_counts(table, target)
    stratum = _strata_of_values(column.values, counts)
    draw = StrataDraw(np.bincount(stratum, weights=counts).astype(np.int64), config)
    return lambda start, stop: draw.marks(start, stratum[table.codes(target, start, stop)])


def _tenths(table: InternedTable, name: str) -> npt.NDArray[np.float64]:
    sample = sample_numbers(table, name, None)
    shares = np.arange(1, STRATA_OF_NUMBERS) / STRATA_OF_NUMBERS
    return np.unique(np.quantile(sample, shares, method="lower"))


def _bins(table: InternedTable, name: str, edges: npt.NDArray[np.float64], start: int, stop: int) -> Numbers:
    numbers = table.numbers(name, start, stop).fill_null(0.0).to_numpy()
    return np.searchsorted(edges, numbers, side="right").astype(np.int64)


def _strata_of_values(values: pl.Series, counts: Numbers) -> Numbers:
    """Stratum of every value: its class, or its tenth of the rows where the target is a number to regress on."""
    seen = values.filter(pl.Series(counts > 0))
    numbers = try_numbers(values) if guess_task(seen) == "regression" else None
    if numbers is None:
        return dense_rank(canonical(values))
    order = np.argsort(numbers.fill_null(0.0).to_numpy(), kind="stable")
    before = np.empty(len(order), dtype=np.int64)
    before[order] = np.cumsum(counts[order]) - counts[order]
    strata: Numbers = before * STRATA_OF_NUMBERS // (int(counts.sum()) + 1)
    return strata


def _by_column(table: InternedTable, name: str, counts: Numbers, config: SplitConfig) -> Marker:
    values = table.columns[name].values
    parts = np.zeros(len(values), dtype=np.uint8)
    parts[counts > 0] = parts_by_name(values.filter(pl.Series(counts > 0)))
    sizes = np.bincount(parts, weights=counts, minlength=3).astype(np.int64)
    if sizes[1]:
        return lambda start, stop: parts[table.codes(name, start, stop)]
    draw = StrataDraw(sizes[:1], SplitConfig(validation=config.validation, test=0.0, seed=config.seed))

    def marks(start: int, stop: int) -> Marks:
        fixed = parts[table.codes(name, start, stop)]
        drawn = draw.marks(start, np.where(fixed == 0, 0, -1))
        return np.where(fixed == 0, drawn, fixed)

    return marks


def _by_time(table: InternedTable, name: str, config: SplitConfig) -> Marker:
    column = table.columns[name]
    if column.mode == "numbers":
        return _by_many_times(table, name, config)
    counts = code_counts(table, name)
    seen = counts > 0
    typed = typed_times(column.values.filter(pl.Series(seen)))
    if typed.null_count():
        missing = np.zeros(len(counts), dtype=np.bool_)
        missing[np.flatnonzero(seen)[typed.is_null().to_numpy()]] = True
        raise missing_times(name, int(counts[missing].sum()), table.first_row(name, missing))
    rank = np.zeros(len(counts), dtype=np.int64)
    rank[seen] = typed.rank("dense").to_numpy()
    sizes = np.bincount(rank, weights=counts).astype(np.int64)
    cuts = time_cuts(sizes, config)
    before = _RowsBefore(rank=rank, next_place=np.cumsum(sizes) - sizes, cuts=cuts)
    return lambda start, stop: before.marks(table.codes(name, start, stop))


@dataclass(kw_only=True)
class _RowsBefore:
    """Places of rows in order of time; rows of one time follow each other as in the table."""

    rank: Numbers
    next_place: Numbers
    cuts: tuple[int, int]

    def marks(self, codes: npt.NDArray[np.unsignedinteger]) -> Marks:
        ranks = self.rank[codes]
        order = np.argsort(ranks, kind="stable")
        sizes = np.bincount(ranks, minlength=len(self.next_place))
        place = np.empty(len(ranks), dtype=np.int64)
        place[order] = np.arange(len(ranks)) - (np.cumsum(sizes) - sizes)[ranks[order]] + self.next_place[ranks[order]]
        self.next_place = self.next_place + sizes
        middle, end = self.cuts
        return ((place >= middle).astype(np.uint8) + (place >= end)).astype(np.uint8)


def _by_many_times(table: InternedTable, name: str, config: SplitConfig) -> Marker:
    """Cuts between times from a sample; rows of one time stay together."""
    for start, stop in table.spans():
        times = table.numbers(name, start, stop)
        if times.null_count():
            raise missing_times(name, times.null_count(), start + int(times.is_null().arg_true()[0]))
    distinct, counts = np.unique(sample_numbers(table, name, None), return_counts=True)
    middle, end = time_cuts(counts, config)
    places = np.searchsorted(np.cumsum(counts), [middle, end], side="right")
    cuts = np.append(distinct, np.inf)[places]
    return lambda start, stop: np.searchsorted(cuts, table.numbers(name, start, stop).to_numpy(), side="right").astype(
        np.uint8
    )
