"""Embeddings: one joint table for the ids of all fields.

Shape legend: B rows, F fields, N numerical fields, D size of a table's row.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.data.batch import FieldLayout


class EmbeddingTable(nn.Module):
    """Rows looked up by joint id; a numerical field's row is multiplied by its number.

    The gradient of the table is sparse: it holds only the ids of the batch, and the optimisers of
    `fielddep.training.optim` touch no others.

    Shape:
        ids (B, F), numbers (B, N) -> (B, F, D).

    Example:
        >>> layout = FieldLayout(names=("colour", "price"), n_ids=(4, 2), numerical=(1,))
        >>> table = EmbeddingTable(layout, 3)
        >>> table(torch.tensor([[2, 5]]), torch.tensor([[0.5]])).shape
        torch.Size([1, 2, 3])
    """

    numerical: torch.Tensor

    def __init__(self, layout: FieldLayout, d_row: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layout.n_ids_total, d_row))
        self.register_buffer("numerical", torch.tensor(layout.numerical, dtype=torch.int64), persistent=False)
        self.has_numerical = bool(layout.numerical)

    def init_weights(self, how: Literal["xavier", "normal"], scale: float) -> None:
        """Fill the table: Xavier uniform over its whole height, or normal with standard deviation `scale`."""
        if how == "xavier":
            bound = math.sqrt(6.0 / sum(self.weight.shape))
            nn.init.uniform_(self.weight, -bound, bound)
        else:
            nn.init.normal_(self.weight, std=scale)

    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Look up the rows of a batch."""
        # A small table's dense gradient costs nothing, but a second code path would have to be kept equal.
        e_BFD = F.embedding(ids_BF, self.weight, sparse=True)
        if not self.has_numerical:
            return e_BFD
        scale_BF = torch.ones_like(e_BFD[..., 0]).index_copy(1, self.numerical, numbers_BN.to(e_BFD.dtype))
        return e_BFD * scale_BF.unsqueeze(-1)
