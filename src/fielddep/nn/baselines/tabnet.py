"""TabNet: decision steps that each look at a sparse choice of the fields (Arik 2021).

Shape legend: B rows, F fields, N numerical fields, D embedding size, I = F D inputs, G = Q + A outputs of a feature
transformer: Q of the decision, A that choose the fields of the next step; S steps, C outputs.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.config.networks import TabNetConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import BatchNorm, GhostBatchNorm
from fielddep.nn.model import FieldModel, require_size
from fielddep.nn.simplex import sparsemax

N_SHARED = N_OWN = 2
"""Layers of a feature transformer that all steps share, and layers of its own."""


class FeatureTransformer(nn.Module):
    """Four gated layers: x = (x + GLU(norm(W x))) / sqrt(2), without the sum in the first.

    The matrices of the first two are shared between the steps, so they are given; a step's norms are its own.
    """

    def __init__(self, d_out: int, virtual_batch: int) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(d_out, 2 * d_out, bias=False) for _ in range(N_OWN))
        norms = (GhostBatchNorm(2 * d_out, virtual_batch=virtual_batch) for _ in range(N_SHARED + N_OWN))
        self.norms = nn.ModuleList(norms)

    def forward(self, x_BI: torch.Tensor, shared: nn.ModuleList) -> torch.Tensor:
        """Outputs (B, G)."""
        first, *others = (*shared, *self.own)
        x_BG = F.glu(self.norms[0](first(x_BI)))
        for layer, norm in zip(others, self.norms[1:], strict=True):
            x_BG = (x_BG + F.glu(norm(layer(x_BG)))) * math.sqrt(0.5)
        return x_BG


class TabNet(FieldModel):
    """A sum of ReLU outputs of decision steps, each on inputs with a sparse mask over the fields.

    Step s: mask_s = sparsemax(prior * norm(W a)), prior *= gamma - mask_s, (d, a) = transform_s(mask_s * x), and
    y = b + W sum_s ReLU(d): a last layer of C outputs with several classes. A mask has one number per field, for
    all numbers of its embedding; the entropy of the masks is a penalty.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: TabNetConfig) -> None:
        super().__init__(layout, n_outputs)
        self.config = config
        d_embed, virtual = require_size(config.d_embed), config.virtual_batch
        n_columns, d_out = layout.n_columns, config.d_decision + config.d_attention
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        self.input_norm = BatchNorm(n_columns * d_embed)
        widths = [n_columns * d_embed, *[d_out] * (N_SHARED - 1)]
        self.shared = nn.ModuleList(nn.Linear(width, 2 * d_out, bias=False) for width in widths)
        steps = range(config.n_steps)
        self.first = FeatureTransformer(d_out, virtual)
        self.transformers = nn.ModuleList(FeatureTransformer(d_out, virtual) for _ in steps)
        self.choosers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(config.d_attention, n_columns, bias=False), GhostBatchNorm(n_columns, virtual_batch=virtual)
            )
            for _ in steps
        )
        self.output = nn.Linear(config.d_decision, n_outputs, bias=False)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        return self.steps(inputs)[0]

    def training_forward(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits, and `sparsity` times the mean entropy of the masks."""
        logits_BC, masks = self.steps(inputs)
        mask_SBF = torch.stack(masks)
        entropy_SB = -(mask_SBF * torch.log(mask_SBF + 1e-15)).sum(dim=-1)
        return self._mixed(logits_BC, inputs), self.config.sparsity * entropy_SB.mean()

    def steps(self, inputs: Inputs) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits, and the mask (B, F) of every step."""
        e_BFD = self.embedding(inputs)
        x_BFD = self.input_norm(e_BFD.flatten(1)).unflatten(1, e_BFD.shape[1:])
        sizes = (self.config.d_decision, self.config.d_attention)
        a_BA = self.first(x_BFD.flatten(1), self.shared).split(sizes, dim=1)[1]
        prior_BF = torch.ones_like(x_BFD[..., 0])
        decisions, masks = [], []
        for chooser, transformer in zip(self.choosers, self.transformers, strict=True):
            mask_BF = sparsemax(chooser(a_BA) * prior_BF)
            prior_BF = prior_BF * (self.config.relaxation - mask_BF)
            d_BQ, a_BA = transformer((mask_BF.unsqueeze(-1) * x_BFD).flatten(1), self.shared).split(sizes, dim=1)
            decisions.append(torch.relu(d_BQ))
            masks.append(mask_BF)
        return self.bias + self.output(torch.stack(decisions).sum(dim=0)), masks
