"""Spool: codes and numbers of all rows, on disk while a table is being encoded.

One file, portion after portion, and in a portion column after column, so that it is written and read in long strides.
Every column of a portion has the smallest type that holds its codes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fielddep.data.streaming.interning import Cells
from fielddep.errors import UserError

_ABSENT = "-"
_CODE_TYPES = ("|u1", "<u2", "<u4")


class Spool:
    """Rows of columns that can be appended to and read by position.

    Args:
        path: the file.
        n_columns: columns of every row.
        chunks: portions that are there already, as `chunks` had them; what lies behind them is cut off.
    """

    def __init__(self, path: Path, n_columns: int, chunks: Sequence[Sequence[Any]] = ()) -> None:
        self.path, self.n_columns = path, n_columns
        self.chunks: list[list[Any]] = []
        """Of every portion: rows, and the type of each column."""
        self._row_ends, self._byte_starts, self._size = [0], [0], 0
        for n_rows, types in chunks:
            self._add(n_rows, list(types))
        self._file = path.open("r+b" if path.exists() else "w+b")
        if self._size > os.fstat(self._file.fileno()).st_size:
            self._file.close()
            raise UserError(f"{path} is cut off, so the encoding cannot go on; begin anew with --force")
        self._file.truncate(self._size)
        self._file.seek(self._size)

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._row_ends[-1]

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self._size

    def append(self, columns: Sequence[Cells | None]) -> None:
        """Write the next rows; None for a column that is kept no longer."""
        n_rows = next(len(cells) for cells in columns if cells is not None)
        small = [None if cells is None else _smallest(cells) for cells in columns]
        for cells in small:
            if cells is not None:
                self._file.write(cells.data)
        self._add(n_rows, [_ABSENT if cells is None else cells.dtype.str for cells in small])

    def flush(self) -> None:
        """Put everything on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def pieces(self, column: int, start: int, stop: int) -> Iterator[Cells]:
        """Cells of a column from row `start` to `stop`, in as many pieces as there are portions."""
        self._file.flush()
        chunk = int(np.searchsorted(self._row_ends, start, side="right")) - 1
        while start < stop and chunk < len(self.chunks):
            first = self._row_ends[chunk]
            end = min(stop, self._row_ends[chunk + 1])
            yield self._read(chunk, column, start - first, end - first)
            start, chunk = end, chunk + 1

    def codes(self, column: int, start: int, stop: int) -> Cells:
        """Codes of a column that is kept as codes throughout."""
        pieces = list(self.pieces(column, start, stop))
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, dtype=np.uint8), *pieces])

    def spans(self, n_rows: int) -> Iterator[tuple[int, int]]:
        """All rows, `n_rows` at a time."""
        for start in range(0, self.n_rows, n_rows):
            yield start, min(start + n_rows, self.n_rows)

    def _add(self, n_rows: int, types: list[str]) -> None:
        self.chunks.append([n_rows, types])
        self._row_ends.append(self._row_ends[-1] + n_rows)
        self._byte_starts.append(self._byte_starts[-1] + n_rows * sum(map(_item_size, types)))
        self._size = self._byte_starts[-1]

    def _read(self, chunk: int, column: int, start: int, stop: int) -> Cells:
        n_rows, types = self.chunks[chunk]
        if types[column] == _ABSENT:
            raise UserError(f"column {column} is not kept for all rows; begin anew with --force")
        dtype = np.dtype(types[column])
        offset = self._byte_starts[chunk] + n_rows * sum(map(_item_size, types[:column])) + start * dtype.itemsize
        data = os.pread(self._file.fileno(), (stop - start) * dtype.itemsize, offset)
        if len(data) < (stop - start) * dtype.itemsize:
            raise UserError(f"{self.path} is cut off, so the encoding cannot go on; begin anew with --force")
        return np.frombuffer(data, dtype=dtype)


def _smallest(cells: Cells) -> Cells:
    if cells.dtype.kind == "f":
        return np.ascontiguousarray(cells, dtype="<f8")
    highest = int(cells.max()) if len(cells) else 0
    dtype = next(d for d in _CODE_TYPES if highest <= np.iinfo(d).max)
    return np.ascontiguousarray(cells, dtype=dtype)


def _item_size(dtype: str) -> int:
    return 0 if dtype == _ABSENT else np.dtype(dtype).itemsize
