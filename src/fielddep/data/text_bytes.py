"""Bytes of text files: unpacked on the way, in UTF-8, and copies of them that are removed at exit."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

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
    """Open a file for reading; gzip and zstd, told by the first bytes, are unpacked on the way."""
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
