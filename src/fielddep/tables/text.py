"""Text files: their bytes, unpacked and as UTF-8, and the structure of delimited text.

Every row must be as wide as the header, every quote closed, and all of it text; an error names the line.
`StructureCheck` holds chunks of a file to this before Polars parses them, because Polars accepts much more.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
import io
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fielddep.errors import ConfigError, TableError
from fielddep.wording import listing

SAMPLE_BYTES = 1 << 20
"""Bytes of a file in which its delimiter and header are looked for."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
READ_ERRORS = (OSError, EOFError, zipfile.BadZipFile, zlib.error)
"""Errors of the disk and of unpacking."""
_ZIP, _ZIP_MAGIC = "zip", b"PK"
LONGEST_RECORD = 1 << 26
"""Bytes of the longest row that is read."""
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'

_Bytes = npt.NDArray[np.uint8]
_Offsets = npt.NDArray[np.int64]


# --- bytes ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk or of unpacking into a TableError that names the file."""
    try:
        yield
    except READ_ERRORS as error:
        raise TableError(f"{path} cannot be read: {error}; is the file complete and readable?") from error


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; gzip, zstd and zip are unpacked while reading.

    Gzip and zstd are recognized by the first bytes. Zip is recognized by them and the name, because other formats are
    zip archives too; it must hold one file.

    Raises:
        TableError: a zip archive holds no file, several, or one that cannot be unpacked.
    """
    codec = _codec(path)
    if codec is None:
        return path.open("rb")
    if codec == _ZIP:
        return _open_zip(path)
    packed = pa.CompressedInputStream(pa.OSFile(str(path)), codec)
    return cast(BinaryIO, io.BufferedReader(packed, SAMPLE_BYTES))


def is_packed(path: Path) -> bool:
    """Whether a file is compressed with gzip, zstd or zip."""
    with reading_errors(path):
        return _codec(path) is not None


def _codec(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(_ZIP_MAGIC) and path.suffix.lower() == ".zip":
        return _ZIP
    return next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)


def _open_zip(path: Path) -> BinaryIO:
    with zipfile.ZipFile(path) as archive:
        # macOS adds a file of attributes for every file.
        names = [n for n in archive.namelist() if not n.endswith("/") and not n.startswith("__MACOSX/")]
        if len(names) != 1:
            shown = f": {listing(names)}" if names else ""
            raise TableError(
                f"{path} must hold one file, but holds {len(names)}{shown}. Unpack it, and give the tables"
            )
        try:
            return cast(BinaryIO, archive.open(names[0]))  # stays open after the archive is closed
        except RuntimeError as error:  # a password, or an unknown compression
            raise TableError(f"{path} cannot be unpacked: {error}. Unpack it yourself") from error


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
    """Whether text in an encoding can be read without conversion; a ConfigError if Python does not know it."""
    try:
        "a".encode(encoding)  # refuses codecs such as base64, which are not text encodings
        return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    except LookupError:
        raise ConfigError(
            f"data.encoding must be an encoding that Python knows, such as 'utf8', 'latin-1' or 'cp1252'; "
            f"given {encoding!r}"
        ) from None


def transcode(path: Path, encoding: str) -> Path:
    """A copy of a file in UTF-8; a TableError if the text has another encoding."""
    copy = scratch_file(".csv")
    with open_bytes(path) as stream, copy.open("w", encoding="utf-8", newline="") as out:
        text = io.TextIOWrapper(stream, encoding=encoding, newline="")
        line = 1
        try:
            while chunk := text.read(1 << 20):
                out.write(chunk)
                line += chunk.count("\n")
        except UnicodeError as error:
            raise TableError(
                f"{path}, at or after line {line}: the text is not {encoding}: {error}. Correct data.encoding"
            ) from None
    return copy


def check_text(path: Path, data: bytes, line: int) -> None:
    """Raise a TableError if bytes that start at `line` are not UTF-8 text or contain a NUL byte."""
    nul = data.find(b"\0")
    if nul >= 0:
        at = line + data.count(b"\n", 0, nul)
        raise TableError(
            f"{path}, line {at}: expected text, found a NUL byte. If this is UTF-16 text, set data.encoding = 'utf-16'"
        )
    if not data.isascii():
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            at = line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{path}, line {at}: expected UTF-8 text, found byte 0x{data[error.start]:02x}. Set data.encoding to "
                "the encoding of the file, for instance 'latin-1' or 'cp1252'"
            ) from None


def decode_line(path: Path, line: bytes, number: int) -> str:
    """One line as text; a TableError if it is not UTF-8."""
    check_text(path, line, number)
    return line.decode("utf-8")


# --- structure of delimited text ------------------------------------------------------------------------------


@dataclass(kw_only=True)
class StructureCheck:
    """One pass over a file in chunks of complete records; raises at the first malformed one.

    Attributes:
        path: file to name in errors.
        delimiter: its byte.
        n_cells: cells per record.
        width_source: what fixes the number of cells, for messages.
        line: line on which the next record starts.
        plain: False once Polars would misread the file; the check stops there.
    """

    path: Path
    delimiter: int
    n_cells: int
    width_source: str
    line: int = 1
    plain: bool = True

    def chunks(self, stream: BinaryIO, rest: bytes, chunk_bytes: int) -> Iterator[bytes]:
        """Checked chunks of complete records while they are plain; `rest` was already read from the stream."""
        at_end = False
        while not at_end:
            read = stream.read(chunk_bytes)
            at_end = not read
            data = rest + read
            if at_end and data and not data.endswith(b"\n"):
                data += b"\n"
            size = self._check_records(data, at_end)
            if not self.plain:
                return
            if size:
                yield data[:size]
            rest = data[size:]

    def _check_records(self, data: bytes, at_end: bool) -> int:
        """Check the complete records at the start of `data`; returns their size."""
        bytes_ = np.frombuffer(data, dtype=np.uint8)
        marks = np.flatnonzero((bytes_ == _NEWLINE) | (bytes_ == self.delimiter))
        if b'"' in data:
            marks = self._outside_quotes(bytes_, marks, data, at_end)
            if not self.plain:
                return 0
        ends = np.flatnonzero(bytes_[marks] == _NEWLINE)
        size = int(marks[ends[-1]]) + 1 if len(ends) else 0
        if len(data) - size > LONGEST_RECORD:
            raise endless_row(self.path, self._line_at(data, size))
        check_text(self.path, data[:size], self.line)
        self._check_widths(data, np.diff(ends, prepend=-1), marks[ends])
        self.line += data.count(b"\n", 0, size)
        return size

    def _outside_quotes(self, bytes_: _Bytes, marks: _Offsets, data: bytes, at_end: bool) -> _Offsets:
        """Marks outside quoted cells; sets `plain` to False if quotes do not wrap complete cells."""
        quotes = np.flatnonzero(bytes_ == _QUOTE)
        opening, closing = quotes[::2], quotes[1::2]
        before = np.where(opening > 0, bytes_[opening - 1], _NEWLINE)
        after = bytes_[np.minimum(closing + 1, len(bytes_) - 1)]
        starts_cell = np.isin(before, (self.delimiter, _NEWLINE, _QUOTE))
        ends_cell = np.isin(after, (self.delimiter, _NEWLINE, _RETURN, _QUOTE)) | (closing + 1 == len(bytes_))
        self.plain = bool(starts_cell.all() and ends_cell.all())
        if self.plain and at_end and len(quotes) % 2:
            raise unclosed_quote(self.path, self._line_at(data, int(quotes[-1])))
        outside: _Offsets = marks[np.searchsorted(quotes, marks) % 2 == 0]
        return outside

    def _check_widths(self, data: bytes, widths: _Offsets, ends: _Offsets) -> None:
        wrong = np.flatnonzero(widths != self.n_cells)
        if not len(wrong):
            return
        record = wrong[0]
        start = int(ends[record - 1]) + 1 if record else 0
        text = data[start : int(ends[record])].rstrip(b"\r")
        if text:
            line, found = self._line_at(data, start), int(widths[record])
            raise ragged_row(self.path, line, self.n_cells, found, text.decode(), self.width_source)
        self.plain = False  # a blank line: Polars would make it a row

    def _line_at(self, data: bytes, position: int) -> int:
        return self.line + data.count(b"\n", 0, position)


def ragged_row(path: Path, line: int, expected: int, found: int, text: str, width_source: str) -> TableError:
    """The error for a row with too few or too many cells."""
    shown = text if len(text) <= 60 else text[:60] + "..."
    return TableError(
        f"{path}, line {line}: expected {expected} cells {width_source}, found {found}: {shown!r}. Correct the row, or "
        "set data.delimiter if the delimiter is wrong"
    )


def unclosed_quote(path: Path, line: int) -> TableError:
    """The error for a cell whose opening quote is not closed."""
    return TableError(
        f'{path}, line {line}: a cell opens with a quote (") that is not closed at its end. Close it, or write a quote '
        'inside a cell as ""'
    )


def endless_row(path: Path, line: int) -> TableError:
    """The error for a row that is longer than the limit."""
    return TableError(
        f'{path}, line {line}: no end of row within 64 MB. Close the quote (") that opens a cell there, or shorten the '
        "row"
    )


def allow_long_cells() -> None:
    """Let the csv module read cells as long as a row may be; its default limit is 131,072 characters.

    The limit holds for all readers of the process, so it is raised and never lowered.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
