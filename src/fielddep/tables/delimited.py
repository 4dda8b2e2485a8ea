"""Delimited text: its delimiter and column names, and its rows, block by block, from any position on.

A block is read, checked and parsed by Polars in one pass. Polars fills short rows silently and misreads blank lines and
quotes in the middle of a cell, so `text.StructureCheck` looks at every block first; from the first block that Polars
would misread, the csv module reads the rest of the file, which is slower and gives the same cells.

The first line that is not blank names the columns; an empty first name, as an index written by pandas or R has, becomes
`column_0`. Blank lines are skipped, except in a file of one column, where they are empty cells.
"""

from __future__ import annotations

import codecs
import collections
import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import polars as pl

from fielddep.errors import ConfigError, TableError
from fielddep.tables.text import (
    SAMPLE_BYTES,
    StructureCheck,
    allow_long_cells,
    decode_line,
    is_utf8,
    no_rows,
    open_bytes,
    read_start,
    reading_errors,
    records,
    transcode,
    unclosed_quote,
)

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
_NAMES = {**DELIMITERS, " ": "space"}
_SAMPLE_LINES = 200


@dataclass(frozen=True, kw_only=True)
class DelimitedFile:
    """A delimited file of which the header is known.

    Attributes:
        path: as the user named it.
        source: the same text as UTF-8; another file where the encoding is another.
        delimiter: one character.
        names: columns.
        has_header: whether the first line names the columns.
    """

    path: Path
    source: Path
    delimiter: str
    names: tuple[str, ...]
    has_header: bool = True

    @property
    def width_source(self) -> str:
        """What says how many cells a row has, for messages."""
        return "as in the header" if self.has_header else f"({self.names[0]} to {self.names[-1]})"


def open_delimited(path: Path, *, delimiter: str | None = None, encoding: str = "utf8") -> DelimitedFile:
    """Find delimiter and column names; nothing after the header is read.

    Raises:
        TableError: the file is missing, empty or badly encoded, or its header cannot be used.
        ConfigError: delimiter or encoding cannot be used.
    """
    with reading_errors(path):
        source = path if is_utf8(encoding) else transcode(path, encoding)
        sample = read_start(source)
    if not sample.strip():
        raise TableError(f"{path} is empty; expected a line of column names and rows")
    separator = _choose_delimiter(path, sample, delimiter)
    return DelimitedFile(path=path, source=source, delimiter=separator, names=tuple(_header(path, sample, separator)))


def without_header(path: Path, names: Sequence[str], *, delimiter: str) -> DelimitedFile:
    """A UTF-8 file of known columns whose first line is a row.

    Raises:
        TableError: the file is missing or empty.
    """
    with reading_errors(path):
        sample = read_start(path)
    if not sample.strip():
        raise TableError(f"{path} is empty; expected rows of {len(names)} cells ({names[0]} to {names[-1]})")
    return DelimitedFile(path=path, source=path, delimiter=delimiter, names=tuple(names), has_header=False)


# --- delimiter and column names -------------------------------------------------------------------------------


def find_delimiter(sample: bytes) -> str | None:
    """The delimiter that splits the first lines evenly; None when none gives more than one column."""
    best, best_score = None, (0.5, 1)
    for candidate in DELIMITERS:
        score = _evenness(sample, candidate)
        if score[1] > 1 and score > best_score:
            best, best_score = candidate, score
    return best


def _evenness(sample: bytes, delimiter: str) -> tuple[float, int]:
    """Share of the first rows as wide as the header, and the width of the header."""
    text = io.StringIO(sample.decode("utf-8", errors="replace"), newline="")
    lines = list(itertools.islice(text, _SAMPLE_LINES))
    if len(sample) == SAMPLE_BYTES and 1 < len(lines) < _SAMPLE_LINES:
        lines.pop()  # cut off in the middle by the size of the sample
    allow_long_cells()
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return 0.0, 1
    return (sum(w == widths[0] for w in widths) / len(widths), widths[0]) if widths else (0.0, 1)


def _choose_delimiter(path: Path, sample: bytes, given: str | None) -> str:
    found = find_delimiter(sample)
    if given is None:
        share, width = _evenness(sample, " ")
        if found is None and width > 1 and share == 1 and sample.count(b"\n") > 1:
            raise TableError(f"{path} seems to be delimited by spaces; if so, set data.delimiter = ' '")
        return found or ","
    delimiter = "\t" if given in ("\\t", "tab") else given
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ConfigError(f"data.delimiter must be one ASCII character, not a quote or line end; given {given!r}")
    if found not in (None, delimiter) and _evenness(sample, delimiter)[1] == 1:
        raise TableError(
            f"{path} has one column when delimited by {_NAMES.get(delimiter, repr(delimiter))}; it seems to be "
            f"delimited by {_NAMES[str(found)]}: set data.delimiter = {found!r}"
        )
    return delimiter


