"""Layers that several models share: BatchNorm with correct early statistics, Ghost BatchNorm, dropout and the MLP.

Shape legend: B rows, D inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over (B, D) with running statistics averaged evenly over the first batches, then exponentially.

    PyTorch's start at mean 0 and variance 1 and take dozens of steps to forget that. The pair products of small
    embeddings have variances of a millionth, so an early evaluation, at which a small table may already stop, would see
    little but the start.

    Example:
        >>> layer = BatchNorm(1)
        >>> _ = layer(torch.tensor([[1e-3], [3e-3]]))
        >>> round(float(layer.running_mean), 6)
        0.002
    """

    MOMENTUM: ClassVar[float] = 0.1
    """Smallest weight of the latest batch."""

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Normalise by the batch when training, by the running statistics otherwise."""
        momentum = self.MOMENTUM
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            momentum = max(self.MOMENTUM, 1.0 / int(self.num_batches_tracked))
        statistics = (self.running_mean, self.running_var)
        return F.batch_norm(x_BD, *statistics, self.weight, self.bias, self.training, momentum, self.eps)


class GhostBatchNorm(BatchNorm):
    """BatchNorm over (B, D) that normalises a training batch in parts of at least `virtual_batch` rows.

    The noise of the small parts regularises. A smaller batch is one part.

    Example:
        >>> layer = GhostBatchNorm(1, virtual_batch=2)
        >>> layer(torch.tensor([[0.0], [2.0], [10.0], [30.0]])).flatten().round().tolist()
        [-1.0, 1.0, -1.0, 1.0]
    """

    MOMENTUM: ClassVar[float] = 0.02
    """As in TabNet: there are many parts, and each has few rows."""

    def __init__(self, d_in: int, *, virtual_batch: int) -> None:
        super().__init__(d_in)
        self.virtual_batch = virtual_batch

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Normalise part by part when training, by the running statistics otherwise."""
        if not self.training:
            return super().forward(x_BD)
        n_parts = max(1, len(x_BD) // self.virtual_batch)
        normalise = super().forward
        return torch.cat([normalise(part) for part in x_BD.tensor_split(n_parts)])


class Dropout(nn.Module):
    """Dropout with a rate in steps of 1/256, which lets eight entries share a random number.

    On a CPU, PyTorch's own draws one for each and takes three times as long, often longer than the layer before it.

    Example:
        >>> layer = Dropout(0.25)
        >>> sorted(set(layer(torch.ones(1000)).tolist()))
        [0.0, 1.3333333730697632]
        >>> layer.eval()(torch.ones(2)).tolist()
        [1.0, 1.0]
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.n_dropped = min(round(256 * rate), 255)
        """Of the 256 values of a random byte, those that set an entry to zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Set random entries to zero when training, and scale up the others."""
        if not self.training or not self.n_dropped:
            return x
        draws = torch.empty(x.numel() // 8 + 1, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = draws.view(torch.uint8)[: x.numel()].view(x.shape) >= self.n_dropped
        return x * kept.to(x.dtype).mul_(256 / (256 - self.n_dropped))


NormPlaces = Literal["all", "hidden", "none"]


def build_mlp(
    d_in: int, hidden: Sequence[int], n_outputs: int, *, batch_norm: NormPlaces = "all", dropout: float = 0.0
) -> nn.Sequential:
    """The hidden layers of `build_hidden`, then a linear layer with `n_outputs`."""
    layers = build_hidden(d_in, hidden, batch_norm=batch_norm, dropout=dropout)
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else d_in, n_outputs))


def build_hidden(
    d_in: int,
    hidden: Sequence[int],
    *,
    batch_norm: NormPlaces = "all",
    norm_last: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """ReLU layers with BatchNorm before all of them, all but the first, or none.

    Args:
        d_in: inputs.
        hidden: widths.
        batch_norm: which layers have one.
        norm_last: put it after the linear part of a layer. Before it, it would undo a scaling of the inputs.
        dropout: after every layer.
    """
    layers: list[nn.Module] = []
    for depth, width in enumerate(hidden):
        layer: list[nn.Module] = [nn.Linear(d_in, width)]
        if batch_norm == "all" or (batch_norm == "hidden" and depth > 0):
            layer.insert(int(norm_last), BatchNorm(width if norm_last else d_in))
        layers += [*layer, nn.ReLU()]
        if dropout > 0:
            layers.append(Dropout(dropout))
        d_in = width
    return nn.Sequential(*layers)
