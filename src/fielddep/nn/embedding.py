"""Embeddings: one joint table for the ids of all fields.

Shape legend: B rows, F fields, N numerical fields, D size of a table's row.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fielddep.encoding.rows import Inputs, Layout


class EmbeddingTable(nn.Module):
    """Rows looked up by joint id; a numerical field's row is multiplied by its number.

    The gradient of the table is sparse: it holds the ids of the batch only, and `fielddep.training.optim` touches no
    others.

    Args:
        layout: columns of ids.
        d_row: size of a row.
        std: standard deviation of the initial weights; None means zeros.
        kept_I: joint ids that have a row, all by default; the others look up zeros.

    Shape:
        inputs of B rows -> (B, F, D).

    Example:
        >>> layout = Layout(names=("colour", "price"), n_ids=(4, 2), numerical=(1,))
        >>> table = EmbeddingTable(layout, 3)
        >>> table(Inputs(torch.tensor([[2, 5]]), torch.tensor([[0.5]]))).shape
        torch.Size([1, 2, 3])
    """

    numerical: torch.Tensor
    rows_I: torch.Tensor | None
    """Row of every joint id in a table that keeps only some; row 0 stays zero and serves all others."""

    def __init__(
        self, layout: Layout, d_row: int, *, std: float | None = None, kept_I: npt.NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__()
        rows_I = None if kept_I is None else torch.from_numpy(np.where(kept_I, np.cumsum(kept_I), 0))
        n_rows = layout.n_ids_total if kept_I is None else 1 + int(kept_I.sum())
        self.weight = nn.Parameter(torch.zeros(n_rows, d_row))
        self.register_buffer("rows_I", rows_I, persistent=False)
        self.register_buffer("numerical", torch.tensor(layout.numerical, dtype=torch.int64), persistent=False)
        self.has_numerical = bool(layout.numerical)
        if std is not None:
            self.init_weights("normal", std)

    def init_weights(self, how: Literal["xavier", "normal"], scale: float) -> None:
        """Fill the table: Xavier uniform over its height, or normal with standard deviation `scale`."""
        if how == "xavier":
            bound = math.sqrt(6.0 / sum(self.weight.shape))
            nn.init.uniform_(self.weight, -bound, bound)
        else:
            nn.init.normal_(self.weight, std=scale)
        if self.rows_I is not None:
            with torch.no_grad():
                self.weight[0] = 0.0

    def rows_of(self, ids_BF: torch.Tensor) -> torch.Tensor:
        """Rows of the table that these joint ids look up."""
        return ids_BF if self.rows_I is None else self.rows_I[ids_BF]

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Look up the rows of a batch."""
        # For a small table a dense gradient would be as fast, but it would need a second code path.
        rows_BF = self.rows_of(inputs.ids_BF)
        e_BFD = F.embedding(rows_BF, self.weight, sparse=True)
        if self.rows_I is not None:
            e_BFD = e_BFD * (rows_BF > 0).unsqueeze(-1)
        if not self.has_numerical:
            return e_BFD
        scale_BF = torch.ones_like(e_BFD[..., 0]).index_copy(1, self.numerical, inputs.numbers_BN.to(e_BFD.dtype))
        return e_BFD * scale_BF.unsqueeze(-1)
