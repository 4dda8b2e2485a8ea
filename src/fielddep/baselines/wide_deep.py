"""Wide & Deep (Cheng 2016), in the form of the CTR benchmarks: the wide part is a weight a value.

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size.
"""

from __future__ import annotations

import torch

from fielddep.baseline_configs import WideDeepConfig
from fielddep.data.batch import FieldLayout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.mlp import build_mlp
from fielddep.nn.model import FieldModel, decided


class WideDeep(FieldModel):
    """One weight a value beside a network on the embeddings: y = b + sum_i w[c_i] + MLP([e[c_1], ..., e[c_m]]).

    With several classes a value has one weight for each of them, and the network as many outputs. The hand-made
    crosses of the original wide part are `data.crosses`, which every model here can have.
    """

    def __init__(self, layout: FieldLayout, n_outputs: int, config: WideDeepConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = decided(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, d_embed)
        self.embedding.init_weights("normal", config.embedding_init_scale)
        self.mlp = build_mlp(
            layout.n_columns * d_embed, config.hidden, n_outputs, batch_norm=config.batch_norm, dropout=config.dropout
        )

    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""
        wide_BC: torch.Tensor = self.first_order(ids_BF, numbers_BN).sum(dim=1)
        deep_BC: torch.Tensor = self.mlp(self.embedding(ids_BF, numbers_BN).flatten(1))
        return self.bias + wide_BC + deep_BC
