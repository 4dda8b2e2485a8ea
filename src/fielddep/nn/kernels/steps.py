"""Optimizer steps, compiled: one pass over the rows that a batch looked up.

Shape legend: U distinct ids of the batch, D size of a table's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from fielddep.nn.kernels import call, compiled


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Adagrad or Adam with decoupled decay; `shrink` is the factor of the decay in one step."""

    kind: Literal["adagrad", "adam"]
    lr: float
    shrink: float
    epsilon: float
    betas: tuple[float, float]


def advance(
    rule: Rule,
    weight: torch.Tensor,
    gradient: torch.Tensor,
    slots: Mapping[str, torch.Tensor],
    *,
    ids_U: torch.Tensor | None = None,
    ridge: float = 0.0,
    counts_U: torch.Tensor | None = None,
) -> None:
    """One step in place, on a dense weight or on rows of a table; row u has a ridge of ridge * counts_U[u]."""
    module, (beta_mean, beta_square) = compiled(), rule.betas
    betas = {"beta_mean": beta_mean, "beta_square": beta_square}
    own = module.Rule(lr=rule.lr, shrink=rule.shrink, ridge=ridge, epsilon=rule.epsilon, **betas)
    step = module.adagrad if rule.kind == "adagrad" else module.adam
    # A dense weight counts as one row: Adam keeps one number of steps for it.
    gradient = gradient.contiguous() if ids_U is not None else gradient.reshape(1, -1)
    call(step, own, ids_U, counts_U, torch.get_num_threads(), gradient, weight.detach(), *slots.values())
    torch.autograd.graph.increment_version(weight)  # autograd cannot see what the kernel wrote
