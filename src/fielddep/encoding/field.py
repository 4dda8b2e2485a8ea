"""Field encoders: from the raw values of one field to local ids, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.settings import DataConfig, for_field
from fielddep.encoding.dates import Times, read_times
from fielddep.encoding.measures import Measure, ValueTargets, lenient_numbers
from fielddep.encoding.numbers import (
    Moments,
    QuantileBins,
    ScaledNumbers,
    default_n_bins,
    log2_intervals,
    log2_texts,
    number_counts,
)
from fielddep.encoding.one_date import Moment, read_time
from fielddep.encoding.one_row import NeedsColumnsError, canonical_values, missing_texts, number_values
from fielddep.encoding.schema import Field
from fielddep.encoding.values import NUMBER_MISSING, as_number, canonical
from fielddep.encoding.vocabulary import FIRST_ID, MISSING_ID, Vocabulary
from fielddep.errors import UnknownValueError

Codec = Vocabulary | ScaledNumbers | QuantileBins


class FieldCells:
    """The cells of fields in some rows: those of their columns, or parts of dates, which are parsed once per column.

    Args:
        column: the column of a name.
        missing_values: texts that mean missing.
    """

    def __init__(self, column: Callable[[str], pl.Series], missing_values: tuple[str, ...]) -> None:
        self._column, self._missing_values = column, missing_values
        self._times: dict[str, Times] = {}

    def of(self, field: Field) -> pl.Series:
        """Cells of a field, which its `FieldEncoder` takes."""
        if field.part is None or field.format is None:
            return self._column(field.column)
        times = self._times.get(field.column)
        if times is None:
            times = read_times(self._column(field.column), field.format, self._missing_values)
            self._times[field.column] = times
        return times.part(field.part, field.origin or 0).alias(field.name)


class RowCells:
    """The same for one row of Python values, without a frame where that is possible."""

    def __init__(self, row: Mapping[str, object], missing_values: tuple[str, ...]) -> None:
        self._row, self._missing_values = row, missing_values
        self._columns = FieldCells(lambda name: pl.Series(name, [row[name]]), missing_values)
        self._moments: dict[str, Moment | None] = {}

    def of(self, field: Field) -> object:
        """The cell of a field."""
        name = field.column
        if field.part is None or field.format is None:
            return self._row[name]
        try:
            if name not in self._moments:
                self._moments[name] = read_time(self._row[name], field.format, self._missing_values)
        except NeedsColumnsError:
            return self._columns.of(field)[0]
        moment = self._moments[name]
        return None if moment is None else moment.part(field.part, field.origin or 0)


@dataclass(frozen=True, kw_only=True)
class EncodedField:
    """One encoded column; `numbers` only for a field given as `value x vector`, `measures` for a measured one."""

    ids: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.float32] | None
    n_unknown: int
    n_missing: int
    measures: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class FieldEncoder:
    """What was learned about one field from training rows. It takes cells as `FieldCells` has them.

    Attributes:
        field: name and kind.
        codec: vocabulary (categorical and log2 fields), scale or bins.
        missing_values: texts that mean missing in the column of the field.
        measure: scale of the numbers that a model sees next to the ids; None if it sees none.
    """

    field: Field
    codec: Codec
    missing_values: tuple[str, ...]
    measure: Measure | None = None

    @classmethod
    def from_counts(
        cls, field: Field, trained: pl.DataFrame, config: DataConfig, counted: pl.DataFrame | None = None
    ) -> FieldEncoder:
        """Learn from different cells (value) and the rows of each (n).

        Args:
            field: name and kind.
            trained: values of training rows.
            config: settings.
            counted: values for the vocabulary, if it should not count training rows.
        """
        missing = field_missing(field, config.missing_values)
        codec: Codec
        measure = None
        if field.kind != "categorical":
            numbers = as_number(trained["value"].alias(field.name), missing)
            distinct, counts, n_missing = number_counts(numbers, trained["n"].to_numpy())
            measure = Measure.of(distinct, counts)
        if field.numeric in ("scale", "quantile"):
            if field.numeric == "scale":
                codec = ScaledNumbers.of(Moments.of(distinct, counts), n_missing)
            else:
                n_bins = config.n_bins or _best_n_bins(trained, numbers)
                codec = QuantileBins.from_counts(distinct, counts, n_missing, n_bins)
        else:
            counted = trained if counted is None else counted
            texts = field_texts(field, counted["value"].alias(field.name), missing)
            codec = learn_vocabulary(field, counted.with_columns(value=texts), config)
        return cls(field=field, codec=codec, missing_values=config.missing_values, measure=measure)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Counted rows of each local id."""
        return self.codec.counts

    def encode(
        self, column: pl.Series, *, first_row: int = 0, refuse_unknown: bool = False, row_by_row: bool = False
    ) -> EncodedField:
        """Local ids of a column.

        Args:
            column: values of rows.
            first_row: number of the first row in a longer table, for error messages.
            refuse_unknown: whether a value never seen in training is an error.
            row_by_row: look up value by value. The ids are the same; many calls with a few rows each are faster. The
                first call builds an index of the vocabulary.

        Raises:
            UnknownValueError: for a value never seen in training, if `refuse_unknown`.
        """
        if row_by_row:
            few = self.encode_values(column.to_list()) if _is_simple(column.dtype) else None
            if few is not None and not (few.n_unknown and refuse_unknown):
                return few
        if not isinstance(self.codec, Vocabulary):
            return self._encode_numbers(as_number(column, self._missing, first_row=first_row).to_numpy())
        texts = field_texts(self.field, column, self._missing, first_row=first_row)
        ids, n_unknown = self.codec.encode(texts)
        if n_unknown and refuse_unknown:
            raise self._unknown_error(texts, self.codec, first_row)
        measures = None if self.measure is None else self.measure.encode(lenient_numbers(column, self._missing))
        return EncodedField(ids=ids, numbers=None, n_unknown=n_unknown, n_missing=texts.null_count(), measures=measures)

    def encode_values(self, values: Sequence[object]) -> EncodedField | None:
        """The same for Python values; None if only the columns of `encode` can handle one of them exactly."""
        if self.field.numeric == "log2":
            return None
        try:
            if not isinstance(self.codec, Vocabulary):
                return self._encode_numbers(number_values(values, self._missing_texts))
            texts = canonical_values(values, self._missing_texts)
            numbers = None if self.measure is None else number_values(values, self._missing_numbers)
        except NeedsColumnsError:
            return None
        ids, n_unknown = self.codec.encode_few(texts)
        measures = None if self.measure is None or numbers is None else self.measure.encode(numbers)
        return EncodedField(ids=ids, numbers=None, n_unknown=n_unknown, n_missing=texts.count(None), measures=measures)

    def _encode_numbers(self, numbers: npt.NDArray[np.float64]) -> EncodedField:
        assert not isinstance(self.codec, Vocabulary)
        n_missing = int(np.isnan(numbers).sum())
        measures = None if self.measure is None else self.measure.encode(numbers)
        if isinstance(self.codec, ScaledNumbers):
            ids, scaled = self.codec.encode(numbers)
        else:
            ids, scaled = self.codec.encode(numbers), None
        return EncodedField(ids=ids, numbers=scaled, n_unknown=0, n_missing=n_missing, measures=measures)

    @property
    def _missing(self) -> tuple[str, ...]:
        return field_missing(self.field, self.missing_values)

    @cached_property
    def _missing_texts(self) -> frozenset[str]:
        if isinstance(self.codec, Vocabulary):
            return missing_texts(self._missing)
        return self._missing_numbers

    @cached_property
    def _missing_numbers(self) -> frozenset[str]:
        return missing_texts((*self._missing, *NUMBER_MISSING))

    def decode(self, ids: npt.NDArray[np.int32], numbers: npt.NDArray[np.float32] | None) -> pl.Series:
        """Values of local ids: text, an interval or a number; null for missing."""
        if isinstance(self.codec, ScaledNumbers):
            assert numbers is not None
            return self.codec.decode(ids, numbers).alias(self.field.name)
        texts = self.labels().gather(ids)
        known = pl.when(pl.Series(ids != MISSING_ID)).then(texts)
        return pl.select(known).to_series().alias(self.field.name)

    def labels(self) -> pl.Series:
        """One text per local id; a bin is written as its interval."""
        labels = self.codec.labels()
        if self.field.numeric == "log2":
            labels = pl.concat([labels.head(FIRST_ID), log2_intervals(labels.slice(FIRST_ID))])
        return labels.alias(self.field.name)

    def cell_texts(self, column: pl.Series, cells: pl.Series) -> pl.Series:
        """Canonical texts of the field's column; null where this field, given its cells, treats them as missing."""
        texts = canonical(column, self.missing_values).alias(self.field.name)
        if self.field.numeric is None and self.field.part is None:
            return texts
        known = (cells if self.field.part else as_number(cells, self.missing_values)).is_not_null()
        return pl.select(pl.when(known).then(texts)).to_series().alias(self.field.name)

    def _unknown_error(self, texts: pl.Series, vocabulary: Vocabulary, first_row: int) -> UnknownValueError:
        rows = vocabulary.unknown_rows(texts)
        unknown = texts.gather(rows).unique(maintain_order=True).head(5)
        values = [value[:80] for value in (log2_intervals(unknown) if self.field.numeric == "log2" else unknown)]
        return UnknownValueError(
            f"field {self.field.name!r} must hold values seen in training; it holds {len(rows)} unknown, such as "
            f"{', '.join(map(repr, values))}, the first in row {first_row + int(rows[0])} (counted from 0). Correct "
            "them, or set data.handle_unknown = 'rare' to accept them"
        )


