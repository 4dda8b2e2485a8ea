"""LR: logistic or linear regression on the ids.

Shape legend: B rows, F fields, N numerical fields, C outputs.
"""

from __future__ import annotations

import torch

from fielddep.config.factorization import LRConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.model import FieldModel


class LR(FieldModel):
    """The bias plus one weight per value: y = b + sum_i w[c_i]."""

    def __init__(self, layout: Layout, n_outputs: int, config: LRConfig) -> None:
        super().__init__(layout, n_outputs)
        self.first_order = EmbeddingTable(layout, n_outputs)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        return self.bias + first_BC
