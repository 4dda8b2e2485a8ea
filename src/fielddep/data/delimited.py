"""Delimited text: find the delimiter, check the structure, scan every column as text.

Polars fills short rows silently and renames double columns, so the structure is checked here, in one fast pass,
before anything is scanned. Files that are valid but that Polars would misread (blank lines, a quote in the middle
of a cell) are scanned from a cleaned copy. Copies live in a temporary folder that is removed at exit.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import csv
import functools
import io
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from fielddep.errors import ConfigError, TableError

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
_NAMES = {**DELIMITERS, " ": "space"}
_SAMPLE_BYTES = 1 << 20
_SAMPLE_LINES = 200
_BLOCK_BYTES = 1 << 23
_LONGEST_RECORD = 1 << 26
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


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
        source = path if _is_utf8(encoding) else _transcode(path, encoding)
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


@contextlib.contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a TableError that names the file."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error}; is the file complete and readable?") from error


def no_rows(path: Path) -> TableError:
    """The error of a file that ends with its header."""
    return TableError(f"{path} has column names but no rows")


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; gzip and zstd, told by the first bytes, are unpacked on the way."""
    codec = _codec(path)
    if codec is None:
        return path.open("rb")
    packed = pa.CompressedInputStream(pa.OSFile(str(path)), codec)
    return cast(BinaryIO, io.BufferedReader(packed, _SAMPLE_BYTES))


def is_packed(path: Path) -> bool:
    """Whether a file is packed with gzip or zstd."""
    with reading_errors(path):
        return _codec(path) is not None


def _codec(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(4)
    return next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)


def read_start(path: Path) -> bytes:
    """The first bytes of a file, unpacked and without a byte order mark."""
    with open_bytes(path) as stream:
        return stream.read(_SAMPLE_BYTES).removeprefix(codecs.BOM_UTF8)


def skip_mark(stream: BinaryIO) -> bytes:
    """Skip a byte order mark at the start of a stream; gives what else was read."""
    return stream.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fielddep-")


def scratch_file(suffix: str) -> Path:
    """A new empty file that is removed when the process ends."""
    with tempfile.NamedTemporaryFile(dir=_scratch().name, suffix=suffix, delete=False) as file:
        return Path(file.name)


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
    if len(sample) == _SAMPLE_BYTES and 1 < len(lines) < _SAMPLE_LINES:
        lines.pop()  # cut off in the middle by the size of the sample
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
            yield _decode(path, line, number)


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Raise a TableError that lists the names that occur more than once."""
    double = [repr(name) for name, n in collections.Counter(names).items() if n > 1]
    if double:
        raise TableError(f"{where}: column names must differ; more than once: {', '.join(double[:10])}; rename them")


# --- structure ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the check found: the number of rows, and whether Polars can scan the file as it is."""

    n_rows: int
    plain: bool


@dataclass(kw_only=True)
class StructureCheck:
    """One pass over a file in blocks of whole records; raises at the first bad one.

    Attributes:
        path: file to name in errors.
        delimiter: code of the character.
        n_cells: cells of the header.
        line: line on which the next record starts.
        n_records: records checked so far, the header among them.
        plain: False once Polars cannot read the file as it is; the check stops there.
        told_by: what says how many cells there are, for messages.
    """

    path: Path
    delimiter: int
    n_cells: int
    told_by: str = "as in the header"
    line: int = 1
    n_records: int = 0
    plain: bool = True

    def run(self, source: Path) -> Summary:
        """Check the whole file; stops early, with `plain` False, at a quote that needs the csv module."""
        with open_bytes(source) as stream:
            collections.deque(self.blocks(stream, skip_mark(stream)), maxlen=0)
        return Summary(n_rows=self.n_records - 1, plain=self.plain)

    def blocks(self, stream: BinaryIO, rest: bytes = b"", block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """Checked blocks of whole records, while they are plain; `rest` was read from the stream before."""
        at_end = False
        while not at_end:
            block = stream.read(block_bytes)
            at_end = not block
            data = rest + block
            if at_end and data and not data.endswith(b"\n"):
                data += b"\n"
            size = self._check_records(data, at_end)
            if not self.plain:
                return
            if size:
                yield data[:size]
            rest = data[size:]

    def _check_records(self, data: bytes, at_end: bool) -> int:
        """Check the whole records at the start of `data`; gives their size."""
        bytes_ = np.frombuffer(data, dtype=np.uint8)
        marks = np.flatnonzero((bytes_ == _NEWLINE) | (bytes_ == self.delimiter))
        if b'"' in data:
            marks = self._outside_quotes(bytes_, marks, data, at_end)
            if not self.plain:
                return 0
        is_end = bytes_[marks] == _NEWLINE
        ends = np.flatnonzero(is_end)
        size = int(marks[ends[-1]]) + 1 if len(ends) else 0
        if len(data) - size > _LONGEST_RECORD:
            raise TableError(f"{self.path}, line {self._line_at(data, size)}: no end of row within 64 MB")
        check_text(self.path, data[:size], self.line)
        self._check_widths(data, np.diff(ends, prepend=-1), marks[ends])
        self.n_records += len(ends)
        self.line += data.count(b"\n", 0, size)
        return size

    def _outside_quotes(
        self, bytes_: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64], data: bytes, at_end: bool
    ) -> npt.NDArray[np.int64]:
        """Marks outside quoted cells; sets `plain` False where quotes do not wrap whole cells."""
        quotes = np.flatnonzero(bytes_ == _QUOTE)
        opening, closing = quotes[::2], quotes[1::2]
        before = np.where(opening > 0, bytes_[opening - 1], _NEWLINE)
        after = bytes_[np.minimum(closing + 1, len(bytes_) - 1)]
        ends = np.isin(before, (self.delimiter, _NEWLINE, _QUOTE))
        starts = np.isin(after, (self.delimiter, _NEWLINE, _RETURN, _QUOTE)) | (closing + 1 == len(bytes_))
        self.plain = bool(ends.all() and starts.all())
        if self.plain and at_end and len(quotes) % 2:
            raise unclosed_quote(self.path, self._line_at(data, int(quotes[-1])))
        outside: npt.NDArray[np.int64] = marks[np.searchsorted(quotes, marks) % 2 == 0]
        return outside

    def _check_widths(self, data: bytes, widths: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        for record in np.flatnonzero(widths != self.n_cells):
            start = int(ends[record - 1]) + 1 if record else 0
            text = data[start : int(ends[record])].rstrip(b"\r")
            if text:
                line, found = self._line_at(data, start), int(widths[record])
                raise ragged_row(self.path, line, self.n_cells, found, text.decode(), self.told_by)
            self.plain = False  # a blank line: Polars would make it a row
            return

    def _line_at(self, data: bytes, position: int) -> int:
        return self.line + data.count(b"\n", 0, position)


def check_text(path: Path, data: bytes, line: int) -> None:
    """Raise a TableError when bytes that start at `line` are not UTF-8 text or hold a NUL byte."""
    nul = data.find(b"\0")
    if nul >= 0:
        utf16 = " (UTF-16 text? then set data.encoding = 'utf-16')"
        at = line + data.count(b"\n", 0, nul)
        raise TableError(f"{path}, line {at}: expected text, found a NUL byte{utf16}; is it a text table?")
    if not data.isascii():
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            at = line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{path}, line {at}: expected UTF-8 text, found byte 0x{data[error.start]:02x}; set data.encoding "
                "to the encoding of the file, for instance 'latin-1' or 'cp1252'"
            ) from None


