"""Store: an encoded table with its rows in the order of the source, in memory or in a folder.

    manifest.json      format, settings, rows, sources, rows of each part per chunk, size and sha256 of every file
    schema.json        schema, numeric scales and bins
    vocabulary.arrow   one row a value: field, value, id, count
    shard-00000.ids    and .numbers, .target, .weight, .parts: raw little-endian arrays

The manifest is written last: a folder without it is no store. Equal tables and settings give equal bytes but for the
sources, of which name, size and time of change are kept.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.coded import DEFAULT_SIZES
from fielddep.encoding.encoder import Encoder, UnknownReport
from fielddep.encoding.rows import IDS, NUMBERS, TARGET, WEIGHT, Array, EncodedRows, Layout
from fielddep.encoding.split import PART_NAMES, Parts
from fielddep.errors import FieldDepError, StoreError
from fielddep.store.format import (
    FORMAT,
    KIND,
    MANIFEST,
    PARTS,
    ArraySpec,
    ShardWriter,
    check_file,
    is_store,
    manifest_stamp,
    read_manifest,
)
from fielddep.store.shards import FileShards, MemoryShards, Shards, StorePart
from fielddep.tables.files import content_checksum, file_facts, write_atomically, write_json

SCHEMA, VOCABULARY = "schema.json", "vocabulary.arrow"

__all__ = ["MANIFEST", "PART_NAMES", "SCHEMA", "VOCABULARY", "Store", "StoreWriter", "array_specs", "is_store"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """An encoded table. Get one from `build_store` or `Store.open`.

    Attributes:
        encoder: what the ids mean.
        config: data and split settings that it was made with; the other sections are defaults.
        shards: its rows.
        path: its folder; None for one in memory.
        sources: name, size and time of change of the files it was made from.
        warnings: what is odd about its parts.
        sha256: checksum of its manifest; empty for one in memory.
    """

    encoder: Encoder
    config: Config
    shards: Shards
    path: Path | None = None
    sources: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    sha256: str = ""

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
            state = json.loads((folder / SCHEMA).read_text("utf-8"))
            encoder = Encoder.from_parts(state, pl.read_ipc(folder / VOCABULARY))
            return cls(
                encoder=encoder,
                config=Config.from_dict(manifest["config"]),
                shards=FileShards.of(folder, manifest, encoder.layout, stamp),
                path=folder,
                sources=tuple(manifest["sources"]),
                warnings=tuple(manifest.get("warnings", ())),
                sha256=manifest["sha256"],
            )
        except (FieldDepError, LookupError, TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
            raise StoreError(f"store {folder} is whole but cannot be used: {error}; encode the table again") from error

    @property
    def folder(self) -> Path:
        """Its folder, which only a store on disk has."""
        if self.path is None:
            raise StoreError("a store in memory has no folder; build it with one")
        return self.path

    @property
    def layout(self) -> Layout:
        """What a model must know of the columns of ids."""
        return self.encoder.layout

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self.shards.n_rows

    @property
    def n_rows_of(self) -> dict[str, int]:
        """Rows of each part: train, validation and test."""
        return dict(zip(PART_NAMES, self.shards.chunk_parts.sum(axis=0).tolist(), strict=True))

    @cached_property
    def digest(self) -> str:
        """Checksum of rows, parts and encoder; of a store on disk, of its manifest, which holds those of its files."""
        if self.sha256:
            return self.sha256
        state = hashlib.sha256(self.encoder.digest.encode())
        for array in (*self.read(0, self.n_rows).arrays.values(), self.parts(0, self.n_rows)):
            state.update(np.ascontiguousarray(array).data)
        return state.hexdigest()

    def verify(self) -> None:
        """Read all files and compare them with their checksums.

        Raises:
            StoreError: names the file that was altered or cut off; or the store was replaced.
        """
        self.shards.check()
        if self.path is not None:
            for name, expected in read_manifest(self.path)["files"].items():
                check_file(self.path / name, expected, whole=True)
        self.shards.check()

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuse an encoder that gives other ids than those of the store.

        Raises:
            StoreError: says what to do instead.
        """
        if encoder.digest != self.encoder.digest:
            raise StoreError(
                f"the model must have been trained on the store {self.path or 'in memory'}, or on the same table with "
                "the same settings; its ids mean other values. Give the table that the store was made from"
            )

    def read(self, start: int, stop: int) -> EncodedRows:
        """The rows from `start` to `stop` in the order of the source; do not change them.

        Raises:
            StoreError: a file cannot be read, or the store was replaced since it was opened.
        """
        return self.shards.read(start, stop)

    def parts(self, start: int, stop: int) -> Parts:
        """Part of every row, as a place in `PART_NAMES`."""
        return self.shards.parts(start, stop)

    def part(self, name: str | None = None) -> StorePart:
        """The rows of a part, or all."""
        return StorePart(shards=self.shards, name=name)

    def chunks(self, part: str | None = None) -> Iterator[EncodedRows]:
        """The rows of a part, or all, chunk after chunk in the order of the source."""
        return self.part(part).chunks()


