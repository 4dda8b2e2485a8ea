"""Streaming: a table of any size becomes a store, in memory that grows with its different values and not its rows.

    read     every row once; each column's values become codes (`reading_pass`, `interning`)
    split    the part of every row (`split_marks`)
    learn    from different values and their counts: schema, vocabularies, bins, crosses (`learning`)
    encode   codes to ids by one look-up a column, written as shards (`code_tables`, `store`)

The last three work on codes on disk and never on text. A killed encoding goes on behind its last checkpoint in `read`
and behind its last whole shard in `encode`, and ends with the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fielddep.config import Config
from fielddep.data.encoder import TableEncoder, cross_positions
from fielddep.data.prefetch import prefetch
from fielddep.data.readers import Source
from fielddep.data.schema import candidate_names, check_column_names, target_name
from fielddep.data.splits import no_training_rows, split_column
from fielddep.data.store.shards import PARTS
from fielddep.data.store.store import BLOCK_ROWS, PART_NAMES, SHARD_ROWS, Store, StoreWriter, array_specs
from fielddep.data.streaming.code_tables import ColumnTables
from fielddep.data.streaming.interned import SPAN_ROWS, InternedTable
from fielddep.data.streaming.learning import learn_encoder
from fielddep.data.streaming.reading_pass import ENCODE, ReadingPass, n_threads
from fielddep.data.streaming.row_stream import RowStream, open_rows
from fielddep.data.streaming.split_marks import split_marker
from fielddep.data.streaming.store_folder import STORE, StoreFolder
from fielddep.errors import ConfigError, SchemaError, SourceChangedError, SplitError, TableError, UserError

log = logging.getLogger(__name__)

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PACKED_FACTOR = 5
"""How many bytes of text a byte of a packed file is taken for."""

Stage = Literal["read", "split", "learn", "encode"]
Marks = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an encoding is.

    Attributes:
        stage: what is being done.
        n_rows: rows that this stage has done.
        share: share of the stage that is done; None where it cannot be told.
    """

    stage: Stage
    n_rows: int
    share: float | None


