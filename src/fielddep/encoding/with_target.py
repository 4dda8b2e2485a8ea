"""Rows with a target: what `data.missing_target = "drop"` keeps of a table.

Dropped rows are absent from everything that follows, so the result is that of a table without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.data import DataConfig
from fielddep.encoding.coded import Array, CodedTable, ReadCells, places
from fielddep.encoding.target import has_target, missing_target
from fielddep.errors import SchemaError
from fielddep.wording import count

log = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]


def rows_with_target(table: pl.DataFrame, data: DataConfig) -> pl.DataFrame:
    """The rows of a table that take part; a missing target is left to others to refuse unless rows are dropped."""
    if data.target is None or data.missing_target == "error":
        return table
    kept = table.filter(has_target(table[data.target], data.missing_values))
    warn_of_dropped(data.target, len(table) - len(kept), len(table))
    return kept


def coded_with_target(table: CodedTable, data: DataConfig) -> CodedTable:
    """The same for a coded table.

    Raises:
        SchemaError: a target is missing and the setting does not drop such rows, or all are missing.
    """
    assert data.target is not None
    is_kept = _keeps(table, data.target)
    masks = (is_kept(start, stop) for start, stop in table.chunks())
    ends = np.cumsum([0, *(int(np.count_nonzero(mask)) for mask in masks)]).tolist()
    n_dropped = table.n_rows - ends[-1]
    if not n_dropped:
        return table
    if data.missing_target == "error":
        raise missing_target(data.target, n_dropped, _first_dropped(table, is_kept))
    if not ends[-1]:
        raise SchemaError(f"target {data.target!r} must have values; it has none in {count(table.n_rows, 'row')}")
    warn_of_dropped(data.target, n_dropped, table.n_rows)
    cells = KeptCells(cells=table.cells, is_kept=is_kept, chunk_rows=table.sizes.chunk_rows, row_ends=ends)
    return replace(table, cells=cells, source=table)


def warn_of_dropped(name: str, n_dropped: int, n_rows: int) -> None:
    """Tell in one line how many rows were dropped, if any."""
    if n_dropped:
        log.warning("%s of %s have no target %r and are dropped", f"{n_dropped:,}", count(n_rows, "row"), name)


def _keeps(table: CodedTable, name: str) -> Callable[[int, int], Mask]:
    """Whether each of some rows has a target."""
    column = table.columns[name]
    if column.mode == "numbers":
        return lambda start, stop: ~np.isnan(table.keys(name, start, stop))
    seen = table.code_counts(name) > 0
    known = np.zeros(len(seen), dtype=np.bool_)
    known[seen] = has_target(column.values.filter(pl.Series(seen)), column.missing_values).to_numpy()
    return lambda start, stop: known[table.codes(name, start, stop)]


def _first_dropped(table: CodedTable, is_kept: Callable[[int, int], Mask]) -> int:
    masks = ((start, is_kept(start, stop)) for start, stop in table.chunks())
    return next(start + int(np.argmin(mask)) for start, mask in masks if not mask.all())


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptCells:
    """Some of the rows of other cells.

    Attributes:
        cells: all rows.
        is_kept: whether the rows from start to stop are kept. It is asked again for every read, because a list of row
            numbers would take more memory than the codes.
        chunk_rows: rows of `cells` that are asked for at a time.
        row_ends: kept rows before each such chunk, and in all.
    """

    cells: ReadCells
    is_kept: Callable[[int, int], Mask]
    chunk_rows: int
    row_ends: Sequence[int]

    @property
    def n_rows(self) -> int:
        """Kept rows."""
        return self.row_ends[-1]

    def read(self, column: int, start: int, stop: int) -> Iterator[Array]:
        """Cells of a column for the kept rows from `start` to `stop`."""
        for chunk, first, last in places(self.row_ends, start, stop):
            before = chunk * self.chunk_rows
            rows = self._rows_of(chunk)[first:last]
            at = 0
            for cells in self.cells.read(column, before, min(before + self.chunk_rows, self.cells.n_rows)):
                inside = rows[(rows >= at) & (rows < at + len(cells))] - at
                yield cells[inside]
                at += len(cells)

    def row_numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Numbers, among all rows, of the kept rows from `start` to `stop`."""
        found = [
            chunk * self.chunk_rows + self._rows_of(chunk)[first:last]
            for chunk, first, last in places(self.row_ends, start, stop)
        ]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def _rows_of(self, chunk: int) -> npt.NDArray[np.int64]:
        """Kept rows of a chunk, counted from its start."""
        start = chunk * self.chunk_rows
        return np.flatnonzero(self.is_kept(start, min(start + self.chunk_rows, self.cells.n_rows)))
