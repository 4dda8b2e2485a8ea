"""Field encoders: from the raw values of one field to local ids, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.data import DataConfig, for_field
from fielddep.encoding.dates import Times, read_times
from fielddep.encoding.lists import ListKind, SplitCells, split_cells, split_value
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
from fielddep.encoding.ragged import Ragged, starts_of
from fielddep.encoding.schema import Field
from fielddep.encoding.values import NUMBER_MISSING, as_number, canonical
from fielddep.encoding.vocabulary import FIRST_ID, MISSING_ID, RARE_ID, Vocabulary
from fielddep.errors import UnknownValueError

Codec = Vocabulary | ScaledNumbers | QuantileBins

MIN_WORD_COUNT = 2
"""Rarer words of a text share the rare id, unless `data.min_count` names the field."""


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
    """One encoded column; of lists, `n_unknown` counts those without any known value.

    Only a field given as `value x vector` has `numbers`, only lists and text have `lists`, only a measured field has
    `measures`.
    """

    ids: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.float32] | None = None
    n_unknown: int = 0
    n_missing: int = 0
    lists: Ragged | None = None
    measures: npt.NDArray[np.float32] | None = None

    def take(self, rows: npt.NDArray[np.int64]) -> EncodedField:
        """The values of some rows, without counts."""
        numbers, measures = (None if a is None else a[rows] for a in (self.numbers, self.measures))
        lists = None if self.lists is None else self.lists.take(rows)
        return EncodedField(ids=self.ids[rows], numbers=numbers, lists=lists, measures=measures)


@dataclass(frozen=True, kw_only=True, eq=False)
class FieldEncoder:
    """What was learned about one field from training rows. It takes cells as `FieldCells` has them.

    Attributes:
        field: name and kind.
        codec: vocabulary (categorical and log2 fields, lists and text), scale or bins.
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
        if field.kind in ("numerical", "both"):
            numbers = as_number(trained["value"].alias(field.name), missing)
            distinct, counts, n_missing = number_counts(numbers, trained["n"].to_numpy())
            measure = Measure.of(distinct, counts, n_missing)
        if field.numeric in ("scale", "quantile"):
            if field.numeric == "scale":
                codec = ScaledNumbers.of(Moments.of(distinct, counts), n_missing)
            else:
                n_bins = config.n_bins or _best_n_bins(trained, numbers)
                codec = QuantileBins.from_counts(distinct, counts, n_missing, n_bins)
        else:
            codec = learn_vocabulary(
                field, text_counts(field, trained if counted is None else counted, missing), config
            )
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
        if list_kind(self.field) is not None:
            return self._encode_lists(column, self.codec, first_row, refuse_unknown=refuse_unknown)
        texts = field_texts(self.field, column, self._missing, first_row=first_row)
        ids, n_unknown = self.codec.encode(texts)
        if n_unknown and refuse_unknown:
            raise self._unknown_error(texts, self.codec, first_row + self.codec.unknown_rows(texts))
        measures = None if self.measure is None else self.measure.encode(lenient_numbers(column, self._missing))
        return EncodedField(ids=ids, numbers=None, n_unknown=n_unknown, n_missing=texts.null_count(), measures=measures)

    def _encode_lists(
        self, column: pl.Series, vocabulary: Vocabulary, first_row: int, *, refuse_unknown: bool
    ) -> EncodedField:
        kind = list_kind(self.field)
        assert kind is not None
        cells = split_cells(column, kind, self.field.separator, self.missing_values)
        ids_V, n_unknown = vocabulary.encode(cells.values)
        if n_unknown and refuse_unknown and kind == "list":
            unknown = vocabulary.unknown_rows(cells.values)
            rows = np.searchsorted(cells.offsets, unknown, side="right") - 1
            raise self._unknown_error(cells.values, vocabulary, first_row + rows)
        return encoded_lists(ids_V, cells.lengths, vocabulary)

    def encode_values(self, values: Sequence[object]) -> EncodedField | None:
        """The same for Python values; None if only the columns of `encode` can handle one of them exactly."""
        if self.field.numeric == "log2":
            return None
        try:
            if not isinstance(self.codec, Vocabulary):
                return self._encode_numbers(number_values(values, self._missing_texts))
            if list_kind(self.field) is not None:
                return self._encode_few_lists(values, self.codec)
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

    def _encode_few_lists(self, values: Sequence[object], vocabulary: Vocabulary) -> EncodedField | None:
        kind = list_kind(self.field)
        assert kind is not None
        cells = [split_value(value, kind, self.field.separator, self._missing_texts) for value in values]
        ids_V, n_unknown = vocabulary.encode_few([text for cell in cells for text in cell])
        if n_unknown and vocabulary.rare is not None:
            return None  # it may have to be refused
        return encoded_lists(ids_V, np.array([len(cell) for cell in cells]), vocabulary)

    @cached_property
    def _missing_texts(self) -> frozenset[str]:
        if isinstance(self.codec, Vocabulary):
            return missing_texts(self._missing)
        return self._missing_numbers

    @cached_property
    def _missing_numbers(self) -> frozenset[str]:
        return missing_texts((*self._missing, *NUMBER_MISSING))

    def decode(
        self, ids: npt.NDArray[np.int32], numbers: npt.NDArray[np.float32] | None, lists: Ragged | None = None
    ) -> pl.Series:
        """Values of local ids: text, an interval, a number, or the values of a list joined; null for missing."""
        if lists is not None:
            missing = pl.Series(lists.values[lists.offsets[:-1]] == MISSING_ID)
            return (
                pl.select(pl.when(~missing).then(joined_labels(self.labels(), lists)))
                .to_series()
                .alias(self.field.name)
            )
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
        kind = list_kind(self.field)
        if kind == "list":
            return _joined(split_cells(column, kind, self.field.separator, self.missing_values)).alias(self.field.name)
        texts = canonical(column, self.missing_values).alias(self.field.name)
        if self.field.numeric is None and self.field.part is None:
            return texts
        known = (cells if self.field.part else as_number(cells, self.missing_values)).is_not_null()
        return pl.select(pl.when(known).then(texts)).to_series().alias(self.field.name)

    def _unknown_error(
        self, texts: pl.Series, vocabulary: Vocabulary, rows: npt.NDArray[np.int64]
    ) -> UnknownValueError:
        unknown = texts.gather(vocabulary.unknown_rows(texts)).unique(maintain_order=True).head(5)
        values = [value[:80] for value in (log2_intervals(unknown) if self.field.numeric == "log2" else unknown)]
        return UnknownValueError(
            f"field {self.field.name!r} must hold values seen in training; it holds {len(rows)} unknown, such as "
            f"{', '.join(map(repr, values))}, the first in row {int(rows[0])} (counted from 0). Correct "
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


def list_kind(field: Field) -> ListKind | None:
    """How the cells of a field are split; None if they hold one value each."""
    return field.kind if field.kind in ("list", "text") else None


def text_counts(field: Field, counted: pl.DataFrame, missing_values: tuple[str, ...]) -> pl.DataFrame:
    """Texts that a vocabulary counts (value), null for missing, and the rows of each (n), from those of cells."""
    kind, column = list_kind(field), counted["value"].alias(field.name)
    if kind is None:
        return counted.select(field_texts(field, column, missing_values).alias("value"), pl.col("n").cast(pl.Int64))
    cells = split_cells(column, kind, field.separator, missing_values)
    n_rows, lengths = counted["n"].to_numpy(), cells.lengths
    known = pl.DataFrame({"value": cells.values, "n": np.repeat(n_rows, lengths).astype(np.int64)})
    empty = pl.DataFrame({"value": [None], "n": [int(n_rows[lengths == 0].sum())]}, schema=known.schema)
    return pl.concat([known, empty])


def encoded_lists(ids_V: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64], vocabulary: Vocabulary) -> EncodedField:
    """Lists of the ids of values; an empty one gets the id of a missing value, and `ids` the stand-ins of all."""
    missing_id = MISSING_ID if vocabulary.has_missing else RARE_ID
    empty = lengths == 0
    # Inserted before the first value of the next list, in which place the empty list is.
    filled = np.insert(ids_V, np.cumsum(lengths)[empty], missing_id).astype(np.int32)
    lists = Ragged(filled, starts_of(np.maximum(lengths, 1)))
    no_known = np.zeros(len(lists), dtype=np.bool_)
    if len(lists):
        no_known = np.maximum.reduceat(filled, lists.offsets[:-1]) < FIRST_ID
    return EncodedField(
        ids=stand_ins(lists),
        numbers=None,
        n_unknown=int((no_known & ~empty).sum()),
        n_missing=int(empty.sum()),
        lists=lists,
    )


