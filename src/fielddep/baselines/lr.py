"""LR: logistic or linear regression on the ids.

Shape legend: B rows, F fields, N numerical fields, C outputs.
"""

from __future__ import annotations

import torch

from fielddep.baseline_configs import LRConfig
from fielddep.data.batch import FieldLayout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.model import FieldModel


class LR(FieldModel):
    """The bias plus one weight a value: y = b + sum_i w[c_i]."""

    def __init__(self, layout: FieldLayout, n_outputs: int, config: LRConfig) -> None:
        super().__init__(layout, n_outputs)
        self.first_order = EmbeddingTable(layout, n_outputs)

    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""
        first_BC: torch.Tensor = self.first_order(ids_BF, numbers_BN).sum(dim=1)
        return self.bias + first_BC
