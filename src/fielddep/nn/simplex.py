"""Projection onto a simplex (Pi_S) in closed form, and sparse relatives of softmax: small scores get exactly zero.

Sparsemax and entmax15 are the points of the simplex that maximise <p, x> + H(p), with H the Gini entropy and the
Tsallis entropy of order 1.5. All are exact, and plain tensor operations.

Shape legend: B rows, F fields, K scores.
"""

from __future__ import annotations

import torch


def project_to_simplex(v_BF: torch.Tensor, total: float) -> torch.Tensor:
    """Nearest point with entries >= 0 that sum to `total`, row by row.

    Sorts the entries, finds the largest K whose K-th entry stays positive after the shift, subtracts that shift
    and clips at zero. Differentiable: on the support the gradient loses its mean, elsewhere it is zero.

    Shape:
        input (..., F), output (..., F).

    Example:
        >>> project_to_simplex(torch.tensor([[0.5, 2.0, 1.0]]), 1.0)
        tensor([[0., 1., 0.]])
    """
    sorted_BF = torch.sort(v_BF, dim=-1, descending=True).values
    rank_F = torch.arange(1, v_BF.shape[-1] + 1, dtype=v_BF.dtype, device=v_BF.device)
    shift_BF = (sorted_BF.cumsum(dim=-1) - total) / rank_F
    # The first entry always stays positive, so every row has a support; entries inside it form a prefix.
    n_support_B1 = (sorted_BF > shift_BF).sum(dim=-1, keepdim=True).clamp(min=1)
    shift_B1 = shift_BF.gather(-1, n_support_B1 - 1)
    return torch.relu(v_BF - shift_B1)


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    """Point of the simplex nearest to x, over the last dimension.

    Example:
        >>> sparsemax(torch.tensor([1.5, 1.0, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    return project_to_simplex(x, 1.0)


def entmax15(x: torch.Tensor) -> torch.Tensor:
    """Entmax of order 1.5 over the last dimension: p_k = max(x_k / 2 - tau, 0)^2, with tau such that they sum to one.

    Example:
        >>> entmax15(torch.tensor([0.0, 0.0, -5.0]))
        tensor([0.5000, 0.5000, 0.0000])
    """
    half = (x - x.detach().amax(dim=-1, keepdim=True)) / 2
    with torch.no_grad():
        inside = half >= _smallest_inside(half)
    # Once the support is known, tau solves a quadratic equation; autograd through that solution is exact.
    n_inside = inside.sum(dim=-1, keepdim=True)
    mean = (half * inside).sum(dim=-1, keepdim=True) / n_inside
    spread = ((half - mean).square() * inside).sum(dim=-1, keepdim=True)
    tau = mean - ((1 - spread) / n_inside).clamp(min=1e-12).sqrt()
    return ((half - tau) * inside).clamp(min=0).square()


def _smallest_inside(half: torch.Tensor) -> torch.Tensor:
    """The smallest score with a positive share, found by trying every number of scores at once."""
    sorted_K = torch.sort(half, dim=-1, descending=True).values
    rank_K = torch.arange(1, half.shape[-1] + 1, dtype=half.dtype, device=half.device)
    mean_K = sorted_K.cumsum(dim=-1) / rank_K
    spread_K = sorted_K.square().cumsum(dim=-1) - rank_K * mean_K.square()
    tau_K = mean_K - ((1 - spread_K) / rank_K).clamp(min=0).sqrt()
    n_inside = (sorted_K > tau_K).sum(dim=-1, keepdim=True).clamp(min=1)
    return sorted_K.gather(-1, n_inside - 1)


def entmoid15(x: torch.Tensor) -> torch.Tensor:
    """Share of x in entmax15 of the two scores (x, 0): a sigmoid that is exactly 0 below -2 and 1 above 2.

    Example:
        >>> entmoid15(torch.tensor([-3.0, 0.0, 2.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    bounded = x.clamp(-2.0, 2.0)
    return ((bounded + (8.0 - bounded.square()).sqrt()) / 4).square()
