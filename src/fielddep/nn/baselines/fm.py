"""FM: the factorization machine (Rendle 2010).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size.
"""

from __future__ import annotations

import torch

from fielddep.config.factorization import FMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.model import FieldModel, require_size


class FM(FieldModel):
    """One weight per value and one product per pair of fields: y = b + sum_i w[c_i] + sum_{i<j} <e[c_i], e[c_j]>.

    With several classes a value has one embedding per class.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: FMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.d_embed = require_size(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, n_outputs * self.d_embed, std=config.embedding_init_scale)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFCD = self.embedding(inputs).unflatten(2, (self.n_outputs, self.d_embed))
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        return self.bias + first_BC + sum_of_products(e_BFCD).sum(dim=-1)
