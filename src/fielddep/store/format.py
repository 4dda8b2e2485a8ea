"""The files of a store: manifest, encoder, and shards of rows as raw little-endian arrays, one file per array.

Shards are read by position and not kept mapped, so what was read does not stay in the memory of the process.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from safetensors.numpy import load_file, save_file

from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.evidence import compact
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import (
    EVIDENCE,
    FOLDS,
    IDS,
    MEASURES,
    NUMBERS,
    PARTS,
    TARGET,
    WEIGHT,
    Array,
    RowArray,
    list_name,
)
from fielddep.errors import StoreError
from fielddep.tables.files import MANIFEST, ManifestFormat, write_atomically, write_json

STORE_MANIFEST = ManifestFormat(
    what="store",
    version=1,
    error=StoreError,
    kind="fielddep store",
    advice=". `fielddep encode` makes a store, and with --resume completes an interrupted one",
)
SCHEMA, VOCABULARY, CELLS = "schema.json", "vocabulary.arrow", "evidence.safetensors"

Stamp = tuple[int, int, int]


def is_store(path: object) -> bool:
    """Whether a path leads to a folder that holds a store; its content is not checked."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    manifest = _read_unchecked(Path(path))
    return isinstance(manifest, dict) and manifest.get("kind") == STORE_MANIFEST.kind


def is_manifest(folder: Path, checksum: str) -> bool:
    """Whether the manifest of a folder is the one with this checksum."""
    manifest = _read_unchecked(folder)
    return isinstance(manifest, dict) and manifest.get("sha256") == checksum


def _read_unchecked(folder: Path) -> Any:
    try:
        return json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None


def manifest_stamp(folder: Path) -> Stamp | None:
    """What changes when another manifest takes its place: inode, size and time; None if there is no manifest."""
    try:
        facts = (folder / MANIFEST).stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def stored_settings(config: Config) -> dict[str, Any]:
    """The settings that decide what a store holds."""
    settings = config.to_dict()
    return {"data": settings["data"], "split": settings["split"]}


def save_encoder(folder: Path, encoder: Encoder) -> None:
    """Write the files of an encoder, which stores and bundles share: two, and a third if there is evidence."""

    def write_vocabulary(path: Path) -> None:
        with path.open("wb") as file:  # unlike a path, a Python file makes a full disk an OSError
            encoder.vocabulary_frame().write_ipc(file)

    write_json(folder / SCHEMA, encoder.to_json())
    write_atomically(folder / VOCABULARY, write_vocabulary)
    cells = encoder.cells()
    if cells is not None:
        compacted = {name: compact(array) for name, array in cells.items()}
        write_atomically(folder / CELLS, lambda path: save_file(compacted, path))


def encoder_files(encoder: Encoder) -> tuple[str, ...]:
    """Names of the files that `save_encoder` writes."""
    return (SCHEMA, VOCABULARY) if encoder.evidence is None else (SCHEMA, VOCABULARY, CELLS)


def load_encoder(folder: Path) -> Encoder:
    """Read what `save_encoder` wrote."""
    state = json.loads((folder / SCHEMA).read_text("utf-8"))
    cells = load_file(folder / CELLS) if "evidence" in state else None
    return Encoder.from_parts(state, pl.read_ipc(folder / VOCABULARY), cells)