def stored_rows(
    store: Store, encoder: Encoder, *, part: str | None = None, with_target: bool = False
) -> Iterator[tuple[EncodedRows, UnknownReport]]:
    """Rows of a store chunk by chunk, in the source's order, for a model with this encoder.

    Nothing is refused as unknown: a row with the rare id counts as unknown, whether its value was rare in training or
    never seen there.

    Args:
        store: the rows.
        encoder: that of the model.
        part: train, validation or test; None gives all rows.
        with_target: also give target and weights.

    Raises:
        StoreError: when the encoder is not that of the store.
    """
    store.check_encoder(encoder)
    for chunk in store.chunks(part):
        report = encoder.report(chunk.ids_RF)
        yield chunk if with_target else chunk.with_arrays(target=None, weight=None), report


class StoreWriter:
    """Writes a store to a folder: rows first, in any chunks, then everything else by `finish`.

    Args:
        folder: where it goes; must exist.
        encoder: what the ids mean.
        config: settings, of which data and split are kept.
        shard_rows: rows of a shard, a multiple of `chunk_rows`.
        chunk_rows: rows for which the rows of each part are counted.
        progress: what `progress` gave after whole shards, to resume after them.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        encoder: Encoder,
        config: Config,
        shard_rows: int = DEFAULT_SIZES.shard_rows,
        chunk_rows: int = DEFAULT_SIZES.part_rows,
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        if shard_rows % chunk_rows:
            raise ValueError(f"shard_rows must be a multiple of chunk_rows; given {shard_rows} and {chunk_rows}")
        self.folder, self.encoder, self.config = Path(folder), encoder, config
        self.chunk_rows = chunk_rows
        done = progress or {"files": {}, "block_parts": []}
        self._shards = ShardWriter(self.folder, array_specs(encoder), shard_rows, done["files"])
        self._chunk_parts: list[list[int]] = [list(counts) for counts in done["block_parts"]]

    @property
    def n_rows(self) -> int:
        """Rows written so far."""
        return self._shards.n_rows

    @property
    def n_shards(self) -> int:
        """Whole shards written so far."""
        return self._shards.n_shards

    def append(self, arrays: Mapping[str, Array]) -> None:
        """Write rows, given as arrays by name: those of `EncodedRows`, and parts."""
        self._count_parts(arrays[PARTS])
        self._shards.append({spec.name: arrays[spec.name] for spec in self._shards.specs})

    def progress(self) -> dict[str, Any]:
        """Whole shards written so far, as plain values; rows of a shard that is not whole do not count."""
        n_chunks = self._shards.n_shards * self._shards.shard_rows // self.chunk_rows
        return {"files": self._shards.files, "block_parts": self._chunk_parts[:n_chunks]}

    def finish(self, sources: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()) -> Store:
        """End the last shard, write schema and vocabulary, and the manifest last."""
        self._shards.close()
        write_json(self.folder / SCHEMA, self.encoder.to_json())
        write_atomically(self.folder / VOCABULARY, self._write_vocabulary)
        files = {
            **self._shards.files,
            **{name: file_facts(self.folder / name) for name in (SCHEMA, VOCABULARY)},
        }
        write_json(self.folder / MANIFEST, self._manifest(files, sources, warnings))
        return Store.open(self.folder)

    def close(self) -> None:
        """Let go of the files of a shard that is not whole; for a writing that failed."""
        self._shards.abandon()

    def _write_vocabulary(self, path: Path) -> None:
        with path.open("wb") as file:  # a file of Python's raises what a full disk means
            self.encoder.vocabulary_frame().write_ipc(file)

    def _count_parts(self, parts: Parts) -> None:
        at, first = 0, self.n_rows
        while at < len(parts):
            chunk, place = divmod(first + at, self.chunk_rows)
            take = min(self.chunk_rows - place, len(parts) - at)
            counts = np.bincount(parts[at : at + take], minlength=len(PART_NAMES))
            if chunk == len(self._chunk_parts):
                self._chunk_parts.append([0] * len(PART_NAMES))
            self._chunk_parts[chunk] = [a + int(b) for a, b in zip(self._chunk_parts[chunk], counts, strict=True)]
            at += take

    def _manifest(
        self, files: Mapping[str, Any], sources: Sequence[Mapping[str, Any]], warnings: Sequence[str]
    ) -> dict[str, Any]:
        settings = self.config.to_dict()
        manifest: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "version": importlib.metadata.version("fielddep"),
            "config": {"data": settings["data"], "split": settings["split"]},
            "n_rows": self.n_rows,
            "shard_rows": self._shards.shard_rows,
            "block_rows": self.chunk_rows,
            "block_parts": self._chunk_parts,
            "arrays": [spec.to_json() for spec in self._shards.specs],
            "sources": [dict(source) for source in sources],
            "files": dict(files),
        }
        if warnings:
            manifest["warnings"] = list(warnings)
        return {**manifest, "sha256": content_checksum(manifest)}


class MemoryWriter:
    """Collects the rows of a store in memory; each array is allocated once.

    Args:
        encoder: what the ids mean.
        config: settings, of which data and split are kept.
        n_rows: all rows to come.
        chunk_rows: rows that `Store.chunks` gives at a time.
    """

    def __init__(self, *, encoder: Encoder, config: Config, n_rows: int, chunk_rows: int) -> None:
        self.encoder, self.config, self.chunk_rows = encoder, config, chunk_rows
        self.n_rows = 0
        """Rows so far."""
        self._arrays = {spec.name: np.empty(spec.shape(n_rows), dtype=spec.dtype) for spec in array_specs(encoder)}

    def append(self, arrays: Mapping[str, Array]) -> None:
        """Add rows, given as arrays by name: those of `EncodedRows`, and parts."""
        stop = self.n_rows + len(arrays[PARTS])
        for name, array in self._arrays.items():
            array[self.n_rows : stop] = arrays[name]
        self.n_rows = stop

    def finish(self, sources: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()) -> Store:
        """The store of all rows."""
        row_parts = self._arrays.pop(PARTS)
        rows = EncodedRows(layout=self.encoder.layout, arrays=self._arrays)
        return Store(
            encoder=self.encoder,
            config=Config(data=self.config.data, split=self.config.split),
            shards=MemoryShards(rows=rows, row_parts=row_parts, chunk_rows=self.chunk_rows),
            sources=tuple(dict(source) for source in sources),
            warnings=tuple(warnings),
        )


def array_specs(encoder: Encoder) -> tuple[ArraySpec, ...]:
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
