"""Field coders: one field's way from raw values to local ids, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config import DataConfig, for_field
from fielddep.data.numeric import QuantileBins, ScaledNumbers, default_n_bins, log2_texts
from fielddep.data.schema import Field
from fielddep.data.values import as_number, canonical
from fielddep.data.vocabulary import MISSING_ID, Vocabulary, count_values
from fielddep.errors import UnknownValueError

Coding = Vocabulary | ScaledNumbers | QuantileBins


@dataclass(frozen=True, kw_only=True)
class EncodedField:
    """One encoded column; `numbers` only for a field given as `value x vector`."""

    ids: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.float32] | None
    n_unknown: int
    n_missing: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FieldCoder:
    """What was learnt of one field from training rows.

    Attributes:
        field: name and kind.
        coding: vocabulary (categorical and log2 fields), scale or bins.
        missing_values: texts that mean missing.
    """

    field: Field
    coding: Coding
    missing_values: tuple[str, ...]

    @classmethod
    def fit(cls, field: Field, table: pl.DataFrame, config: DataConfig, count_table: pl.DataFrame) -> FieldCoder:
        """Learn from training rows; vocabularies count the rows of `count_table`."""
        missing = config.missing_values
        coding: Coding
        if field.numeric == "scale":
            coding = ScaledNumbers.fit(as_number(table[field.name], missing))
        elif field.numeric == "quantile":
            n_bins = config.n_bins or default_n_bins(len(table))
            coding = QuantileBins.fit(as_number(table[field.name], missing), n_bins)
        else:
            coding = Vocabulary.from_counts(
                *count_values(field_texts(field, count_table[field.name], missing)),
                for_field(config.min_count, field.name, 1),
                keep_rare=config.handle_unknown == "error",
            )
        return cls(field=field, coding=coding, missing_values=missing)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Counted rows of each local id."""
        return self.coding.counts

    def encode(self, column: pl.Series, *, first_row: int = 0, refuse_unknown: bool = False) -> EncodedField:
        """Local ids of a column.

        Raises:
            UnknownValueError: for a value never seen in training, if `refuse_unknown`.
        """
        numbers = None
        if isinstance(self.coding, Vocabulary):
            cells = field_texts(self.field, column, self.missing_values, first_row=first_row)
            ids, n_unknown = self.coding.encode(cells)
            if n_unknown and refuse_unknown:
                raise self._unknown_error(cells, self.coding, first_row)
        else:
            cells, n_unknown = as_number(column, self.missing_values, first_row=first_row), 0
            if isinstance(self.coding, ScaledNumbers):
                ids, numbers = self.coding.encode(cells)
            else:
                ids = self.coding.encode(cells)
        return EncodedField(ids=ids, numbers=numbers, n_unknown=n_unknown, n_missing=cells.null_count())

    def decode(self, ids: npt.NDArray[np.int32], numbers: npt.NDArray[np.float32] | None) -> pl.Series:
        """Values of local ids: text, an interval or a number; null for missing."""
        if isinstance(self.coding, ScaledNumbers):
            assert numbers is not None
            return self.coding.decode(ids, numbers).alias(self.field.name)
        texts = self.coding.labels().gather(ids)
        known = pl.when(pl.Series(ids != MISSING_ID)).then(texts)
        return pl.select(known).to_series().alias(self.field.name)

    def labels(self) -> pl.Series:
        """One text per local id."""
        return self.coding.labels().alias(self.field.name)

    def state(self) -> dict[str, Any] | None:
        """Plain values of the numeric state; None for a vocabulary, which is saved as a frame."""
        return None if isinstance(self.coding, Vocabulary) else self.coding.to_json()

    def _unknown_error(self, texts: pl.Series, vocabulary: Vocabulary, first_row: int) -> UnknownValueError:
        rows = vocabulary.unknown_rows(texts)
        values = [value[:80] for value in texts.gather(rows).unique(maintain_order=True).head(5)]
        return UnknownValueError(
            f"field {self.field.name!r} must hold values seen in training; given {len(rows)} unknown, such as "
            f"{', '.join(map(repr, values))}, the first in row {first_row + int(rows[0])} (counted from 0); correct "
            "them, or set data.handle_unknown = 'rare' to accept them"
        )


def field_texts(field: Field, column: pl.Series, missing_values: tuple[str, ...], *, first_row: int = 0) -> pl.Series:
    """Texts that a field's vocabulary counts: canonical values, or the paper's bins of numbers."""
    if field.numeric == "log2":
        return log2_texts(as_number(column, missing_values, first_row=first_row))
    return canonical(column, missing_values)
