"""K-means on encoded rows: centres in the space that has one dimension an id.

A row is a vector with a one at the id of every field, and its number at the id of a numerical field. Such a vector is
never written out: its product with a centre is a sum over its F ids.

Shape legend: B rows, F fields, I joint ids, K centres.
"""

from __future__ import annotations

import torch

N_ROUNDS = 20
"""Rounds at most; most tables settle earlier."""


def kmeans(ids_BF: torch.Tensor, values_BF: torch.Tensor, n_ids: int, n_centres: int) -> torch.Tensor:
    """Centres (I, K) of the rows, started from rows far apart (k-means++); draws from torch's random state.

    A centre that has lost all rows stays where it was. With fewer different rows than centres, some are equal.

    Example:
        >>> rows = torch.tensor([[0, 2], [0, 2], [1, 3]])
        >>> kmeans(rows, torch.ones(3, 2), n_ids=4, n_centres=2).sort(dim=1).values.tolist()
        [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    centres_IK = _spread_rows(ids_BF, values_BF, n_ids, n_centres)
    nearest_B = torch.full((len(ids_BF),), -1, device=ids_BF.device)
    for _ in range(N_ROUNDS):
        before_B, nearest_B = nearest_B, distances(ids_BF, values_BF, centres_IK).argmin(dim=1)
        if torch.equal(nearest_B, before_B):
            break
        sizes_K = torch.bincount(nearest_B, minlength=n_centres)
        sums_IK = torch.zeros_like(centres_IK)
        sums_IK.index_put_((ids_BF, nearest_B[:, None].expand_as(ids_BF)), values_BF, accumulate=True)
        centres_IK = torch.where(sizes_K > 0, sums_IK / sizes_K.clamp(min=1), centres_IK)
    return centres_IK


def distances(ids_BF: torch.Tensor, values_BF: torch.Tensor, centres_IK: torch.Tensor) -> torch.Tensor:
    """Squared distances (B, K) of rows to centres."""
    products_BK = (centres_IK[ids_BF] * values_BF[..., None]).sum(dim=1)
    return values_BF.square().sum(dim=1, keepdim=True) - 2 * products_BK + centres_IK.square().sum(dim=0)


def _spread_rows(ids_BF: torch.Tensor, values_BF: torch.Tensor, n_ids: int, n_centres: int) -> torch.Tensor:
    """Rows as first centres: each is drawn in proportion to its squared distance to the nearest before it."""
    centres_IK = torch.zeros(n_ids, n_centres, dtype=values_BF.dtype, device=values_BF.device)
    gap_B = torch.ones(len(ids_BF), device=values_BF.device)
    for k in range(n_centres):
        # Equal weights once every row is a centre already, as weights that are all zero cannot be drawn from.
        weights_B = gap_B if float(gap_B.sum()) > 0 else torch.ones_like(gap_B)
        row = torch.multinomial(weights_B, 1)
        centres_IK[ids_BF[row], k] = values_BF[row]
        to_k_B = distances(ids_BF, values_BF, centres_IK[:, k : k + 1])[:, 0].clamp(min=0)
        gap_B = to_k_B if k == 0 else torch.minimum(gap_B, to_k_B)
    return centres_IK
