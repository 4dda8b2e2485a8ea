"""INN: the interaction-aware neural network (Hong 2019).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size, P pairs of fields, A width of the
attention, G size of a field's vector, H hidden units.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fielddep.config.factorization import INNConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import SchemaError
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import Dropout
from fielddep.nn.model import FieldModel, require_size


class INN(FieldModel):
    """A small network on the products of all pairs of fields, weighted by attention and by a vector per pair.

    For a pair p = (i, j): s_p = e[c_i] * e[c_j]; attention alpha_p = softmax over the pairs of
    <h, ReLU(W s_p / temperature + a)>; prototype F_p = D^T (u_i * u_j) with a vector u for every field;
    y = b + sum_i w[c_i] + Dense(ReLU(Dense([alpha_p * s_p * F_p for all p]))).

    With several classes the last layer has as many outputs.
    """

    left_P: torch.Tensor
    right_P: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: INNConfig) -> None:
        super().__init__(layout, n_outputs)
        if layout.n_columns < 2:
            raise SchemaError(f"INN works on pairs of fields and needs at least 2; given {layout.names}")
        d_embed, n_fields = require_size(config.d_embed), layout.n_columns
        self.temperature = config.temperature
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        self.attention = nn.Linear(d_embed, config.d_attention)
        self.attention_output_A = nn.Parameter(torch.randn(config.d_attention))
        self.field_vectors_FG = nn.Parameter(torch.randn(n_fields, config.d_field))
        self.prototype_GD = nn.Parameter(torch.randn(config.d_field, d_embed))
        left, right = np.triu_indices(n_fields, 1)
        self.register_buffer("left_P", torch.from_numpy(left), persistent=False)
        self.register_buffer("right_P", torch.from_numpy(right), persistent=False)
        self.hidden = nn.Linear(len(left) * d_embed, config.n_hidden)
        self.output = nn.Linear(config.n_hidden, n_outputs)
        self.dropout = Dropout(config.dropout)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        e_BFD = self.embedding(inputs)
        products_BPD = e_BFD.index_select(1, self.left_P) * e_BFD.index_select(1, self.right_P)
        weighted_BPD = products_BPD * self.dropout(self.pair_weights(products_BPD)).unsqueeze(2)
        # The prototypes are the same for every row, so they scale the weights of the layer instead of its inputs.
        weight_HPD = self.hidden.weight.view(-1, *products_BPD.shape[1:]) * self.prototypes()
        hidden_BH = F.linear(self.dropout(weighted_BPD).flatten(1), weight_HPD.flatten(1), self.hidden.bias)
        deep_BC: torch.Tensor = self.output(hidden_BH.relu())
        return self.bias + first_BC + deep_BC

    def pair_weights(self, products_BPD: torch.Tensor) -> torch.Tensor:
        """Attention (B, P) that each row pays to its pairs; they sum to one."""
        weight_AD = self.attention.weight / self.temperature
        inner_BPA = F.linear(products_BPD, weight_AD, self.attention.bias).relu()
        return (inner_BPA @ self.attention_output_A).softmax(dim=1)

    def prototypes(self) -> torch.Tensor:
        """What each pair of fields (P, D) makes of the products of its values."""
        u_FG = self.field_vectors_FG
        return (u_FG.index_select(0, self.left_P) * u_FG.index_select(0, self.right_P)) @ self.prototype_GD