# --- shards ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """One array of a store.

    Attributes:
        name: ending of its files.
        dtype: as numpy writes it, little-endian.
        width: columns; 0 for an array with one number per row.
        ragged: whether each row has a list of numbers. The places where the lists of a shard end are then in a file of
            their own, `ends`.
    """

    name: str
    dtype: str
    width: int = 0
    ragged: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest, from which `ArraySpec(**values)` restores it."""
        return {key: value for key, value in vars(self).items() if key != "ragged" or value}

    @property
    def ends(self) -> ArraySpec:
        """For each row of a shard, the number of values in the lists up to it."""
        return ArraySpec(name=f"{self.name}-ends", dtype="<i8")

    @property
    def row_bytes(self) -> int:
        """Bytes per row."""
        return np.dtype(self.dtype).itemsize * max(self.width, 1)

    def shape(self, n_rows: int) -> tuple[int, ...]:
        """Shape of an array of `n_rows` rows."""
        return (n_rows, self.width) if self.width else (n_rows,)

    def file(self, shard: int) -> str:
        """Name of the file that holds the array's rows of a shard.

        Example:
            >>> ArraySpec(name="ids", dtype="<i4", width=3).file(7)
            'shard-00007.ids'
        """
        return f"shard-{shard:05d}.{self.name}"

    def files(self, shard: int) -> tuple[str, ...]:
        """Names of all files of a shard."""
        return (self.file(shard), self.ends.file(shard)) if self.ragged else (self.file(shard),)


def array_specs(encoder: Encoder) -> tuple[ArraySpec, ...]:
    """The arrays that the rows of an encoder need; a StoreError if it has no target."""
    layout, target = encoder.layout, encoder.schema.target
    if target is None:
        raise StoreError("a store needs a target, but the encoder's schema has none. Set data.target")
    specs = [ArraySpec(name=IDS, dtype="<i4", width=layout.n_columns)]
    if layout.numerical:
        specs.append(ArraySpec(name=NUMBERS, dtype="<f4", width=len(layout.numerical)))
    if layout.measured:
        specs.append(ArraySpec(name=MEASURES, dtype="<f4", width=len(layout.measured)))
    if layout.evidence:
        specs += [ArraySpec(name=EVIDENCE, dtype="<f2", width=layout.n_statements), ArraySpec(name=FOLDS, dtype="|u1")]
    specs.append(ArraySpec(name=TARGET, dtype="<i8" if target.task == "multiclass" else "<f4"))
    if encoder.schema.weight is not None:
        specs.append(ArraySpec(name=WEIGHT, dtype="<f4"))
    specs += [ArraySpec(name=list_name(f), dtype="<i4", ragged=True) for f in layout.lists]
    return (*specs, ArraySpec(name=PARTS, dtype="|u1"))


def read_rows(folder: Path, spec: ArraySpec, start: int, stop: int, shard_rows: int) -> Array:
    """A copy of the rows from `start` to `stop` of one array, in the byte order of this machine.

    Raises:
        StoreError: a file cannot be read or ends too early.
    """
    rows = np.empty(spec.shape(stop - start), dtype=spec.dtype)
    missing = rows.reshape(-1).view(np.uint8).data
    for shard, first, n_rows in _shards_of(start, stop, shard_rows):
        n_bytes = n_rows * spec.row_bytes
        _read_into(folder / spec.file(shard), first * spec.row_bytes, missing[:n_bytes])
        missing = missing[n_bytes:]
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def read_lists(folder: Path, spec: ArraySpec, start: int, stop: int, shard_rows: int) -> Ragged:
    """The same for an array of lists."""
    found = [Ragged.of([])]
    for shard, first, n_rows in _shards_of(start, stop, shard_rows):
        before = first - 1 if first else first
        ends = np.empty(first + n_rows - before, dtype=spec.ends.dtype)
        _read_into(folder / spec.ends.file(shard), before * spec.ends.row_bytes, ends.view(np.uint8).data)
        offsets = (ends if first else np.concatenate([[0], ends])).astype(np.int64)
        values = np.empty(offsets[-1] - offsets[0], dtype=spec.dtype)
        _read_into(folder / spec.file(shard), int(offsets[0]) * spec.row_bytes, values.view(np.uint8).data)
        found.append(Ragged(values.astype(values.dtype.newbyteorder("="), copy=False), offsets - offsets[0]))
    return Ragged.concat(found)


