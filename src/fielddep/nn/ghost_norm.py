"""Ghost BatchNorm: a large batch is normalised in small parts, as if each were a batch of its own."""

from __future__ import annotations

from typing import ClassVar

import torch

from fielddep.nn.norm import BatchNorm


class GhostBatchNorm(BatchNorm):
    """BatchNorm over (B, D) that takes its statistics from parts of at least `virtual_batch` rows when training.

    The noise of the small parts regularises. A batch that is smaller than that is one part.

    Example:
        >>> layer = GhostBatchNorm(1, virtual_batch=2)
        >>> layer(torch.tensor([[0.0], [2.0], [10.0], [30.0]])).flatten().round().tolist()
        [-1.0, 1.0, -1.0, 1.0]
    """

    MOMENTUM: ClassVar[float] = 0.02
    """As TabNet has it: there are many parts, and each knows little."""

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
