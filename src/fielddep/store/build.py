"""Build a store: a table of any size is read, split, learned from and encoded, in memory or in a folder.

    read     every row once; each column's values become codes (`reading`, `encoding.interning`)
    split    the part of every row (`encoding.split`)
    learn    from different values and their counts: schema, vocabularies, bins, crosses (`encoding.learn`)
    encode   codes to ids by one look-up a column (`encoding.code_tables`)

The last three work on codes and never on text. With a folder, codes and shards lie on disk, so memory grows with the
different values of a table and not with its rows. An interrupted encoding resumes after its last checkpoint in `read`
and after its last whole shard in `encode`, and ends with the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fielddep.config.settings import Config
from fielddep.encoding.code_tables import ColumnTables
from fielddep.encoding.coded import DEFAULT_SIZES, CodedTable, Sizes
from fielddep.encoding.encoder import Encoder, cross_positions
from fielddep.encoding.interning import TableInterner, n_threads
from fielddep.encoding.learn import learn_encoder
from fielddep.encoding.rows import Array
from fielddep.encoding.schema import candidate_names, check_column_names, target_name
from fielddep.encoding.split import PART_NAMES, Parts, ReadParts, class_warnings, plan_split, split_column
from fielddep.errors import ConfigError, SchemaError, SourceChangedError, SplitError, TableError, UserError
from fielddep.observer import Observer
from fielddep.store.folder import STORE, StoreFolder
from fielddep.store.format import PARTS
from fielddep.store.reading import ENCODE, ReadingPass
from fielddep.store.store import MemoryWriter, Store, StoreWriter, array_specs
from fielddep.tables.readers import Source
from fielddep.tables.row_stream import RowStream, open_rows, prefetch
from fielddep.wording import format_bytes

log = logging.getLogger(__name__)

SIZES = DEFAULT_SIZES
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PACKED_FACTOR = 5
"""How many bytes of text a byte of a packed file is taken for."""

Stage = Literal["read", "split", "learn", "encode"]


def build_store(
    source: Source,
    config: Config,
    folder: str | Path | None = None,
    *,
    parts: Parts | None = None,
    force: bool = False,
    resume: bool = False,
    observer: Observer | None = None,
    sizes: Sizes | None = None,
) -> Store:
    """Encode a table into a store.

    Args:
        source: whatever `read_table` reads: files, globs, folders, a list of them, or a table in memory; or a
            `RowStream` that is open already.
        config: settings, of which data and split are used.
        folder: where the store goes; made if it is not there. None keeps it in memory.
        parts: part of every row, as a place in `PART_NAMES`, instead of the split that the settings give; for a store
            in memory only.
        force: replace a store that is there, once the new one is whole.
        resume: resume an unfinished store, or begin where none is; a finished one is left as it is. Only file sources
            can be resumed, as a table in memory cannot be told from another one.
        observer: hears of every stage and how far it is.
        sizes: rows and values treated at a time, instead of `SIZES`.

    Raises:
        UserError: when the folder must not be written to, the table or the settings cannot be used, a source changes
            on the way, or the disk is full.
    """
    observer = observer or Observer()
    if folder is None:
        stream = open_rows(source, config.data)
        _check_settings(stream, config)
        return _Encoding(stream=stream, config=config, sizes=sizes or SIZES, observer=observer, given=parts).run()
    place = StoreFolder(folder=Path(folder))
    state = STORE.check(place.folder, force=force, resume=resume)
    if state == "finished" and resume:
        log.warning("the store in %s is finished; nothing is left to resume", folder)
        return Store.open(folder)
    stream = open_rows(source, config.data)
    _check_settings(stream, config)
    resumes = state == "unfinished" and resume
    if resumes:
        _refuse_memory(stream, place.folder)
        place.check_request(config, stream.sources)
    encoding = _FileEncoding(stream=stream, config=config, place=place, sizes=sizes or SIZES, observer=observer)
    with encoding.disk_errors():
        if not resumes:
            place.begin(config, stream.sources)
        if not (place.is_whole or place.is_moved):
            encoding.run()
        place.promote()
    return Store.open(folder)


def _refuse_memory(stream: RowStream, folder: Path) -> None:
    if not stream.sources:
        raise UserError(
            "only tables in files can be resumed, as nothing tells whether a table in memory is still that of the "
            f"start; {folder} holds an unfinished store: use force to start over, or encode from a file"
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
    """One encoding from the first row to the store, in memory."""

    stream: RowStream
    config: Config
    sizes: Sizes
    observer: Observer
    given: Parts | None = None
    n_rows: int = 0

    def run(self) -> Store:
        """Read, split, learn, encode."""
        table = self._read()
        self.n_rows = table.n_rows
        self._notify("split", 0)
        parts, n_train = self._split(table)
        self._notify("learn", 0)
        encoder = learn_encoder(table, self.config, parts, n_train)
        assert encoder.schema.target is not None
        return self._encode(table, parts, encoder, class_warnings(table, encoder.schema.target, parts))

    def _read(self) -> CodedTable:
        interner = TableInterner(self.stream.schema, self.config, sizes=self.sizes)
        with ThreadPoolExecutor(n_threads()) as threads:
            for rows, position in self.stream.chunks(interner.names):
                interner.add(rows, threads)
                share = self.stream.share_read(position)
                self.observer.on_stage("read", interner.cells.n_rows, share)
        return interner.table()

    def _split(self, table: CodedTable) -> tuple[ReadParts, int]:
        """Parts of rows, and the number of training rows."""
        parts = self.given
        if parts is None:
            split = plan_split(table, self.config.split, self.config.data.target)
            parts = np.concatenate([split.parts_of(table, start, stop) for start, stop in table.chunks()])
        elif len(parts) != table.n_rows:
            raise ValueError(f"parts must have one number for each of {table.n_rows} rows; given {len(parts)}")
        known = parts
        return lambda start, stop: known[start:stop], int(np.count_nonzero(known == 0))

    def _encode(self, table: CodedTable, parts: ReadParts, encoder: Encoder, warnings: tuple[str, ...]) -> Store:
        writer = MemoryWriter(encoder=encoder, config=self.config, n_rows=table.n_rows, chunk_rows=self.sizes.part_rows)
        for arrays in _encoded(table, parts, encoder, 0):
            writer.append(arrays)
            self._notify("encode", writer.n_rows)
        return writer.finish([asdict(source) for source in self.stream.sources], warnings)

    def _notify(self, stage: Stage, n_rows: int) -> None:
        self.observer.on_stage(stage, n_rows, n_rows / max(self.n_rows, 1))


@dataclass(kw_only=True)
class _FileEncoding(_Encoding):
    """The same with codes, parts and shards in a folder; it can be resumed."""

    place: StoreFolder
    reading: ReadingPass | None = None
    share_read: float | None = None
    row_bytes: int = 0
    n_bytes: int = 0

    def run(self) -> Store:
        """Read, split, learn, encode; leaves nothing behind that could not be resumed."""
        try:
            return super().run()
        except (TableError, SchemaError, SplitError, ConfigError) as error:
            if not isinstance(error, SourceChangedError) and not isinstance(error.__cause__, OSError):
                self.place.discard()  # resuming would only end in the same error
            raise
        finally:
            if self.reading is not None:
                self.reading.cells.close()

    def _read(self) -> CodedTable:
        self.reading = ReadingPass(self.stream, self.config, self.place, self.sizes, self._report_read)
        if self.place.progress().get("stage") != ENCODE:
            self.reading.run()
        self.share_read, self.n_bytes = 1.0, self.reading.cells.n_bytes
        self.stream.check_sources()
        return self.reading.table()

    def _split(self, table: CodedTable) -> tuple[ReadParts, int]:
        split = plan_split(table, self.config.split, self.config.data.target)
        path = self.place.work / PARTS
        with path.open("wb") as file:
            for start, stop in table.chunks():
                file.write(np.ascontiguousarray(split.parts_of(table, start, stop)).data)
        if not split.sizes[PART_NAMES.index("validation")]:
            log.warning(
                "no rows for validation, which training on this store needs; encode again with split.validation above "
                "0 to train on it"
            )
        return lambda start, stop: np.fromfile(path, dtype=np.uint8, count=stop - start, offset=start), split.sizes[0]

    def _encode(self, table: CodedTable, parts: ReadParts, encoder: Encoder, warnings: tuple[str, ...]) -> Store:
        for warning in warnings:
            log.warning("%s", warning)
        done = self.place.progress()
        self.row_bytes = sum(spec.row_bytes for spec in array_specs(encoder))
        writer = StoreWriter(
            self.place.unfinished,
            encoder=encoder,
            config=self.config,
            shard_rows=self.sizes.shard_rows,
            chunk_rows=self.sizes.part_rows,
            progress=done.get("writer"),
        )
        encoded = prefetch(_encoded(table, parts, encoder, writer.n_rows), depth=1)
        with contextlib.closing(writer), contextlib.closing(encoded):
            for arrays in encoded:
                n_shards = writer.n_shards
                writer.append(arrays)
                self.n_bytes = writer.n_rows * self.row_bytes
                self._notify("encode", writer.n_rows)
                if writer.n_shards > n_shards:
                    self.place.save_progress({**done, "writer": writer.progress()})
            self.stream.check_sources()
            return writer.finish([asdict(source) for source in self.stream.sources], warnings)

    @contextlib.contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Say what a full disk or another failure of the system means for the store; what was done is kept."""
        try:
            yield
        except (OSError, UserError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
                raise UserError(
                    f"cannot write the store {self.place.folder}: {cause.strerror}; about "
                    f"{format_bytes(self._bytes_needed())} more are needed. What was done is kept: free the space "
                    "and continue with --resume"
                ) from error
            if isinstance(error, OSError):
                raise UserError(
                    f"cannot write the store {self.place.folder}: {error.strerror or error}; choose another folder, or "
                    "repair it and continue with --resume"
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
        self.observer.on_stage("read", n_rows, share)


def _encoded(table: CodedTable, parts: ReadParts, encoder: Encoder, first_row: int) -> Iterator[dict[str, Array]]:
    tables = ColumnTables(table, encoder)
    with ThreadPoolExecutor(n_threads()) as threads:
        for start, stop in table.chunks(first_row):
            yield {**tables.arrays(start, stop, threads), PARTS: parts(start, stop)}
