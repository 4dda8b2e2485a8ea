"""Interned table: all rows as codes on disk, and the different values of each column in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.streaming.interning import Cells, ColumnInterner, Mode
from fielddep.data.streaming.spool import Spool
from fielddep.data.values import as_number, first_not_a_number

SPAN_ROWS = 1 << 18
"""Rows that are worked on at a time; a multiple of a store's block."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class InternedColumn:
    """One column.

    Attributes:
        name: the column.
        place: its number in the spool.
        mode: codes, numbers or left out.
        values: different values by code, null first; in mode "numbers" those seen before it became numbers.
        numbers: of mode "numbers": the number of every code; NaN for missing.
        reason: why it is left out.
        missing_values: texts that mean missing.
    """

    name: str
    place: int
    mode: Mode
    values: pl.Series
    numbers: Floats
    reason: str | None
    missing_values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class InternedTable:
    """Rows of codes and numbers; see `InternedColumn`."""

    spool: Spool
    columns: Mapping[str, InternedColumn]

    @classmethod
    def of(cls, spool: Spool, interners: Iterable[ColumnInterner]) -> InternedTable:
        """The table that interners and their spool hold; frees the interners' memory."""
        columns = {}
        for place, interner in enumerate(interners):
            values = interner.values()
            numbers = interner.numbers(values) if interner.mode == "numbers" else pl.Series([], dtype=pl.Float64)
            columns[interner.name] = InternedColumn(
                name=interner.name,
                place=place,
                mode=interner.mode,
                values=values,
                numbers=numbers.fill_null(np.nan).to_numpy(),
                reason=interner.reason,
                missing_values=interner.missing_values,
            )
            interner.forget()
        return cls(spool=spool, columns=columns)

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self.spool.n_rows

    def spans(self) -> Iterator[tuple[int, int]]:
        """All rows, a span at a time."""
        return self.spool.spans(SPAN_ROWS)

    def codes(self, name: str, start: int, stop: int) -> Cells:
        """Codes of rows of a column of mode "codes"."""
        return self.spool.codes(self.columns[name].place, start, stop)

    def numbers(self, name: str, start: int, stop: int) -> pl.Series:
        """Numbers of rows of a column of mode "numbers"; null for missing."""
        column = self.columns[name]
        pieces = [
            cells if cells.dtype.kind == "f" else column.numbers[cells]
            for cells in self.spool.pieces(column.place, start, stop)
        ]
        return pl.Series(name, np.concatenate([np.empty(0), *pieces])).fill_nan(None)

    def first_row(self, name: str, is_wanted: npt.NDArray[np.bool_]) -> int:
        """First row whose code is wanted, `is_wanted` saying so of every code."""
        for start, stop in self.spans():
            found = is_wanted[self.codes(name, start, stop)]
            if found.any():
                return start + int(np.argmax(found))
        raise LookupError(f"no row of {name!r} has such a value")

    def check_numbers(self, name: str) -> None:
        """Refuse a column that holds anything but finite numbers.

        Raises:
            SchemaError: names the first row of the first such value.
        """
        column = self.columns[name]
        if column.mode == "numbers":
            return  # checked row by row when it was read
        bad = first_not_a_number(column.values, column.missing_values)
        if bad is not None:
            row = self.first_row(name, np.arange(len(column.values)) == bad)
            as_number(column.values.slice(bad, 1), column.missing_values, first_row=row)
