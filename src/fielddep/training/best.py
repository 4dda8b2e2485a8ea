"""The best weights of a training so far: on disk where there is a checkpoint folder, else in memory.

A copy of large embedding tables is a good part of the memory of a training, and it is needed only at a plateau and at
the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fielddep.nn.model import FieldModel
from fielddep.training.checkpoint import CheckpointFolder, TensorFile


class BestWeights:
    """Keeps the weights of a model at one step.

    Args:
        checkpoints: folder whose files keep them; None keeps them in memory.
    """

    def __init__(self, checkpoints: CheckpointFolder | None) -> None:
        self.checkpoints = checkpoints
        self._kept: dict[str, torch.Tensor] = {}

    def keep(self, model: FieldModel, step: int) -> None:
        """Remember the weights as they are, in the place of those remembered before."""
        weights = model.state_dict()
        if self.checkpoints is not None:
            self.checkpoints.save_best(weights, step)
        elif self._kept:
            copy_weights(self._kept, weights)
        else:
            self._kept = {name: weight.detach().clone() for name, weight in weights.items()}

    def restore(self, model: FieldModel, step: int) -> None:
        """Give the model the weights that were kept at this step."""
        kept = self._kept if self.checkpoints is None else self.checkpoints.load_best(step)
        copy_weights(model.state_dict(), kept)


@torch.no_grad()
def copy_weights(to: Mapping[str, torch.Tensor], source: Mapping[str, torch.Tensor]) -> None:
    """Copy tensors in place, one at a time.

    Raises:
        KeyError: when names differ.
        RuntimeError: when shapes differ.
    """
    if set(to) != set(source):
        raise KeyError(f"weights {sorted(set(to) ^ set(source))}")
    for name, tensor in to.items():
        shape = source.shape(name) if isinstance(source, TensorFile) else tuple(source[name].shape)
        if shape != tuple(tensor.shape):
            raise RuntimeError(f"{name} has shape {shape} instead of {tuple(tensor.shape)}")
        if isinstance(source, TensorFile):
            source.read_into(name, tensor)
        else:
            tensor.copy_(source[name])
