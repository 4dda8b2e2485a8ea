"""LLFM: the locally linear factorization machine with jointly learned anchors (Liu 2017).

Rows and anchors live in the space with one dimension per id: a row has a one at the id of every field, or its number at
the id of a numerical field. Such a vector is never written out: its product with a centre is a sum over its F ids.

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size, M anchors, K centres, I joint ids,
U distinct ids of the batch.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.config.factorization import LLFMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable, rows_of_lists
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.model import FieldModel, require_size

N_ROUNDS = 20
"""Most rounds; most tables converge earlier."""


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
        # Equal weights once every row is a centre, because all-zero weights cannot be drawn from.
        weights_B = gap_B if float(gap_B.sum()) > 0 else torch.ones_like(gap_B)
        row = torch.multinomial(weights_B, 1)
        centres_IK[ids_BF[row], k] = values_BF[row]
        to_k_B = distances(ids_BF, values_BF, centres_IK[:, k : k + 1])[:, 0].clamp(min=0)
        gap_B = to_k_B if k == 0 else torch.minimum(gap_B, to_k_B)
    return centres_IK


class LLFM(FieldModel):
    """One FM per anchor, mixed by how near the row is to each: y = b + sum_k gamma_k(x) FM_k(x).

    The weights gamma minimise |gamma|_2 + <gamma, u> on the simplex, u_k = locality * |x - z_k|^2, so that far anchors
    have weight zero. The anchors z start at the centres of `kmeans`.
    An anchor is its start plus `anchor_rate` times a trained shift: the ridge holds it there, and a step of the
    optimizer, which is large compared with the entries of a start, moves it gently.
    With several classes an FM has one embedding and one weight per value and class; the anchors are shared.
    """

    start_IM: torch.Tensor
    size_M: torch.Tensor
    """|z_k|^2, cached because it sums over all ids: computed when the mode changes, updated after each step."""

    def __init__(self, layout: Layout, n_outputs: int, config: LLFMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.config = config
        self.sizes = (config.n_anchors, n_outputs, require_size(config.d_embed))
        self.anchor_bias_MC = nn.Parameter(torch.zeros(config.n_anchors, n_outputs))
        self.first_order = EmbeddingTable(layout, config.n_anchors * n_outputs)
        self.embedding = EmbeddingTable(layout, math.prod(self.sizes), std=config.embedding_init_scale)
        self.shift = EmbeddingTable(layout, config.n_anchors)
        self.register_buffer("start_IM", torch.zeros(layout.n_ids_total, config.n_anchors))
        self.register_buffer("size_M", torch.zeros(config.n_anchors), persistent=False)
        self._measured = False
        self._moving: tuple[torch.Tensor, torch.Tensor] | None = None

    @torch.no_grad()
    def start_from(self, inputs: Inputs) -> None:
        """Anchors start as the centres of K-means on these rows."""
        first = inputs.take(slice(self.config.anchor_rows))
        plain = first.plain_columns  # lists take no part in K-means
        ids_BF, values_BF = first.ids_BF[:, plain], self._values(first)[:, plain]
        centres_IM = kmeans(ids_BF, values_BF, len(self.start_IM), self.config.n_anchors)
        self.start_IM.copy_(centres_IM)
        self._measure()

    def train(self, mode: bool = True) -> LLFM:
        """Change the mode; weights may have been loaded, restored or averaged since the sizes were computed."""
        continues = self._measured and self.training and mode
        super().train(mode)
        if not continues:
            self._measure()
        return self

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFMCD = self.embedding(inputs).unflatten(2, self.sizes)
        first_BMC: torch.Tensor = self.first_order(inputs).sum(dim=1).unflatten(1, self.sizes[:2])
        fm_BMC = self.anchor_bias_MC + first_BMC + sum_of_products(e_BFMCD).sum(dim=-1)
        gamma_BM = adaptive_weights(self.config.locality * self._distances(inputs))
        return self.bias + (gamma_BM[..., None] * fm_BMC).sum(dim=1)

    def after_step(self, step: int) -> None:
        """Keep the sizes of the anchors up to date."""
        if self._moving is not None:
            ids_U, before_M = self._moving
            self.size_M += self._anchors(ids_U).detach().square().sum(dim=0) - before_M

    def _distances(self, inputs: Inputs) -> torch.Tensor:
        """Squared distances (B, M) of rows and anchors, minus |x|^2, on which gamma does not depend."""
        if inputs.lists:
            start_BFM = rows_of_lists(self.start_IM[inputs.looked_up()[0]], inputs)
        else:
            start_BFM = self.start_IM[inputs.ids_BF]
        start_BFM = start_BFM * self._values(inputs)[..., None]
        z_BFM: torch.Tensor = start_BFM + self.config.anchor_rate * self.shift(inputs)
        return self._sizes(inputs) - 2 * z_BFM.sum(dim=1)

    def _sizes(self, inputs: Inputs) -> torch.Tensor:
        """|z_k|^2; while training, with its gradient for the ids of the batch, the only ones that move."""
        if not self.training:
            return self.size_M
        ids_U = torch.unique(inputs.looked_up()[0])
        part_M = self._anchors(ids_U).square().sum(dim=0)
        self._moving = (ids_U, part_M.detach())
        return self.size_M + (part_M - part_M.detach())

    def _anchors(self, ids_U: torch.Tensor) -> torch.Tensor:
        """The anchors at these ids, (U, M)."""
        return self.start_IM[ids_U] + self.config.anchor_rate * F.embedding(ids_U, self.shift.weight, sparse=True)

    def _values(self, inputs: Inputs) -> torch.Tensor:
        """The entries of a row at its ids: one, or its number."""
        ones_BF = torch.ones_like(inputs.ids_BF, dtype=self.start_IM.dtype)
        return ones_BF.index_copy(1, self.shift.numerical, inputs.numbers_BN.to(ones_BF.dtype))

    @torch.no_grad()
    def _measure(self) -> None:
        self.size_M.copy_((self.start_IM + self.config.anchor_rate * self.shift.weight).square().sum(dim=0))
        self._measured = True


def adaptive_weights(u_BM: torch.Tensor) -> torch.Tensor:
    """The point gamma of the simplex with the least |gamma|_2 + <gamma, u>, row by row.

    gamma_k is in proportion to max(level - u_k, 0), where the squares of these sum to one. Anchor k is in use where
    the level lies above u_k: where the same sum with u_k for the level is below one. The gradient takes the level as
    given, as the method does.

    Example:
        >>> adaptive_weights(torch.tensor([[0.0, 0.0, 5.0], [0.0, 3.0, 3.0]])).tolist()
        [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    """
    u_BM = u_BM - u_BM.detach().amin(dim=1, keepdim=True)
    level_B1 = _level(u_BM.detach())
    share_BM = (level_B1 - u_BM).clamp(min=0)
    return share_BM / share_BM.sum(dim=1, keepdim=True)


def _level(u_BM: torch.Tensor) -> torch.Tensor:
    above_BMM = (u_BM[:, :, None] - u_BM[:, None, :]).clamp(min=0)
    used_BM = (above_BMM.square().sum(dim=2) < 1).to(u_BM.dtype)
    n_B1 = used_BM.sum(dim=1, keepdim=True)
    sum_B1 = (used_BM * u_BM).sum(dim=1, keepdim=True)
    squares_B1 = (used_BM * u_BM.square()).sum(dim=1, keepdim=True)
    return (sum_B1 + (n_B1 * (1 - squares_B1) + sum_B1.square()).clamp(min=0).sqrt()) / n_B1