def encode_store(
    source: Source,
    config: Config,
    folder: str | Path,
    *,
    force: bool = False,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Store:
    """Encode a table of any size into a store.

    Args:
        source: whatever `read_table` reads: files, globs, folders, a list of them, or a table in memory; or a
            `RowStream` that is open already.
        config: settings, of which data and split are used.
        folder: the store; made if it is not there.
        force: replace a store that is there, once the new one is whole.
        resume: go on with an unfinished store, or begin where none is; a finished one is left as it is. A table in
            memory cannot be told from another one, so only files are gone on with.
        progress: told how far the work is, after every portion.

    Raises:
        UserError: when the folder must not be written to, the table or the settings cannot be used, a source changes
            on the way, or the disk is full.
    """
    place = StoreFolder(folder=Path(folder))
    state = STORE.check(place.folder, force=force, resume=resume)
    if state == "finished" and resume:
        log.warning("the store in %s is finished; nothing is left to resume", folder)
        return Store.open(folder)
    stream = open_rows(source, config.data)
    _check_settings(stream, config)
    going_on = state == "unfinished" and resume
    if going_on:
        _refuse_memory(stream, place.folder)
        place.check_request(config, stream.sources)
    encoding = _Encoding(stream=stream, config=config, place=place, report=progress or (lambda _: None))
    with encoding.errors_told():
        if not going_on:
            place.begin(config, stream.sources)
        if not (place.is_whole or place.is_moved):
            encoding.run()
        place.promote()
    return Store.open(folder)


def _refuse_memory(stream: RowStream, folder: Path) -> None:
    if not stream.sources:
        raise UserError(
            "only tables in files can be resumed, as nothing tells whether a table in memory is still that of the "
            f"start; {folder} holds an unfinished store: give force to encode anew, or encode from a file"
        )


def _check_settings(stream: RowStream, config: Config) -> None:
    """Refuse what can be refused before anything is read."""
    names = stream.schema.names()
    target = target_name(names, config)
    check_column_names(names, config)
    if not isinstance(config.data.crosses, str):
        fields = tuple(candidate_names(names, config))
        for pair in config.data.crosses:
            cross_positions(pair, fields)
    if config.split.method in ("group", "time", "column"):
        split_column(names, config.split.column, "split.column")
    elif config.split.method == "stratified":
        split_column(names, target, "data.target")


@dataclass(kw_only=True)
class _Encoding:
    """One encoding from the first row to the manifest."""

    stream: RowStream
    config: Config
    place: StoreFolder
    report: Callable[[Progress], None]
    n_rows: int = 0
    share_read: float | None = None
    row_bytes: int = 0
    n_bytes: int = 0

    def run(self) -> None:
        """Read, split, learn, encode; leaves nothing behind that no resuming could mend."""
        try:
            self._run()
        except (TableError, SchemaError, SplitError, ConfigError) as error:
            if not isinstance(error, SourceChangedError) and not isinstance(error.__cause__, OSError):
                self.place.discard()  # going on would only end in the same error
            raise

    def _run(self) -> None:
        reading = ReadingPass(self.stream, self.config, self.place, self._report_read)
        try:
            if self.place.progress().get("stage") != ENCODE:
                reading.run()
            self.n_rows, self.share_read, self.n_bytes = reading.spool.n_rows, 1.0, reading.spool.n_bytes
            self.stream.check_sources()
            table = InternedTable.of(reading.spool, reading.interners)
            parts = _PartsFile(self.place.work / PARTS)
            n_rows_of = self._split(table, parts)
            self._tell("learn", 0)
            encoder = learn_encoder(table, self.config, parts.read, int(n_rows_of[0]))
            self._encode(table, parts, encoder)
        finally:
            reading.spool.close()

    def _split(self, table: InternedTable, parts: _PartsFile) -> npt.NDArray[np.int64]:
        assert self.config.data.target is not None
        self._tell("split", 0)
        marker = split_marker(table, self.config.split, self.config.data.target)
        counts = parts.write(marker(start, stop) for start, stop in table.spans())
        if not counts[0]:
            raise no_training_rows(self.config.split.method, table.n_rows)
        if not counts[1]:
            log.warning(
                "no rows for validation, which a training on this store needs; encode anew with split.validation "
                "above 0 to train on it"
            )
        return counts

    def _encode(self, table: InternedTable, parts: _PartsFile, encoder: TableEncoder) -> None:
        done = self.place.progress()
        self.row_bytes = sum(spec.row_bytes for spec in array_specs(encoder))
        writer = StoreWriter(
            self.place.unfinished,
            encoder=encoder,
            config=self.config,
            shard_rows=SHARD_ROWS,
            block_rows=BLOCK_ROWS,
            progress=done.get("writer"),
        )
        try:
            for arrays in prefetch(_encoded(table, parts, encoder, writer.n_rows), depth=1):
                n_shards = writer.n_shards
                writer.append_arrays(arrays)
                self.n_bytes = writer.n_rows * self.row_bytes
                self._tell("encode", writer.n_rows)
                if writer.n_shards > n_shards:
                    self.place.save_progress({**done, "writer": writer.progress()})
            self.stream.check_sources()
            writer.finish([asdict(source) for source in self.stream.sources])
        finally:
            writer.close()

    @contextlib.contextmanager
    def errors_told(self) -> Iterator[None]:
        """Say what a full disk or another failure of the system means for the store; what was done is kept."""
        try:
            yield
        except (OSError, UserError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
                raise UserError(
                    f"cannot write the store {self.place.folder}: {cause.strerror}; about "
                    f"{self._bytes_needed() / 2**20:,.0f} MiB more are needed. What was done is kept: free the space "
                    "and go on with --resume"
                ) from error
            if isinstance(error, OSError):
                raise UserError(
                    f"cannot write the store {self.place.folder}: {error.strerror or error}; choose another folder, or "
                    "mend it and go on with --resume"
                ) from error
            raise

    def _bytes_needed(self) -> float:
        """Roughly what is still to be written."""
        if self.row_bytes:
            return max(self.n_rows * self.row_bytes - self.n_bytes, 1 << 20)
        n_columns = len(self.stream.schema)
        if not self.n_rows or not self.share_read:
            factor = 1.5 * (_PACKED_FACTOR if self.stream.is_packed else 1)
            return max(factor * sum(source.size for source in self.stream.sources) - self.n_bytes, 1 << 20)
        all_rows = self.n_rows / self.share_read
        return all_rows * (self.n_bytes / self.n_rows + 4 * n_columns + 5) - self.n_bytes

    def _report_read(self, n_rows: int, share: float | None, n_bytes: int) -> None:
        self.n_rows, self.share_read, self.n_bytes = n_rows, share, n_bytes
        self.report(Progress(stage="read", n_rows=n_rows, share=share))

    def _tell(self, stage: Stage, n_rows: int) -> None:
        self.report(Progress(stage=stage, n_rows=n_rows, share=n_rows / max(self.n_rows, 1)))


class _PartsFile:
    """Marks of all rows on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, marks: Iterator[Marks]) -> npt.NDArray[np.int64]:
        """Write all marks; gives the rows of each part."""
        counts = np.zeros(len(PART_NAMES), dtype=np.int64)
        with self.path.open("wb") as file:
            for some in marks:
                file.write(np.ascontiguousarray(some).data)
                counts += np.bincount(some, minlength=len(PART_NAMES))
        return counts

    def read(self, start: int, stop: int) -> Marks:
        """Marks of rows."""
        return np.fromfile(self.path, dtype=np.uint8, count=stop - start, offset=start)


def _encoded(
    table: InternedTable, parts: _PartsFile, encoder: TableEncoder, first_row: int
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    tables = ColumnTables(table, encoder)
    with ThreadPoolExecutor(n_threads()) as threads:
        for start in range(first_row, table.n_rows, SPAN_ROWS):
            stop = min(start + SPAN_ROWS, table.n_rows)
            yield {**tables.arrays(start, stop, threads), PARTS: parts.read(start, stop)}
