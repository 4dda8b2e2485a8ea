"""The reading pass: every row of a table is read once and becomes codes on disk. It can be resumed.

At a checkpoint the codes are put on disk, the values that are new since the last one go into a file of their own, and
`progress.json` says how far both are; what was written after it is cut off when the pass resumes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.coded import Array, CodedTable, Sizes, places, smallest
from fielddep.encoding.interning import TableInterner, n_threads
from fielddep.errors import UserError
from fielddep.store.folder import StoreFolder
from fielddep.tables.row_stream import Position, RowStream, prefetch

CODES = "codes"
READ, ENCODE = "read", "encode"
"""Stages of the work."""
_ABSENT = "-"

Report = Callable[[int, float | None, int], None]


class FileCells:
    """Cells of all rows in one file: chunk after chunk, and in a chunk column after column.

    So it is written and read in long strides. Every column of a chunk has the smallest type that holds its codes.

    Args:
        path: the file.
        chunks: chunks that are there already, as `chunks` had them; what follows them is cut off.
    """

    def __init__(self, path: Path, chunks: Sequence[Sequence[Any]] = ()) -> None:
        self.path = path
        self.chunks: list[list[Any]] = []
        """Of every chunk: rows, and the type of each column."""
        self._row_ends, self._byte_starts = [0], [0]
        for n_rows, types in chunks:
            self._add(n_rows, list(types))
        self._file = path.open("r+b" if path.exists() else "w+b")
        if self.n_bytes > os.fstat(self._file.fileno()).st_size:
            self._file.close()
            raise self._cut_off()
        self._file.truncate(self.n_bytes)
        self._file.seek(self.n_bytes)

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._row_ends[-1]

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self._byte_starts[-1]

    def append(self, columns: Sequence[Array | None]) -> None:
        """Write the next rows; None for a column that is no longer kept."""
        n_rows = next(len(cells) for cells in columns if cells is not None)
        small = [None if cells is None else smallest(cells) for cells in columns]
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

    def read(self, column: int, start: int, stop: int) -> Iterator[Array]:
        """Cells of a column from row `start` to `stop`, in as many arrays as there are chunks."""
        self._file.flush()
        for chunk, first, last in places(self._row_ends, start, stop):
            yield self._read(chunk, column, first, last)

    def _add(self, n_rows: int, types: list[str]) -> None:
        self.chunks.append([n_rows, types])
        self._row_ends.append(self._row_ends[-1] + n_rows)
        self._byte_starts.append(self._byte_starts[-1] + n_rows * sum(map(_item_size, types)))

    def _read(self, chunk: int, column: int, start: int, stop: int) -> Array:
        n_rows, types = self.chunks[chunk]
        if types[column] == _ABSENT:
            raise UserError(f"column {column} is not kept for all rows; start over with --force")
        dtype = np.dtype(types[column])
        offset = self._byte_starts[chunk] + n_rows * sum(map(_item_size, types[:column])) + start * dtype.itemsize
        data = os.pread(self._file.fileno(), (stop - start) * dtype.itemsize, offset)
        if len(data) < (stop - start) * dtype.itemsize:
            raise self._cut_off()
        return np.frombuffer(data, dtype=dtype)

    def _cut_off(self) -> UserError:
        return UserError(f"{self.path} is cut off, so the encoding cannot be resumed; start over with --force")


def _item_size(dtype: str) -> int:
    return 0 if dtype == _ABSENT else np.dtype(dtype).itemsize


class ReadingPass:
    """Reads a table into codes on disk; see the module.

    Args:
        stream: the table.
        config: settings.
        place: folder of the store that is being made.
        sizes: rows between checkpoints, and when columns are judged.
        report: called with the rows read, the share of the files and the bytes of codes after every chunk.
    """

    def __init__(self, stream: RowStream, config: Config, place: StoreFolder, sizes: Sizes, report: Report) -> None:
        self.stream, self.place, self.sizes, self.report = stream, place, sizes, report
        done = place.progress()
        self.position = Position.from_json(done["position"]) if done else Position()
        self._n_segments: int = done.get("n_segments", 0)
        texts = _read_segments(place, self._n_segments)
        self.cells = FileCells(place.work / CODES, done.get("chunks", ()))
        self._interner = TableInterner(
            stream.schema, config, cells=self.cells, sizes=sizes, states=done.get("columns"), texts=texts
        )
        self._n_saved = self._n_values()

    def run(self) -> None:
        """Read what is left of the table."""
        saved = self.cells.n_rows
        read = self.stream.chunks(self._interner.names, self.position)
        with ThreadPoolExecutor(n_threads()) as threads, closing(prefetch(read, depth=1)) as chunks:
            for rows, self.position in chunks:
                self._interner.add(rows, threads)
                self.report(self.cells.n_rows, self.stream.share_read(self.position), self.cells.n_bytes)
                if self.cells.n_rows - saved >= self.sizes.checkpoint_rows:
                    self.save(READ)
                    saved = self.cells.n_rows
        self.save(ENCODE)

    def table(self) -> CodedTable:
        """All rows as a coded table."""
        return self._interner.table()

    def save(self, stage: str) -> None:
        """Make a checkpoint."""
        self.cells.flush()
        self._save_new_values()
        self.place.save_progress(
            {
                "stage": stage,
                "position": self.position.to_json(),
                "chunks": self.cells.chunks,
                "n_segments": self._n_segments,
                "columns": [interner.state() for interner in self._interner.interners],
            }
        )

    def _n_values(self) -> list[int]:
        return [interner.dictionary.n_values for interner in self._interner.interners]

    def _save_new_values(self) -> None:
        """Write the values that were not known at the last checkpoint."""
        frames = [
            pl.DataFrame({"text": interner.dictionary.texts(start)}).with_columns(column=pl.lit(i, pl.UInt32))
            for i, (interner, start) in enumerate(zip(self._interner.interners, self._n_saved, strict=True))
        ]
        with _segment(self.place, self._n_segments).open("wb") as file:
            pl.concat(frames).write_ipc(file)
            file.flush()
            os.fsync(file.fileno())
        self._n_segments += 1
        self._n_saved = self._n_values()


def _segment(place: StoreFolder, number: int) -> Path:
    return place.work / f"values-{number:05d}.arrow"


def _read_segments(place: StoreFolder, n_segments: int) -> dict[int, pl.Series]:
    """Texts of every column in order of their codes."""
    try:
        frames = [pl.read_ipc(_segment(place, number)) for number in range(n_segments)]
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(
            f"the values kept in {place.work} cannot be read ({error}); try again, or start over with --force"
        ) from error
    if not frames:
        return {}
    parts = pl.concat(frames).partition_by("column", as_dict=True, maintain_order=True)
    return {int(key[0]): part["text"] for key, part in parts.items()}
