"""Learning from rows rather than from different values: measures with too many numbers, and targets by value.

Sums go over all training rows. Quantiles and targets by number come from a sample of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.data import DataConfig
from fielddep.encoding.coded import CodedTable
from fielddep.encoding.column_tables import TargetCodec
from fielddep.encoding.field import Codec, FieldCells, FieldEncoder, field_missing, field_texts, learn_vocabulary
from fielddep.encoding.measures import HALVES, Measure, ValueTargets, centre, count_halves, half_of_rows
from fielddep.encoding.numbers import Moments, QuantileBins, ScaledNumbers, default_n_bins
from fielddep.encoding.schema import Field
from fielddep.encoding.split import ReadParts
from fielddep.encoding.target import Target, target_score
from fielddep.encoding.values import distinct_values

Floats = npt.NDArray[np.float64]
ReadCells = Callable[[int, int], pl.Series]
"""Cells of the rows from a start to a stop."""


class TargetSums:
    """Targets of training rows by value, for the columns that are asked for."""

    def __init__(self, table: CodedTable, target: Target, parts: ReadParts) -> None:
        self._table, self._parts = table, parts
        self._codec, self._score = TargetCodec(table, target), target_score(target)
        self._known: dict[str, Floats] = {}

    def add_to(self, trained: pl.DataFrame, name: str, seen: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """A frame of the values seen in training with the columns `HALVES`."""
        if name not in self._known:
            self._known[name] = self._count(name)
        columns = [pl.Series(half, values) for half, values in zip(HALVES, self._known[name][:, seen], strict=True)]
        return trained.with_columns(columns)

    def rows(self, start: int, stop: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Score of each training row, and whether it belongs to the second half."""
        train = self._parts(start, stop) == 0
        return self._score(self._codec.encode(start, stop)[train]), half_of_rows(start, stop)[train]

    def _count(self, name: str) -> Floats:
        n_codes = len(self._table.columns[name].values)
        found_4V = np.zeros((4, n_codes))
        for start, stop in self._table.chunks():
            codes_R = self._table.codes(name, start, stop)[self._parts(start, stop) == 0]
            found_4V += count_halves(codes_R, *self.rows(start, stop), n_codes)
        return centre(found_4V)


def learn_numbers(
    table: CodedTable, field: Field, config: DataConfig, parts: ReadParts, n_train: int, sums: TargetSums
) -> FieldEncoder:
    """The encoder of a field whose column is kept as numbers."""

    def read(start: int, stop: int) -> pl.Series:
        return FieldCells(lambda name: table.typed_cells(name, start, stop), config.missing_values).of(field)

    codec: Codec
    measure = None
    if field.kind == "numerical":
        moments = moments_of(table, read, parts)
        n_missing = n_train - moments.n_rows
        sample = _Sample.draw(table, read, parts, sums, moments.n_rows)
        measure = Measure.of(sample.distinct_V, sample.counts_V, n_missing)
    if field.numeric == "scale":
        codec = ScaledNumbers.of(moments, n_missing)
    elif field.numeric == "quantile":
        bins = QuantileBins.from_counts(
            sample.distinct_V, sample.counts_V, 1, config.n_bins or sample.best_n_bins(default_n_bins(n_train))
        )
        codec = _count_bins(bins, table, read, parts)
    else:
        counted_rows = read_cells(table, read, None if config.counts_from == "all" else parts)
        missing = field_missing(field, config.missing_values)
        texts = (field_texts(field, cells, missing) for cells in counted_rows)
        codec = learn_vocabulary(field, pl.concat(map(distinct_values, texts)), config)
    return FieldEncoder(field=field, codec=codec, missing_values=config.missing_values, measure=measure)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sample:
    """Different numbers of a sample of training rows, ascending, with rows and targets of each."""

    distinct_V: Floats
    counts_V: npt.NDArray[np.int64]
    halves_4V: Floats

    @classmethod
    def draw(cls, table: CodedTable, read: ReadCells, parts: ReadParts, sums: TargetSums, n_known: int) -> _Sample:
        """About `sample_rows` of the training rows with a number, or all if there are fewer."""
        share = table.sizes.sample_rows / max(n_known, 1)
        numbers, scores, seconds = [np.empty(0)], [np.empty(0)], [np.empty(0, dtype=np.bool_)]
        for chunk, (start, stop) in enumerate(table.chunks()):
            train = pl.Series(parts(start, stop) == 0)
            cells = read(start, stop).filter(train)
            known = cells.is_not_null().to_numpy()
            if share < 1:
                known[known] = np.random.default_rng([0, chunk]).random(int(known.sum())) < share
            score_R, second_R = sums.rows(start, stop)
            numbers.append(cells.filter(pl.Series(known)).to_numpy())
            scores.append(score_R[known])
            seconds.append(second_R[known])
        distinct_V, place_R, counts_V = np.unique(np.concatenate(numbers), return_inverse=True, return_counts=True)
        halves_4V = count_halves(place_R, np.concatenate(scores), np.concatenate(seconds), len(distinct_V))
        return cls(distinct_V=distinct_V, counts_V=counts_V, halves_4V=centre(halves_4V))

    def best_n_bins(self, at_most: int) -> int:
        """The number of bins that the targets ask for."""
        if not len(self.distinct_V):
            return at_most
        targets = ValueTargets(numbers_V=self.distinct_V, n_2V=self.halves_4V[:2], sum_2V=self.halves_4V[2:])
        return targets.best_n_bins(at_most)


def moments_of(table: CodedTable, read: ReadCells, parts: ReadParts) -> Moments:
    """Moments of the numbers of training rows."""
    moments = Moments()
    for numbers in read_cells(table, read, parts):
        moments = moments.merge(Moments.of(numbers.drop_nulls().to_numpy()))
    return moments


def read_cells(table: CodedTable, read: ReadCells, parts: ReadParts | None) -> Iterator[pl.Series]:
    """Cells of training rows, or of all rows without parts, chunk by chunk."""
    for start, stop in table.chunks():
        cells = read(start, stop)
        yield cells if parts is None else cells.filter(pl.Series(parts(start, stop) == 0))


def _count_bins(bins: QuantileBins, table: CodedTable, read: ReadCells, parts: ReadParts) -> QuantileBins:
    """Bins that were learned from a sample, with the counts of all training rows."""
    counts = np.zeros(len(bins.counts), dtype=np.int64)
    for numbers in read_cells(table, read, parts):
        counts += np.bincount(bins.encode(numbers), minlength=len(counts))
    return QuantileBins(edges=bins.edges, counts=counts)
