"""The contract of every model: ids and numbers in, logits out.

Shape legend: B rows, F fields, N numerical fields, C outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import nn

from fielddep.data.batch import Batch, FieldLayout
from fielddep.errors import ConfigError
from fielddep.nn.embedding import EmbeddingTable

START_ROWS = 20_000
"""Training rows at most that a model may look at before the first step."""


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
        self.regression = False
        """Whether the output is a number rather than logits; for losses of the model's own."""
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    @abstractmethod
    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""

    def training_forward(
        self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits, and a penalty to add to the task loss where the model has one."""
        return self(ids_BF, numbers_BN), None

    def start_from(self, rows: Batch) -> None:  # most models need no rows to start from
        """Look at up to `START_ROWS` training rows, without their targets, before the first step."""

    def after_step(self, step: int) -> None:  # most models move by gradients alone
        """Change weights outside the optimiser after a training step; steps count from 1."""

    def tables(self) -> Iterator[tuple[str, EmbeddingTable]]:
        """Every embedding table with its name."""
        return ((n, m) for n, m in self.named_modules() if isinstance(m, EmbeddingTable))

    @property
    def n_parameters(self) -> int:
        """Number of trained weights."""
        return sum(p.numel() for p in self.parameters())


def decided(d_embed: int | None) -> int:
    """The size of an embedding, which `training.defaults` decides where the user does not."""
    if d_embed is None:
        raise ConfigError("model.d_embed is not decided; give a number or resolve the config from the data")
    return d_embed
