"""Encoded tables: ids, numbers and targets in memory, sliced into batches.

Shape legend: R rows of the table, B rows of a batch, F fields, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from fielddep.data.batch import Batch, FieldLayout


@dataclass(frozen=True, kw_only=True)
class EncodedTable:
    """A table after encoding.

    Attributes:
        layout: what the ids mean.
        ids_RF: local ids of every field, int32.
        numbers_RN: standardised numbers, float32; 1 where the number is missing.
        target_R: float32 (binary and regression) or int64 (multi-class); None when unknown.
        weight_R: float32 sample weights; None means one each.
    """

    layout: FieldLayout
    ids_RF: torch.Tensor
    numbers_RN: torch.Tensor
    target_R: torch.Tensor | None = None
    weight_R: torch.Tensor | None = None

    def __len__(self) -> int:
        return int(self.ids_RF.shape[0])

    def take(self, rows: torch.Tensor) -> EncodedTable:
        """The given rows (numbers of rows, int64) as a table of their own."""
        return replace(
            self,
            ids_RF=_pick(self.ids_RF, rows),
            numbers_RN=_pick(self.numbers_RN, rows),
            target_R=None if self.target_R is None else _pick(self.target_R, rows),
            weight_R=None if self.weight_R is None else _pick(self.weight_R, rows),
        )

    def blocks(self) -> Iterator[EncodedTable]:
        """All rows, piece by piece; a table in memory is one piece."""
        yield self

    def batch(self, rows: torch.Tensor | slice) -> Batch:
        """The given rows (numbers of rows, int64, or a slice) as a batch, local ids turned into joint ids."""
        local_BF = _pick(self.ids_RF, rows).numpy()
        return Batch(
            ids_BF=torch.from_numpy(np.add(local_BF, self.layout.offsets_F.numpy(), dtype=np.int64)),
            numbers_BN=_pick(self.numbers_RN, rows),
            target_B=None if self.target_R is None else _pick(self.target_R, rows),
            weight_B=None if self.weight_R is None else _pick(self.weight_R, rows),
        )


def _pick(values: torch.Tensor, rows: torch.Tensor | slice) -> torch.Tensor:
    """Rows of a tensor: a view of a slice, else a copy.

    By numpy, which stays on the calling thread: torch would start worker threads of its own for every thread that
    prepares batches, and they would take the cores from the training.
    """
    if isinstance(rows, slice):
        return values[rows]
    return torch.from_numpy(np.take(values.numpy(), rows.numpy(), axis=0))
