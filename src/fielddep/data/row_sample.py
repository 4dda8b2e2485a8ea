"""A fair sample of rows that arrive piece by piece, in bounded memory.

Every row draws a random number, and the rows with the smallest numbers stay. So each row has the same chance, however
many there are, and the sample of a seed is always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from fielddep.data.encoded import EncodedTable
from fielddep.data.store.loader import PIECE_ROWS, Rows


class RowSample:
    """A growing sample.

    Args:
        n_rows: rows to keep at most.
        seed: seed of the choice.
    """

    def __init__(self, n_rows: int, *, seed: int = 0) -> None:
        self.n_rows = n_rows
        self.n_seen = 0
        """Rows that have passed by."""
        self._rng = np.random.default_rng(seed)
        self._draws = np.empty(0)
        self._numbers = np.empty(0, dtype=np.int64)
        self._table: EncodedTable | None = None

    def add(self, block: EncodedTable) -> None:
        """Let the rows of a block take part."""
        draws = self._rng.random(len(block))
        bound = self._draws.max() if len(self._draws) >= self.n_rows else np.inf
        chosen = np.flatnonzero(draws < bound)
        self._draws = np.concatenate([self._draws, draws[chosen]])
        self._numbers = np.concatenate([self._numbers, self.n_seen + chosen])
        new = block.take(torch.from_numpy(chosen))
        self._table = new if self._table is None else join_rows(self._table, new)
        self.n_seen += len(block)
        self._drop()

    @property
    def table(self) -> EncodedTable | None:
        """The rows kept so far, in the order in which they came; None before the first block."""
        return self._table

    @property
    def rows(self) -> EncodedTable:
        """The same, where there was a block."""
        assert self._table is not None
        return self._table

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Which rows these are of all that passed by, counted from 0."""
        return self._numbers

    def _drop(self) -> None:
        if len(self._draws) <= self.n_rows or self._table is None:
            return
        kept = np.sort(np.argpartition(self._draws, self.n_rows)[: self.n_rows])
        self._draws, self._numbers = self._draws[kept], self._numbers[kept]
        self._table = self._table.take(torch.from_numpy(kept))


def sample_rows(blocks: Iterable[EncodedTable], n_rows: int, *, seed: int = 0) -> RowSample:
    """A sample of all rows of some blocks."""
    sample = RowSample(n_rows, seed=seed)
    for block in blocks:
        sample.add(block)
    return sample


def spread_rows(rows: Rows, n_rows: int) -> Iterator[EncodedTable]:
    """Rows from everywhere, without reading all of a large store: pieces of it, evenly spread.

    Args:
        rows: rows in memory, which are all given, or of a store.
        n_rows: how many rows of the store, of whatever part, are read at least, where there are so many.
    """
    if isinstance(rows, EncodedTable) or rows.store.n_rows <= n_rows:
        yield from rows.blocks()
        return
    n_pieces = -(-n_rows // PIECE_ROWS)
    for piece in range(n_pieces):
        start = piece * (rows.store.n_rows - PIECE_ROWS) // max(n_pieces - 1, 1)
        yield rows.read(start, start + PIECE_ROWS)


def join_rows(first: EncodedTable, second: EncodedTable) -> EncodedTable:
    """The rows of two tables of the same layout; both must have, or lack, target and weights."""
    return replace(
        first,
        ids_RF=torch.cat([first.ids_RF, second.ids_RF]),
        numbers_RN=torch.cat([first.numbers_RN, second.numbers_RN]),
        target_R=_join(first.target_R, second.target_R),
        weight_R=_join(first.weight_R, second.weight_R),
    )


def _join(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])
