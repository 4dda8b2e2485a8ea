"""Summaries of a measure with too many different numbers to keep each: exact sums, and a sample for quantiles.

An edge that is a quantile of `SAMPLE_ROWS` numbers drawn at random has, among all numbers, a rank that is off by at
most 0.2 % of them with probability 1 - 1e-6 (inequality of Dvoretzky, Kiefer and Wolfowitz).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config import DataConfig, for_field
from fielddep.data.fieldcoder import FieldCoder, field_texts
from fielddep.data.numeric import QuantileBins, ScaledNumbers, default_n_bins
from fielddep.data.schema import Field
from fielddep.data.streaming.interned import InternedTable
from fielddep.data.vocabulary import Vocabulary, count_values

SAMPLE_ROWS = 1 << 21

Marks = npt.NDArray[np.uint8]
ReadMarks = Callable[[int, int], Marks]
Floats = npt.NDArray[np.float64]


def fit_numbers(table: InternedTable, field: Field, config: DataConfig, marks: ReadMarks, n_train: int) -> FieldCoder:
    """What `FieldCoder.fit` learns, from training rows of a column of mode "numbers"."""
    coding: Vocabulary | ScaledNumbers | QuantileBins
    if field.numeric == "scale":
        n_missing = sum(numbers.null_count() for numbers in _numbers(table, field.name, marks))
        mean, std = stream_mean_and_std(table, field.name, marks)
        coding = ScaledNumbers(mean=mean, std=std, n_missing=n_missing, n_numbers=n_train - n_missing)
    elif field.numeric == "quantile":
        coding = _quantile_bins(table, field.name, marks, config.n_bins or default_n_bins(n_train))
    else:
        coding = _vocabulary(table, field, config, marks)
    return FieldCoder(field=field, coding=coding, missing_values=config.missing_values)


def sample_numbers(table: InternedTable, name: str, marks: ReadMarks | None) -> Floats:
    """About `SAMPLE_ROWS` known numbers of training rows, or of all; all of them where there are no more."""
    n_known = sum(len(numbers) - numbers.null_count() for numbers in _numbers(table, name, marks))
    share = SAMPLE_ROWS / max(n_known, 1)
    found = []
    for span, numbers in enumerate(_numbers(table, name, marks)):
        known = numbers.drop_nulls().to_numpy()
        if share < 1:
            known = known[np.random.default_rng([0, span]).random(len(known)) < share]
        found.append(known)
    return np.concatenate([np.empty(0), *found])


def stream_mean_and_std(table: InternedTable, name: str, marks: ReadMarks | None) -> tuple[float, float]:
    """`mean_and_std` of training rows, or of all, up to rounding."""
    low, high = math.inf, -math.inf
    for numbers in _numbers(table, name, marks):
        known = numbers.drop_nulls().to_numpy()
        if len(known):
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    if low > high:
        return 0.0, 1.0
    if low == high:
        return low, 1.0
    # Squares of numbers beyond 1e154 overflow; dividing by a power of two changes no other digit.
    unit = 2.0 ** (math.frexp(max(abs(low), abs(high)))[1] - 1)
    n_rows, mean, squares = 0, 0.0, 0.0
    for numbers in _numbers(table, name, marks):
        known = numbers.drop_nulls().to_numpy() / unit
        if len(known):
            # Two sets of rows joined: their squares, and the square of the gap between their means.
            gap, n_both = float(known.mean()) - mean, n_rows + len(known)
            squares += float(known.var()) * len(known) + gap**2 * n_rows * len(known) / n_both
            mean, n_rows = mean + gap * len(known) / n_both, n_both
    std = math.sqrt(squares / n_rows) * unit
    return mean * unit, std if std > 0 else 1.0


def _numbers(table: InternedTable, name: str, marks: ReadMarks | None) -> Iterator[pl.Series]:
    for start, stop in table.spans():
        numbers = table.numbers(name, start, stop)
        yield numbers if marks is None else numbers.filter(pl.Series(marks(start, stop) == 0))


def _quantile_bins(table: InternedTable, name: str, marks: ReadMarks, n_bins: int) -> QuantileBins:
    distinct, counts = np.unique(sample_numbers(table, name, marks), return_counts=True)
    bins = QuantileBins.from_counts(distinct, counts, 1, n_bins)
    counts = np.zeros(len(bins.counts), dtype=np.int64)
    for numbers in _numbers(table, name, marks):
        counts += np.bincount(bins.encode(numbers), minlength=len(counts))
    return QuantileBins(edges=bins.edges, counts=counts)


def _vocabulary(table: InternedTable, field: Field, config: DataConfig, marks: ReadMarks) -> Vocabulary:
    counted = [
        count_values(field_texts(field, numbers, config.missing_values))
        for numbers in _numbers(table, field.name, None if config.counts_from == "all" else marks)
    ]
    return Vocabulary.from_counts(
        pl.concat([values for values, _, _ in counted]),
        pl.concat([counts for _, counts, _ in counted]),
        sum(n_missing for _, _, n_missing in counted),
        for_field(config.min_count, field.name, 1),
        keep_rare=config.handle_unknown == "error",
    )
