"""Mixing: the weights with which the two parts of MDL add up, found on validation rows.

The parts are trained apart and differ in what they get wrong, so their weighted sum is better than either. Two
non-negative weights can hardly overfit thousands of rows; they also correct outputs that are too sure of themselves.

Shape legend: R rows, C outputs.
"""

from __future__ import annotations

import torch

from fielddep.encoding.rows import sample_rows
from fielddep.encoding.target import Target
from fielddep.nn.mdl import MDL
from fielddep.store.shards import StorePart
from fielddep.training.metrics import mean_loss

MAX_ROWS = 200_000
N_STEPS = 60
PRIOR_ROWS = 1.0
"""Rows that speak for equal weights, which decide if there are hardly any validation rows."""


def find_mix(model: MDL, target: Target, validation: StorePart) -> None:
    """Set `mix_2` of a model whose parts are both trained to the best weights for validation rows, or a sample."""
    assert model.direct is not None and model.mix_2 is not None
    rows = sample_rows(validation.chunks(), MAX_ROWS).rows
    model.eval()
    outputs = []
    for weights in ((1.0, 0.0), (0.0, 1.0)):
        model.mix_2.copy_(torch.tensor(weights))
        outputs.append(model.outputs(rows).cpu().double())
    target_R = torch.as_tensor(rows.target_R)
    weight_R = None if rows.weight_R is None else torch.as_tensor(rows.weight_R)
    model.mix_2.copy_(best_weights(outputs[0], outputs[1], target_R, weight_R, target.task))


def best_weights(
    first_RC: torch.Tensor, second_RC: torch.Tensor, target_R: torch.Tensor, weight_R: torch.Tensor | None, task: str
) -> torch.Tensor:
    """Two weights, none negative, of the sum of two outputs with the lowest loss."""
    if task != "multiclass":
        target_R = target_R.to(first_RC.dtype)
    parameter = torch.full((2,), 0.5, dtype=first_RC.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameter], lr=0.5, max_iter=N_STEPS, line_search_fn="strong_wolfe")
    prior = PRIOR_ROWS / (PRIOR_ROWS + len(first_RC))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        weights_2 = parameter.abs()
        mixed_RC = weights_2[0] * first_RC + weights_2[1] * second_RC
        loss = mean_loss(mixed_RC, target_R, weight_R, task) + prior * (weights_2 - 0.5).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    weights_2 = parameter.detach().abs()
    return weights_2 if bool(torch.isfinite(weights_2).all()) else torch.full_like(weights_2, 0.5)
