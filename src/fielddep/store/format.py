"""The manifest of a store: what makes a folder a store, and by what its files are known to be whole.

Shards: the rows of a store as raw little-endian arrays, one file an array and shard.

Files are read by position and not kept mapped, so what was read does not stay in the memory of the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fielddep.errors import StoreError
from fielddep.tables.files import content_checksum, file_damage

KIND, FORMAT = "fielddep store", 1
MANIFEST = "manifest.json"

Stamp = tuple[int, int, int]


def is_store(path: object) -> bool:
    """Whether a path leads to a folder that holds a store; its content is not checked."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    manifest = Path(path) / MANIFEST
    try:
        content = json.loads(manifest.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") == KIND


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a store says.

    Raises:
        StoreError: there is none, or it cannot be read or was altered, or its format is newer.
    """
    path = folder / MANIFEST
    with _reading(path):
        if not folder.is_dir():
            raise StoreError(f"no store at {folder}: expected a folder with {MANIFEST}, as `fielddep encode` writes it")
        if not path.is_file():
            raise StoreError(f"{folder} is no whole store: it lacks {MANIFEST}; finish it with encode ... --resume")
        content = path.read_bytes()
    try:
        manifest = json.loads(content)
        kind, version = manifest["kind"], manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no manifest of a store, or altered ({error}); encode the table again") from None
    if kind != KIND or not isinstance(version, int) or version > FORMAT:
        raise StoreError(
            f"{path} is of kind {kind!r} and format {version}; this fielddep reads {KIND!r} up to format {FORMAT}; "
            "upgrade fielddep to use it"
        )
    if manifest.get("sha256") != content_checksum(manifest):
        raise StoreError(f"{path} was altered since it was written (its checksum differs); copy it again")
    return manifest  # type: ignore[no-any-return]  # JSON; the checksum says that it is what the writer wrote


def check_file(path: Path, expected: Mapping[str, Any], *, whole: bool) -> None:
    """Refuse a file that is not what the manifest says: its size and, if `whole`, its checksum.

    Raises:
        StoreError: names the file.
    """
    with _reading(path):
        damage = file_damage(path, expected, whole=whole)
    if damage:
        raise StoreError(damage)


def manifest_stamp(folder: Path) -> Stamp | None:
    """What changes when another manifest is put in place: its inode, size and time; None where there is none."""
    try:
        facts = (folder / MANIFEST).stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def is_manifest(folder: Path, checksum: str) -> bool:
    """Whether the manifest of a folder is the one with this checksum."""
    try:
        return bool(json.loads((folder / MANIFEST).read_bytes())["sha256"] == checksum)
    except (OSError, ValueError, LookupError, TypeError):
        return False


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror or error}; is it yours to read, and the disk in order?"
        ) from error


Array = npt.NDArray[Any]

PARTS = "parts"


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """One array of a store.

    Attributes:
        name: ending of its files.
        dtype: as numpy writes it, little-endian.
        width: columns; 0 for one plain number a row.
    """

    name: str
    dtype: str
    width: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return np.dtype(self.dtype).itemsize * max(self.width, 1)

    def shape(self, n_rows: int) -> tuple[int, ...]:
        """Shape of so many rows."""
        return (n_rows, self.width) if self.width else (n_rows,)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def shard_name(number: int, spec: ArraySpec) -> str:
    """Name of the file that holds an array of a shard.

    Example:
        >>> shard_name(7, ArraySpec(name="ids", dtype="<i4", width=3))
        'shard-00007.ids'
    """
    return f"shard-{number:05d}.{spec.name}"


def shard_spans(start: int, stop: int, shard_rows: int) -> Iterator[tuple[int, int, int]]:
    """Shards that hold the rows from `start` to `stop`: number, first row within it, rows.

    Example:
        >>> list(shard_spans(3, 10, 4))
        [(0, 3, 1), (1, 0, 4), (2, 0, 2)]
    """
    while start < stop:
        number, first = divmod(start, shard_rows)
        n_rows = min(shard_rows - first, stop - start)
        yield number, first, n_rows
        start += n_rows


def read_rows(folder: Path, spec: ArraySpec, start: int, stop: int, shard_rows: int) -> Array:
    """A copy of the rows from `start` to `stop` of one array, in the byte order of this machine.

    Raises:
        StoreError: when a file cannot be read or ends too early.
    """
    rows = np.empty(spec.shape(stop - start), dtype=spec.dtype)
    filled = rows.reshape(-1).view(np.uint8).data
    at = 0
    for number, first, n_rows in shard_spans(start, stop, shard_rows):
        size = n_rows * spec.row_bytes
        _read_into(folder / shard_name(number, spec), first * spec.row_bytes, filled[at : at + size])
        at += size
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def _read_into(path: Path, offset: int, target: memoryview) -> None:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            while len(target):
                n_bytes = file.readinto(target)
                if not n_bytes:
                    raise StoreError(f"{path} is cut off; copy the store again, or encode the table again")
                target = target[n_bytes:]
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}; copy the store again") from error


class ShardWriter:
    """Writes arrays shard after shard and keeps size and checksum of every whole file.

    Args:
        folder: where the files go.
        specs: the arrays.
        shard_rows: rows of a shard; the last may have fewer.
        done: files of whole shards that are there already, as `files` had them; writing goes on behind them.
    """

    def __init__(
        self,
        folder: Path,
        specs: Sequence[ArraySpec],
        shard_rows: int,
        done: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.folder = folder
        self.specs = tuple(specs)
        self.shard_rows = shard_rows
        self.files: dict[str, dict[str, Any]] = {name: dict(facts) for name, facts in (done or {}).items()}
        """Bytes and sha256 of every whole file, by name."""
        self.n_shards = len(self.files) // len(self.specs)
        self.n_rows = self.n_shards * shard_rows
        """Rows written so far."""
        self._open: list[_HashedFile] = []
        self._rows_in_shard = 0

    def append(self, arrays: Mapping[str, Array]) -> None:
        """Write rows, given as one array for every spec."""
        n_rows = len(arrays[self.specs[0].name])
        for spec in self.specs:
            if arrays[spec.name].shape != spec.shape(n_rows):
                raise ValueError(f"{spec.name} must have shape {spec.shape(n_rows)}; given {arrays[spec.name].shape}")
        at = 0
        while at < n_rows:
            take = min(self.shard_rows - self._rows_in_shard, n_rows - at)
            self._write({name: rows[at : at + take] for name, rows in arrays.items()})
            at += take

    def close(self) -> None:
        """End the last shard."""
        if self._open:
            self._end_shard()

    def abandon(self) -> None:
        """Close the files of a shard that will not be ended."""
        for file in self._open:
            file.close()
        self._open = []

    def _write(self, arrays: Mapping[str, Array]) -> None:
        if not self._open:
            self._open = [_HashedFile(self.folder / shard_name(self.n_shards, spec)) for spec in self.specs]
        for spec, file in zip(self.specs, self._open, strict=True):
            file.write(np.ascontiguousarray(arrays[spec.name], dtype=spec.dtype))
        n_rows = len(arrays[self.specs[0].name])
        self.n_rows += n_rows
        self._rows_in_shard += n_rows
        if self._rows_in_shard == self.shard_rows:
            self._end_shard()

    def _end_shard(self) -> None:
        for file in self._open:
            self.files[file.path.name] = file.finish()
        self._open, self._rows_in_shard = [], 0
        self.n_shards += 1


class _HashedFile:
    """A file whose checksum is taken while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._n_bytes = 0
        self._file: BinaryIO = path.open("wb")

    def write(self, rows: Array) -> None:
        view = rows.reshape(-1).view(np.uint8).data
        self._file.write(view)
        self._digest.update(view)
        self._n_bytes += len(view)

    def finish(self) -> dict[str, Any]:
        """Put the file on disk; gives its size and checksum."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"bytes": self._n_bytes, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        self._file.close()
