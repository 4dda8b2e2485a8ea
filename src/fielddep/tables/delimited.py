"""Delimited text: its delimiter and column names, and its rows, chunk by chunk, from any position on.

Polars parses the text, but it silently fills short rows and misreads blank lines and quotes in the middle of a cell. So
`text.StructureCheck` looks at every chunk first. From the first chunk that Polars would misread, the csv module reads
the rest of the file, which is slower and gives the same cells.

The first line that is not blank names the columns; an empty first name, as pandas and R write for an index, becomes
`column_0`. Blank lines are skipped, except in a file of one column, where they are empty cells.

If a space follows every delimiter of the header, or of all first rows, the spaces around cells are layout: they are
stripped, except inside quotes.
"""

from __future__ import annotations

import codecs
import collections
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import polars as pl

from fielddep.errors import ConfigError, TableError
from fielddep.tables.text import (
    LONGEST_RECORD,
    SAMPLE_BYTES,
    StructureCheck,
    allow_long_cells,
    decode_line,
    endless_row,
    is_utf8,
    open_bytes,
    ragged_row,
    read_start,
    reading_errors,
    transcode,
    unclosed_quote,
)

CHUNK_BYTES = 1 << 23
_CSV_ROWS = 1 << 16
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
_SAMPLE_LINES = 200
_QUOTED = re.compile(rb'"[^"]*"')


@dataclass(frozen=True, kw_only=True)
class DelimitedFile:
    """A delimited file with known columns.

    Attributes:
        path: the file as errors name it.
        source: the file that holds its text as UTF-8: the same one, or a copy.
        delimiter: one character.
        names: columns.
        has_header: whether the first line names the columns.
        spaced: whether spaces around cells are stripped.
    """

    path: Path
    source: Path
    delimiter: str
    names: tuple[str, ...]
    has_header: bool = True
    spaced: bool = False

    @property
    def width_source(self) -> str:
        """What fixes the number of cells in a row, for messages."""
        return "as in the header" if self.has_header else f"({self.names[0]} to {self.names[-1]})"


def open_delimited(
    path: Path, *, delimiter: str | None = None, encoding: str = "utf8", source: Path | None = None
) -> DelimitedFile:
    """Find delimiter and column names in the start of a file.

    With `source`, the text is read as UTF-8 from there, and `path` is only a name for errors.

    Raises:
        TableError: the file is missing, empty or badly encoded, or its header cannot be used.
        ConfigError: delimiter or encoding cannot be used.
    """
    with reading_errors(path):
        source = source or (path if is_utf8(encoding) else transcode(path, encoding))
        sample = read_start(source)
    if not sample.strip():
        raise TableError(f"{path} is empty; expected a line of column names and rows")
    separator = _choose_delimiter(path, sample, delimiter)
    spaced = _is_spaced(sample, separator)
    names = tuple(_header(path, sample, separator, spaced=spaced))
    return DelimitedFile(path=path, source=source, delimiter=separator, names=names, spaced=spaced)


def without_header(path: Path, names: Sequence[str], *, delimiter: str) -> DelimitedFile:
    """A UTF-8 file with known columns whose first line is a row; a TableError if it is missing or empty."""
    with reading_errors(path):
        sample = read_start(path)
    if not sample.strip():
        raise TableError(f"{path} is empty; expected rows of {len(names)} cells ({names[0]} to {names[-1]})")
    return DelimitedFile(path=path, source=path, delimiter=delimiter, names=tuple(names), has_header=False)


# --- delimiter and column names -------------------------------------------------------------------------------


def find_delimiter(sample: bytes) -> str | None:
    """The delimiter that splits the first lines most evenly; None if none gives more than one column."""
    best, best_score = None, (0.5, 1)
    for candidate in _DELIMITERS:
        score = _evenness(sample, candidate)
        if score[1] > 1 and score > best_score:
            best, best_score = candidate, score
    return best


def _evenness(sample: bytes, delimiter: str) -> tuple[float, int]:
    """Share of the first rows as wide as the header, and the width of the header."""
    text = io.StringIO(sample.decode("utf-8", errors="replace"), newline="")
    lines = list(itertools.islice(text, _SAMPLE_LINES))
    if len(sample) == SAMPLE_BYTES and 1 < len(lines) < _SAMPLE_LINES:
        lines.pop()  # the end of the sample cuts it off
    allow_long_cells()
    try:
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != " ")
        widths = [len(row) for row in reader if row]
    except csv.Error:
        return 0.0, 1
    return (sum(w == widths[0] for w in widths) / len(widths), widths[0]) if widths else (0.0, 1)


