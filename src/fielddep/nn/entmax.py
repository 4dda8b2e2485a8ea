"""Sparse relatives of softmax: they give small scores exactly zero.

Each is the point of the simplex that maximises <p, x> + H(p), with H the Gini entropy (sparsemax) or the Tsallis
entropy of order 1.5 (entmax15). Both are exact, and plain tensor operations.

Shape legend: K scores that share a total of one.
"""

from __future__ import annotations

import torch

from fielddep.nn.simplex import project_to_simplex


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
    # Given which scores are inside, tau solves a quadratic; autograd through that solution is exact.
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