def _shards_of(start: int, stop: int, shard_rows: int) -> Iterator[tuple[int, int, int]]:
    """Shard, first row within it and number of rows, for the rows from `start` to `stop`."""
    while start < stop:
        shard, first = divmod(start, shard_rows)
        n_rows = min(shard_rows - first, stop - start)
        yield shard, first, n_rows
        start += n_rows


def _read_into(path: Path, offset: int, target: memoryview) -> None:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            while len(target):
                n_bytes = file.readinto(target)
                if not n_bytes:
                    raise StoreError(f"{path} is cut off. Copy the store again, or encode the table again")
                target = target[n_bytes:]
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}. Copy the store again") from error


class ShardWriter:
    """Writes arrays shard after shard and records size and checksum of every complete file.

    Args:
        folder: where the files go.
        specs: the arrays.
        shard_rows: rows per shard; the last may have fewer.
        done: entries of `files` for complete shards that exist already; writing continues after them.
    """

    def __init__(
        self,
        folder: Path,
        specs: Sequence[ArraySpec],
        shard_rows: int,
        done: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.folder, self.specs, self.shard_rows = folder, tuple(specs), shard_rows
        self.files: dict[str, dict[str, Any]] = {name: dict(facts) for name, facts in (done or {}).items()}
        """Bytes and sha256 of every complete file, by name."""
        self.n_rows = self.n_shards * shard_rows
        """Rows written so far."""
        self._open: dict[str, _HashedFile] = {}

    @property
    def n_shards(self) -> int:
        """Complete shards written so far."""
        return len(self.files) // sum(len(spec.files(0)) for spec in self.specs)

    def append(self, arrays: Mapping[str, RowArray]) -> None:
        """Write rows, given as arrays by name, with one for every spec."""
        n_rows = len(arrays[self.specs[0].name])
        for spec in self.specs:
            array = arrays[spec.name]
            shape = (len(array),) if isinstance(array, Ragged) else array.shape
            if shape != spec.shape(n_rows) or isinstance(array, Ragged) != spec.ragged:
                raise ValueError(f"{spec.name} must have shape {spec.shape(n_rows)}; given {shape}")
        start = 0
        while start < n_rows:
            stop = min(n_rows, start + self.shard_rows - self.n_rows % self.shard_rows)
            self._write({spec.name: arrays[spec.name][start:stop] for spec in self.specs}, stop - start)
            start = stop

    def end_shard(self) -> None:
        """Complete the current shard."""
        self.files.update({name: file.finish() for name, file in self._open.items()})
        self._open = {}

    def close(self) -> None:
        """Close the files of an incomplete shard after a failure."""
        for file in self._open.values():
            file.close()
        self._open = {}

    def _write(self, arrays: Mapping[str, RowArray], n_rows: int) -> None:
        shard = self.n_shards
        if not self._open:
            names = [name for spec in self.specs for name in spec.files(shard)]
            self._open = {name: _HashedFile(self.folder / name) for name in names}
        for spec in self.specs:
            array, file = arrays[spec.name], self._open[spec.file(shard)]
            if isinstance(array, Ragged):
                ends = array.offsets[1:] + file.n_bytes // spec.row_bytes
                self._open[spec.ends.file(shard)].write(np.ascontiguousarray(ends, dtype=spec.ends.dtype))
                array = array.values
            file.write(np.ascontiguousarray(array, dtype=spec.dtype))
        self.n_rows += n_rows
        if self.n_rows % self.shard_rows == 0:
            self.end_shard()


class _HashedFile:
    """A file whose checksum is computed while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._file: BinaryIO = path.open("wb")

    def write(self, rows: Array) -> None:
        data = rows.reshape(-1).view(np.uint8).data
        self._file.write(data)
        self._digest.update(data)

    @property
    def n_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def finish(self) -> dict[str, Any]:
        """Force the file to disk; returns its size and checksum."""
        self._file.flush()
        os.fsync(self._file.fileno())
        facts = {"bytes": self.n_bytes, "sha256": self._digest.hexdigest()}
        self._file.close()
        return facts

    def close(self) -> None:
        self._file.close()
