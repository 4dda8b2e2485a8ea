"""Row stream: the rows of a table in portions, from any position on, with memory that does not grow with the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fielddep.config import DataConfig
from fielddep.data.delimited import DelimitedFile, open_delimited
from fielddep.data.readers import (
    Source,
    delimiter_of,
    files_format,
    read_table,
    same_schema,
    scan_file,
    stream_batches,
    table_paths,
)
from fielddep.data.streaming.delimited_rows import Place, delimited_rows
from fielddep.data.text_bytes import is_packed
from fielddep.errors import SourceChangedError, TableError, UserError

CHUNK_ROWS = 1 << 17
"""Rows of a portion of a table that is no delimited text."""

Rows = Iterator[tuple[pl.DataFrame, Place]]
Reader = Callable[[Sequence[str], Place], Rows]
"""Reads some columns of a file from a place on."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where reading goes on: the number of a file and the place in it."""

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
                f"{path} has vanished since the encoding began; bring it back and go on with --resume, or begin anew "
                "with --force"
            )
        now = SourceFile.of(path)
        if now != self:
            raise SourceChangedError(
                f"{path} has changed since the encoding began ({self.size:,} bytes then, {now.size:,} now, or another "
                "time of change); bring the old file back and go on with --resume, or begin anew with --force"
            )


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """A table whose rows are read in portions. Get one from `open_rows`.

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
        """Rows of some columns in order, each portion with the position behind it.

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


def open_rows(source: Source, config: DataConfig) -> RowStream:
    """Open a table for reading in portions; the start of every file is looked at. An open one is given back.

    Raises:
        TableError: a file is missing, empty, of another format or has other columns than the first.
        ConfigError: a setting cannot be used.
    """
    if isinstance(source, RowStream):
        return source
    paths = table_paths(source)
    if paths is None:
        return _of_frame(read_table(source, config), ())
    sources = tuple(map(SourceFile.of, paths))
    name = files_format(paths, config)
    if name in ("libffm", "libsvm"):
        return _of_frame(read_table(list(paths), config), sources)
    if name in ("csv", "tsv"):
        delimiter = delimiter_of(name, config)
        files = [open_delimited(path, delimiter=delimiter, encoding=config.encoding) for path in paths]
        return delimited_stream(files, sources)
    tables = [scan_file(path, name, config) for path in paths]
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
    """Refuse to go on with other files than an encoding began with.

    Raises:
        UserError: names the first file that differs.
    """
    old = [SourceFile(**facts) for facts in before]
    if [file.name for file in old] != [file.name for file in now]:
        raise UserError(
            f"to resume, the tables must be those of the start: {', '.join(f.name for f in old) or 'one in memory'}; "
            f"given {', '.join(f.name for f in now) or 'one in memory'}. Give the old ones, or --force to begin anew"
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
        for rows in stream_batches(wanted.slice(offset) if offset else wanted, CHUNK_ROWS, name=name):
            offset += len(rows)
            yield rows, Place(offset=offset, line=1)

    return read
