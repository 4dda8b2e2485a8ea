"""JSON lines: one flat JSON object per line, read chunk by chunk, from any position on.

The columns are the keys of all lines, in the order in which they first occur, so opening a file reads all of it. All
columns are text, as those of delimited text: a number is the text that Python gives it, a boolean is "true" or "false".
A key that holds a list in any line is a column of lists of texts. An absent key and null are missing cells. Blank lines
are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from fielddep.errors import TableError
from fielddep.tables.delimited import CHUNK_BYTES, Lines, Place, Rows, go_to
from fielddep.tables.text import is_utf8, open_bytes, reading_errors, transcode
from fielddep.wording import shorten

_Value = str | int | float | bool | None
_Cell = _Value | list[_Value]
_MAX_SHOWN = 60
_DECODER = msgspec.json.Decoder(dict[str, _Cell])


@dataclass(frozen=True, kw_only=True)
class JsonFile:
    """A file of JSON lines.

    Attributes:
        path: the file as errors name it.
        source: the file that holds its text as UTF-8: the same one, or a copy.
        names: keys of all its lines.
        lists: those that hold a list in some line, of this file or of another one of the table.
    """

    path: Path
    source: Path
    names: tuple[str, ...]
    lists: frozenset[str]


def open_json_lines(path: Path, *, encoding: str = "utf8") -> JsonFile:
    """Check all lines of a file and find its columns.

    Raises:
        TableError: the file cannot be read, has no rows or keys, or a line is malformed; the message names the line.
        ConfigError: the encoding cannot be used.
    """
    with reading_errors(path):
        source = path if is_utf8(encoding) else transcode(path, encoding)
        names: dict[str, None] = {}
        lists: set[str] = set()
        n_rows = 0
        with open_bytes(source) as stream:
            for record in _records(Lines(path, stream, Place())):
                names.update(dict.fromkeys(record))
                lists.update(name for name, cell in record.items() if isinstance(cell, list))
                n_rows += 1
    if not names:
        raise TableError(f"{path} has {n_rows} rows and no keys. Give a file with one JSON object per line")
    return JsonFile(path=path, source=source, names=tuple(names), lists=frozenset(lists))


def json_rows(file: JsonFile, columns: Sequence[str], start: Place) -> Rows:
    """Rows from a place on; all columns are text or lists of texts, and null where a line lacks the key.

    Raises:
        TableError: the file cannot be read or is malformed; the message names the line.
    """
    with reading_errors(file.path), open_bytes(file.source) as stream:
        go_to(stream, start.offset)
        lines = Lines(file.path, stream, start)
        for records in _chunks(lines):
            read = {name: _list if name in file.lists else _text for name in columns}
            cells = {name: [read[name](record.get(name)) for record in records] for name in columns}
            yield pl.DataFrame(cells, schema=json_schema(columns, file.lists)), lines.place


def json_schema(columns: Sequence[str], lists: Collection[str]) -> pl.Schema:
    """Types of columns."""
    return pl.Schema({name: pl.List(pl.String) if name in lists else pl.String() for name in columns})


def _chunks(lines: Lines) -> Iterator[list[dict[str, _Cell]]]:
    """Records of about `CHUNK_BYTES` at a time."""
    records: list[dict[str, _Cell]] = []
    end = lines.place.offset + CHUNK_BYTES
    for record in _records(lines):
        records.append(record)
        if lines.place.offset >= end:
            yield records
            records, end = [], lines.place.offset + CHUNK_BYTES
    if records:
        yield records


def _records(lines: Lines) -> Iterator[dict[str, _Cell]]:
    for line in lines:
        if line.isspace():
            continue
        try:
            yield _DECODER.decode(line)
        except msgspec.DecodeError as error:
            raise _malformed(lines.path, lines.place.line - 1, line.strip(), error) from None


def _malformed(path: Path, number: int, line: str, error: msgspec.DecodeError) -> TableError:
    """The error for a line that is not a flat object; it names the key of an object in it."""
    nested = _nested_key(line) if isinstance(error, msgspec.ValidationError) else None
    reason = str(error) if nested is None else f"the key {nested!r} holds an object or a list of lists"
    return TableError(
        f"{path}, line {number}: expected one flat JSON object, found {shorten(line, _MAX_SHOWN)!r}: {reason}. Correct "
        "the line"
    )


def _nested_key(line: str) -> str | None:
    found: Any = msgspec.json.decode(line)
    cells = found.items() if isinstance(found, dict) else ()
    return next((key for key, value in cells if _is_nested(value)), None)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, (list, dict)) for v in value))


def _list(cell: _Cell) -> list[str | None] | None:
    if cell is None:
        return None
    return [_text(value) for value in (cell if isinstance(cell, list) else [cell])]


def _text(value: _Cell) -> str | None:
    assert not isinstance(value, list)  # the column would be one of lists
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
