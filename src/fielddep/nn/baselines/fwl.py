"""FWL: field-wise learning (Li 2020).

Shape legend: B rows, F fields, N numerical fields, C outputs, R sum of the ranks of all fields, I joint ids,
V values of one field, K rank of one field.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from fielddep.config.factorization import FWLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.model import FieldModel, require_size


class FWL(FieldModel):
    """A linear model for every value of a field over the values of the other fields, of low rank.

    y = b + sum_i w[c_i] + sum_i <v_i[c_i], sum_{j != i} u_i[c_j]>: the model of value c of field i has the weight
    <v_i[c], u_i[d]> for value d of another field. The v_i of field i's values and the u_i of all others are block i of
    one table. With several classes there is one such set of models per class.

    Every `variance_every` steps the table moves against the gradient of half the squared norm of each field's models
    minus their mean and, with `mean_penalty`, of that mean.
    """

    owner_R: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: FWLConfig) -> None:
        super().__init__(layout, n_outputs)
        self.config = config
        self.ranks = field_ranks(layout, config)
        self.first_order = EmbeddingTable(layout, n_outputs) if config.first_order else None
        self.embedding = EmbeddingTable(layout, n_outputs * sum(self.ranks), std=config.embedding_init_scale)
        owner_R = torch.from_numpy(np.repeat(np.arange(layout.n_columns), self.ranks))
        self.register_buffer("owner_R", owner_R, persistent=False)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFCR: torch.Tensor = self.embedding(inputs).unflatten(2, (self.n_outputs, len(self.owner_R)))
        own_B1CR = e_BFCR.gather(1, self.owner_R.expand(len(e_BFCR), 1, self.n_outputs, -1))
        others_B1CR = e_BFCR.sum(dim=1, keepdim=True) - own_B1CR
        logits_BC = self.bias + (others_B1CR * own_B1CR).sum(dim=(1, 3))
        if self.first_order is None:
            return logits_BC
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        return logits_BC + first_BC

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """The step of the penalty, outside the optimizer because its gradient reaches every value."""
        if self.config.variance_lr == 0 or step % self.config.variance_every:
            return
        table_ICR = self.embedding.weight.view(-1, self.n_outputs, len(self.owner_R))
        for table_IR in table_ICR.unbind(dim=1):
            blocks = torch.split(table_IR, list(self.ranks), dim=1)
            for block_IK, first, n_values in zip(blocks, self.layout.offsets, self.layout.n_ids, strict=True):
                self._hold(block_IK, slice(first, first + n_values))

    def _hold(self, block_IK: torch.Tensor, own: slice) -> None:
        """Step of one field's penalty, in place, without ever forming its models, whose number is V * (I - V)."""
        v_VK = block_IK[own]
        mean_1K = v_VK.mean(dim=0, keepdim=True)
        kept_mean_1K = mean_1K if self.config.mean_penalty else torch.zeros_like(mean_1K)
        centred_VK = v_VK - mean_1K
        others_KK = block_IK.T @ block_IK - v_VK.T @ v_VK
        own_KK = centred_VK.T @ centred_VK + kept_mean_1K.T @ kept_mean_1K
        change_VK = (centred_VK + kept_mean_1K / len(v_VK)) @ others_KK
        # The penalty's curvature grows with the table; a step above its inverse would overshoot and then diverge.
        curvature = torch.maximum(others_KK.trace(), own_KK.trace())
        step_size = torch.clamp(1.0 / curvature.clamp(min=1e-12), max=self.config.variance_lr)
        v_new_VK = v_VK - step_size * change_VK
        block_IK.sub_(step_size * (block_IK @ own_KK))
        block_IK[own] = v_new_VK


def field_ranks(layout: Layout, config: FWLConfig) -> tuple[int, ...]:
    """Rank of every field's models: `d_embed`, or a logarithm of the number of values; never above that number.

    Example:
        >>> layout = Layout(names=("user", "sex"), n_ids=(1000, 4))
        >>> field_ranks(layout, FWLConfig(d_embed=10)), field_ranks(layout, FWLConfig(d_embed=10, rank_base=3.0))
        ((10, 4), (7, 2))
    """
    largest = require_size(config.d_embed)
    if config.rank_base is None:
        return tuple(min(largest, n) for n in layout.n_ids)
    return tuple(max(1, min(largest, n, math.ceil(math.log(n, config.rank_base)))) for n in layout.n_ids)