def _header(path: Path, sample: bytes, delimiter: str) -> list[str]:
    """Column names from the first line that is not blank."""
    if b"\n" not in sample and b"\r" in sample:
        raise TableError(f"{path} ends its lines with a carriage return only; convert them to newlines")
    allow_long_cells()
    try:
        first = next(csv.reader(_header_lines(path, sample), delimiter=delimiter, strict=True))
    except csv.Error:
        raise unclosed_quote(path, 1) from None
    names = ["column_0" if i == 0 and not name else name for i, name in enumerate(first)]
    if not all(names):
        raise TableError(f"{path}: column {names.index('') + 1} of {len(names)} has no name; name it in line 1")
    refuse_duplicates(names, str(path))
    return names


def _header_lines(path: Path, sample: bytes) -> Iterator[str]:
    started = False
    for number, line in enumerate(sample.splitlines(keepends=True), 1):
        if started or line.strip(b"\r\n"):
            started = True
            yield decode_line(path, line, number)


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Raise a TableError that lists the names that occur more than once."""
    double = [repr(name) for name, n in collections.Counter(names).items() if n > 1]
    if double:
        raise TableError(f"{where}: column names must differ; more than once: {', '.join(double[:10])}; rename them")


BLOCK_BYTES = 1 << 23
_CSV_ROWS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place between two rows of a file.

    Attributes:
        offset: bytes of unpacked text before it, or rows in a file that is no text.
        line: number of the next line.
    """

    offset: int = 0
    line: int = 1


def delimited_rows(
    file: DelimitedFile, columns: Sequence[str], start: Place, block_bytes: int | None = None
) -> Iterator[tuple[pl.DataFrame, Place]]:
    """Rows from a place on, in portions, each with the place behind it; all columns are text, empty cells "".

    Raises:
        TableError: the file cannot be read or is malformed; the message names the line.
    """
    block_bytes = block_bytes or BLOCK_BYTES
    n_rows = 0
    reached = start
    with reading_errors(file.path), open_bytes(file.source) as stream:
        for rows, reached in _plain_rows(file, columns, stream, start, block_bytes):
            n_rows += len(rows)
            if len(rows):
                yield rows, reached
    with reading_errors(file.path), open_bytes(file.source) as stream:
        _go_to(stream, reached.offset)
        for rows, behind in _other_rows(file, columns, stream, reached):
            n_rows += len(rows)
            yield rows, behind
    if not n_rows and not start.offset:
        raise no_rows(file.path)


def _go_to(stream: BinaryIO, offset: int) -> None:
    """Skip to an offset, by reading where the stream is packed."""
    if stream.seekable():
        stream.seek(offset)
        return
    while offset:
        n_bytes = len(stream.read(min(offset, BLOCK_BYTES)))
        if not n_bytes:
            return
        offset -= n_bytes


def _plain_rows(
    file: DelimitedFile, columns: Sequence[str], stream: BinaryIO, start: Place, block_bytes: int
) -> Iterator[tuple[pl.DataFrame, Place]]:
    """Blocks for Polars; ends at the end of the file or before a block that needs the csv module."""
    check = StructureCheck(
        path=file.path,
        delimiter=ord(file.delimiter),
        n_cells=len(file.names),
        width_source=file.width_source,
        line=start.line,
    )
    _go_to(stream, start.offset)
    first = stream.read(len(codecs.BOM_UTF8)) if not start.offset else b""
    rest = first.removeprefix(codecs.BOM_UTF8)
    offset, header = start.offset + len(first) - len(rest), file.has_header and not start.offset
    for block in check.blocks(stream, rest, block_bytes):
        offset += len(block)
        yield _parse(file, columns, block, header=header), Place(offset=offset, line=check.line)
        header = False


def _parse(file: DelimitedFile, columns: Sequence[str], block: bytes, *, header: bool) -> pl.DataFrame:
    table = pl.scan_csv(
        block,
        has_header=header,
        separator=file.delimiter,
        new_columns=list(file.names),
        infer_schema=False,
        empty_string_is_null=False,
    )
    return table.select(columns).collect()


def _other_rows(
    file: DelimitedFile, columns: Sequence[str], stream: BinaryIO, start: Place
) -> Iterator[tuple[pl.DataFrame, Place]]:
    """Rows by the csv module."""
    lines = _CountedLines(stream, start)
    width = len(file.names)
    found = records(file.path, lines, file.delimiter, width, first_line=start.line, width_source=file.width_source)
    if file.has_header and not start.offset:
        next(found, None)
    wanted = [file.names.index(name) for name in columns]
    while rows := list(itertools.islice(found, _CSV_ROWS)):
        cells = {file.names[i]: [row[i] for row in rows] for i in wanted}
        yield pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String)), lines.place


class _CountedLines:
    """Lines of a stream, with the place behind the last one given."""

    def __init__(self, stream: BinaryIO, start: Place) -> None:
        self._stream = stream
        self.place = start

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            self.place = Place(offset=self.place.offset + len(line), line=self.place.line + 1)
            yield line
