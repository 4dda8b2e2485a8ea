"""The reading pass: every row of a table is read once and becomes codes in a spool. It can go on after a kill.

At a checkpoint the spool is put on disk, the values that are new since the last one go into a file of their own, and
`progress.json` says how far both are; what was written behind it is cut off when the pass goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl

from fielddep.config import Config
from fielddep.data.prefetch import prefetch
from fielddep.data.schema import candidate_names, is_judged
from fielddep.data.streaming.interning import ColumnInterner, MayNumber
from fielddep.data.streaming.row_stream import Position, RowStream
from fielddep.data.streaming.spool import Spool
from fielddep.data.streaming.store_folder import StoreFolder
from fielddep.data.values import canonical
from fielddep.errors import UserError

CHECKPOINT_ROWS = 1 << 21
CODES = "codes"
READ, ENCODE = "read", "encode"
"""Stages of the work."""

Report = Callable[[int, float | None, int], None]


def n_threads() -> int:
    """Threads for work on columns."""
    return min(os.cpu_count() or 1, 8)


def needed_columns(stream: RowStream, config: Config) -> list[str]:
    """Columns that must be read, in the table's order.

    Raises:
        SchemaError: for a column of lists, structs or bytes.
    """
    wanted = {config.data.target, config.data.weight, *candidate_names(stream.schema.names(), config)}
    if config.split.method in ("group", "time", "column"):
        wanted.add(config.split.column)
    names = [name for name in stream.schema.names() if name in wanted]
    for name in names:
        canonical(pl.Series(name, [], dtype=stream.schema[name]))
    return names


class ReadingPass:
    """Reads a table into codes; see the module.

    Args:
        stream: the table.
        config: settings.
        place: folder of the store that is being made.
        report: told the rows read, the share of the files and the bytes of codes, after every portion.
    """

    def __init__(self, stream: RowStream, config: Config, place: StoreFolder, report: Report) -> None:
        self.stream, self.config, self.place, self.report = stream, config, place, report
        self.names = needed_columns(stream, config)
        done = place.progress()
        self.position = Position.from_json(done["position"]) if done else Position()
        self._n_segments: int = done.get("n_segments", 0)
        self.interners = self._interners(done)
        self._n_saved = [interner.dictionary.n_values for interner in self.interners]
        self.spool = Spool(place.work / CODES, len(self.names), done.get("chunks", ()))

    def run(self) -> None:
        """Read what is left of the table."""
        saved = self.spool.n_rows
        chunks = prefetch(self.stream.chunks(self.names, self.position), depth=1)
        with ThreadPoolExecutor(n_threads()) as threads:
            for rows, self.position in chunks:
                first_rows = [self.spool.n_rows] * len(self.interners)
                self.spool.append(list(threads.map(ColumnInterner.take, self.interners, rows, first_rows)))
                self.report(self.spool.n_rows, self.stream.share_read(self.position), self.spool.n_bytes)
                if self.spool.n_rows - saved >= CHECKPOINT_ROWS:
                    self.save(READ)
                    saved = self.spool.n_rows
        self.save(ENCODE)

    def save(self, stage: str) -> None:
        """Make a checkpoint."""
        self.spool.flush()
        self._save_new_values()
        self.place.save_progress(
            {
                "stage": stage,
                "position": self.position.to_json(),
                "chunks": self.spool.chunks,
                "n_segments": self._n_segments,
                "columns": [interner.state() for interner in self.interners],
            }
        )

    def _save_new_values(self) -> None:
        """Write the values that were not known at the last checkpoint, and forget that they are new."""
        frames = [
            pl.DataFrame({"text": interner.dictionary.texts(start)}).with_columns(column=pl.lit(i, pl.UInt32))
            for i, (interner, start) in enumerate(zip(self.interners, self._n_saved, strict=True))
        ]
        with _segment(self.place, self._n_segments).open("wb") as file:
            pl.concat(frames).write_ipc(file)
            file.flush()
            os.fsync(file.fileno())
        self._n_segments += 1
        self._n_saved = [interner.dictionary.n_values for interner in self.interners]

    def _interners(self, done: dict[str, Any]) -> list[ColumnInterner]:
        texts = _read_segments(self.place, self._n_segments)
        states = done.get("columns", [{}] * len(self.names))
        return [
            ColumnInterner(
                name,
                self.stream.schema[name],
                missing_values=self.config.data.missing_values,
                may_leave_out=name not in self._special() and is_judged(name, self.config.data),
                may_number=self._may_number(name),
                state=state,
                texts=texts.get(i),
            )
            for i, (name, state) in enumerate(zip(self.names, states, strict=True))
        ]

    def _special(self) -> set[str | None]:
        return {self.config.data.target, self.config.data.weight, self.config.split.column}

    def _may_number(self, name: str) -> MayNumber:
        data, split = self.config.data, self.config.split
        if name == data.weight:
            return "always"
        if name == data.target:
            return "always" if data.task in ("auto", "regression") else "never"
        if name == split.column:
            return "times" if split.method == "time" and name not in (data.fields or ()) else "never"
        if name in data.kinds:
            return "always" if data.kinds[name] == "numerical" else "never"
        return "measure"


def _segment(place: StoreFolder, number: int) -> Path:
    return place.work / f"values-{number:05d}.arrow"


def _read_segments(place: StoreFolder, n_segments: int) -> dict[int, pl.Series]:
    """Texts of every column in order of their codes."""
    try:
        frames = [pl.read_ipc(_segment(place, number)) for number in range(n_segments)]
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(
            f"the values kept in {place.work} cannot be read ({error}); try again, or encode anew with --force"
        ) from error
    if not frames:
        return {}
    parts = pl.concat(frames).partition_by("column", as_dict=True, maintain_order=True)
    return {int(key[0]): part["text"] for key, part in parts.items()}
