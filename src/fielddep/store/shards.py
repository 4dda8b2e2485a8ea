"""Shards: the rows of a store, in memory or in files, and the rows of one part of it.

Shape legend: K chunks, R rows, E statements of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fielddep.encoding.coded import DEFAULT_SIZES
from fielddep.encoding.rows import EVIDENCE, FOLDS, PARTS, Array, EncodedRows, Layout, RowArray, RowNumbers
from fielddep.encoding.split import PART_NAMES, Folds, Parts
from fielddep.errors import StoreError
from fielddep.store.format import ArraySpec, Stamp, is_manifest, manifest_stamp, read_lists, read_rows

COUNTED_ROWS = 1 << 20
"""Rows whose parts are read at a time to count them."""


class Shards(Protocol):
    """Rows in the order of the source, and the part of each."""

    on_disk: ClassVar[bool]
    """Whether reading takes time, so a thread should read ahead."""

    @property
    def layout(self) -> Layout:
        """What the ids mean."""

    @property
    def n_rows(self) -> int:
        """All rows."""

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk; the last may have fewer."""

    @property
    def chunk_parts(self) -> RowNumbers:
        """Rows of each part in each chunk, (K, 3)."""

    def read(self, start: int, stop: int) -> EncodedRows:
        """The rows from `start` to `stop` that there are."""

    def parts(self, start: int, stop: int) -> Parts:
        """Their parts."""

    def folds(self, start: int, stop: int) -> Folds:
        """Their folds."""

    def with_statements(self, said_RE: Array) -> Shards:
        """The same rows with other evidence."""

    def without(self, name: str, layout: Layout) -> Shards:
        """The same rows without an array, and what the ids then mean."""

    def check(self) -> None:
        """Raise a StoreError if the rows were replaced."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryShards:
    """Rows in memory; nothing is copied when they are read."""

    rows: EncodedRows
    row_parts: Parts
    row_folds: Folds | None = None
    chunk_rows: int = DEFAULT_SIZES.part_rows
    on_disk: ClassVar[bool] = False

    @property
    def layout(self) -> Layout:
        """What the ids mean."""
        return self.rows.layout

    @property
    def n_rows(self) -> int:
        """All rows."""
        return len(self.rows)

    @cached_property
    def chunk_parts(self) -> RowNumbers:
        """Rows of each part in each chunk, (K, 3)."""
        parts = range(len(PART_NAMES))
        return np.stack([_counts(self.row_parts == part, self.chunk_rows) for part in parts], axis=1)

    def read(self, start: int, stop: int) -> EncodedRows:
        """The rows from `start` to `stop`; views."""
        return self.rows.take(slice(max(start, 0), max(stop, 0)))

    def parts(self, start: int, stop: int) -> Parts:
        """Their parts."""
        return self.row_parts[max(start, 0) : max(stop, 0)]

    def folds(self, start: int, stop: int) -> Folds:
        """Their folds."""
        if self.row_folds is None:
            raise _no_folds("in memory")
        return self.row_folds[max(start, 0) : max(stop, 0)]

    def with_statements(self, said_RE: Array) -> MemoryShards:
        """The same rows with other evidence."""
        return replace(self, rows=self.rows.with_arrays(**{EVIDENCE: said_RE}))

    def without(self, name: str, layout: Layout) -> MemoryShards:
        """The same rows without an array; nothing is copied."""
        return replace(self, rows=replace(self.rows.with_arrays(**{name: None}), layout=layout))

    def check(self) -> None:
        """Nothing can replace rows in memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FileShards:
    """Rows in the files of a store.

    Attributes:
        folder: the store.
        layout: what the ids mean.
        n_rows: all rows.
        shard_rows: rows per shard.
        chunk_rows: rows per chunk of `chunk_parts`.
        chunk_parts: rows of each part in each chunk, (K, 3).
        arrays: the arrays that hold the rows.
        sha256: checksum of the manifest, which another store in the same place would not have.
        stamp: tells without reading it whether the manifest is still the same file.
        said_RE: statements of the evidence that replace those of the files.
    """

    folder: Path
    layout: Layout
    n_rows: int
    shard_rows: int
    chunk_rows: int
    chunk_parts: RowNumbers = field(repr=False)
    arrays: Mapping[str, ArraySpec]
    sha256: str
    stamp: Stamp | None
    said_RE: Array | None = field(default=None, repr=False)
    on_disk: ClassVar[bool] = True

    @classmethod
    def of(cls, folder: Path, manifest: Mapping[str, Any], layout: Layout, stamp: Stamp | None) -> FileShards:
        """The rows that a manifest describes."""
        return cls(
            folder=folder,
            layout=layout,
            n_rows=manifest["n_rows"],
            shard_rows=manifest["shard_rows"],
            chunk_rows=manifest["block_rows"],
            chunk_parts=np.array(manifest["block_parts"], dtype=np.int64).reshape(-1, len(PART_NAMES)),
            arrays={spec["name"]: ArraySpec(**spec) for spec in manifest["arrays"]},
            sha256=manifest["sha256"],
            stamp=stamp,
        )

    def read(self, start: int, stop: int) -> EncodedRows:
        """The rows from `start` to `stop`, copied into memory.

        Raises:
            StoreError: a file cannot be read, or the store was replaced after it was opened.
        """
        others = (PARTS, FOLDS) if self.said_RE is None else (PARTS, FOLDS, EVIDENCE)
        arrays = self._read([name for name in self.arrays if name not in others], start, stop)
        if self.said_RE is not None:
            arrays[EVIDENCE] = np.array(self.said_RE[max(start, 0) : max(stop, 0)])
        return EncodedRows(layout=self.layout, arrays=arrays)

    def parts(self, start: int, stop: int) -> Parts:
        """Their parts."""
        parts: Parts = self._read([PARTS], start, stop)[PARTS]  # type: ignore[assignment]  # one number per row
        return parts

    def folds(self, start: int, stop: int) -> Folds:
        """Their folds."""
        if FOLDS not in self.arrays:
            raise _no_folds(str(self.folder))
        folds: Folds = self._read([FOLDS], start, stop)[FOLDS]  # type: ignore[assignment]  # one number per row
        return folds

    def with_statements(self, said_RE: Array) -> FileShards:
        """The same rows with other evidence."""
        return replace(self, said_RE=said_RE)

    def without(self, name: str, layout: Layout) -> FileShards:
        """The same rows without an array, whose files are then not read."""
        kept = {other: spec for other, spec in self.arrays.items() if other != name}
        return replace(self, layout=layout, arrays=kept)

    def check(self) -> None:
        """Raise a StoreError if another store took the place of this one after it was opened.

        A replacement removes the old manifest before it touches a shard. So if this passes, all rows read before it
        belong to this store.
        """
        if manifest_stamp(self.folder) != self.stamp and not is_manifest(self.folder, self.sha256):
            raise StoreError(
                f"the store {self.folder} was replaced or removed since it was opened. Open it again, and train or "
                "evaluate from the start"
            )

    def _read(self, names: Sequence[str], start: int, stop: int) -> dict[str, RowArray]:
        start = min(max(start, 0), self.n_rows)
        stop = min(max(stop, start), self.n_rows)
        try:
            return {name: self._read_array(self.arrays[name], start, stop) for name in names}
        finally:
            self.check()  # also if reading failed: a replaced store is the better reason

    def _read_array(self, spec: ArraySpec, start: int, stop: int) -> RowArray:
        return (read_lists if spec.ragged else read_rows)(self.folder, spec, start, stop, self.shard_rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class StorePart:
    """Rows of a store: those of the part `name`, of several parts, or all.

    Raises:
        StoreError: there is no such part.
    """

    shards: Shards
    name: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in PART_NAMES:
                raise StoreError(f"a part must be one of {', '.join(PART_NAMES)}; given {name!r}")

    @property
    def _marks(self) -> list[int]:
        return [PART_NAMES.index(name) for name in self.names]

    @property
    def names(self) -> tuple[str, ...]:
        """The parts."""
        return PART_NAMES if self.name is None else (self.name,) if isinstance(self.name, str) else self.name

    @classmethod
    def of(cls, rows: EncodedRows) -> StorePart:
        """Rows in memory."""
        return cls(shards=MemoryShards(rows=rows, row_parts=np.zeros(len(rows), dtype=np.uint8)))

    def __len__(self) -> int:
        return int(self.counts(self.shards.chunk_rows).sum())

    @property
    def layout(self) -> Layout:
        """What the ids mean."""
        return self.shards.layout

    def chunks(self) -> Iterator[EncodedRows]:
        """All rows in the order of the source, chunk by chunk; empty chunks are skipped."""
        size = self.shards.chunk_rows
        for chunk in np.flatnonzero(self.counts(size)).tolist():
            yield self.read(chunk * size, (chunk + 1) * size)

    def rows(self) -> EncodedRows:
        """All rows at once."""
        return EncodedRows.concat([self.read(0, 0), *self.chunks()])

    def read(self, start: int, stop: int) -> EncodedRows:
        """Rows of the part among those from `start` to `stop` of the source."""
        rows = self.shards.read(start, stop)
        numbers = self.numbers(start, stop)
        return rows if len(numbers) == len(rows) else rows.take(numbers - start)

    def numbers(self, start: int, stop: int) -> RowNumbers:
        """Their row numbers in the source."""
        if self.name is None:
            return np.arange(start, min(stop, self.shards.n_rows))
        return start + np.flatnonzero(self._is_wanted(self.shards.parts(start, stop)))

    def counts(self, chunk_rows: int) -> RowNumbers:
        """Rows of the part in each chunk of `chunk_rows` rows of the source.

        Reads one byte per row, or nothing if the store has chunks of this size.
        """
        if self.name is None:
            starts = np.arange(0, self.shards.n_rows, chunk_rows)
            return np.minimum(self.shards.n_rows - starts, chunk_rows)
        if chunk_rows == self.shards.chunk_rows:
            counts: RowNumbers = self.shards.chunk_parts[:, self._marks].sum(axis=1)
            return counts
        step = chunk_rows * max(1, COUNTED_ROWS // chunk_rows)
        found = [
            _counts(self._is_wanted(self.shards.parts(start, start + step)), chunk_rows)
            for start in range(0, self.shards.n_rows, step)
        ]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def _is_wanted(self, parts: Parts) -> npt.NDArray[np.bool_]:
        return np.isin(parts, self._marks)

    def spread(self, n_rows: int, chunk_rows: int = 1 << 11) -> Iterator[EncodedRows]:
        """Evenly spread chunks with at least `n_rows` rows of any part, to sample a large store without reading it."""
        if self.shards.n_rows <= n_rows:
            yield from self.chunks()
            return
        n_chunks = -(-n_rows // chunk_rows)
        for chunk in range(n_chunks):
            start = chunk * (self.shards.n_rows - chunk_rows) // max(n_chunks - 1, 1)
            yield self.read(start, start + chunk_rows)


def _no_folds(where: str) -> StoreError:
    return StoreError(
        f"evidence can be counted again only with the folds of its rows; the store {where} was encoded without. Encode "
        "the table again, or drop train.refit"
    )


def _counts(is_counted: npt.NDArray[np.bool_], chunk_rows: int) -> RowNumbers:
    """How many are True in each chunk."""
    if not len(is_counted):
        return np.empty(0, dtype=np.int64)
    return np.add.reduceat(is_counted, np.arange(0, len(is_counted), chunk_rows), dtype=np.int64)
