"""Loader over a store: batches of rows that lie on disk, in bounded memory.

How rows are shuffled, all of it decided by seed and epoch:

1. The store is taken in pieces of `piece_rows` (2,048) rows that follow each other in the source. Those that hold rows
   of the wanted part are put in random order.
2. That order is cut into windows of nearly equally many pieces, `window_rows` rows at most (2**20 rows: 512 pieces),
   and one window at a time is in memory.
3. All rows of a window that are of the wanted part are put in random order together.
4. Batches of nearly equal size are cut from the windows one after the other; one that begins at the end of a window is
   filled up from the next.

A store of at most `window_rows` rows is thus shuffled fully. In a longer one, two rows can meet in a batch only if
their pieces meet in a window, which every epoch draws anew. However alike the rows of a piece are, a batch holds only
a few of them, and a window, made of hundreds of pieces from everywhere, looks much like the whole store. Each window's
order has a random stream of its own, so any batch can be reached without reading what lies before its window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fielddep.data.batch import Batch, FieldLayout, join_batches
from fielddep.data.encoded import EncodedTable
from fielddep.data.loader import BatchSource, Loader
from fielddep.data.prefetch import prefetch
from fielddep.data.store.store import PART_NAMES, Store

WINDOW_ROWS = 1 << 20
PIECE_ROWS = 1 << 11
COUNTED_ROWS = 1 << 20
"""Marks of rows that are looked at together when the rows of a part are counted."""
N_READY = 16
"""Batches prepared ahead: enough to train on while the next window is read."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class StorePart:
    """Rows of a store: those of one part, or all."""

    store: Store
    part: str | None = None

    def __len__(self) -> int:
        return self.store.n_rows if self.part is None else self.store.n_rows_of[self.part]

    @property
    def layout(self) -> FieldLayout:
        """What the ids mean."""
        return self.store.layout

    def blocks(self) -> Iterator[EncodedTable]:
        """All rows in the source's order, block after block."""
        return self.store.blocks(self.part)

    def read(self, start: int, stop: int) -> EncodedTable:
        """Rows of the part among those from `start` to `stop` of the source."""
        rows = self.store.read(start, stop)
        if self.part is None:
            return rows
        chosen = np.flatnonzero(self.store.parts(start, stop) == PART_NAMES.index(self.part))
        return rows if len(chosen) == len(rows) else rows.take(torch.from_numpy(chosen))

    def counts(self, piece_rows: int) -> Numbers:
        """Rows of the part in each piece of so many rows of the source; reads one byte a row, or nothing for blocks."""
        starts = np.arange(0, self.store.n_rows, piece_rows)
        if self.part is None:
            return np.minimum(self.store.n_rows - starts, piece_rows)
        mark = PART_NAMES.index(self.part)
        if piece_rows == self.store.block_rows:
            return self.store.block_parts[:, mark]
        found = [np.empty(0, dtype=np.int64)]
        step = piece_rows * max(1, COUNTED_ROWS // piece_rows)
        for first in range(0, self.store.n_rows, step):
            marks = self.store.parts(first, first + step) == mark
            found.append(np.add.reduceat(marks, np.arange(0, len(marks), piece_rows), dtype=np.int64))
        return np.concatenate(found)


Rows = EncodedTable | StorePart


def loader_for(rows: Rows, *, batch_size: int, seed: int | None = None) -> BatchSource:
    """The loader of rows in memory or in a store; without a seed they keep their order."""
    if isinstance(rows, StorePart):
        return StoreLoader(rows, batch_size=batch_size, seed=seed, window_rows=WINDOW_ROWS, piece_rows=PIECE_ROWS)
    return Loader(rows, batch_size=batch_size, seed=seed)


class StoreLoader:
    """Batches of nearly equal size from a store, prepared ahead by a thread.

    Args:
        rows: part of a store.
        batch_size: rows a batch at most.
        seed: seed of the order; None gives the rows in the source's order.
        window_rows: rows of the source in memory at a time; what they are shuffled among.
        piece_rows: rows of the source that stay together until they are shuffled within a window.
        worker: which share of the pieces is this loader's, for one of several workers.
        n_workers: number of shares.
    """

    def __init__(
        self,
        rows: StorePart,
        *,
        batch_size: int,
        seed: int | None = None,
        window_rows: int = WINDOW_ROWS,
        piece_rows: int = PIECE_ROWS,
        worker: int = 0,
        n_workers: int = 1,
    ) -> None:
        self.rows = rows
        self.seed = seed
        if seed is None:  # in the source's order there is nothing to gain from small pieces or large windows
            window_rows = piece_rows = rows.store.block_rows
        self.piece_rows = piece_rows
        self.counts = rows.counts(piece_rows)
        """Rows of the part in each piece."""
        self.pieces = np.flatnonzero(self.counts)[worker::n_workers]
        """Pieces of the source that hold rows of this loader."""
        self.n_rows = int(self.counts[self.pieces].sum())
        self.n_batches = max(1, -(-self.n_rows // batch_size))
        self.n_windows = max(1, -(-len(self.pieces) // max(1, window_rows // piece_rows)))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of one epoch, from number `start` on; nothing before its window is read.

        Raises:
            StoreError: the rows cannot be read, or the store was replaced since it was opened.
        """
        self.rows.store.check_in_place()
        yield from prefetch(self._cut(epoch, start), depth=N_READY)

    def windows(self, epoch: int) -> list[Numbers]:
        """Pieces of each window of an epoch."""
        pieces = self.pieces
        if self.seed is not None:
            pieces = pieces[_permutation(len(pieces), self.seed, epoch, 0).numpy()]
        return np.array_split(pieces, self.n_windows)

    def _cut(self, epoch: int, start: int) -> Iterator[Batch]:
        found: list[Batch] = []
        n_missing = self._first_row(start + 1) - self._first_row(start)
        for table, order in self._shuffled(epoch, self._first_row(start)):
            at = 0
            while at < len(order):
                found.append(table.batch(order[at : at + n_missing]))
                at += len(found[-1])
                n_missing -= len(found[-1])
                if not n_missing:
                    yield join_batches(found)
                    found, start = [], start + 1
                    n_missing = self._first_row(start + 1) - self._first_row(start)

    def _first_row(self, batch: int) -> int:
        """Place of a batch's first row in the order of an epoch."""
        return self.n_rows * batch // self.n_batches

    def _shuffled(self, epoch: int, first_row: int) -> Iterator[tuple[EncodedTable, torch.Tensor]]:
        """Window after window with the order of its rows, from the one that holds row `first_row` of the order on."""
        windows = self.windows(epoch)
        sizes = [int(self.counts[pieces].sum()) for pieces in windows]
        memory = _Window(self.rows, max(sizes))
        for number, (pieces, size) in enumerate(zip(windows, sizes, strict=True), start=1):
            if first_row < size:
                memory.fill((int(piece) * self.piece_rows, (int(piece) + 1) * self.piece_rows) for piece in pieces)
                order = torch.arange(size) if self.seed is None else _permutation(size, self.seed, epoch, number)
                yield memory.table, order[first_row:]
            first_row = max(0, first_row - size)


class _Window:
    """Memory for the rows of one window, used again for the next."""

    def __init__(self, rows: StorePart, n_rows: int) -> None:
        self.rows = rows
        like = rows.store.read(0, 0)
        self.table = EncodedTable(
            layout=rows.layout,
            ids_RF=_room(like.ids_RF, n_rows),
            numbers_RN=_room(like.numbers_RN, n_rows),
            target_R=None if like.target_R is None else _room(like.target_R, n_rows),
            weight_R=None if like.weight_R is None else _room(like.weight_R, n_rows),
        )

    def fill(self, spans: Iterable[tuple[int, int]]) -> None:
        """Read the rows of the part in spans of the source, one behind the other."""
        at = 0
        for start, stop in spans:
            found = self.rows.read(start, stop)
            for own, new in zip(_tensors(self.table), _tensors(found), strict=True):
                own.numpy()[at : at + len(found)] = new.numpy()
            at += len(found)


def _room(like: torch.Tensor, n_rows: int) -> torch.Tensor:
    return torch.empty((n_rows, *like.shape[1:]), dtype=like.dtype)


def _tensors(table: EncodedTable) -> list[torch.Tensor]:
    all_of_them = (table.ids_RF, table.numbers_RN, table.target_R, table.weight_R)
    return [tensor for tensor in all_of_them if tensor is not None]


def _permutation(n: int, seed: int, epoch: int, stream: int) -> torch.Tensor:
    """A random order that depends on nothing but seed, epoch and stream: 0 for the pieces, then one a window."""
    key = int(np.random.SeedSequence((seed, epoch, stream)).generate_state(1, np.uint64)[0])
    return torch.randperm(n, generator=torch.Generator().manual_seed(key))
