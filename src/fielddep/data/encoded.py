"""Encoded tables: ids, numbers and targets in memory, sliced into batches.

Shape legend: R rows of the table, B rows of a batch, F fields, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        """The given rows as a table of their own."""
        return replace(
            self,
            ids_RF=self.ids_RF[rows],
            numbers_RN=self.numbers_RN[rows],
            target_R=None if self.target_R is None else self.target_R[rows],
            weight_R=None if self.weight_R is None else self.weight_R[rows],
        )

    def batch(self, rows: torch.Tensor | slice) -> Batch:
        """The given rows as a batch, local ids turned into joint ids."""
        offsets_F = torch.tensor(self.layout.offsets, dtype=torch.int64)
        return Batch(
            ids_BF=self.ids_RF[rows].to(torch.int64) + offsets_F,
            numbers_BN=self.numbers_RN[rows],
            target_B=None if self.target_R is None else self.target_R[rows],
            weight_B=None if self.weight_R is None else self.weight_R[rows],
        )
