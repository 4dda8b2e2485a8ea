"""Coded table: every cell as the number of its value, and each different value once.

Splitting, counting and encoding work on codes: the id, bin or part of a value is computed once per different value and
looked up for each row. Codes are in memory or, for a larger table, on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.encoding.values import as_number, first_not_a_number

Array: TypeAlias = npt.NDArray[Any]
"""Codes (unsigned) or numbers (float64) of rows."""
Floats = npt.NDArray[np.float64]
Mode = Literal["codes", "numbers", "skipped"]

CODE_TYPES = ("|u1", "<u2", "<u4")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Limits on rows and values; a table encoded with other sizes may give another store.

    Attributes:
        chunk_rows: rows per chunk of a coded table. The mode of a column changes only at multiples of it, so the result
            does not depend on the reader.
        judged_rows: rows after which a column with another value in every row is skipped.
        max_distinct: different numbers above which a measure is stored as numbers.
        many_distinct: different values of a column at which, and at every doubling, the user is warned.
        sample_rows: rows that give the quantiles of a measure stored as numbers.
        part_rows: rows per entry of a store's table of parts.
        shard_rows: rows per shard; a multiple of `part_rows`.
        checkpoint_rows: rows between two checkpoints while reading.
    """

    chunk_rows: int = 1 << 18
    judged_rows: int = 1 << 20
    max_distinct: int = 2_000_000
    many_distinct: int = 8_000_000
    sample_rows: int = 1 << 21
    part_rows: int = 1 << 14
    shard_rows: int = 1 << 20
    checkpoint_rows: int = 1 << 21


DEFAULT_SIZES = Sizes()


class ReadCells(Protocol):
    """Cells of rows, column by column."""

    @property
    def n_rows(self) -> int:
        """Rows so far."""

    def read(self, column: int, start: int, stop: int) -> Iterator[Array]:
        """Cells of a column from row `start` to `stop`, in one or more arrays."""

    def row_numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Numbers of these rows in the table that was read."""


class Cells(ReadCells, Protocol):
    """Cells that are still being read; all rows are kept."""

    def append(self, columns: Sequence[Array | None]) -> None:
        """Add the next rows; None for a column that is skipped."""


class MemoryCells:
    """Cells in memory, in the smallest types that hold them."""

    def __init__(self) -> None:
        self._chunks: list[list[Array | None]] = []
        self._row_ends = [0]

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._row_ends[-1]

    def append(self, columns: Sequence[Array | None]) -> None:
        """Add the next rows; None for a column that is skipped."""
        self._chunks.append([None if cells is None else smallest(cells) for cells in columns])
        self._row_ends.append(self.n_rows + next(len(cells) for cells in columns if cells is not None))

    def read(self, column: int, start: int, stop: int) -> Iterator[Array]:
        """Cells of a column; views, not copies."""
        for chunk, first, last in places(self._row_ends, start, stop):
            cells = self._chunks[chunk][column]
            assert cells is not None, "a skipped column is never read"
            yield cells[first:last]

    def row_numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The rows themselves."""
        return np.arange(start, stop)