def _choose_delimiter(path: Path, sample: bytes, given: str | None) -> str:
    found = find_delimiter(sample)
    if given is None:
        share, width = _evenness(sample, " ")
        if found is None and width > 1 and share == 1 and sample.count(b"\n") > 1:
            raise TableError(f"{path} seems to be delimited by spaces. If so, set data.delimiter = ' '")
        return found or ","
    delimiter = "\t" if given in ("\\t", "tab") else given
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ConfigError(f"data.delimiter must be one ASCII character, not a quote or line end; given {given!r}")
    if found not in (None, delimiter) and _evenness(sample, delimiter)[1] == 1:
        raise TableError(
            f"{path} has one column when delimited by {_DELIMITERS.get(delimiter, repr(delimiter))}; it seems to be "
            f"delimited by {_DELIMITERS[str(found)]}. If so, set data.delimiter = {found!r}"
        )
    return delimiter


def _is_spaced(sample: bytes, delimiter: str) -> bool:
    """Whether a space follows every delimiter outside quotes, in the header or in all first rows."""
    lines = _QUOTED.sub(b'""', sample).strip(b"\r\n").split(b"\n", _SAMPLE_LINES)
    separator = re.escape(delimiter.encode())
    spaced, other = re.compile(separator + b" +[^ \r\n]"), re.compile(separator + b"[^ \r\n]")
    parts = (lines[0], b"\n".join(lines[1:_SAMPLE_LINES]))
    return delimiter != " " and any(spaced.search(part) and not other.search(part) for part in parts)


def _header(path: Path, sample: bytes, delimiter: str, *, spaced: bool) -> list[str]:
    """Column names in the first line that is not blank."""
    if b"\n" not in sample and b"\r" in sample:
        raise TableError(f"{path} ends its lines with a carriage return only. Convert them to newlines")
    allow_long_cells()
    lines = _header_lines(path, sample)
    try:
        first = next(csv.reader(_stripped(lines, delimiter) if spaced else lines, delimiter=delimiter, strict=True))
    except csv.Error:
        raise unclosed_quote(path, 1) from None
    names = ["column_0" if i == 0 and not name else name for i, name in enumerate(first)]
    if not all(names):
        raise TableError(f"{path}: column {names.index('') + 1} of {len(names)} has no name. Name it in line 1")
    refuse_duplicates(names, str(path))
    return names


def _header_lines(path: Path, sample: bytes) -> Iterator[str]:
    numbered = enumerate(sample.splitlines(keepends=True), 1)
    for number, line in itertools.dropwhile(lambda pair: not pair[1].strip(b"\r\n"), numbered):
        yield decode_line(path, line, number)


