"""Averaged weights: a running mean over the last evaluations is what is evaluated, kept and saved.

Large embedding tables follow a noisy path: each pass over the rows fits a different part of their noise. The mean over
the path keeps what its points have in common. It is taken at evaluations, not at steps, so that a step still touches
only the ids of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

from fielddep.encoding.rows import Batch
from fielddep.nn.layers import BatchNorm
from fielddep.nn.model import FieldModel

N_NORM_BATCHES = 20
"""Training batches for BatchNorm's statistics with the mean weights."""


class WeightAverage:
    """Running mean of a model's weights: mean = decay * mean + (1 - decay) * weights.

    The first means weight all points equally, so that the start of training is soon forgotten.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.n_points = 0
        self._mean: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def update(self, model: FieldModel) -> None:
        """Add the current weights."""
        weights = model.state_dict()
        self.n_points += 1
        if not self._mean:
            self._mean = {name: value.detach().clone() for name, value in weights.items()}
            return
        share = max(1.0 - self.decay, 1.0 / self.n_points)
        for name, mean in self._mean.items():
            if mean.is_floating_point():
                mean.lerp_(weights[name], share)
            else:
                mean.copy_(weights[name])

    @contextmanager
    def applied(self, model: FieldModel, batches: Iterable[Batch]) -> Iterator[None]:
        """Within the context, the model has the mean weights and BatchNorm statistics of these training batches.

        Weights and mean swap places, so nothing is copied however large the tables are.
        """
        self._swap(model)
        refresh_norm(model, batches)
        try:
            yield
        finally:
            self._swap(model)

    def _swap(self, model: FieldModel) -> None:
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name in self._mean:
                tensor.data, self._mean[name] = self._mean[name], tensor.data

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a resume needs."""
        return {**self._mean, "n_points": torch.tensor(self.n_points)}

    def load_state(self, state: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Continue from a `state`; its tensors move to the model's device."""
        self.n_points = int(state["n_points"])
        self._mean = {name: state[name].to(device) for name in state if name != "n_points"}


@torch.no_grad()
def refresh_norm(model: FieldModel, batches: Iterable[Batch]) -> None:
    """Recompute BatchNorm's running statistics from a few batches, with everything else in evaluation mode."""
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    if not norms:
        return
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    for _, batch in zip(range(N_NORM_BATCHES), batches, strict=False):
        model(batch.inputs)
    model.eval()
