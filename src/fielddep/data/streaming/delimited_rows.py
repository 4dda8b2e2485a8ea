"""Rows of a delimited file, block after block: read, checked and parsed in one pass, from any position on.

A block that Polars would misread (a blank line, a quote in the middle of a cell) and all that follows it in the file
go through the csv module instead, which is slower and gives the same cells.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import polars as pl

from fielddep.data.delimited import DelimitedFile
from fielddep.data.text_bytes import open_bytes, reading_errors
from fielddep.data.text_structure import StructureCheck, no_rows, records

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
        told_by=file.width_told_by,
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
    found = records(file.path, lines, file.delimiter, width, first_line=start.line, told_by=file.width_told_by)
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
