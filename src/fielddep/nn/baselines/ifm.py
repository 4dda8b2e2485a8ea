"""IFM: the input-aware factorization machine (Yu 2019).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size.
"""

from __future__ import annotations

import torch

from fielddep.config.factorization import IFMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size


class IFM(FieldModel):
    """An FM whose weights and embeddings are scaled by factors that depend on the row, one per field.

    factors = m * softmax(MLP([e[c_1], ..., e[c_m]])), which are one on average;
    y = b + sum_i factor_i * w[c_i] + sum_{i<j} <factor_i * e[c_i], factor_j * e[c_j]>.

    With several classes a value has one embedding per class, and the network sees them all.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: IFMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.d_embed = require_size(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, n_outputs * self.d_embed, std=config.embedding_init_scale)
        n_fields = layout.n_columns
        self.mlp = build_mlp(
            n_fields * n_outputs * self.d_embed,
            config.hidden,
            n_fields,
            batch_norm=config.batch_norm,
            dropout=config.dropout,
        )

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFE = self.embedding(inputs)
        factors_BF1 = self.factors(e_BFE).unsqueeze(2)
        first_BC: torch.Tensor = (factors_BF1 * self.first_order(inputs)).sum(dim=1)
        e_BFCD = (factors_BF1 * e_BFE).unflatten(2, (self.n_outputs, self.d_embed))
        return self.bias + first_BC + sum_of_products(e_BFCD).sum(dim=-1)

    def factors(self, e_BFE: torch.Tensor) -> torch.Tensor:
        """Factors (B, F) of the fields of every row, from their embeddings of all classes."""
        factors_BF: torch.Tensor = self.mlp(e_BFE.flatten(1)).softmax(dim=1) * self.layout.n_columns
        return factors_BF
