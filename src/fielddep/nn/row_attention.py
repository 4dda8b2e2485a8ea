"""Attention between the rows of a batch, with predictions that do not depend on the batch.

Shape legend: B rows, R reference rows, W size of a row, H heads, E size of a head.
"""

from __future__ import annotations

import torch
from torch import nn

from fielddep.nn.attention import Attention, FeedForward, start_at_nothing


class RowAttentionLayer(nn.Module):
    """Attention and feed-forward network with whole rows as tokens, each added to what it reads.

    `forward` lets the rows of a group look at each other, as in training. `towards` lets every row look at itself
    and at given rows, so that no row of the batch sees another.

    Args:
        d_row: size of a row.
        n_heads: heads.
        d_head: size of a head.
        n_group: rows of a group at least; a batch that is smaller is one group.
        dropout: dropout of attention weights and hidden units.
    """

    def __init__(self, d_row: int, n_heads: int, *, d_head: int, n_group: int, dropout: float) -> None:
        super().__init__()
        self.n_group = n_group
        self.attention_norm = nn.LayerNorm(d_row)
        self.attention = Attention(d_row, n_heads, d_head=d_head, dropout=dropout)
        self.forward_norm = nn.LayerNorm(d_row)
        self.feed_forward = FeedForward(d_row, dropout=dropout)
        start_at_nothing(self.attention, self.feed_forward)

    def forward(self, x_BW: torch.Tensor) -> torch.Tensor:
        """Rows that have seen the others of their group."""
        q_HBE, k_HBE, v_HBE = (head[0] for head in self.attention.heads(self.attention_norm(x_BW).unsqueeze(0)))
        n_groups = max(1, len(x_BW) // self.n_group)
        groups = zip(*(head.tensor_split(n_groups, dim=1) for head in (q_HBE, k_HBE, v_HBE)), strict=True)
        mixed = [self.attention.dropout(self.attention.scores(q, k).softmax(dim=-1)) @ v for q, k, v in groups]
        return self._finish(x_BW, torch.cat(mixed, dim=1))

    def towards(self, x_BW: torch.Tensor, reference_RW: torch.Tensor) -> torch.Tensor:
        """Rows that have seen themselves and the reference rows."""
        q_HBE, k_HBE, v_HBE = (head[0] for head in self.attention.heads(self.attention_norm(x_BW).unsqueeze(0)))
        _, k_HRE, v_HRE = (h[0] for h in self.attention.heads(self.attention_norm(reference_RW).unsqueeze(0)))
        others_HBR = self.attention.scores(q_HBE, k_HRE)
        itself_HB1 = self.attention.scores(q_HBE.unsqueeze(2), k_HBE.unsqueeze(2)).squeeze(2)
        weights = torch.cat([others_HBR, itself_HB1], dim=-1).softmax(dim=-1)
        return self._finish(x_BW, weights[..., :-1] @ v_HRE + weights[..., -1:] * v_HBE)

    def _finish(self, x_BW: torch.Tensor, mixed_HBE: torch.Tensor) -> torch.Tensor:
        x_BW = x_BW + self.attention.joined(mixed_HBE.unsqueeze(0))[0]
        done_BW: torch.Tensor = x_BW + self.feed_forward(self.forward_norm(x_BW))
        return done_BW
