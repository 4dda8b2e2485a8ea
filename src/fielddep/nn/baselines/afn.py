"""AFN: the adaptive factorization network (Cheng 2020).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size, H logarithmic neurons, R = B * D,
because all dimensions of the embeddings share the neurons.
"""

from __future__ import annotations

import torch
from torch import nn

from fielddep.config.networks import AFNConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import BatchNorm, build_mlp
from fielddep.nn.model import FieldModel, require_size

SMALLEST = 1e-4
"""Embeddings nearer to zero count as this, because zero has no logarithm."""
NEURON_SCALE = 0.1
"""Standard deviation of the exponents at the start, small because they go through exp."""


class AFN(FieldModel):
    """Products of learned powers: z_h = exp(a_h + sum_i W_ih * norm(log |e[c_i]|)), y = b + MLP(norm(z)).

    The exponents W are shared by the dimensions of the embeddings, and both BatchNorms take their statistics over rows
    and dimensions. An embedding is 1 plus the row of its table: 1 is what changes no product, so the start near it and
    the ridge towards it mean for AFN what those at 0 mean elsewhere. The authors start at small positive numbers, which
    the first BatchNorm makes the same up to noise. With several classes the network has as many outputs.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: AFNConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = require_size(config.d_embed)
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        self.log_norm = BatchNorm(layout.n_columns)
        self.neurons = nn.Linear(layout.n_columns, config.n_neurons)
        nn.init.normal_(self.neurons.weight, std=NEURON_SCALE)
        nn.init.zeros_(self.neurons.bias)
        self.product_norm = BatchNorm(config.n_neurons)
        self.mlp = build_mlp(
            d_embed * config.n_neurons, config.hidden, n_outputs, batch_norm=config.batch_norm, dropout=config.dropout
        )

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFD = 1.0 + self.embedding(inputs)
        logs_RF = e_BFD.abs().clamp(min=SMALLEST).log().transpose(1, 2).flatten(0, 1)
        products_RH = self.product_norm(self.neurons(self.log_norm(logs_RF)).exp())
        deep_BC: torch.Tensor = self.mlp(products_RH.view(len(e_BFD), -1))
        return self.bias + deep_BC
