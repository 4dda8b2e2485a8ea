"""Reading: the first pass of an encoding, from a table to codes on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.coded import Sizes
from fielddep.encoding.interning import TableInterner, n_threads
from fielddep.store.folder import FileCells, StoreFolder
from fielddep.tables.row_stream import Position, RowStream, prefetch

_READ, _ENCODE = "read", "encode"


class Reading:
    """Reads a table into codes on disk. It resumes from the last checkpoint.

    At a checkpoint the codes are forced to disk, the values that are new since the last one go into a file of their
    own, and `progress.json` records how far both are.
    """

    def __init__(self, stream: RowStream, config: Config, place: StoreFolder, sizes: Sizes) -> None:
        self.stream, self.place, self.sizes = stream, place, sizes
        done = place.progress()
        self._is_done = done.get("stage") == _ENCODE
        self._position = Position.from_json(done["position"]) if done else Position()
        self._n_value_files: int = done.get("n_segments", 0)
        texts = place.read_values(self._n_value_files)
        self.cells = FileCells(place.spool / "codes", done.get("chunks", ()))
        self.interner = TableInterner(
            stream.schema, config, cells=self.cells, sizes=sizes, states=done.get("columns"), texts=texts
        )
        self._n_saved_values = self._n_values()

    def run(self) -> Generator[float | None]:
        """Read the rest of the table; yields the share of the files that is read after every chunk."""
        if self._is_done:
            return
        n_saved_rows = self.cells.n_rows
        read = self.stream.chunks(self.interner.names, self._position)
        with ThreadPoolExecutor(n_threads()) as threads, contextlib.closing(prefetch(read, depth=2)) as chunks:
            for rows, self._position in chunks:
                self.interner.add(rows, threads)
                yield self.stream.share_read(self._position)
                if self.cells.n_rows - n_saved_rows >= self.sizes.checkpoint_rows:
                    self._save(_READ)
                    n_saved_rows = self.cells.n_rows
        self._save(_ENCODE)

    def _save(self, stage: str) -> None:
        self.cells.flush()
        self._save_new_values()
        self.place.save_progress(
            {
                "stage": stage,
                "position": self._position.to_json(),
                "chunks": self.cells.chunks,
                "n_segments": self._n_value_files,
                "columns": [interner.state() for interner in self.interner.interners],
            }
        )

    def _n_values(self) -> list[int]:
        return [interner.dictionary.n_values for interner in self.interner.interners]

    def _save_new_values(self) -> None:
        frames = [
            pl.DataFrame({"text": interner.dictionary.texts(start)}).with_columns(column=pl.lit(i, pl.UInt32))
            for i, (interner, start) in enumerate(zip(self.interner.interners, self._n_saved_values, strict=True))
        ]
        self.place.save_values(self._n_value_files, pl.concat(frames))
        self._n_value_files += 1
        self._n_saved_values = self._n_values()
