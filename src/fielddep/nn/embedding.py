"""Embeddings: one joint table for the ids of all fields.

Shape legend: B rows, F fields, N numerical fields, D size of a table's row, V values of the lists of a field,
L look-ups and U distinct ids of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fielddep.encoding.rows import Inputs, Layout, ListInput
from fielddep.nn.kernels.network_input import dense_gradient


class EmbeddingTable(nn.Module):
    """Rows looked up by joint id; a numerical field's row is multiplied by its number, a list has the mean of its own.

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
        if inputs.lists:
            e_BFD = rows_of_lists(self._look_up(inputs.looked_up()[0]), inputs)
        else:
            e_BFD = self._look_up(inputs.ids_BF)
        if not self.has_numerical:
            return e_BFD
        scale_BF = torch.ones_like(e_BFD[..., 0]).index_copy(1, self.numerical, inputs.numbers_BN.to(e_BFD.dtype))
        return e_BFD * scale_BF.unsqueeze(-1)

    def _look_up(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.rows_of(ids)
        found = F.embedding(rows, self.weight, sparse=True)
        return found if self.rows_I is None else found * (rows > 0).unsqueeze(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchRows:
    """What a batch looks up, as a small table: the rows of single values, then the mean of every list.

    The gradient of the large table has one entry per distinct id. No two columns have a row in common, even if they
    share ids, because the compiled kernels work column by column.

    Attributes:
        ids_U: distinct joint ids, ascending.
        first_K: places in `ids_U` of the first rows of the small table; None if these are all ids.
        lists: the lists, with places in `ids_U` instead of ids, of the rows that follow.
        place_BF: the row of every cell.
    """

    ids_U: torch.Tensor
    first_K: torch.Tensor | None
    lists: tuple[ListInput, ...]
    place_BF: torch.Tensor

    @classmethod
    def of(cls, inputs: Inputs, offsets: Sequence[int]) -> BatchRows:
        """Find the distinct ids of a batch; `offsets` are the first ids of its columns."""
        plain, n_rows = inputs.plain_columns, len(inputs.ids_BF)
        ids_U, place_L = torch.unique(inputs.looked_up()[0], return_inverse=True)
        sizes = [n_rows * len(plain), *(len(one.ids_V) for one in inputs.lists)]
        row_L, *place_V = torch.split(place_L, sizes)
        row_BP, first_K = row_L.view(n_rows, len(plain)), None
        if len({offsets[column] for column in plain}) < len(plain):
            apart_P = len(ids_U) * torch.arange(len(plain))
            keys_K, row_BP = torch.unique(row_BP + apart_P, return_inverse=True)
            first_K = keys_K % len(ids_U)
        n_first = len(ids_U) if first_K is None else len(first_K)
        place_BF = torch.empty_like(inputs.ids_BF)
        place_BF[:, plain] = row_BP
        for number, one in enumerate(inputs.lists):
            place_BF[:, one.column] = torch.arange(n_rows) + n_first + number * n_rows
        lists = tuple(one._replace(ids_V=ids_V) for one, ids_V in zip(inputs.lists, place_V, strict=True))
        return cls(ids_U=ids_U, first_K=first_K, lists=lists, place_BF=place_BF)

    def table(self, weight_ID: torch.Tensor) -> torch.Tensor:
        """The small table of these weights, whose sparse gradient it passes on."""
        rows_UD = F.embedding(self.ids_U, weight_ID, sparse=True)
        first_KD = rows_UD if self.first_K is None else rows_UD.index_select(0, self.first_K)
        means = [F.embedding_bag(one.ids_V, rows_UD, one.starts[:-1], mode="mean") for one in self.lists]
        return dense_gradient(torch.cat([first_KD, *means]))


def rows_of_lists(rows_LD: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Rows (B, F, D) of all columns, with the mean row of each list; `rows_LD` are those of `Inputs.looked_up`."""
    plain, n_rows = inputs.plain_columns, len(inputs.ids_BF)
    sizes = [n_rows * len(plain), *(len(one.ids_V) for one in inputs.lists)]
    own_LD, *of_lists = torch.split(rows_LD, sizes)
    means = [_mean_row(one, rows_VD).unsqueeze(1) for one, rows_VD in zip(inputs.lists, of_lists, strict=True)]
    order = [*plain, *(one.column for one in inputs.lists)]
    place_F = torch.from_numpy(np.argsort(order)).to(rows_LD.device)
    return torch.cat([own_LD.view(n_rows, len(plain), rows_LD.shape[1]), *means], dim=1).index_select(1, place_F)


def _mean_row(one: ListInput, rows_VD: torch.Tensor) -> torch.Tensor:
    """Mean (B, D) of the rows of each list."""
    weight_V1 = one.weight_V(rows_VD.dtype).unsqueeze(1)
    none_BD = rows_VD.new_zeros(len(one.starts) - 1, rows_VD.shape[1])
    return none_BD.index_add(0, one.row_V, rows_VD * weight_V1)
