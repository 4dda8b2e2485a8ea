"""Row stream: the rows of a table chunk by chunk, from any position on, in bounded memory.

All commands read all sources through it: files, queries and tables in memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import polars as pl

from fielddep.config.data import DataConfig
from fielddep.errors import ConfigError, SourceChangedError, TableError, UserError
from fielddep.tables.delimited import DelimitedFile, Place, Rows, delimited_rows, open_delimited
from fielddep.tables.json_lines import json_rows, json_schema, open_json_lines
from fielddep.tables.readers import (
    Source,
    cut_rows,
    files_format,
    read_memory,
    same_schema,
    scan_binary,
    scan_chunks,
    scan_sparse,
    table_paths,
)
from fielddep.tables.text import is_packed
from fielddep.wording import listing

log = logging.getLogger(__name__)

_DEFAULTS = DataConfig()
CHUNK_ROWS = 1 << 17
"""Rows per chunk of a table that is not delimited text."""

T = TypeVar("T")
Reader = Callable[[Sequence[str], Place], Rows]
"""Reads some columns of a file from a place on."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where to resume reading: the number of a file and the place in it."""

    file: int = 0
    place: Place = Place()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Position:
        """The inverse of `to_json`."""
        return cls(file=values["file"], place=Place(**values["place"]))


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file as it was when reading began."""

    name: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """The file as it is now."""
        try:
            facts = path.stat()
        except OSError as error:
            raise TableError(f"{path} cannot be read: {error.strerror or error}; check the path") from error
        return cls(name=str(path), size=facts.st_size, mtime_ns=facts.st_mtime_ns)

    def check(self) -> None:
        """Raise a SourceChangedError if the file changed or no longer exists."""
        path = Path(self.name)
        if not path.exists():
            raise SourceChangedError(f"{path} has vanished. Restore it and resume, or start over with --force")
        now = SourceFile.of(path)
        if now != self:
            raise SourceChangedError(
                f"{path} has changed since reading began: its size ({self.size:,} bytes then, {now.size:,} now) or its "
                "modification time. Restore the old file and resume, or start over with --force"
            )


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """A table whose rows are read chunk by chunk. Get one from `open_rows`.

    Attributes:
        schema: columns and their types.
        sources: its files; none for a table in memory.
        readers: one per file, or a single one for all.
        is_text: whether places count bytes rather than rows.
        is_packed: whether a file is compressed text, so that places do not relate to its size.
    """

    schema: pl.Schema
    sources: tuple[SourceFile, ...]
    readers: tuple[Reader, ...]
    is_text: bool = False
    is_packed: bool = False

    def chunks(self, columns: Sequence[str], start: Position | None = None) -> Iterator[tuple[pl.DataFrame, Position]]:
        """Rows of some columns in order, each chunk with the position after it.

        Raises:
            TableError: a file cannot be read, is malformed, or changed since the stream was opened.
        """
        start = start or Position()
        for number in range(start.file, len(self.readers)):
            place = start.place if number == start.file else Place()
            self.check_sources(number)
            try:
                for rows, behind in self.readers[number](columns, place):
                    yield rows, Position(file=number, place=behind)
            except TableError:
                self.check_sources(number)  # that the file changed is the better reason
                raise
            self.check_sources(number)

    def frames(self, columns: Sequence[str], n_rows: int) -> Iterator[pl.DataFrame]:
        """All rows of some columns as in `chunks`, but `n_rows` at a time; the last chunk may be smaller."""
        if n_rows < 1:
            raise ConfigError(f"a chunk must have at least 1 row; given {n_rows}")
        return cut_rows((rows for rows, _ in self.chunks(columns)), n_rows)

    def check_sources(self, number: int | None = None) -> None:
        """Raise a SourceChangedError if a file changed or no longer exists: that of one reader, or any."""
        one_each = len(self.readers) == len(self.sources)
        for source in self.sources if number is None or not one_each else [self.sources[number]]:
            source.check()

    def share_read(self, position: Position) -> float | None:
        """About how much of the files lies before a position; None if unknown."""
        sizes = [source.size for source in self.sources]
        if self.is_packed or len(sizes) != len(self.readers) or not sum(sizes):
            return None
        within = min(position.place.offset, sizes[position.file]) if self.is_text else 0
        return (sum(sizes[: position.file]) + within) / sum(sizes)


def read_table(source: Source, config: DataConfig = _DEFAULTS, *, has_target: bool = True) -> pl.DataFrame:
    """Read a table from files or from memory.

    A path, list of paths, glob or folder may lead to CSV or TSV text, JSON lines (one flat object per line), Parquet,
    Arrow IPC or Feather, libffm or libsvm text; text may be compressed with gzip, zstd or zip. The format follows from
    `config.format`, else from the name, else from the content. All columns of delimited text and of JSON lines are read
    as text, so no value changes; the schema finds the types. If a space follows every delimiter, spaces around cells
    are stripped.
    In memory: pandas, Polars and pyarrow tables, 2-D numpy arrays (columns `x0`, `x1`, ...) and dicts of columns. The
    index of a pandas frame is ignored.

    Args:
        source: the table.
        config: settings; `format`, `delimiter` and `encoding` are for text, `target`, `fields` and `kinds` name
            columns of sparse text.
        has_target: whether rows of sparse text must start with a label; otherwise they may.

    Raises:
        TableError: the source cannot be read; the message names file and line if there is one.
        ConfigError: a setting cannot be used.
    """
    if in_memory(source):
        return read_memory(source)
    stream = open_rows(source, config, has_target=has_target)
    frames = [rows for rows, _ in stream.chunks(stream.schema.names())]
    return pl.concat(frames) if frames else stream.schema.to_frame()


def in_memory(source: Source) -> bool:
    """Whether a source is a table in memory rather than files, a query or a stream."""
    return table_paths(source) is None and not isinstance(source, (pl.LazyFrame, RowStream))


def open_rows(source: Source, config: DataConfig = _DEFAULTS, *, has_target: bool = True) -> RowStream:
    """Open a table, given as for `read_table`, for reading chunk by chunk.

    Only the start of every file is read, but all of a file of JSON lines, whose last line may have a new key.

    Raises:
        TableError: a file is missing, empty, or has another format or other columns than the first.
        ConfigError: a setting cannot be used.
    """
    if isinstance(source, RowStream):
        return source
    paths = table_paths(source)
    if paths is None:
        return _of_frame(source if isinstance(source, pl.LazyFrame) else read_memory(source).lazy(), ())
    sources = tuple(map(SourceFile.of, paths))
    name = files_format(paths, config)
    if name in ("libffm", "libsvm"):
        return _of_frame(scan_sparse(paths, name, config, has_target=has_target), sources)
    if name in ("csv", "tsv"):
        delimiter = config.delimiter or ("\t" if name == "tsv" else None)
        files = [open_delimited(path, delimiter=delimiter, encoding=config.encoding) for path in paths]
        return delimited_stream(files, sources)
    if name == "jsonl":
        return _json_stream(paths, config, sources)
    tables = [scan_binary(path, name) for path in paths]
    return RowStream(
        schema=same_schema(paths, [table.collect_schema() for table in tables]),
        sources=sources,
        readers=tuple(partial(_frame_rows, table, str(path)) for table, path in zip(tables, paths, strict=True)),
    )


def delimited_stream(files: Sequence[DelimitedFile], sources: tuple[SourceFile, ...] | None = None) -> RowStream:
    """Rows of delimited files with known columns, every column as text.

    Args:
        files: files with the same columns.
        sources: the files as they were before their headers were read; by default as they are now.

    Raises:
        TableError: a file is missing, or has other columns than the first.
    """
    paths = [file.path for file in files]
    sources = tuple(map(SourceFile.of, paths)) if sources is None else sources
    spaced = [str(file.path) for file in files if file.spaced]
    if spaced:
        log.warning("%s: a space follows every delimiter; spaces around cells are stripped", listing(spaced, 3))
    return RowStream(
        schema=same_schema(paths, [pl.Schema(dict.fromkeys(file.names, pl.String)) for file in files]),
        sources=sources,
        readers=tuple(partial(delimited_rows, file) for file in files),
        is_text=True,
        is_packed=_any_packed(sources),
    )


def _json_stream(paths: Sequence[Path], config: DataConfig, sources: tuple[SourceFile, ...]) -> RowStream:
    """Rows of JSON lines, every column as text; a file may lack keys of another one, as a line may."""
    files = [open_json_lines(path, encoding=config.encoding) for path in paths]
    lists = frozenset(name for file in files for name in file.lists)
    return RowStream(
        schema=json_schema(list(dict.fromkeys(name for file in files for name in file.names)), lists),
        sources=sources,
        readers=tuple(partial(json_rows, replace(file, lists=lists)) for file in files),
        is_text=True,
        is_packed=_any_packed(sources),
    )


def _any_packed(sources: Sequence[SourceFile]) -> bool:
    return any(is_packed(Path(source.name)) for source in sources)


def check_same_sources(before: Sequence[dict[str, Any]], now: Sequence[SourceFile]) -> None:
    """Raise a UserError if an encoding is to be resumed with other files than it began with."""
    old = [SourceFile(**facts) for facts in before]
    if [file.name for file in old] != [file.name for file in now]:
        raise UserError(
            f"an encoding can be resumed with the same tables only: {', '.join(f.name for f in old) or 'in memory'}; "
            f"given {', '.join(f.name for f in now) or 'in memory'}. Give the old ones, or start over with --force"
        )
    for file in old:
        file.check()


def _of_frame(table: pl.LazyFrame, sources: tuple[SourceFile, ...]) -> RowStream:
    name = ", ".join(source.name for source in sources) or "the table"
    return RowStream(schema=table.collect_schema(), sources=sources, readers=(partial(_frame_rows, table, name),))


def _frame_rows(table: pl.LazyFrame, name: str, columns: Sequence[str], place: Place) -> Rows:
    offset = place.offset
    wanted = table.select(columns)
    for rows in scan_chunks(wanted.slice(offset) if offset else wanted, CHUNK_ROWS, name=name):
        offset += len(rows)
        yield rows, Place(offset=offset)


# --- reading ahead --------------------------------------------------------------------------------------------


def prefetch(items: Iterator[T], *, depth: int) -> Generator[T]:
    """The same items in the same order, up to `depth` of them prepared ahead by a thread.

    The thread starts when the first item is asked for and has ended when this generator ends. An error of `items` is
    raised where its item was due.

    Example:
        >>> list(prefetch(iter("abc"), depth=2))
        ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="fielddep-prefetch") as thread:
        ahead = deque(thread.submit(next, items, end) for _ in range(depth))
        try:
            while (item := ahead.popleft().result()) is not end:
                ahead.append(thread.submit(next, items, end))
                yield cast(T, item)
        finally:
            for future in ahead:
                future.cancel()
