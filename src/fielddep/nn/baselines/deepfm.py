"""DeepFM (Guo 2017): a factorization machine and a network on the same embeddings.

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size.
"""

from __future__ import annotations

import torch
from torch import nn

from fielddep.config.networks import DeepFMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size


class DeepFM(FieldModel):
    """y = b + sum_i w[c_i] + sum_{i<j} <e[c_i], e[c_j]> + MLP([e[c_1], ..., e[c_m]]).

    With several classes the network has as many outputs and the products are weighted per class:
    sum_d a[class, d] * sum_{i<j} e[c_i]_d * e[c_j]_d, so that network and products still share one embedding per value.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: DeepFMConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = require_size(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        self.class_weights = nn.Linear(d_embed, n_outputs, bias=False) if n_outputs > 1 else None
        self.mlp = build_mlp(
            layout.n_columns * d_embed, config.hidden, n_outputs, batch_norm=config.batch_norm, dropout=config.dropout
        )

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        e_BFD = self.embedding(inputs)
        products_BD = sum_of_products(e_BFD)
        if self.class_weights is None:
            second_BC = products_BD.sum(dim=1, keepdim=True)
        else:
            second_BC = self.class_weights(products_BD)
        deep_BC: torch.Tensor = self.mlp(e_BFD.flatten(1))
        return self.bias + first_BC + second_BC + deep_BC
