"""Row stream: the rows of a table chunk by chunk, from any position on, in memory that does not grow with the table.

This is the one reader: of all commands and all sources, files, queries and tables in memory alike.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import polars as pl

from fielddep.config.settings import DataConfig
from fielddep.errors import ConfigError, SourceChangedError, TableError, UserError
from fielddep.tables.delimited import DelimitedFile, Place, delimited_rows, open_delimited
from fielddep.tables.readers import (
    Source,
    cut_rows,
    delimiter_of,
    files_format,
    read_memory,
    same_schema,
    scan_binary,
    scan_chunks,
    scan_sparse,
    table_paths,
)
from fielddep.tables.text import is_packed

_DEFAULTS = DataConfig()
CHUNK_ROWS = 1 << 17
"""Rows of a chunk of a table that is no delimited text."""

T = TypeVar("T")
Rows = Iterator[tuple[pl.DataFrame, Place]]
Reader = Callable[[Sequence[str], Place], Rows]
"""Reads some columns of a file from a place on."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where to resume reading: the number of a file and the place in it."""

    file: int = 0
    place: Place = Place()

    def to_json(self) -> dict[str, Any]:
        """Plain values for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Position:
        """Read what `to_json` wrote."""
        return cls(file=values["file"], place=Place(**values["place"]))


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file as it was when the reading began."""

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
        """Refuse a file that is no longer what it was.

        Raises:
            SourceChangedError: it vanished or changed.
        """
        path = Path(self.name)
        if not path.exists():
            raise SourceChangedError(
                f"{path} has vanished since the reading began. Bring it back and resume, or start over with --force"
            )
        now = SourceFile.of(path)
        if now != self:
            raise SourceChangedError(
                f"{path} has changed since the reading began: {self.size:,} bytes then, {now.size:,} now, or another "
                "time of change. Bring the old file back and resume, or start over with --force"
            )


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """A table whose rows are read chunk by chunk. Get one from `open_rows`.

    Attributes:
        schema: columns and their types.
        sources: its files; none for a table in memory.
        readers: one for every file, or a single one for all.
        is_text: whether places are bytes of a file rather than rows.
        is_packed: whether a file is packed text, so that places say nothing of the file's size.
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
                self.check_sources(number)  # a file that changed under the reader is the better reason
                raise
            self.check_sources(number)

    def frames(self, columns: Sequence[str], n_rows: int) -> Iterator[pl.DataFrame]:
        """All rows of some columns, `n_rows` at a time; the last chunk may be smaller.

        Raises:
            TableError: a file cannot be read, is malformed, or changed since the stream was opened.
        """
        if n_rows < 1:
            raise ConfigError(f"a chunk must have at least 1 row; given {n_rows}")
        return cut_rows((rows for rows, _ in self.chunks(columns)), n_rows)

    def check_sources(self, number: int | None = None) -> None:
        """Refuse a source that vanished or changed: the file of one reader, or any."""
        one = number is not None and len(self.readers) == len(self.sources)
        for source in self.sources[number : number + 1] if one and number is not None else self.sources:
            source.check()

    def share_read(self, position: Position) -> float | None:
        """About how much of the files lies before a position; None where that is unknown."""
        sizes = [source.size for source in self.sources]
        if self.is_packed or len(sizes) != len(self.readers) or not sum(sizes):
            return None
        within = min(position.place.offset, sizes[position.file]) if self.is_text else 0
        return (sum(sizes[: position.file]) + within) / sum(sizes)


def read_table(source: Source, config: DataConfig = _DEFAULTS, *, has_target: bool = True) -> pl.DataFrame:
    """Read a table from wherever it is.

    A path (or list of paths, glob, folder) may lead to CSV or TSV text, Parquet, Arrow IPC or Feather, libffm and
    libsvm text; text may be packed with gzip or zstd. `config.format` overrides what the name says; where the name says
    nothing the content decides. Delimited text comes as text in every column, so that no value changes on the way; the
    schema finds the types. In memory: pandas, Polars and pyarrow tables, 2-D numpy arrays (columns `x0`, `x1`, ...) and
    dicts of columns. The index of a pandas frame is ignored.

    Args:
        source: the table.
        config: settings; `format`, `delimiter` and `encoding` are for text, `target`, `fields` and `kinds` name
            columns of sparse text.
        has_target: whether rows of sparse text must start with a label. If False they may do without.

    Raises:
        TableError: the source cannot be read; the message names file and line where there is one.
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
    """Open a table for reading chunk by chunk; only the start of every file is read. An open one is given back.

    Args:
        source: as in `read_table`.
        config: as in `read_table`.
        has_target: as in `read_table`.

    Raises:
        TableError: a file is missing, empty, of another format or has other columns than the first.
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
        delimiter = delimiter_of(name, config)
        files = [open_delimited(path, delimiter=delimiter, encoding=config.encoding) for path in paths]
        return delimited_stream(files, sources)
    tables = [scan_binary(path, name) for path in paths]
    return RowStream(
        schema=same_schema(paths, [table.collect_schema() for table in tables]),
        sources=sources,
        readers=tuple(_frame_reader(table, str(path)) for table, path in zip(tables, paths, strict=True)),
    )


def delimited_stream(files: Sequence[DelimitedFile], sources: tuple[SourceFile, ...] | None = None) -> RowStream:
    """Rows of delimited files whose columns are known, every column as text.

    Args:
        files: the files, all of the same columns.
        sources: the files as they were before anything of them was read; default: as they are now.

    Raises:
        TableError: a file is missing, or has other columns than the first.
    """
    paths = [file.path for file in files]
    return RowStream(
        schema=same_schema(paths, [pl.Schema(dict.fromkeys(file.names, pl.String)) for file in files]),
        sources=tuple(map(SourceFile.of, paths)) if sources is None else sources,
        readers=tuple(map(_delimited_reader, files)),
        is_text=True,
        is_packed=any(map(is_packed, paths)),
    )


def check_same_sources(before: Sequence[dict[str, Any]], now: Sequence[SourceFile]) -> None:
    """Refuse to resume with other files than an encoding began with.

    Raises:
        UserError: names the first file that differs.
    """
    old = [SourceFile(**facts) for facts in before]
    if [file.name for file in old] != [file.name for file in now]:
        raise UserError(
            f"to resume, the tables must be those of the start: {', '.join(f.name for f in old) or 'one in memory'}; "
            f"given {', '.join(f.name for f in now) or 'one in memory'}. Give the old ones, or --force to start over"
        )
    for file in old:
        file.check()


def _of_frame(table: pl.LazyFrame, sources: tuple[SourceFile, ...]) -> RowStream:
    name = ", ".join(source.name for source in sources) or "the table"
    return RowStream(schema=table.collect_schema(), sources=sources, readers=(_frame_reader(table, name),))


def _delimited_reader(file: DelimitedFile) -> Reader:
    return lambda columns, place: delimited_rows(file, columns, place)


def _frame_reader(table: pl.LazyFrame, name: str) -> Reader:
    def read(columns: Sequence[str], place: Place) -> Rows:
        offset = place.offset
        wanted = table.select(columns)
        for rows in scan_chunks(wanted.slice(offset) if offset else wanted, CHUNK_ROWS, name=name):
            offset += len(rows)
            yield rows, Place(offset=offset, line=1)

    return read


# --- reading ahead --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True, kw_only=True)
class _End:
    error: BaseException | None = None


def prefetch(items: Iterator[T], *, depth: int) -> Generator[T]:
    """The same items in the same order, up to `depth` of them prepared ahead by a thread.

    The thread starts with the first item asked for and ends with the last one, with an error, or when the caller
    stops early: then it ends before this generator does. An error of `items` is raised where its item was due.

    Example:
        >>> list(prefetch(iter("abc"), depth=2))
        ['a', 'b', 'c']
    """
    ready: queue.Queue[_Item[T] | _End] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_produce, args=(items, ready, stopped), name="fielddep-prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(found := ready.get(), _End):
            yield found.value
        if found.error is not None:
            raise found.error
    finally:
        stopped.set()
        _empty(ready)  # a thread that waits for a free place must be let go before it can end
        thread.join()


def _produce(items: Iterator[T], ready: queue.Queue[_Item[T] | _End], stopped: threading.Event) -> None:
    end = _End()
    try:
        for value in items:
            ready.put(_Item(value=value))
            if stopped.is_set():
                return
    except BaseException as error:  # whatever it is, the caller must hear of it
        end = _End(error=error)
    ready.put(end)


def _empty(ready: queue.Queue[_Item[T] | _End]) -> None:
    while True:
        try:
            ready.get_nowait()
        except queue.Empty:
            return
