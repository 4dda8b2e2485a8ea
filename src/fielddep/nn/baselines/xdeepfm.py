"""xDeepFM (Lian 2018): weights of values, a network, and a compressed interaction network (CIN).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size, H feature maps of a layer, M feature
maps of all layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fielddep.config.networks import XDeepFMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size


class CompressedInteractions(nn.Module):
    """Layer k: X^k_h = sum_{i,j} W^k_hij (X^{k-1}_i * X^0_j), per dimension; the output is every map's sum over D.

    One matrix product per layer. Layers are linear in their products, as in the paper, so the last one can sum over D
    first: it works on the inner products of maps and fields, which are D times fewer.

    Shape:
        embeddings (B, F, D) -> (B, M).

    Example:
        >>> CompressedInteractions(3, (4, 2))(torch.ones(5, 3, 8)).shape
        torch.Size([5, 6])
    """

    def __init__(self, n_fields: int, n_maps: Sequence[int]) -> None:
        super().__init__()
        n_before = (n_fields, *n_maps[:-1])
        self.layers = nn.ModuleList(
            nn.Linear(before * n_fields, n, bias=False) for before, n in zip(n_before, n_maps, strict=True)
        )

    def forward(self, e_BFD: torch.Tensor) -> torch.Tensor:
        """Sums of all feature maps, layer by layer."""
        *inner, last = self.layers
        fields_BDF = maps_BDH = e_BFD.transpose(1, 2).contiguous()
        sums = []
        for layer in inner:
            products_BDHF = maps_BDH.unsqueeze(3) * fields_BDF.unsqueeze(2)
            maps_BDH = layer(products_BDHF.flatten(2))
            sums.append(maps_BDH.sum(dim=1))
        inner_products_BHF = maps_BDH.transpose(1, 2) @ fields_BDF
        sums.append(last(inner_products_BHF.flatten(1)))
        return torch.cat(sums, dim=1)


class XDeepFM(FieldModel):
    """y = b + sum_i w[c_i] + MLP([e[c_1], ..., e[c_m]]) + <a, CIN(e[c_1], ..., e[c_m])>.

    With several classes weights, network and the vector `a` have one output per class.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: XDeepFMConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = require_size(config.d_embed)
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        self.cin = CompressedInteractions(layout.n_columns, config.n_maps)
        self.cin_output = nn.Linear(sum(config.n_maps), n_outputs, bias=False)
        self.mlp = build_mlp(
            layout.n_columns * d_embed, config.hidden, n_outputs, batch_norm=config.batch_norm, dropout=config.dropout
        )

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        e_BFD = self.embedding(inputs)
        products_BC: torch.Tensor = self.cin_output(self.cin(e_BFD))
        deep_BC: torch.Tensor = self.mlp(e_BFD.flatten(1))
        return self.bias + first_BC + products_BC + deep_BC
