"""Interactions: a bilinear product of every pair of fields.

Shape legend: B rows, F fields (m), D embedding size (k), P pairs m(m-1)/2.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.nn import kernels
from fielddep.nn.kernels.network_input import pair_products


class BilinearInteractions(nn.Module):
    """e_i^T Phi_ij e_j for every pair i < j, in the order (0,1), (0,2), ..., (m-2, m-1).

    One matrix product per field: the pairs of field i share their left factor, so their matrices are stacked.

    Shape:
        embeddings (B, F, D) -> (B, P).

    Example:
        >>> BilinearInteractions(3, 4)(torch.ones(2, 3, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, n_fields: int, d_embed: int, *, init: Literal["xavier", "identity"] = "xavier") -> None:
        super().__init__()
        self.n_pairs = n_fields * (n_fields - 1) // 2
        # phi_PDD[p] is Phi_ij transposed, so that stacking the pairs of a field needs no copy.
        self.phi_PDD = nn.Parameter(torch.empty(self.n_pairs, d_embed, d_embed))
        bound = math.sqrt(6.0 / (2 * d_embed))
        nn.init.uniform_(self.phi_PDD, -bound, bound)
        if init == "identity":
            with torch.no_grad():
                self.phi_PDD.copy_(torch.eye(d_embed).expand_as(self.phi_PDD))

    def forward(self, e_BFD: torch.Tensor) -> torch.Tensor:
        """Products of all pairs."""
        if kernels.usable(e_BFD, self.phi_PDD):
            return pair_products(e_BFD, self.phi_PDD)
        n_rows, n_fields, d_embed = e_BFD.shape
        # Unbinding and splitting once avoids the zero-filled copies that slicing would make in the backward pass.
        fields = e_BFD.unbind(dim=1)
        stacked = torch.split(self.phi_PDD.view(-1, d_embed), [n * d_embed for n in range(n_fields - 1, 0, -1)])
        products = []
        for i, phi in enumerate(stacked):
            left_BRD = F.linear(fields[i], phi).view(n_rows, n_fields - 1 - i, d_embed)
            right_BRD = torch.stack(fields[i + 1 :], dim=1)
            products.append((left_BRD * right_BRD).sum(dim=-1))
        return torch.cat(products, dim=1)


def sum_of_products(e_BFD: torch.Tensor) -> torch.Tensor:
    """Sum over all pairs of fields of the product of their embeddings, per dimension.

    Shape:
        (B, F, ..., D) -> (B, ..., D).

    Example:
        >>> sum_of_products(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])).tolist()
        [[23.0, 44.0]]
    """
    return 0.5 * (e_BFD.sum(dim=1).square() - e_BFD.square().sum(dim=1))
