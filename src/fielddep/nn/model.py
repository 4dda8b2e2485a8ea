"""The contract of every model: ids and numbers in, logits out.

Shape legend: B rows, F fields, N numerical fields, C outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import nn

from fielddep.data.batch import FieldLayout
from fielddep.nn.embedding import EmbeddingTable


class FieldModel(nn.Module, ABC):
    """Base of MDL and its rivals.

    A model returns logits (one for binary, C for multi-class) or the standardised value (regression). It keeps
    per-id weights in `EmbeddingTable`s only, so that a step costs the same however many ids there are, and adds
    `bias` to its output, which starts at the base rate.
    """

    def __init__(self, layout: FieldLayout, n_outputs: int) -> None:
        super().__init__()
        self.layout = layout
        self.n_outputs = n_outputs
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    @abstractmethod
    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""

    def training_forward(
        self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits, and a penalty to add to the task loss where the model has one."""
        return self(ids_BF, numbers_BN), None

    def tables(self) -> Iterator[tuple[str, EmbeddingTable]]:
        """Every embedding table with its name."""
        return ((n, m) for n, m in self.named_modules() if isinstance(m, EmbeddingTable))

    @property
    def n_parameters(self) -> int:
        """Number of trained weights."""
        return sum(p.numel() for p in self.parameters())
