"""Delimited text: find the delimiter, check the structure, scan every column as text.

Polars fills short rows silently and renames double columns, so the structure is checked here, in one fast pass,
before anything is scanned. Files that are valid but that Polars would misread (blank lines, a quote in the middle
of a cell) are scanned from a cleaned copy. Copies live in a temporary folder that is removed at exit.
"""

from __future__ import annotations

import collections
import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fielddep.data.text_bytes import (
    SAMPLE_BYTES,
    is_utf8,
    open_bytes,
    read_start,
    reading_errors,
    scratch_file,
    transcode,
)
from fielddep.data.text_structure import (
    StructureCheck,
    Summary,
    allow_long_cells,
    decode_line,
    no_rows,
    records,
    unclosed_quote,
)
from fielddep.errors import ConfigError, TableError

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
_NAMES = {**DELIMITERS, " ": "space"}
_SAMPLE_LINES = 200


def scan_delimited(path: Path, *, delimiter: str | None = None, encoding: str = "utf8") -> pl.LazyFrame:
    """Scan a delimited file, plain, gzip or zstd, with every column as text; empty cells are "".

    The first line names the columns; an empty first name, as an index written by pandas or R has, becomes
    `column_0`. Blank lines are skipped, except in a file of one column, where they are empty cells.

    Raises:
        TableError: the file is missing, empty, cut off, badly encoded or ragged; the message names the line.
        ConfigError: delimiter or encoding cannot be used.
    """
    file = open_delimited(path, delimiter=delimiter, encoding=encoding)
    source, separator = file.source, file.delimiter
    with reading_errors(path):
        summary = StructureCheck(path=path, delimiter=ord(separator), n_cells=len(file.names)).run(source)
        if not summary.plain:
            source, summary = _cleaned_copy(path, source, separator, len(file.names))
            separator = ","
    if summary.n_rows == 0:
        raise no_rows(path)
    return pl.scan_csv(
        source,
        separator=separator,
        infer_schema=False,
        empty_string_is_null=False,
        new_columns=list(file.names),
        glob=False,
    )


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
    def width_told_by(self) -> str:
        """What says how many cells a row has, for messages."""
        return "as in the header" if self.has_header else f"({self.names[0]} to {self.names[-1]})"


def open_delimited(path: Path, *, delimiter: str | None = None, encoding: str = "utf8") -> DelimitedFile:
    """Find delimiter and column names; what follows the header is not looked at.

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


def _cleaned_copy(path: Path, source: Path, delimiter: str, n_cells: int) -> tuple[Path, Summary]:
    """Rewrite a file through the csv module: no blank lines, and every quote where it belongs."""
    target, n_records = scratch_file(".csv"), 0
    with open_bytes(source) as stream, target.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        for row in records(path, stream, delimiter, n_cells):
            writer.writerow(row)
            n_records += 1
    return target, Summary(n_rows=n_records - 1, plain=True)


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