def _best_n_bins(trained: pl.DataFrame, numbers: pl.Series) -> int:
    """As many bins as the rows allow, or fewer if the targets of the values, where known, say so."""
    at_most = default_n_bins(int(trained["n"].sum()))
    known = numbers.is_not_null()
    targets = ValueTargets.of(trained.filter(known), numbers.drop_nulls().to_numpy()) if known.any() else None
    return at_most if targets is None else targets.best_n_bins(at_most)


def _is_simple(dtype: pl.DataType) -> bool:
    """Whether Python values of this type equal those of the column; a Float32, for example, has other digits."""
    text = isinstance(dtype, (pl.String, pl.Categorical, pl.Enum))
    return text or dtype.is_integer() or isinstance(dtype, (pl.Boolean, pl.Float64, pl.Null))


def field_missing(field: Field, missing_values: tuple[str, ...]) -> tuple[str, ...]:
    """Texts that mean missing in the cells of a field: none in parts of dates, where 0 is an hour."""
    return missing_values if field.part is None else ()


def learn_vocabulary(field: Field, counted: pl.DataFrame, config: DataConfig) -> Vocabulary:
    """The vocabulary of texts (value), null for missing, and the rows of each (n)."""
    known = counted.filter(pl.col("value").is_not_null())
    return Vocabulary.from_counts(
        known["value"],
        known["n"],
        int(counted["n"].sum()) - int(known["n"].sum()),
        for_field(config.min_count, field.column, 1),
        keep_rare=config.handle_unknown == "error",
    )


def field_texts(field: Field, column: pl.Series, missing_values: tuple[str, ...], *, first_row: int = 0) -> pl.Series:
    """Texts that the vocabulary of a field counts: canonical values, or the paper's bins of numbers."""
    if field.numeric == "log2":
        return log2_texts(as_number(column, missing_values, first_row=first_row))
    return canonical(column, missing_values)