def ragged_row(
    path: Path, line: int, expected: int, found: int, text: str, told_by: str = "as in the header"
) -> TableError:
    """The error of a row with too few or too many cells."""
    shown = text if len(text) <= 60 else text[:60] + "..."
    return TableError(
        f"{path}, line {line}: expected {expected} cells {told_by}, found {found}: {shown!r}; correct the row, or set "
        "data.delimiter if the delimiter is another"
    )


def unclosed_quote(path: Path, line: int) -> TableError:
    """The error of a quote that opens a cell and does not close it."""
    return TableError(
        f'{path}, line {line}: a cell opens with a quote (") that is not closed as it should be; close it, or write '
        'a quote inside a cell as ""'
    )


# --- copies ---------------------------------------------------------------------------------------------------


def _cleaned_copy(path: Path, source: Path, delimiter: str, n_cells: int) -> tuple[Path, Summary]:
    """Rewrite a file through the csv module: no blank lines, and every quote where it belongs."""
    target, n_records = scratch_file(".csv"), 0
    with open_bytes(source) as stream, target.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        for row in records(path, stream, delimiter, n_cells):
            writer.writerow(row)
            n_records += 1
    return target, Summary(n_rows=n_records - 1, plain=True)


def records(
    path: Path,
    lines: Iterable[bytes],
    delimiter: str,
    n_cells: int,
    *,
    first_line: int = 1,
    told_by: str = "as in the header",
) -> Iterator[list[str]]:
    """Records as the csv module reads them, header included, blank lines left out unless there is one column.

    Raises:
        TableError: a row with too few or too many cells, or a quote that is not closed; the message names the line.
    """
    for line, row in _numbered_records(path, lines, delimiter, first_line):
        if not row and n_cells > 1:
            continue
        row = row or [""]
        if len(row) != n_cells:
            raise ragged_row(path, line, n_cells, len(row), delimiter.join(row), told_by)
        yield row


def _numbered_records(
    path: Path, lines: Iterable[bytes], delimiter: str, first_line: int
) -> Iterator[tuple[int, list[str]]]:
    """Records with the line each starts on."""
    reader = csv.reader(_lines(path, lines, first_line), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + first_line
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            raise unclosed_quote(path, line) from None
        yield line, row


def _lines(path: Path, lines: Iterable[bytes], first_line: int) -> Iterator[str]:
    for number, line in enumerate(lines, first_line):
        yield _decode(path, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, number)


def _decode(path: Path, line: bytes, number: int) -> str:
    check_text(path, line, number)
    return line.decode("utf-8")


def _is_utf8(encoding: str) -> bool:
    try:
        "a".encode(encoding)  # refuses codecs such as base64, which are no text encodings
        return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    except LookupError:
        raise ConfigError(
            f"data.encoding must be an encoding that Python knows, such as 'utf8', 'latin-1' or 'cp1252'; "
            f"given {encoding!r}"
        ) from None


def _transcode(path: Path, encoding: str) -> Path:
    target = scratch_file(".csv")
    with open_bytes(path) as stream, target.open("w", encoding="utf-8", newline="") as out:
        text = io.TextIOWrapper(stream, encoding=encoding, newline="")
        line = 1
        try:
            while block := text.read(1 << 20):
                out.write(block)
                line += block.count("\n")
        except UnicodeError as error:
            raise TableError(
                f"{path}, at or after line {line}: the text is not {encoding}: {error}; correct data.encoding"
            ) from None
    return target
