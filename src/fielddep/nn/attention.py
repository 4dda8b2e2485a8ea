"""Attention between the tokens of a row and between rows, with the network on every token that follows it.

Both belong in a residual block after a LayerNorm: x + Attention(LayerNorm(x)).

Shape legend: B rows, S tokens, D size of a token, H heads, E size of a head, K keys, R reference rows, W size of a row.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.errors import ConfigError
from fielddep.nn.layers import Dropout

EXPANSION = 4
"""Hidden units of `FeedForward`, as a multiple of the size of a token."""


class Attention(nn.Module):
    """Scaled dot-product attention with several heads.

    Args:
        d_token: size of a token.
        n_heads: heads.
        d_head: size of a head; default: d_token / n_heads.
        dropout: share of the attention weights dropped when training.

    Shape:
        (B, S, D) -> (B, S, D).
    """

    def __init__(self, d_token: int, n_heads: int, *, d_head: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        if d_head is None and d_token % n_heads:
            raise ConfigError(f"model.n_heads must divide model.d_embed; given {n_heads} heads and {d_token}")
        self.n_heads = n_heads
        self.d_head = d_head or d_token // n_heads
        self.inputs = nn.Linear(d_token, 3 * n_heads * self.d_head, bias=False)
        self.output = nn.Linear(n_heads * self.d_head, d_token)
        self.dropout = Dropout(dropout)

    def forward(self, x_BSD: torch.Tensor) -> torch.Tensor:
        """Every token attends to all tokens of its row."""
        q_BHSE, k_BHSE, v_BHSE = self.heads(x_BSD)
        weights_BHSS = self.dropout(self.scores(q_BHSE, k_BHSE).softmax(dim=-1))
        return self.joined(weights_BHSS @ v_BHSE)

    def heads(self, x_BSD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values (B, H, S, E)."""
        x_BS3HE = self.inputs(x_BSD).unflatten(-1, (3, self.n_heads, self.d_head))
        q_BHSE, k_BHSE, v_BHSE = x_BS3HE.permute(2, 0, 3, 1, 4).unbind(0)
        return q_BHSE, k_BHSE, v_BHSE

    def scores(self, q_BHSE: torch.Tensor, k_BHKE: torch.Tensor) -> torch.Tensor:
        """Scaled products of queries and keys (B, H, S, K)."""
        return (q_BHSE / math.sqrt(self.d_head)) @ k_BHKE.transpose(-2, -1)

    def joined(self, mixed_BHSE: torch.Tensor) -> torch.Tensor:
        """The heads of every token as one token again."""
        x_BSD: torch.Tensor = self.output(mixed_BHSE.transpose(1, 2).flatten(2))
        return x_BSD


class FeedForward(nn.Module):
    """Two layers with a gated hidden layer (GEGLU): W2 (a * gelu(g)), with (a, g) = W1 x."""

    def __init__(self, d_token: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_token, 2 * EXPANSION * d_token)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(EXPANSION * d_token, d_token)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each token on its own."""
        value, gate = self.hidden(x).chunk(2, dim=-1)
        found: torch.Tensor = self.output(self.dropout(value * F.gelu(gate)))
        return found


class AttentionLayer(nn.Module):
    """Attention and feed-forward network, each added to its input: x + f(LayerNorm(x)).

    Shape:
        (B, S, D) -> (B, S, D).
    """

    def __init__(self, d_token: int, n_heads: int, *, d_head: int | None = None, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_token)
        self.attention = Attention(d_token, n_heads, d_head=d_head, dropout=dropout)
        self.forward_norm = nn.LayerNorm(d_token)
        self.feed_forward = FeedForward(d_token, dropout=dropout)

    def forward(self, x_BSD: torch.Tensor) -> torch.Tensor:
        """Tokens after attention to each other."""
        return self._finish(x_BSD + self.attention(self.attention_norm(x_BSD)))

    def _finish(self, x: torch.Tensor) -> torch.Tensor:
        done: torch.Tensor = x + self.feed_forward(self.forward_norm(x))
        return done


def start_at_nothing(*parts: Attention | FeedForward) -> None:
    """Make parts of a block add nothing at first: random outputs would drown the small numbers of new embeddings."""
    for part in parts:
        nn.init.zeros_(part.output.weight)
        nn.init.zeros_(part.output.bias)


class RowAttentionLayer(AttentionLayer):
    """The same with complete rows as tokens.

    In `forward`, for training, the rows of a group attend to each other. In `towards`, every row attends to itself and
    to reference rows, so that no prediction depends on other rows of its batch.

    Args:
        d_row: size of a row.
        n_heads: heads.
        d_head: size of a head.
        n_group: smallest number of rows of a group; a smaller batch is one group.
        dropout: dropout of attention weights and hidden units.
    """

    def __init__(self, d_row: int, n_heads: int, *, d_head: int, n_group: int, dropout: float) -> None:
        super().__init__(d_row, n_heads, d_head=d_head, dropout=dropout)
        self.n_group = n_group
        start_at_nothing(self.attention, self.feed_forward)

    def forward(self, x_BW: torch.Tensor) -> torch.Tensor:
        """Rows after attention to the others of their group."""
        q_HBE, k_HBE, v_HBE = self._heads(x_BW)
        n_groups = max(1, len(x_BW) // self.n_group)
        groups = zip(*(head.tensor_split(n_groups, dim=1) for head in (q_HBE, k_HBE, v_HBE)), strict=True)
        mixed = [self.attention.dropout(self.attention.scores(q, k).softmax(dim=-1)) @ v for q, k, v in groups]
        return self._mixed(x_BW, torch.cat(mixed, dim=1))

    def towards(self, x_BW: torch.Tensor, reference_RW: torch.Tensor) -> torch.Tensor:
        """Rows after attention to themselves and to the reference rows."""
        q_HBE, k_HBE, v_HBE = self._heads(x_BW)
        _, k_HRE, v_HRE = self._heads(reference_RW)
        others_HBR = self.attention.scores(q_HBE, k_HRE)
        itself_HB1 = self.attention.scores(q_HBE.unsqueeze(2), k_HBE.unsqueeze(2)).squeeze(2)
        weights = torch.cat([others_HBR, itself_HB1], dim=-1).softmax(dim=-1)
        return self._mixed(x_BW, weights[..., :-1] @ v_HRE + weights[..., -1:] * v_HBE)

    def _heads(self, x_BW: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values (H, B, E) of rows."""
        return [head[0] for head in self.attention.heads(self.attention_norm(x_BW).unsqueeze(0))]

    def _mixed(self, x_BW: torch.Tensor, mixed_HBE: torch.Tensor) -> torch.Tensor:
        return self._finish(x_BW + self.attention.joined(mixed_HBE.unsqueeze(0))[0])
