"""The contract of every model: `Inputs` in, logits out; and the only place where logits become probabilities.

Shape legend: B rows of a batch, R rows, C outputs, P networks whose outputs are mixed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import nn

from fielddep.encoding.rows import EncodedRows, Inputs, Layout
from fielddep.encoding.target import Target
from fielddep.errors import ConfigError
from fielddep.nn.embedding import EmbeddingTable


def predictions(logits_BC: torch.Tensor, target: Target) -> torch.Tensor:
    """Probabilities of every class (B, classes), or values in the target's unit (B,), float64, for regression."""
    if target.task == "regression":
        # In float32, targets with a small spread around a large mean (times in seconds) would round to one value.
        return logits_BC[:, 0].double() * target.scale + target.mean
    if target.task == "binary":
        positive_B = torch.sigmoid(logits_BC[:, 0])
        return torch.stack([1.0 - positive_B, positive_B], dim=1)
    return torch.softmax(logits_BC, dim=1)


BATCH_ROWS = 2048
"""Rows predicted together: the model's buffers stay in cache, and larger batches are no faster."""
START_ROWS = 20_000
"""Most training rows that a model may look at before the first step."""


class FieldModel(nn.Module, ABC):
    """Base class of MDL and the baselines.

    A model returns logits (one for binary, C for multi-class) or the standardised value (regression). It keeps
    per-id weights only in `EmbeddingTable`s, so that the cost of a step does not depend on the number of ids. It adds
    `bias` to its output; the bias starts at the base rate.

    With `model.direct`, a model has direct networks (`nn/direct.py`), which are trained first. It is then trained on
    top of their frozen outputs, or apart from them. Predictions add all with the weights `mix_P`, which
    `training/mixing.py` finds on validation rows.
    """

    mix_P: torch.Tensor | None
    """Weights of the outputs of the direct networks and, last, of the model itself; None without such networks."""

    def __init__(self, layout: Layout, n_outputs: int) -> None:
        super().__init__()
        self.layout = layout
        self.n_outputs = n_outputs
        self.regression = False
        """Whether the output is a number rather than logits; for a model with a loss of its own."""
        self.bias = nn.Parameter(torch.zeros(n_outputs))
        self.direct = nn.ModuleDict()
        self.register_buffer("mix_P", None)
        self.apart = False
        """Whether outputs are those of the model alone, while it is trained apart from its direct networks."""

    def add_direct(self, networks: Mapping[str, FieldModel]) -> None:
        """Put the model on top of direct networks, whose outputs start with equal weights."""
        self.direct = nn.ModuleDict(networks)
        self.mix_P = torch.tensor([*(1.0 / len(networks) for _ in networks), 1.0]) if networks else None

    @abstractmethod
    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C) of the model without its direct networks."""

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C), mixed with those of the direct networks."""
        return self._mixed(self.own_logits(inputs), inputs)

    def _mixed(self, logits_BC: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        if self.mix_P is None or self.apart:
            return logits_BC
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.training):
            outputs = [network(inputs) for network in self.direct.values()]
        # Not a matrix product, whose rounding depends on the number of rows.
        return (self.mix_P.view(-1, 1, 1) * torch.stack([*outputs, logits_BC])).sum(dim=0)

    def train(self, mode: bool = True) -> FieldModel:
        """Change the mode; direct networks have a training of their own and stay in evaluation mode."""
        super().train(mode)
        self.direct.eval()
        return self

    def training_forward(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mixed logits, and the penalty to add to the task loss, if the model has one."""
        return self(inputs), None

    @torch.no_grad()
    def start_at(self, base_C: torch.Tensor) -> None:
        """Let an untrained model predict about the base rate, or what its direct networks do."""
        self.bias.copy_(base_C if self.mix_P is None or self.apart else torch.zeros_like(base_C))

    def start_from(self, inputs: Inputs) -> None:  # most models start without rows
        """Look at up to `START_ROWS` training rows, without their targets, before the first step."""

    def after_step(self, step: int) -> None:  # most models move by gradients alone
        """Change weights outside the optimizer after a training step; the first step is 1."""

    @torch.no_grad()
    def outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Logits (R, C) of encoded rows, computed in batches of bounded size on the model's own device."""
        found = []
        for start in range(0, max(len(rows), 1), BATCH_ROWS):
            batch = rows.batch(slice(start, start + BATCH_ROWS)).to(self.bias.device)
            found.append(self(batch.inputs))
        return torch.cat(found)

    def tables(self) -> Iterator[tuple[str, EmbeddingTable]]:
        """Every embedding table with its name."""
        return ((n, m) for n, m in self.named_modules() if isinstance(m, EmbeddingTable))

    @property
    def n_parameters(self) -> int:
        """Number of trained weights."""
        return sum(p.numel() for p in self.parameters())


def require_size(d_embed: int | None) -> int:
    """The size of the embeddings, set by the user or by the defaults.

    Raises:
        ConfigError: it is not set.
    """
    if d_embed is None:
        raise ConfigError(
            "expected a number as model.d_embed; given None. Set it, or fill in the defaults from the data first"
        )
    return d_embed
