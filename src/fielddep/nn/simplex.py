"""Euclidean projection onto a simplex (Pi_S), in closed form.

Shape legend: B rows, F fields.
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
