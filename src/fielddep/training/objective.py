"""Objective: the task loss of a batch, and the output a model starts from.

Shape legend: B rows, C outputs.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from fielddep.data.target import Target


def row_losses(logits_BC: torch.Tensor, target_B: torch.Tensor, task: str) -> torch.Tensor:
    """Loss of every row: logistic, softmax or squared."""
    if task == "multiclass":
        return F.cross_entropy(logits_BC, target_B, reduction="none")
    if task == "binary":
        return F.binary_cross_entropy_with_logits(logits_BC[:, 0], target_B, reduction="none")
    return (logits_BC[:, 0] - target_B).square()


def mean_loss(
    logits_BC: torch.Tensor, target_B: torch.Tensor, weight_B: torch.Tensor | None, task: str
) -> torch.Tensor:
    """Weighted mean of the row losses; a batch whose weights are all zero has loss zero."""
    losses_B = row_losses(logits_BC, target_B, task)
    if weight_B is None:
        return losses_B.mean()
    return (losses_B * weight_B).sum() / weight_B.sum().clamp(min=torch.finfo(weight_B.dtype).tiny)


def base_output(target: Target, target_R: torch.Tensor, weight_R: torch.Tensor | None) -> torch.Tensor:
    """Output (C,) of a model that knows nothing but the base rate of the training rows."""
    weights = torch.ones(len(target_R)) if weight_R is None else weight_R
    if target.task == "multiclass":
        share_C = torch.zeros(len(target.classes)).index_add_(0, target_R, weights) / weights.sum()
        return share_C.clamp(1e-6).log()
    mean = (target_R * weights).sum() / weights.sum()
    if target.task == "binary":
        return torch.logit(mean.clamp(1e-6, 1 - 1e-6)).reshape(1)
    return mean.reshape(1)
