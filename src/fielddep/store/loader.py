"""Loader: batches of the rows of a store, in memory or on disk, in bounded memory.

How rows are shuffled, all of it decided by seed and epoch:

1. The store is taken in chunks of 2,048 rows that follow each other in the source. Those that hold rows of the wanted
   part are put in random order.
2. That order is cut into windows of nearly equally many chunks, 2**20 rows at most (512 chunks), and of a store on disk
   one window at a time is in memory.
3. All rows of a window that are of the wanted part are put in random order together.
4. Batches of nearly equal size are cut from the windows one after the other; one that begins at the end of a window is
   filled up from the next.

A store of at most 2**20 rows is thus shuffled fully. In a longer one, two rows can meet in a batch only if their chunks
meet in a window, which every epoch draws again. However alike the rows of a chunk are, a batch holds only a few of
them, and a window, made of hundreds of chunks from everywhere, looks much like the whole store. Each window's order has
a random stream of its own, so any batch can be reached without reading what lies before its window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from fielddep.encoding.rows import Batch, EncodedRows, RowNumbers
from fielddep.store.shards import MemoryShards, StorePart
from fielddep.tables.row_stream import prefetch

WINDOW_ROWS = 1 << 20
CHUNK_ROWS = 1 << 11
N_READY = 16
"""Batches prepared ahead: enough to train on while the next window is read."""


class Loader:
    """Batches of nearly equal size, so that no tiny last batch upsets BatchNorm.

    Those of a store on disk are prepared ahead by a thread.

    Args:
        rows: a part of a store, or rows in memory.
        batch_size: rows of a batch at most.
        seed: seed of the order; None gives the rows in the order of the source.
        window_rows: rows of the source that are shuffled together.
        chunk_rows: rows of the source that stay together until they are shuffled within a window.

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
        window_rows: int | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self.rows = rows if isinstance(rows, StorePart) else StorePart.of(rows)
        self.seed = seed
        window_rows, self.chunk_rows = window_rows or WINDOW_ROWS, chunk_rows or CHUNK_ROWS
        if seed is None:  # in the order of the source there is nothing to gain from small chunks or large windows
            window_rows = self.chunk_rows = self.rows.shards.chunk_rows
        self.counts = self.rows.counts(self.chunk_rows)
        """Rows of the part in each chunk."""
        self.chunks = np.flatnonzero(self.counts)
        """Chunks of the source that hold rows of the part."""
        self.n_rows = int(self.counts.sum())
        """Rows an epoch."""
        self.n_batches = max(1, -(-self.n_rows // batch_size))
        """Batches an epoch."""
        self.n_windows = max(1, -(-len(self.chunks) // max(1, window_rows // self.chunk_rows)))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of one epoch, from number `start` on: the same as if all before had been read.

        Raises:
            StoreError: the rows cannot be read, or the store was replaced since it was opened.
        """
        self.rows.shards.check()
        batches = self._cut(epoch, start)
        yield from prefetch(batches, depth=N_READY) if self.rows.shards.on_disk else batches

    def windows(self, epoch: int) -> list[RowNumbers]:
        """Chunks of each window of an epoch."""
        chunks = self.chunks
        if self.seed is not None:
            chunks = chunks[_permutation(len(chunks), self.seed, epoch, 0)]
        return np.array_split(chunks, self.n_windows)

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
        """Place of a batch's first row in the order of an epoch."""
        return self.n_rows * batch // self.n_batches

    def _shuffled(self, epoch: int, first_row: int) -> Iterator[tuple[EncodedRows, RowNumbers]]:
        """Window after window with the order of its rows, from the one that holds row `first_row` of the order on."""
        windows = self.windows(epoch)
        sizes = [int(self.counts[chunks].sum()) for chunks in windows]
        read = _Window(self.rows, max(sizes)).read
        for number, (chunks, size) in enumerate(zip(windows, sizes, strict=True), start=1):
            if first_row < size:
                rows, numbers = read(
                    (chunk * self.chunk_rows, (chunk + 1) * self.chunk_rows) for chunk in chunks.tolist()
                )
                order = slice(None) if self.seed is None else _permutation(size, self.seed, epoch, number)
                yield rows, numbers[order][first_row:]
            first_row = max(0, first_row - size)


class _Window:
    """The rows of one window: all rows that are in memory anyway, or a buffer that is used again for the next."""

    def __init__(self, part: StorePart, n_rows: int) -> None:
        self.part = part
        shards = part.shards
        if isinstance(shards, MemoryShards):
            self.rows = shards.rows
        else:
            none = shards.read(0, 0)
            arrays = {name: np.empty((n_rows, *a.shape[1:]), dtype=a.dtype) for name, a in none.arrays.items()}
            self.rows = EncodedRows(layout=part.layout, arrays=arrays)

    def read(self, chunks: Iterable[tuple[int, int]]) -> tuple[EncodedRows, RowNumbers]:
        """Rows that hold those of some chunks of the source, and the places of those among them."""
        if not self.part.shards.on_disk:
            return self.rows, np.concatenate([self.part.numbers(start, stop) for start, stop in chunks])
        at = 0
        for start, stop in chunks:
            found = self.part.read(start, stop)
            for name, array in self.rows.arrays.items():
                array[at : at + len(found)] = found.arrays[name]
            at += len(found)
        return self.rows, np.arange(at)


def _permutation(n: int, seed: int, epoch: int, stream: int) -> RowNumbers:
    """A random order that depends on nothing but seed, epoch and stream: 0 for the chunks, then one a window."""
    key = int(np.random.SeedSequence((seed, epoch, stream)).generate_state(1, np.uint64)[0])
    order: RowNumbers = torch.randperm(n, generator=torch.Generator().manual_seed(key)).numpy()
    return order
