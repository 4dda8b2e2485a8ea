"""Build a store: read, split, learn from and encode a table of any size, in memory or in a folder.

    read     every row once; the values of each column become codes (`encoding.interning`)
    split    the part of every row (`encoding.split`)
    learn    from distinct values and their counts: schema, vocabularies, bins, crosses (`encoding.learn`)
    count    what rows with the same values did (`encoding.learn_evidence`)
    encode   from codes to ids, one lookup per column (`encoding.encoder`)

The last four work on codes, never on text. With a folder, codes and shards are on disk, so memory grows with the
distinct values of a table and not with its rows. An interrupted encoding resumes after its last checkpoint in `read`
or its last complete shard in `encode`, and ends with the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fielddep.config.settings import Config
from fielddep.encoding.coded import DEFAULT_SIZES, CodedTable, Sizes
from fielddep.encoding.column_tables import ColumnTables
from fielddep.encoding.crosses import cross_positions
from fielddep.encoding.dates import is_part_name
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.interning import TableInterner, n_threads
from fielddep.encoding.learn import learn_encoder
from fielddep.encoding.learn_evidence import N_FOLDS, counted_rows, learn_evidence, named_combinations
from fielddep.encoding.parts import class_warnings
from fielddep.encoding.rows import EVIDENCE, Array, RowArray
from fielddep.encoding.schema import candidate_names, check_column_names, target_name
from fielddep.encoding.split import PART_NAMES, Parts, ReadParts, Split, group_folds, plan_split, random_folds
from fielddep.encoding.with_target import coded_with_target
from fielddep.errors import ConfigError, SchemaError, SourceChangedError, SplitError, TableError, UserError
from fielddep.observer import Observer
from fielddep.store.folder import STORE, FileCells, StoreFolder
from fielddep.store.format import PARTS
from fielddep.store.reading import Reading
from fielddep.store.store import MemoryWriter, Store, StoreWriter
from fielddep.tables.readers import Source
from fielddep.tables.row_stream import RowStream, open_rows, prefetch
from fielddep.wording import format_bytes

log = logging.getLogger(__name__)

SIZES = DEFAULT_SIZES
MAX_COUNTED = 20_000_000
"""Training rows up to which evidence is counted unless it is asked for: counting needs about 200 bytes per row."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNPACKED_BYTES = 5
"""Estimated bytes of text per byte of a compressed file."""


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
        source: anything `read_table` reads (files, globs, folders, a list of them, or a table in memory), or an open
            `RowStream`.
        config: settings, of which data and split are used.
        folder: where the store goes; created if needed. None keeps it in memory.
        parts: the part of every row, as an index into `PART_NAMES`, instead of the split in the settings; for a store
            in memory only.
        force: replace an existing store, once the new one is complete.
        resume: resume an unfinished store, or start one if there is none; a finished one is kept. Only files can be
            resumed, because nothing shows whether a table in memory is still the same.
        observer: is told about progress.
        sizes: rows and values handled at a time, instead of `SIZES`.

    Raises:
        UserError: the folder must not be written to, the table or the settings cannot be used, a source changes while
            it is read, or the disk is full.
    """
    observer, sizes = observer or Observer(), sizes or SIZES
    if folder is None:
        stream = _open_table(source, config)
        return _Encoding(stream=stream, config=config, sizes=sizes, observer=observer, given=parts).run()
    place = StoreFolder(folder=Path(folder))
    state = STORE.check(place.folder, force=force, resume=resume)
    if state == "finished" and resume:
        log.warning("the store in %s is finished; there is nothing to resume", folder)
        return Store.open(folder)
    stream = _open_table(source, config)
    resumes = state == "unfinished" and resume
    if resumes:
        _check_resumable(stream, config, place)
    encoding = _FileEncoding(stream=stream, config=config, sizes=sizes, observer=observer, place=place)
    with encoding.disk_errors():
        if not resumes:
            place.begin(config, stream.sources)
        if not place.is_built:
            encoding.run()
        place.promote()
    return Store.open(folder)


def _check_resumable(stream: RowStream, config: Config, place: StoreFolder) -> None:
    if not stream.sources:
        raise UserError(
            "only tables in files can be resumed, because nothing shows whether a table in memory is still the same; "
            f"{place.folder} holds an unfinished store. Start over with force, or encode from a file"
        )
    place.check_request(config, stream.sources)


def _open_table(source: Source, config: Config) -> RowStream:
    """Open a table and refuse settings that do not fit its columns, before any row is read."""
    stream = open_rows(source, config.data)
    names = stream.schema.names()
    target_name(names, config)  # refuses settings without one
    check_column_names(names, config)
    if not isinstance(config.data.crosses, str):
        fields = tuple(candidate_names(names, config))
        for pair in config.data.crosses:
            # Which columns hold dates shows later.
            cross_positions(pair, (*fields, *(name for name in pair if is_part_name(name, fields))))
    return stream


@dataclass(kw_only=True)
class _Encoding:
    """One encoding from the first row to the store, in memory."""

    stream: RowStream
    config: Config
    sizes: Sizes
    observer: Observer
    given: Parts | None = None

    def run(self) -> Store:
        """Read, split, learn, encode."""
        table = coded_with_target(self._read(), self.config.data)
        self.observer.on_stage("split", 0, 0.0)
        split = self._split(table)
        self.observer.on_stage("learn", 0, 0.0)
        encoder = learn_encoder(table, self.config, split.parts, split.n_train)
        encoder, said = self._learn_evidence(table, encoder, split)
        assert encoder.schema.target is not None
        warnings = class_warnings(table, encoder.schema.target, split.parts)
        return self._encode(_Encoded(table=table, parts=split.parts, encoder=encoder, said=said), warnings)

    @property
    def source_facts(self) -> list[dict[str, Any]]:
        return [asdict(source) for source in self.stream.sources]

    def _read(self) -> CodedTable:
        interner = TableInterner(self.stream.schema, self.config, sizes=self.sizes)
        with ThreadPoolExecutor(n_threads()) as threads:
            for rows, position in self.stream.chunks(interner.names):
                interner.add(rows, threads)
                self.observer.on_stage("read", interner.cells.n_rows, self.stream.share_read(position))
        return interner.table()

    def _split(self, table: CodedTable) -> _Division:
        parts = self.given
        folds: Callable[[int, int], npt.NDArray[np.int64]] = partial(random_folds, self.config.split.seed, n=N_FOLDS)
        if parts is None:
            split = plan_split(table, self.config.split, self.config.data.target)
            parts = np.concatenate([split.parts_of(table, start, stop) for start, stop in table.chunks()])
            folds = _folds_of(table, split, self.config)
        elif len(parts) != (table.source or table).n_rows:
            n_rows = (table.source or table).n_rows
            raise ValueError(f"parts must have one number for each of {n_rows} rows; given {len(parts)}")
        else:
            parts = parts[table.cells.row_numbers(0, table.n_rows)]
            if self.config.split.group is not None:
                folds = group_folds(table, self.config.split, n=N_FOLDS)
        known = parts
        n_train = int(np.count_nonzero(known == 0))
        return _Division(parts=lambda start, stop: known[start:stop], folds=folds, n_train=n_train)

    def _learn_evidence(
        self, table: CodedTable, encoder: Encoder, split: _Division
    ) -> tuple[Encoder, npt.NDArray[np.float16] | None]:
        """The encoder with its evidence, and the statements about every row (K, R, C + 1); None without evidence."""
        data = self.config.data
        if data.evidence == "none" or (data.evidence == "auto" and split.n_train > MAX_COUNTED):
            return encoder, None
        self.observer.on_stage("count", 0, 0.0)
        in_order = self.given is None and self.config.split.method == "time"
        rows = counted_rows(
            table,
            encoder,
            split.parts,
            split.folds,
            in_order=in_order,
            min_rows=data.evidence_min_rows,
            allocate=self._scratch,
        )
        named = None if data.evidence == "auto" else named_combinations(data.evidence, encoder)
        evidence, said = learn_evidence(rows, self._scratch, named, data.max_combinations, data.evidence_max_cells)
        return (replace(encoder, evidence=evidence), said) if evidence.cells else (encoder, None)

    def _scratch(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        """An array that is needed until the store is complete."""
        return np.empty(shape, dtype=dtype)

    def _encode(self, rows: _Encoded, warnings: tuple[str, ...]) -> Store:
        n_rows = rows.table.n_rows
        writer = MemoryWriter(encoder=rows.encoder, config=self.config, n_rows=n_rows, chunk_rows=self.sizes.part_rows)
        for arrays in rows.chunks(0):
            writer.append(arrays)
            self._report_encoded(writer.n_rows, n_rows)
        return writer.finish(self.source_facts, warnings)

    def _report_encoded(self, n_rows: int, n_all: int) -> None:
        self.observer.on_stage("encode", n_rows, n_rows / n_all)


@dataclass(kw_only=True)
class _FileEncoding(_Encoding):
    """The same with codes, parts and shards in a folder; it can be resumed."""

    place: StoreFolder
    cells: FileCells | None = None
    bytes_needed: float = 0
    """About how many bytes are still to be written."""

    def run(self) -> Store:
        """Read, split, learn, encode; an error that resuming would only repeat removes what was done."""
        try:
            return super().run()
        except (TableError, SchemaError, SplitError, ConfigError) as error:
            if not isinstance(error, SourceChangedError) and not isinstance(error.__cause__, OSError):
                self.place.discard()
            raise
        finally:
            if self.cells is not None:
                self.cells.close()

    def _read(self) -> CodedTable:
        reading = Reading(self.stream, self.config, self.place, self.sizes)
        self.cells = reading.cells
        self._estimate_bytes(self.cells, None)
        with contextlib.closing(reading.run()) as shares:
            for share in shares:
                self._estimate_bytes(self.cells, share)
                self.observer.on_stage("read", self.cells.n_rows, share)
        self.stream.check_sources()
        return reading.interner.table()

    def _estimate_bytes(self, cells: FileCells, share: float | None) -> None:
        if share:
            row_bytes = cells.n_bytes / cells.n_rows + 4 * len(self.stream.schema) + 5
            all_bytes = row_bytes * cells.n_rows / share
        else:
            text_bytes = sum(source.size for source in self.stream.sources)
            all_bytes = 1.5 * text_bytes * (_UNPACKED_BYTES if self.stream.is_packed else 1)
        self.bytes_needed = all_bytes - cells.n_bytes

    def _split(self, table: CodedTable) -> _Division:
        split = plan_split(table, self.config.split, self.config.data.target)
        path = self.place.spool / PARTS
        with path.open("wb") as file:
            for start, stop in table.chunks():
                file.write(np.ascontiguousarray(split.parts_of(table, start, stop)).data)
        if not split.sizes[PART_NAMES.index("validation")]:
            log.warning(
                "there are no validation rows, which training on this store needs. To train on it, encode again with "
                "split.validation above 0"
            )
        return _Division(
            parts=lambda start, stop: np.fromfile(path, dtype=np.uint8, count=stop - start, offset=start),
            folds=_folds_of(table, split, self.config),
            n_train=split.sizes[0],
        )

    def _scratch(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        """A file that is removed with the codes."""
        return (
            np.memmap(self.place.spool / name, dtype=dtype, mode="w+", shape=shape)
            if math.prod(shape)
            else (super()._scratch(name, shape, dtype))
        )

    def _encode(self, rows: _Encoded, warnings: tuple[str, ...]) -> Store:
        for warning in warnings:
            log.warning("%s", warning)
        done = self.place.progress()
        writer = StoreWriter(
            self.place.unfinished,
            encoder=rows.encoder,
            config=self.config,
            shard_rows=self.sizes.shard_rows,
            chunk_rows=self.sizes.part_rows,
            progress=done.get("writer"),
        )
        n_rows, encoded = rows.table.n_rows, prefetch(rows.chunks(writer.n_rows), depth=2)
        with contextlib.closing(writer), contextlib.closing(encoded):
            for arrays in encoded:
                n_shards = writer.n_shards
                self.bytes_needed = (n_rows - writer.n_rows) * writer.row_bytes
                writer.append(arrays)
                self._report_encoded(writer.n_rows, n_rows)
                if writer.n_shards > n_shards:
                    self.place.save_progress({**done, "writer": writer.progress()})
            self.stream.check_sources()
            return writer.finish(self.source_facts, warnings)

    @contextlib.contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Explain what a full disk or another system error means for the store; the work so far is kept."""
        try:
            yield
        except (OSError, UserError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
                needed = format_bytes(max(self.bytes_needed, 1 << 20))
                raise UserError(
                    f"cannot write the store {self.place.folder}: {cause.strerror}. About {needed} more are needed. "
                    "The work so far is kept: free the space and continue with --resume"
                ) from error
            if isinstance(error, OSError):
                raise UserError(
                    f"cannot write the store {self.place.folder}: {error.strerror or error}. Choose another folder, or "
                    "repair it and continue with --resume"
                ) from error
            raise


def _folds_of(table: CodedTable, split: Split, config: Config) -> Callable[[int, int], npt.NDArray[np.int64]]:
    """Folds of the training rows, given first and last row: those of the split, unless groups belong together."""
    if config.split.group is not None:
        return group_folds(table, config.split, n=N_FOLDS)
    return partial(split.folds_of, table, n=N_FOLDS)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Division:
    """How the rows are divided: part and, for evidence, fold of every row."""

    parts: ReadParts
    folds: Callable[[int, int], npt.NDArray[np.int64]]
    n_train: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Encoded:
    """The rows of a coded table as the arrays of a store; `said` are the statements of the evidence (K, R, C + 1)."""

    table: CodedTable
    parts: ReadParts
    encoder: Encoder
    said: npt.NDArray[np.float16] | None

    def chunks(self, first_row: int) -> Iterator[dict[str, RowArray]]:
        """Chunk by chunk, from a row on."""
        tables = ColumnTables(self.table, self.encoder)
        with ThreadPoolExecutor(n_threads()) as threads:
            for start, stop in self.table.chunks(first_row):
                arrays = {**tables.arrays(start, stop, threads), PARTS: self.parts(start, stop)}
                if self.said is not None:
                    shape = (stop - start, self.encoder.layout.n_statements)
                    arrays[EVIDENCE] = self.said[:, start:stop].transpose(1, 0, 2).reshape(shape)
                yield arrays