def stand_ins(lists: Ragged) -> npt.NDArray[np.int32]:
    """The column of ids of a list field: the only id of each list, and the rare id where there are several."""
    return np.where(lists.lengths == 1, lists.values[lists.offsets[:-1]], RARE_ID).astype(np.int32)


def joined_labels(labels: pl.Series, lists: Ragged) -> pl.Series:
    """The labels of each list of ids, joined by commas."""
    return _joined(SplitCells(values=labels.gather(lists.values), offsets=lists.offsets))


def _joined(cells: SplitCells) -> pl.Series:
    """The values of each cell, joined by commas; null for none."""
    frame = pl.DataFrame({"cell": np.repeat(np.arange(len(cells.lengths)), cells.lengths), "value": cells.values})
    joined = frame.group_by("cell").agg(pl.col("value").str.join(", "))
    every = pl.DataFrame({"cell": np.arange(len(cells.lengths))})
    return every.join(joined, on="cell", how="left", maintain_order="left")["value"]


def learn_vocabulary(field: Field, counted: pl.DataFrame, config: DataConfig) -> Vocabulary:
    """The vocabulary of texts (value), null for missing, and the rows of each (n)."""
    min_count, is_text = for_field(config.min_count, field.column, 1), field.kind == "text"
    if is_text and not (isinstance(config.min_count, Mapping) and field.name in config.min_count):
        min_count = max(min_count, MIN_WORD_COUNT)
    known = counted.filter(pl.col("value").is_not_null())
    return Vocabulary.from_counts(
        known["value"],
        known["n"],
        int(counted["n"].sum()) - int(known["n"].sum()),
        min_count,
        keep_rare=config.handle_unknown == "error",
        max_values=config.text_words if is_text else None,
    )


def field_texts(field: Field, column: pl.Series, missing_values: tuple[str, ...], *, first_row: int = 0) -> pl.Series:
    """Texts that the vocabulary of a field counts: canonical values, or the paper's bins of numbers."""
    if field.numeric == "log2":
        return log2_texts(as_number(column, missing_values, first_row=first_row))
    return canonical(column, missing_values)