def places(row_ends: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Chunk, and first and last row within it, for rows in chunks that end at `row_ends[1:]`; `row_ends[0]` is 0.

    Example:
        >>> list(places([0, 4, 8, 9], 3, 9))
        [(0, 3, 4), (1, 0, 4), (2, 0, 1)]
    """
    chunk = int(np.searchsorted(row_ends, start, side="right")) - 1
    while start < stop and chunk < len(row_ends) - 1:
        first, end = row_ends[chunk], min(stop, row_ends[chunk + 1])
        yield chunk, start - first, end - first
        start, chunk = end, chunk + 1


def smallest(cells: Array) -> Array:
    """The same codes in the smallest type that holds them; numbers as float64."""
    if cells.dtype.kind == "f":
        return np.ascontiguousarray(cells, dtype="<f8")
    highest = int(cells.max()) if len(cells) else 0
    dtype = next(d for d in CODE_TYPES if highest <= np.iinfo(d).max)
    return np.ascontiguousarray(cells, dtype=dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodedColumn:
    """One column.

    Attributes:
        name: the column.
        place: its index in the cells.
        mode: codes, numbers or skipped.
        values: different values by code, null first; in mode "numbers", those before the mode changed.
        numbers: in mode "numbers", the number of every code; NaN for missing.
        reason: why it is skipped.
        missing_values: texts that mean missing.
        date_format: format of dates, if the settings name it, or if they are numbers.
        is_date: whether the numbers are microseconds since 1970, of dates that are fields.
    """

    name: str
    place: int
    mode: Mode
    values: pl.Series
    numbers: Floats
    reason: str | None
    missing_values: tuple[str, ...]
    date_format: str | None = None
    is_date: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class CodedTable:
    """Rows of codes and numbers; see `CodedColumn`. Get one from `interning.TableInterner`.

    Attributes:
        cells: codes and numbers of the rows.
        columns: the columns by name. They may know values that none of the rows has.
        sizes: limits on rows and values.
        source: the table that was read, if some of its rows were dropped.
    """

    cells: ReadCells
    columns: Mapping[str, CodedColumn]
    sizes: Sizes
    source: CodedTable | None = None

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self.cells.n_rows

    def chunks(self, first_row: int = 0) -> Iterator[tuple[int, int]]:
        """Start and stop of each chunk; `first_row` must be the start of a chunk."""
        for start in range(first_row, self.n_rows, self.sizes.chunk_rows):
            yield start, min(start + self.sizes.chunk_rows, self.n_rows)

    def codes(self, name: str, start: int, stop: int) -> Array:
        """Cells of a column of mode "codes"."""
        found = list(self.cells.read(self.columns[name].place, start, stop))
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, dtype=np.uint8), *found])

    def numbers(self, name: str, start: int, stop: int) -> pl.Series:
        """Cells of a column of mode "numbers"; null for missing."""
        column = self.columns[name]
        found = [
            cells if cells.dtype.kind == "f" else column.numbers[cells]
            for cells in self.cells.read(column.place, start, stop)
        ]
        return pl.Series(name, np.concatenate([np.empty(0), *found])).fill_nan(None)

    def typed_cells(self, name: str, start: int, stop: int) -> pl.Series:
        """Cells of a column of mode "numbers": numbers, or times with the zone of the column; null for missing."""
        numbers, dtype = self.numbers(name, start, stop), self.columns[name].values.dtype
        if not self.columns[name].is_date:
            return numbers
        times: pl.Series = numbers.cast(pl.Int64).cast(pl.Datetime("us"))
        if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
            times = times.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
        return times

    def keys(self, name: str, start: int, stop: int) -> Array:
        """Cells of a column of either mode; a missing number is NaN."""
        if self.columns[name].mode == "numbers":
            return self.numbers(name, start, stop).to_numpy()
        return self.codes(name, start, stop)

    def code_counts(self, name: str) -> npt.NDArray[np.int64]:
        """Rows of every code of a column of mode "codes"."""
        counts = np.zeros(len(self.columns[name].values), dtype=np.int64)
        for start, stop in self.chunks():
            counts += np.bincount(self.codes(name, start, stop), minlength=len(counts))
        return counts

    def missing_rows(self, name: str) -> npt.NDArray[np.int64]:
        """Numbers, in the table that was read, of the rows whose cell is missing; for a column of mode "numbers"."""
        chunks = [self.cells.row_numbers(*chunk)[np.isnan(self.keys(name, *chunk))] for chunk in self.chunks()]
        return np.concatenate([np.empty(0, dtype=np.int64), *chunks])

    def first_row(self, name: str, is_wanted: npt.NDArray[np.bool_]) -> int:
        """Number, in the table that was read, of the first row whose code is wanted, an entry of `is_wanted`."""
        for start, stop in self.chunks():
            found = is_wanted[self.codes(name, start, stop)]
            if found.any():
                return int(self.cells.row_numbers(start, stop)[np.argmax(found)])
        raise LookupError(f"no row of {name!r} has such a value")

    def check_numbers(self, name: str) -> None:
        """Raise a SchemaError, with the row, if a column holds anything but finite numbers and missing values.

        Dropped rows are checked too: their values are among the different values of the column.
        """
        column = self.columns[name]
        if column.mode == "numbers":
            return  # checked row by row when it was read
        bad = first_not_a_number(column.values, column.missing_values)
        if bad is not None:
            row = (self.source or self).first_row(name, np.arange(len(column.values)) == bad)
            as_number(column.values.slice(bad, 1), column.missing_values, first_row=row)