def _stripped(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Lines without the spaces around their cells; quoted text stays as it is, even over several lines.

    A quote opens quoted text at the start of a cell, or right after the quote that closed it; elsewhere it is text.
    """
    around = re.compile(rf" *({re.escape(delimiter)}|\r?\n) *")
    in_quotes = False
    for line in lines:
        parts = (line if in_quotes else line.lstrip(" ")).split('"')
        may_open = True
        for place, part in enumerate(parts):
            if place and in_quotes:
                in_quotes, may_open = False, True
            elif place:
                in_quotes, may_open = may_open, False
            if not in_quotes:
                parts[place] = around.sub(r"\1", part)
                may_open = parts[place].endswith(delimiter) or (may_open and not part)
        text = '"'.join(parts)
        yield text if in_quotes else text.rstrip(" ")  # of a last line without an end


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Raise a TableError that lists names that occur more than once."""
    double = [repr(name) for name, n in collections.Counter(names).items() if n > 1]
    if double:
        raise TableError(f"{where}: column names must differ, but these occur twice: {', '.join(double[:10])}")


# --- rows -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place between two rows of a file.

    Attributes:
        offset: bytes of unpacked text before it; in a file that is not text, rows.
        line: number of the next line.
    """

    offset: int = 0
    line: int = 1


Rows = Iterator[tuple[pl.DataFrame, Place]]
"""Chunks of rows, each with the place after it."""


def delimited_rows(file: DelimitedFile, columns: Sequence[str], start: Place) -> Rows:
    """Rows from a place on; all columns are text, empty cells "".

    Raises:
        TableError: the file cannot be read or is malformed; the message names the line.
    """
    n_rows = 0
    place = start
    for read in (_polars_rows, _csv_rows):
        with reading_errors(file.path), open_bytes(file.source) as stream:
            go_to(stream, place.offset)
            for rows, after in read(file, columns, stream, place):
                n_rows += len(rows)
                if len(rows):
                    yield rows, after
                place = after
    if not n_rows and not start.offset:
        raise TableError(f"{file.path} has column names but no rows. Give a table with rows")


def go_to(stream: BinaryIO, offset: int) -> None:
    """Skip to an offset; packed streams cannot seek and are read instead."""
    if stream.seekable():
        stream.seek(offset)
        return
    while offset and (skipped := stream.read(min(offset, CHUNK_BYTES))):
        offset -= len(skipped)


def _polars_rows(file: DelimitedFile, columns: Sequence[str], stream: BinaryIO, start: Place) -> Rows:
    """Rows by Polars, up to the end of the file or the first chunk that Polars would misread."""
    check = StructureCheck(
        path=file.path,
        delimiter=ord(file.delimiter),
        n_cells=len(file.names),
        width_source=file.width_source,
        line=start.line,
    )
    first = stream.read(len(codecs.BOM_UTF8)) if not start.offset else b""
    rest = first.removeprefix(codecs.BOM_UTF8)
    offset, header = start.offset + len(first) - len(rest), file.has_header and not start.offset
    for chunk in check.chunks(stream, rest, CHUNK_BYTES):
        if file.spaced and b'"' in chunk:
            return  # Polars would strip inside quotes too
        offset += len(chunk)
        yield _parse(file, columns, chunk, header=header), Place(offset=offset, line=check.line)
        header = False


def _parse(file: DelimitedFile, columns: Sequence[str], chunk: bytes, *, header: bool) -> pl.DataFrame:
    table = pl.scan_csv(
        chunk,
        has_header=header,
        separator=file.delimiter,
        new_columns=list(file.names),
        infer_schema=False,
        empty_string_is_null=False,
    )
    cells = pl.col(columns)
    return table.select(cells.str.strip_chars(" ") if file.spaced else cells).collect()


def _csv_rows(file: DelimitedFile, columns: Sequence[str], stream: BinaryIO, start: Place) -> Rows:
    """Rows by the csv module, which reads any valid file."""
    lines = Lines(file.path, stream, start)
    records = _records(file, lines)
    if file.has_header and not start.offset:
        next(records, None)
    wanted = [file.names.index(name) for name in columns]
    while rows := list(itertools.islice(records, _CSV_ROWS)):
        cells = {file.names[i]: [row[i] for row in rows] for i in wanted}
        yield pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String)), lines.place


def _records(file: DelimitedFile, lines: Lines) -> Iterator[list[str]]:
    """Cells of every record, including a header; blank lines are skipped unless there is one column."""
    allow_long_cells()
    texts = _stripped(lines, file.delimiter) if file.spaced else lines
    reader = csv.reader(texts, delimiter=file.delimiter, strict=True)
    width = len(file.names)
    while True:
        line = lines.place.line
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            too_long = "field limit" in str(error)
            raise (endless_row if too_long else unclosed_quote)(file.path, line) from None
        if not row and width == 1:
            row = [""]
        if row and len(row) != width:
            raise ragged_row(file.path, line, width, len(row), file.delimiter.join(row), file.width_source)
        if row:
            yield row


class Lines:
    """Lines of a stream as text, with the place after the last one given."""

    def __init__(self, path: Path, stream: BinaryIO, start: Place) -> None:
        self.path, self.stream, self.place = path, stream, start

    def __iter__(self) -> Iterator[str]:
        while line := self.stream.readline(LONGEST_RECORD + 1):
            number = self.place.line
            if len(line) > LONGEST_RECORD:
                raise endless_row(self.path, number)
            self.place = Place(offset=self.place.offset + len(line), line=number + 1)
            yield decode_line(self.path, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, number)
