"""Wide & Deep (Cheng 2016), in the form of the CTR benchmarks: the wide part is one weight per value.

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size.
"""

from __future__ import annotations

import torch

from fielddep.config.networks import WideDeepConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size


class WideDeep(FieldModel):
    """One weight per value plus a network on the embeddings: y = b + sum_i w[c_i] + MLP([e[c_1], ..., e[c_m]]).

    With several classes a value has one weight per class, and the network as many outputs. The hand-made crosses of the
    original wide part are `data.crosses`, available to every model.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: WideDeepConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = require_size(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        self.mlp = build_mlp(
            layout.n_columns * d_embed, config.hidden, n_outputs, batch_norm=config.batch_norm, dropout=config.dropout
        )

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        wide_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        deep_BC: torch.Tensor = self.mlp(self.embedding(inputs).flatten(1))
        return self.bias + wide_BC + deep_BC
