"""From a model's output to what a user reads: the only place where logits become probabilities.

Shape legend: B rows, C outputs.
"""

from __future__ import annotations

import torch

from fielddep.data.target import Target


def predictions(logits_BC: torch.Tensor, target: Target) -> torch.Tensor:
    """Probabilities of every class (B, classes), or values in the target's unit (B,), float64, for regression."""
    if target.task == "regression":
        # In float32, targets far from zero beside their spread, such as times in seconds, would round to one value.
        return logits_BC[:, 0].double() * target.scale + target.mean
    if target.task == "binary":
        positive_B = torch.sigmoid(logits_BC[:, 0])
        return torch.stack([1.0 - positive_B, positive_B], dim=1)
    return torch.softmax(logits_BC, dim=1)
