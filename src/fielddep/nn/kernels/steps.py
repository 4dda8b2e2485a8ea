"""Optimizer steps, compiled: one pass over the rows that a batch looked up.

Shape legend: U distinct ids of the batch, D size of a table's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    module, own = compiled(), _own(rule, ridge)
    step = module.adagrad if rule.kind == "adagrad" else module.adam
    # A dense weight counts as one row: Adam keeps one number of steps for it.
    gradient = gradient.contiguous() if ids_U is not None else gradient.reshape(1, -1)
    call(step, own, ids_U, counts_U, torch.get_num_threads(), gradient, weight.detach(), *slots.values())
    torch.autograd.graph.increment_version(weight)  # autograd cannot see what the kernel wrote


def advance_dense(
    rule: Rule,
    weights: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    slots: Mapping[str, Sequence[torch.Tensor]],
) -> None:
    """One step of Adam in place on several dense weights, in one call."""
    of_weights = [weight.detach().view(-1) for weight in weights]
    states = [[state.view(-1) for state in states] for states in slots.values()]
    flat = [gradient.reshape(-1) for gradient in gradients]
    call(compiled().adam_dense, _own(rule, 0.0), torch.get_num_threads(), flat, of_weights, *states)
    for weight in weights:
        torch.autograd.graph.increment_version(weight)


def _own(rule: Rule, ridge: float) -> object:
    betas = {"beta_mean": rule.betas[0], "beta_square": rule.betas[1]}
    return compiled().Rule(lr=rule.lr, shrink=rule.shrink, ridge=ridge, epsilon=rule.epsilon, **betas)
