"""Loader: batches of an encoded table in a seeded order that depends on nothing but seed and epoch.

Resuming therefore needs no more than a position. A loader over a part of the rows (one of several workers) is a
loader over that part's table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

import torch

from fielddep.data.batch import Batch
from fielddep.data.encoded import EncodedTable


class BatchSource(Protocol):
    """What a trainer needs of a loader, wherever its rows lie."""

    n_batches: int
    """Batches an epoch."""

    @property
    def n_rows(self) -> int:
        """Rows an epoch."""

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of one epoch, from number `start` on: the same as if all before had been read."""


class Loader:
    """Slices batches of nearly equal size, so that no tiny last batch upsets BatchNorm.

    Example:
        >>> from fielddep.data.batch import FieldLayout
        >>> layout = FieldLayout(names=("a", "b"), n_ids=(3, 3))
        >>> table = EncodedTable(
        ...     layout=layout, ids_RF=torch.ones(5, 2, dtype=torch.int32), numbers_RN=torch.empty(5, 0)
        ... )
        >>> [len(batch) for batch in Loader(table, batch_size=2, seed=0).batches(epoch=0)]
        [2, 2, 1]
    """

    def __init__(self, table: EncodedTable, *, batch_size: int, seed: int | None = None) -> None:
        self.table = table
        self.n_batches = max(1, -(-len(table) // batch_size))
        self.seed = seed
        """Seed of the order; None keeps the table's own."""

    @property
    def n_rows(self) -> int:
        """Rows an epoch."""
        return len(self.table)

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of one epoch, from number `start` on."""
        if self.seed is None:
            edges = [len(self.table) * i // self.n_batches for i in range(self.n_batches + 1)]
            parts: list[torch.Tensor | slice] = [slice(a, b) for a, b in itertools.pairwise(edges)]
        else:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order_R = torch.randperm(len(self.table), generator=generator)
            parts = list(torch.tensor_split(order_R, self.n_batches))
        for part in parts[start:]:
            yield self.table.batch(part)
