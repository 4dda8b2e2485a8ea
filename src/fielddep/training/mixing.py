"""Mixing: weights of a model and its direct networks, or of the members of a blend, found on validation rows.

The direct networks differ in what they get wrong, so their weighted sum is better than either. The model itself is
trained on top of this sum. Up to three non-negative weights can hardly overfit thousands of rows; they silence a part
that does not help, and correct outputs that are too bold.

Shape legend: R rows, P parts, C outputs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize

from fielddep.encoding.rows import EncodedRows, sample_rows
from fielddep.encoding.target import Target
from fielddep.nn.model import FieldModel
from fielddep.store.shards import StorePart
from fielddep.training.metrics import mean_loss

MAX_ROWS = 200_000
PRIOR_ROWS = 1.0
"""Rows that speak for the weights before, which decide if there are hardly any validation rows."""


def find_mix(model: FieldModel, target: Target, validation: StorePart, *, direct_only: bool = False) -> None:
    """Set `mix_P` of a model to the best weights for validation rows, or a sample of them.

    Args:
        model: has trained direct networks, and is trained itself unless `direct_only`.
        target: the column to predict.
        validation: rows that no part was trained on.
        direct_only: find the weights of the direct networks, and leave that of the model itself.
    """
    assert model.mix_P is not None
    rows = sample_rows(validation.chunks(), MAX_ROWS).rows
    n_parts = len(model.mix_P) - direct_only
    model.eval()
    outputs = []
    before = model.mix_P.clone()
    for part in range(n_parts):
        model.mix_P.copy_(torch.eye(len(before))[part])
        outputs.append(model.outputs(rows).cpu().double())
    before[:n_parts] = weights_of(torch.stack(outputs), before[:n_parts].cpu().double(), rows, target)
    model.mix_P.copy_(before)


def weights_of(outputs_PRC: torch.Tensor, start_P: torch.Tensor, rows: EncodedRows, target: Target) -> torch.Tensor:
    """The best weights of outputs for rows with targets."""
    target_R = torch.as_tensor(rows.target_R)
    weight_R = None if rows.weight_R is None else torch.as_tensor(rows.weight_R)
    return best_weights(outputs_PRC, start_P, target_R, weight_R, target.task)


def best_weights(
    outputs_PRC: torch.Tensor,
    start_P: torch.Tensor,
    target_R: torch.Tensor,
    weight_R: torch.Tensor | None,
    task: str,
) -> torch.Tensor:
    """Weights, none negative, of the sum of outputs with the lowest loss; `start_P` if there are hardly any rows."""
    if task != "multiclass":
        target_R = target_R.to(outputs_PRC.dtype)
    n_rows = outputs_PRC.shape[1] if weight_R is None else int((weight_R > 0).sum())
    prior = PRIOR_ROWS / (PRIOR_ROWS + n_rows)

    def loss_and_gradient(given: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights_P = torch.tensor(given, dtype=outputs_PRC.dtype, requires_grad=True)
        mixed_RC = torch.einsum("p,prc->rc", weights_P, outputs_PRC)
        loss = mean_loss(mixed_RC, target_R, weight_R, task) + prior * (weights_P - start_P).square().sum()
        (gradient_P,) = torch.autograd.grad(loss, weights_P)
        return float(loss.detach()), gradient_P.double().numpy()

    # The loss is convex, and bounds keep a weight that would be negative at zero.
    bounds = [(0.0, None)] * len(start_P)
    found = minimize(loss_and_gradient, start_P.double().numpy(), jac=True, bounds=bounds, method="L-BFGS-B")
    weights_P = torch.from_numpy(found.x).to(outputs_PRC.dtype)
    return weights_P if bool(torch.isfinite(weights_P).all()) else start_P
