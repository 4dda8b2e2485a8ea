"""Loader: batches of the rows of a store, in memory or on disk, in bounded memory.

Seed and epoch alone decide how rows are shuffled:

1. The source is cut into chunks of 2,048 consecutive rows. Those with rows of the wanted part get a random order.
2. In this order, equally many chunks at a time, at most 2**20 rows (512 chunks), fill a buffer. Only one buffer of a
   store on disk is in memory.
3. All rows of the wanted part in a buffer get a random order.
4. Batches of nearly equal size are cut from the buffers one after another; a batch may continue in the next buffer.

So a store of at most 2**20 rows is shuffled fully. In a longer one, two rows can share a batch only if their chunks
share a buffer, which every epoch draws again. However alike the rows of a chunk are, a batch holds only a few of them,
and a buffer of hundreds of chunks from everywhere looks much like the complete store. Each buffer has a random stream
of its own, so any batch can be reached without reading the buffers before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import Batch, EncodedRows, RowArray, RowNumbers, concat_arrays
from fielddep.store.shards import MemoryShards, StorePart
from fielddep.tables.row_stream import prefetch

BUFFER_ROWS = 1 << 20
CHUNK_ROWS = 1 << 11
N_READY = 16
"""Batches prepared ahead: enough to train on while the next buffer is read."""


class Loader:
    """Batches of nearly equal size, because a tiny last batch would upset BatchNorm.

    A thread prepares the batches of a store on disk ahead.

    Args:
        rows: a part of a store, or rows in memory.
        batch_size: the most rows in a batch.
        seed: seed of the order; None keeps the order of the source.
        buffer_rows: rows of the source that are shuffled together.
        chunk_rows: rows of the source that enter a buffer together.

    Example:
        >>> from fielddep.encoding.rows import Layout
        >>> layout = Layout(names=("a", "b"), n_ids=(3, 3))
        >>> rows = EncodedRows(layout=layout, arrays={"ids": np.ones((5, 2), dtype=np.int32)})
        >>> [len(batch) for batch in Loader(rows, batch_size=2, seed=0).batches(epoch=0)]
        [1, 2, 2]
    """

    def __init__(
        self,
        rows: StorePart | EncodedRows,
        *,
        batch_size: int,
        seed: int | None = None,
        buffer_rows: int | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self.rows = rows if isinstance(rows, StorePart) else StorePart.of(rows)
        self.seed = seed
        buffer_rows, self.chunk_rows = buffer_rows or BUFFER_ROWS, chunk_rows or CHUNK_ROWS
        if seed is None:  # without a shuffle, small chunks and large buffers gain nothing
            buffer_rows = self.chunk_rows = self.rows.shards.chunk_rows
        self.counts = self.rows.counts(self.chunk_rows)
        """Rows of the part in each chunk."""
        self.chunks = np.flatnonzero(self.counts)
        """Chunks of the source that hold rows of the part."""
        self.n_rows = int(self.counts.sum())
        """Rows per epoch."""
        self.n_batches = max(1, -(-self.n_rows // batch_size))
        """Batches per epoch."""
        self.n_buffers = max(1, -(-len(self.chunks) // max(1, buffer_rows // self.chunk_rows)))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of one epoch from number `start` on, the same as in a complete epoch.

        Raises:
            StoreError: the rows cannot be read, or the store was replaced after it was opened.
        """
        self.rows.shards.check()
        batches = self._cut(epoch, start)
        yield from prefetch(batches, depth=N_READY) if self.rows.shards.on_disk else batches

    def buffers(self, epoch: int) -> list[RowNumbers]:
        """Numbers of the chunks in each buffer of an epoch."""
        chunks = self.chunks
        if self.seed is not None:
            chunks = chunks[_permutation(len(chunks), self.seed, epoch, 0)]
        return np.array_split(chunks, self.n_buffers)

    def _cut(self, epoch: int, start: int) -> Iterator[Batch]:
        found: list[EncodedRows] = []
        n_missing = self._first_row(start + 1) - self._first_row(start)
        for rows, order in self._shuffled(epoch, self._first_row(start)):
            at = 0
            while at < len(order):
                found.append(rows.take(order[at : at + n_missing]))
                at += len(found[-1])
                n_missing -= len(found[-1])
                if not n_missing:
                    yield EncodedRows.concat(found).batch()
                    found, start = [], start + 1
                    n_missing = self._first_row(start + 1) - self._first_row(start)

    def _first_row(self, batch: int) -> int:
        """Position of the first row of a batch in the order of an epoch."""
        return self.n_rows * batch // self.n_batches

    def _shuffled(self, epoch: int, first_row: int) -> Iterator[tuple[EncodedRows, RowNumbers]]:
        """Buffers with the order of their rows, starting at row `first_row` of the epoch's order."""
        buffers = self.buffers(epoch)
        sizes = [int(self.counts[chunks].sum()) for chunks in buffers]
        buffer = _Buffer(self.rows, max(sizes))
        for number, (chunks, size) in enumerate(zip(buffers, sizes, strict=True), start=1):
            if first_row < size:
                numbers = buffer.fill((chunks * self.chunk_rows).tolist(), self.chunk_rows)
                order = slice(None) if self.seed is None else _permutation(size, self.seed, epoch, number)
                yield buffer.rows, numbers[order][first_row:]
            first_row = max(0, first_row - size)


class _Buffer:
    """Rows of some chunks: those of a store in memory, uncopied, or arrays that are filled again and again."""

    def __init__(self, part: StorePart, n_rows: int) -> None:
        self.part = part
        if isinstance(part.shards, MemoryShards):
            self.rows = part.shards.rows
        else:
            none = part.shards.read(0, 0)
            arrays = {
                name: a if isinstance(a, Ragged) else np.empty((n_rows, *a.shape[1:]), dtype=a.dtype)
                for name, a in none.arrays.items()
            }
            self.rows = EncodedRows(layout=part.layout, arrays=arrays)

    def fill(self, starts: Sequence[int], chunk_rows: int) -> RowNumbers:
        """Load the chunks that start at some rows of the source; returns where their rows are in `rows`."""
        if not self.part.shards.on_disk:
            return np.concatenate([self.part.numbers(start, start + chunk_rows) for start in starts])
        n_rows = 0
        lists: dict[str, list[RowArray]] = {n: [] for n, array in self.rows.arrays.items() if isinstance(array, Ragged)}
        for start in starts:
            found = self.part.read(start, start + chunk_rows)
            for name, array in self.rows.arrays.items():
                if isinstance(array, Ragged):
                    lists[name].append(found.arrays[name])
                else:
                    array[n_rows : n_rows + len(found)] = found.arrays[name]
            n_rows += len(found)
        self.rows = self.rows.with_arrays(**{name: concat_arrays(chunks) for name, chunks in lists.items()})
        return np.arange(n_rows)


def _permutation(n: int, seed: int, epoch: int, stream: int) -> RowNumbers:
    """A random order that depends on seed, epoch and stream only: stream 0 for the chunks, then one per buffer."""
    key = int(np.random.SeedSequence((seed, epoch, stream)).generate_state(1, np.uint64)[0])
    order: RowNumbers = torch.randperm(n, generator=torch.Generator().manual_seed(key)).numpy()
    return order
