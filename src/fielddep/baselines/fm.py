"""FM: the factorization machine (Rendle 2010).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size.
"""

from __future__ import annotations

import torch

from fielddep.baseline_configs import FMConfig
from fielddep.data.batch import FieldLayout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.model import FieldModel, decided


class FM(FieldModel):
    """One weight a value and one product a pair of fields: y = b + sum_i w[c_i] + sum_{i<j} <e[c_i], e[c_j]>.

    With several classes a value has one embedding for each of them.
    """

    def __init__(self, layout: FieldLayout, n_outputs: int, config: FMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.d_embed = decided(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, n_outputs * self.d_embed)
        self.embedding.init_weights("normal", config.embedding_init_scale)

    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFCD = self.embedding(ids_BF, numbers_BN).unflatten(2, (self.n_outputs, self.d_embed))
        first_BC: torch.Tensor = self.first_order(ids_BF, numbers_BN).sum(dim=1)
        return self.bias + first_BC + sum_of_products(e_BFCD).sum(dim=-1)
