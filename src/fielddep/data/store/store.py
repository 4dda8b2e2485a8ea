"""Store: an encoded table on disk, larger than memory. A folder that `fielddep encode` writes.

    manifest.json      format, settings, rows, sources, rows of each part per block, size and sha256 of every file
    schema.json        schema, numeric scales and bins
    vocabulary.arrow   one row a value: field, value, id, count
    shard-00000.ids    and .numbers, .target, .weight, .parts: raw little-endian arrays, rows in the source's order

The manifest is written last: a folder without it is no store. Equal tables and settings give equal bytes but for the
sources, of which name, size and time of change are kept.

Shape legend: R rows, F fields and crosses, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.config import Config
from fielddep.data.batch import FieldLayout
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.store.manifest import (
    FORMAT,
    KIND,
    MANIFEST,
    Stamp,
    check_file,
    is_manifest,
    is_store,
    manifest_stamp,
    read_manifest,
)
from fielddep.data.store.shards import IDS, NUMBERS, PARTS, TARGET, WEIGHT, ArraySpec, ShardWriter, read_rows
from fielddep.errors import FieldDepError, StoreError
from fielddep.files import content_checksum, file_facts, write_atomically, write_json

SCHEMA, VOCABULARY = "schema.json", "vocabulary.arrow"
SHARD_ROWS, BLOCK_ROWS = 1 << 20, 1 << 14
PART_NAMES = ("train", "validation", "test")
"""Parts by their mark, the number that stands in the array of parts."""

Marks = npt.NDArray[np.uint8]

__all__ = [
    "BLOCK_ROWS",
    "MANIFEST",
    "PART_NAMES",
    "SCHEMA",
    "SHARD_ROWS",
    "VOCABULARY",
    "Store",
    "StoreWriter",
    "array_specs",
    "is_store",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """An encoded table on disk. Get one from `Store.open`.

    Attributes:
        folder: where it lies.
        encoder: what the ids mean.
        config: data and split settings that it was made with; the other sections are defaults.
        n_rows: all rows.
        n_rows_of: rows of each part: train, validation and test.
        block_rows: rows of a block, the unit in which a loader plans; the last may have fewer.
        block_parts: rows of each part per block, shape (blocks, 3).
        shard_rows: rows of a shard.
        arrays: what each row consists of.
        sources: name, size and time of change of the files it was made from.
        sha256: checksum of its manifest, which tells it from a store that is put in its place.
        stamp: what tells at a glance that the manifest is still the same file.
    """

    folder: Path
    encoder: TableEncoder
    config: Config
    n_rows: int
    n_rows_of: dict[str, int]
    block_rows: int
    block_parts: npt.NDArray[np.int64]
    shard_rows: int
    arrays: dict[str, ArraySpec]
    sources: tuple[dict[str, Any], ...] = ()
    sha256: str = ""
    stamp: Stamp | None = None

    @classmethod
    def open(cls, folder: str | Path, *, check: bool = False) -> Store:
        """Open a store; the size of every file and the checksums of the small ones are verified.

        Args:
            folder: the store.
            check: verify the checksums of the shards too, which reads them all.

        Raises:
            StoreError: for a missing, cut-off, altered or newer-format file, naming it.
        """
        folder = Path(folder)
        stamp = manifest_stamp(folder)
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            check_file(folder / name, expected, whole=check or name in (SCHEMA, VOCABULARY))
        try:
            return cls._build(folder, manifest, stamp)
        except (FieldDepError, LookupError, TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
            raise StoreError(f"store {folder} is whole but cannot be used: {error}; encode the table anew") from error

    @classmethod
    def _build(cls, folder: Path, manifest: Mapping[str, Any], stamp: Stamp | None) -> Store:
        state = json.loads((folder / SCHEMA).read_text("utf-8"))
        block_parts = np.array(manifest["block_parts"], dtype=np.int64).reshape(-1, len(PART_NAMES))
        return cls(
            folder=folder,
            encoder=TableEncoder.from_parts(state, pl.read_ipc(folder / VOCABULARY)),
            config=Config.from_dict(manifest["config"]),
            n_rows=manifest["n_rows"],
            n_rows_of=dict(zip(PART_NAMES, block_parts.sum(axis=0).tolist(), strict=True)),
            block_rows=manifest["block_rows"],
            block_parts=block_parts,
            shard_rows=manifest["shard_rows"],
            arrays={spec["name"]: ArraySpec(**spec) for spec in manifest["arrays"]},
            sources=tuple(manifest["sources"]),
            sha256=manifest["sha256"],
            stamp=stamp,
        )

    def verify(self) -> None:
        """Read all files and compare them with their checksums.

        Raises:
            StoreError: names the file that was altered or cut off; or the store was replaced.
        """
        self.check_in_place()
        for name, expected in read_manifest(self.folder)["files"].items():
            check_file(self.folder / name, expected, whole=True)
        self.check_in_place()

    def check_in_place(self) -> None:
        """Refuse to go on when another store was put in the place of this one since it was opened.

        A replacement takes the old manifest away before it touches a shard. So rows that were read before this passes
        are rows of this store.

        Raises:
            StoreError: the manifest is another one, or gone.
        """
        if manifest_stamp(self.folder) != self.stamp and not is_manifest(self.folder, self.sha256):
            raise StoreError(
                f"the store {self.folder} was replaced or taken away since it was opened; open it anew, and train or "
                "evaluate from the start"
            )

    @cached_property
    def layout(self) -> FieldLayout:
        """What a model must know of the columns of ids."""
        return self.encoder.layout

    def read(self, start: int, stop: int) -> EncodedTable:
        """Rows of the source's order, copied into memory.

        Raises:
            StoreError: a file cannot be read, or the store was replaced since it was opened.
        """
        start, stop = self._span(start, stop)
        found = self._arrays([name for name in self.arrays if name != PARTS], start, stop)
        return EncodedTable(
            layout=self.layout,
            ids_RF=torch.from_numpy(found[IDS]),
            numbers_RN=torch.from_numpy(found.get(NUMBERS, np.empty((stop - start, 0), dtype=np.float32))),
            target_R=torch.from_numpy(found[TARGET]) if TARGET in found else None,
            weight_R=torch.from_numpy(found[WEIGHT]) if WEIGHT in found else None,
        )

    def parts(self, start: int, stop: int) -> Marks:
        """Mark of every row: its place in `PART_NAMES`."""
        return self._arrays([PARTS], *self._span(start, stop))[PARTS]

    def blocks(self, part: str | None = None) -> Iterator[EncodedTable]:
        """Block after block in the source's order, with the rows of one part, or all; empty blocks are skipped."""
        if part is not None and part not in PART_NAMES:
            raise StoreError(f"a part is one of {', '.join(PART_NAMES)}; given {part!r}")
        for block, counts in enumerate(self.block_parts):
            start, stop = self._span(block * self.block_rows, (block + 1) * self.block_rows)
            mark = None if part is None else PART_NAMES.index(part)
            if mark is None or counts[mark] == stop - start:
                yield self.read(start, stop)
            elif counts[mark]:
                yield self.read(start, stop).take(torch.from_numpy(np.flatnonzero(self.parts(start, stop) == mark)))

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """The rows asked for that exist."""
        start = min(max(start, 0), self.n_rows)
        return start, min(max(stop, start), self.n_rows)

    def _arrays(self, names: Sequence[str], start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        try:
            return {n: read_rows(self.folder, self.arrays[n], start, stop, self.shard_rows) for n in names}
        finally:
            self.check_in_place()  # also when reading failed: that it was replaced is the better reason


class StoreWriter:
    """Writes a store: rows first, in any portions, then everything else by `finish`.

    Args:
        folder: where it goes; must exist.
        encoder: what the ids mean.
        config: settings, of which data and split are kept.
        shard_rows: rows of a shard, a multiple of `block_rows`.
        block_rows: rows of a block.
        progress: what `progress` gave after whole shards, to go on behind them.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        encoder: TableEncoder,
        config: Config,
        shard_rows: int = SHARD_ROWS,
        block_rows: int = BLOCK_ROWS,
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        if shard_rows % block_rows:
            raise ValueError(f"shard_rows must be a multiple of block_rows; given {shard_rows} and {block_rows}")
        self.folder, self.encoder, self.config = Path(folder), encoder, config
        self.block_rows = block_rows
        done = progress or {"files": {}, "block_parts": []}
        self._shards = ShardWriter(self.folder, array_specs(encoder), shard_rows, done["files"])
        self._block_parts: list[list[int]] = [list(counts) for counts in done["block_parts"]]

    @property
    def n_rows(self) -> int:
        """Rows written so far."""
        return self._shards.n_rows

    @property
    def n_shards(self) -> int:
        """Whole shards written so far."""
        return self._shards.n_shards

    def append(self, rows: EncodedTable, parts: Marks) -> None:
        """Write encoded rows with target, and the mark of the part of each."""
        given = {IDS: rows.ids_RF, NUMBERS: rows.numbers_RN, TARGET: rows.target_R, WEIGHT: rows.weight_R}
        arrays = {name: tensor.numpy() for name, tensor in given.items() if tensor is not None}
        self.append_arrays({**arrays, PARTS: parts})

    def append_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write rows given as plain arrays by name: ids, numbers, target, weight and parts."""
        self._count_parts(arrays[PARTS])
        self._shards.append({spec.name: arrays[spec.name] for spec in self._shards.specs})

    def progress(self) -> dict[str, Any]:
        """Whole shards written so far, as plain values; rows of a shard that is not whole are left out."""
        n_blocks = self._shards.n_shards * self._shards.shard_rows // self.block_rows
        return {"files": self._shards.files, "block_parts": self._block_parts[:n_blocks]}

    def finish(self, sources: Sequence[Mapping[str, Any]] = ()) -> Store:
        """End the last shard, write schema and vocabulary, and the manifest last."""
        self._shards.close()
        write_json(self.folder / SCHEMA, self.encoder.to_json())
        write_atomically(self.folder / VOCABULARY, self._write_vocabulary)
        files = {
            **self._shards.files,
            **{name: file_facts(self.folder / name) for name in (SCHEMA, VOCABULARY)},
        }
        write_json(self.folder / MANIFEST, self._manifest(files, sources))
        return Store.open(self.folder)

    def close(self) -> None:
        """Let go of the files of a shard that is not whole; for a writing that failed."""
        self._shards.abandon()

    def _write_vocabulary(self, path: Path) -> None:
        with path.open("wb") as file:  # a file of Python's raises what a full disk means
            self.encoder.vocabulary_frame().write_ipc(file)

    def _count_parts(self, parts: Marks) -> None:
        at, first = 0, self.n_rows
        while at < len(parts):
            block, place = divmod(first + at, self.block_rows)
            take = min(self.block_rows - place, len(parts) - at)
            counts = np.bincount(parts[at : at + take], minlength=len(PART_NAMES))
            if block == len(self._block_parts):
                self._block_parts.append([0] * len(PART_NAMES))
            self._block_parts[block] = [a + int(b) for a, b in zip(self._block_parts[block], counts, strict=True)]
            at += take

    def _manifest(self, files: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        settings = self.config.to_dict()
        manifest = {
            "kind": KIND,
            "format": FORMAT,
            "version": importlib.metadata.version("fielddep"),
            "config": {"data": settings["data"], "split": settings["split"]},
            "n_rows": self.n_rows,
            "shard_rows": self._shards.shard_rows,
            "block_rows": self.block_rows,
            "block_parts": self._block_parts,
            "arrays": [spec.to_json() for spec in self._shards.specs],
            "sources": [dict(source) for source in sources],
            "files": dict(files),
        }
        return {**manifest, "sha256": content_checksum(manifest)}


def array_specs(encoder: TableEncoder) -> tuple[ArraySpec, ...]:
    """The arrays that rows of an encoder need.

    Raises:
        StoreError: when the encoder has no target.
    """
    layout, target = encoder.layout, encoder.schema.target
    if target is None:
        raise StoreError("a store needs a target; the encoder's schema has none: set data.target")
    specs = [ArraySpec(name=IDS, dtype="<i4", width=layout.n_columns)]
    if layout.numerical:
        specs.append(ArraySpec(name=NUMBERS, dtype="<f4", width=len(layout.numerical)))
    specs.append(ArraySpec(name=TARGET, dtype="<i8" if target.task == "multiclass" else "<f4"))
    if encoder.schema.weight is not None:
        specs.append(ArraySpec(name=WEIGHT, dtype="<f4"))
    return (*specs, ArraySpec(name=PARTS, dtype="|u1"))
