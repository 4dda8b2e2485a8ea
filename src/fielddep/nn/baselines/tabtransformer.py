"""TabTransformer: attention between the categorical fields of a row, then a network (Huang 2020).

Shape legend: B rows, F fields, N numerical fields, S categorical fields, D size of a token, K the part
shared by all values of a field, V the part of a single value, C outputs.
"""

from __future__ import annotations

import torch
from torch import nn

from fielddep.config.networks import TabTransformerConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.attention import AttentionLayer, start_at_nothing
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size


class TabTransformer(FieldModel):
    """y = b + MLP(layers of attention over the tokens of the categorical fields, and the numerical fields).

    A token is [vector of the field, embedding of the value]. A numerical field takes no part in the attention: its
    embedding, multiplied by its number, goes directly to the network. With several classes the network has C outputs.
    """

    categorical_S: torch.Tensor
    numerical_N: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: TabTransformerConfig) -> None:
        super().__init__(layout, n_outputs)
        d_token = require_size(config.d_embed)
        d_column = min(round(config.column_share * d_token), d_token - 1)
        categorical = [f for f in range(layout.n_columns) if f not in layout.numerical]
        self.register_buffer("categorical_S", torch.tensor(categorical, dtype=torch.int64), persistent=False)
        self.register_buffer("numerical_N", torch.tensor(layout.numerical, dtype=torch.int64), persistent=False)
        self.embedding = EmbeddingTable(layout, d_token - d_column, std=config.embedding_init_scale)
        columns_SK = torch.randn(len(categorical), d_column) * config.embedding_init_scale
        self.columns_SK = nn.Parameter(columns_SK) if columns_SK.numel() else None
        n_layers = config.n_layers if categorical else 0
        layers = [AttentionLayer(d_token, config.n_heads, dropout=config.dropout) for _ in range(n_layers)]
        for layer in layers:
            start_at_nothing(layer.attention, layer.feed_forward)
        self.layers = nn.Sequential(*layers)
        self.mlp = build_mlp(
            len(categorical) * d_token + len(layout.numerical) * (d_token - d_column),
            config.hidden,
            n_outputs,
            batch_norm="none",
            dropout=config.dropout,
        )

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFV = self.embedding(inputs)
        tokens_BSD = e_BFV.index_select(1, self.categorical_S)
        if self.columns_SK is not None:
            tokens_BSD = torch.cat([self.columns_SK.expand(e_BFV.shape[0], -1, -1), tokens_BSD], dim=2)
        seen_BSD = self.layers(tokens_BSD)
        numbers_BNV = e_BFV.index_select(1, self.numerical_N)
        logits_BC: torch.Tensor = self.mlp(torch.cat([seen_BSD.flatten(1), numbers_BNV.flatten(1)], dim=1))
        return self.bias + logits_BC
