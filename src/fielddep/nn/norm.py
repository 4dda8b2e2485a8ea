"""BatchNorm whose running statistics are right from the first batch on.

PyTorch's start at mean 0 and variance 1 and forget that start only over dozens of steps. The pair products of small
embeddings have variances of a millionth, so an evaluation early in training, when a small table is already being
stopped by it, would see nothing but the start.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over (B, D) with running statistics averaged evenly over the first batches, then exponentially.

    Example:
        >>> layer = BatchNorm(1)
        >>> _ = layer(torch.tensor([[1e-3], [3e-3]]))
        >>> round(float(layer.running_mean), 6)
        0.002
    """

    MOMENTUM: ClassVar[float] = 0.1
    """Weight of the latest batch at least."""

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Normalise by the batch when training, by the running statistics otherwise."""
        momentum = self.MOMENTUM
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            momentum = max(self.MOMENTUM, 1.0 / int(self.num_batches_tracked))
        return F.batch_norm(
            x_BD,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training,
            momentum=momentum,
            eps=self.eps,
        )
