"""Store: an encoded table with its rows in the order of the source, in memory or in a folder.

    manifest.json      format, settings, rows, sources, rows of each part per chunk, size and sha256 of every file
    schema.json        schema, numeric scales and bins
    vocabulary.arrow   one row per value: field, value, id, count
    evidence.safetensors  training rows and sums of targets per joint value, if evidence is used
    shard-00000.ids    and .numbers, .target, .weight, .parts, .evidence, .folds: raw little-endian arrays
    shard-00000.list3  and .list3-ends: values of all rows of field 3, and the place where those of each row end

The manifest is written last: a folder without one is not a store. Equal tables and settings give equal bytes, except
for the names, sizes and modification times of the sources.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.coded import DEFAULT_SIZES
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import EVIDENCE, FOLDS, PARTS, EncodedRows, Layout, RowArray, concat_arrays
from fielddep.encoding.split import PART_NAMES, Folds, Parts
from fielddep.encoding.unknown import UnknownReport
from fielddep.errors import FieldDepError, StoreError
from fielddep.store.format import (
    CELLS,
    SCHEMA,
    STORE_MANIFEST,
    VOCABULARY,
    ShardWriter,
    array_specs,
    encoder_files,
    is_store,
    load_encoder,
    manifest_stamp,
    save_encoder,
    stored_settings,
)
from fielddep.store.shards import FileShards, MemoryShards, Shards, StorePart
from fielddep.tables.files import file_facts

__all__ = ["PART_NAMES", "MemoryWriter", "Store", "StoreWriter", "is_store", "stored_rows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Store:
    """An encoded table. Get one from `build_store` or `Store.open`.

    Attributes:
        encoder: what the ids mean.
        config: data and split settings it was built with; the other sections are defaults.
        shards: its rows.
        path: its folder; None if it is in memory.
        sources: name, size and modification time of the files it was built from.
        warnings: what is odd about its parts.
        sha256: checksum of its manifest; empty if it is in memory.
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
        """Open a store and verify the size of every file and the checksums of the small ones.

        With `check`, the checksums of the shards are verified too, which reads them all.

        Raises:
            StoreError: names a file that is missing, cut off, altered or of a newer format.
        """
        folder = Path(folder)
        stamp = manifest_stamp(folder)
        manifest = STORE_MANIFEST.read(folder)
        STORE_MANIFEST.check_files(folder, manifest, sizes_only=not check)
        STORE_MANIFEST.check_files(folder, manifest, [n for n in (SCHEMA, VOCABULARY, CELLS) if n in manifest["files"]])
        try:
            encoder = load_encoder(folder)
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
            raise StoreError(f"store {folder} is intact but cannot be used: {error}. Encode the table again") from error

    @property
    def folder(self) -> Path:
        """The folder of a store on disk."""
        if self.path is None:
            raise StoreError("a store in memory has no folder. Build it in one")
        return self.path

    @property
    def layout(self) -> Layout:
        """What a model must know about the columns of ids."""
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
        """Checksum of rows, parts and encoder; on disk that of the manifest, which covers every file."""
        if self.sha256:
            return self.sha256
        state = hashlib.sha256(self.encoder.digest.encode())
        for array in (*self.read(0, self.n_rows).arrays.values(), self.parts(0, self.n_rows)):
            for flat in (array.values, array.offsets) if isinstance(array, Ragged) else (array,):
                state.update(np.ascontiguousarray(flat).data)
        return state.hexdigest()

    def verify(self) -> None:
        """Read all files and compare them with their checksums.

        Raises:
            StoreError: names a file that was altered or cut off, or the store was replaced.
        """
        self.shards.check()
        if self.path is not None:
            STORE_MANIFEST.check_files(self.path, STORE_MANIFEST.read(self.path))
        self.shards.check()

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise a StoreError if an encoder gives other ids than those of the store."""
        if encoder.digest != self.encoder.digest:
            raise StoreError(
                f"the model must be trained on the store {self.path or 'in memory'}, or on the same table with the "
                "same settings; its ids mean other values. Give the table that the store was built from"
            )

    def without_evidence(self) -> Store:
        """The same store for a model that does not use its evidence, which is then not read."""
        if self.encoder.evidence is None:
            return self
        encoder = replace(self.encoder, evidence=None)
        return replace(self, encoder=encoder, shards=self.shards.without(EVIDENCE, encoder.layout))

    def read(self, start: int, stop: int) -> EncodedRows:
        """The rows from `start` to `stop` in the order of the source; do not change them.

        Raises:
            StoreError: a file cannot be read, or the store was replaced after it was opened.
        """
        return self.shards.read(start, stop)

    def parts(self, start: int, stop: int) -> Parts:
        """The part of every row, as an index into `PART_NAMES`."""
        return self.shards.parts(start, stop)

    def folds(self, start: int, stop: int) -> Folds:
        """The fold of every training and validation row, of a store with evidence.

        Raises:
            StoreError: the store has no folds, because it was encoded by an earlier version.
        """
        return self.shards.folds(start, stop)

    def part(self, name: str | tuple[str, ...] | None = None) -> StorePart:
        """The rows of a part, of several parts, or all."""
        return StorePart(shards=self.shards, name=name)

    def chunks(self, part: str | None = None) -> Iterator[EncodedRows]:
        """The rows of a part, or all, chunk by chunk in the order of the source."""
        return self.part(part).chunks()


def stored_rows(
    store: Store, encoder: Encoder, *, part: str | None = None, with_target: bool = False
) -> Iterator[tuple[EncodedRows, UnknownReport]]:
    """Rows of a part, or all, for a model with this encoder, chunk by chunk in the order of the source.

    No value is refused as unknown. A row with the rare id counts as unknown, whether its value was rare in training or
    never seen there. `with_target` includes target and weights.

    Raises:
        StoreError: the store has another encoder.
    """
    store.check_encoder(encoder)
    for chunk in store.chunks(part):
        report = encoder.report(chunk)
        yield chunk if with_target else chunk.with_arrays(target=None, weight=None), report


class StoreWriter(ShardWriter):
    """Writes a store to a folder: rows in chunks of any size, then everything else in `finish`.

    Args:
        folder: must exist.
        encoder: what the ids mean.
        config: settings, of which data and split are kept.
        shard_rows: rows per shard, a multiple of `chunk_rows`.
        chunk_rows: rows per chunk whose parts are counted.
        progress: a result of `progress`, to resume after the shards it lists.
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
        done = progress or {"files": {}, "block_parts": []}
        super().__init__(Path(folder), array_specs(encoder), shard_rows, done["files"])
        self.encoder, self.config, self.chunk_rows = encoder, config, chunk_rows
        self._chunk_parts: list[list[int]] = [list(counts) for counts in done["block_parts"]]

    @property
    def row_bytes(self) -> int:
        """Bytes per row."""
        return sum(spec.row_bytes for spec in self.specs)

    def append(self, arrays: Mapping[str, RowArray]) -> None:
        """Write rows, given as arrays by name: those of `EncodedRows`, and parts."""
        parts = arrays[PARTS]
        assert not isinstance(parts, Ragged)
        self._count_parts(parts)
        super().append(arrays)

    def progress(self) -> dict[str, Any]:
        """The complete shards written so far, as plain values."""
        n_chunks = self.n_shards * self.shard_rows // self.chunk_rows
        return {"files": self.files, "block_parts": self._chunk_parts[:n_chunks]}

    def finish(self, sources: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()) -> Store:
        """Complete the last shard, write the encoder, and the manifest last."""
        self.end_shard()
        save_encoder(self.folder, self.encoder)
        content: dict[str, Any] = {
            "version": importlib.metadata.version("fielddep"),
            "config": stored_settings(self.config),
            "n_rows": self.n_rows,
            "shard_rows": self.shard_rows,
            "block_rows": self.chunk_rows,
            "block_parts": self._chunk_parts,
            "arrays": [spec.to_json() for spec in self.specs],
            "sources": [dict(source) for source in sources],
        }
        if warnings:
            content["warnings"] = list(warnings)
        facts = {name: file_facts(self.folder / name) for name in encoder_files(self.encoder)}
        STORE_MANIFEST.write(self.folder, content, {**self.files, **facts})
        return Store.open(self.folder)

    def _count_parts(self, parts: Parts) -> None:
        n_parts, start, stop = len(PART_NAMES), self.n_rows, self.n_rows + len(parts)
        first_chunk = start // self.chunk_rows
        chunks = np.arange(start, stop) // self.chunk_rows - first_chunk
        n_chunks = -(-stop // self.chunk_rows) - first_chunk
        counts = np.bincount(chunks * n_parts + parts, minlength=n_chunks * n_parts).reshape(-1, n_parts)
        if start % self.chunk_rows:
            counts[0] += self._chunk_parts.pop()
        self._chunk_parts += counts.tolist()


class MemoryWriter:
    """Collects the rows of a store in memory; each array but those of lists is allocated once.

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
        specs = array_specs(encoder)
        self._arrays = {s.name: np.empty(s.shape(n_rows), dtype=s.dtype) for s in specs if not s.ragged}
        self._lists: dict[str, list[RowArray]] = {spec.name: [Ragged.of([])] for spec in specs if spec.ragged}

    def append(self, arrays: Mapping[str, RowArray]) -> None:
        """Add rows, given as arrays by name: those of `EncodedRows`, and parts."""
        stop = self.n_rows + len(arrays[PARTS])
        for name, array in self._arrays.items():
            array[self.n_rows : stop] = arrays[name]
        for name, chunks in self._lists.items():
            chunks.append(arrays[name])
        self.n_rows = stop

    def finish(self, sources: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()) -> Store:
        """The store of all rows."""
        row_parts, row_folds = self._arrays.pop(PARTS), self._arrays.pop(FOLDS, None)
        lists = {name: concat_arrays(chunks) for name, chunks in self._lists.items()}
        rows = EncodedRows(layout=self.encoder.layout, arrays={**self._arrays, **lists})
        return Store(
            encoder=self.encoder,
            config=Config(data=self.config.data, split=self.config.split),
            shards=MemoryShards(rows=rows, row_parts=row_parts, row_folds=row_folds, chunk_rows=self.chunk_rows),
            sources=tuple(dict(source) for source in sources),
            warnings=tuple(warnings),
        )
