"""Objective: the task loss of a batch, and the output a model starts from.

Shape legend: B rows, C outputs.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from fielddep.data.store.loader import Rows
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


def base_output(target: Target, rows: Rows) -> torch.Tensor:
    """Output (C,) of a model that knows nothing but the base rate of the training rows, which are read once."""
    n_outputs = len(target.classes) if target.task == "multiclass" else 1
    total_C, weight = torch.zeros(n_outputs, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for block in rows.blocks():
        assert block.target_R is not None
        weight_R = torch.ones(len(block)) if block.weight_R is None else block.weight_R
        if target.task == "multiclass":
            # One by one, so that float32 would stop counting a class at 2**24 rows.
            total_C.index_add_(0, block.target_R, weight_R.double())
        else:
            total_C += (block.target_R * weight_R).sum(dtype=torch.float64)
        weight += weight_R.sum(dtype=torch.float64)
    mean_C = total_C.float() / weight.float()
    if target.task == "multiclass":
        return mean_C.clamp(1e-6).log()
    return torch.logit(mean_C.clamp(1e-6, 1 - 1e-6)) if target.task == "binary" else mean_C
