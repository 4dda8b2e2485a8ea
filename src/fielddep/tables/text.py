"""Text files: their bytes, unpacked and as UTF-8, and the structure of delimited text.

Every row must be as wide as the header, every quote closed, and all of it text; an error names the line. pyarrow.csv
checks less: it takes an open quote in the last column together with all rows after it for one cell, lets NUL bytes and
`"x"y` pass, counts records instead of lines (and none with threads or when streaming), and gives no byte position to
resume from. So `StructureCheck` looks at blocks that Polars then parses, and `records` reads any valid file row by row.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
import io
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fielddep.errors import ConfigError, TableError

SAMPLE_BYTES = 1 << 20
"""Bytes of a file that its delimiter and header are found from."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@contextlib.contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a TableError that names the file."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error}; is the file complete and readable?") from error


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; gzip and zstd, recognized by the first bytes, are unpacked on the way."""
    codec = _codec(path)
    if codec is None:
        return path.open("rb")
    packed = pa.CompressedInputStream(pa.OSFile(str(path)), codec)
    return cast(BinaryIO, io.BufferedReader(packed, SAMPLE_BYTES))


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
        return stream.read(SAMPLE_BYTES).removeprefix(codecs.BOM_UTF8)


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fielddep-")


def scratch_file(suffix: str) -> Path:
    """A new empty file that is removed when the process ends."""
    with tempfile.NamedTemporaryFile(dir=_scratch().name, suffix=suffix, delete=False) as file:
        return Path(file.name)


def is_utf8(encoding: str) -> bool:
    """Whether an encoding is that of the text as it is.

    Raises:
        ConfigError: Python knows no such encoding.
    """
    try:
        "a".encode(encoding)  # refuses codecs such as base64, which are no text encodings
        return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    except LookupError:
        raise ConfigError(
            f"data.encoding must be an encoding that Python knows, such as 'utf8', 'latin-1' or 'cp1252'; "
            f"given {encoding!r}"
        ) from None


def transcode(path: Path, encoding: str) -> Path:
    """A copy of a file in UTF-8.

    Raises:
        TableError: the text is of another encoding.
    """
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


_LONGEST_RECORD = 1 << 26
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


@dataclass(kw_only=True)
class StructureCheck:
    """One pass over a file in blocks of whole records; raises at the first bad one.

    Attributes:
        path: file to name in errors.
        delimiter: code of the character.
        n_cells: cells of the header.
        line: line on which the next record starts.
        plain: False once Polars cannot read the file as it is; the check stops there.
        width_source: what says how many cells there are, for messages.
    """

    path: Path
    delimiter: int
    n_cells: int
    width_source: str = "as in the header"
    line: int = 1
    plain: bool = True

    def blocks(self, stream: BinaryIO, rest: bytes, block_bytes: int) -> Iterator[bytes]:
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
            raise endless_row(self.path, self._line_at(data, size))
        check_text(self.path, data[:size], self.line)
        self._check_widths(data, np.diff(ends, prepend=-1), marks[ends])
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
                raise ragged_row(self.path, line, self.n_cells, found, text.decode(), self.width_source)
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
    path: Path, line: int, expected: int, found: int, text: str, width_source: str = "as in the header"
) -> TableError:
    """The error of a row with too few or too many cells."""
    shown = text if len(text) <= 60 else text[:60] + "..."
    return TableError(
        f"{path}, line {line}: expected {expected} cells {width_source}, found {found}: {shown!r}; correct the row, or "
        "set data.delimiter if the delimiter is another"
    )


def unclosed_quote(path: Path, line: int) -> TableError:
    """The error of a quote that opens a cell and does not close it."""
    return TableError(
        f'{path}, line {line}: a cell opens with a quote (") that is not closed as it should be; close it, or write '
        'a quote inside a cell as ""'
    )


def endless_row(path: Path, line: int) -> TableError:
    """The error of a row that is longer than any row may be."""
    return TableError(
        f'{path}, line {line}: no end of row within 64 MB; close the quote (") that opens a cell there, or shorten the '
        "row"
    )


def no_rows(path: Path) -> TableError:
    """The error of a file that ends with its header."""
    return TableError(f"{path} has column names but no rows")


def records(
    path: Path,
    lines: Iterable[bytes],
    delimiter: str,
    n_cells: int,
    *,
    first_line: int = 1,
    width_source: str = "as in the header",
) -> Iterator[list[str]]:
    """Records as the csv module reads them, header included, blank lines skipped unless there is one column.

    Raises:
        TableError: a row with too few or too many cells, or a quote that is not closed; the message names the line.
    """
    for line, row in _numbered_records(path, lines, delimiter, first_line):
        if not row and n_cells > 1:
            continue
        row = row or [""]
        if len(row) != n_cells:
            raise ragged_row(path, line, n_cells, len(row), delimiter.join(row), width_source)
        yield row


def _numbered_records(
    path: Path, lines: Iterable[bytes], delimiter: str, first_line: int
) -> Iterator[tuple[int, list[str]]]:
    """Records with the line each starts on."""
    allow_long_cells()
    reader = csv.reader(_lines(path, lines, first_line), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + first_line
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            too_long = "field limit" in str(error)
            raise (endless_row if too_long else unclosed_quote)(path, line) from None
        yield line, row


def allow_long_cells() -> None:
    """Let the csv module read cells as long as a row may be; by default it ends at 131,072 characters.

    It has one limit for all readers of a process, which is raised, never lowered, so that nobody else's reader refuses
    what it took before.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_RECORD))


def _lines(path: Path, lines: Iterable[bytes], first_line: int) -> Iterator[str]:
    for number, line in enumerate(lines, first_line):
        yield decode_line(path, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, number)


def decode_line(path: Path, line: bytes, number: int) -> str:
    """One line as text.

    Raises:
        TableError: it is not UTF-8.
    """
    check_text(path, line, number)
    return line.decode("utf-8")
