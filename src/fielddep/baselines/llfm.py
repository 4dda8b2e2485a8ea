"""LLFM: the locally linear factorization machine with jointly learned anchors (Liu 2017).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size, M anchors, I joint ids,
U distinct ids of the batch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.baseline_configs import LLFMConfig
from fielddep.data.batch import Batch, FieldLayout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.kmeans import kmeans
from fielddep.nn.model import FieldModel, decided


class LLFM(FieldModel):
    """One FM an anchor, mixed by how near the row is to each: y = b + sum_k gamma_k(x) FM_k(x).

    The weights gamma minimise |gamma|_2 + <gamma, u> on the simplex, u_k = locality * |x - z_k|^2, so that far anchors
    have weight zero. Row x and anchors z live in the space of one dimension an id (see `kmeans`, where they start).
    An anchor is its start plus `anchor_rate` times a trained shift: the ridge holds it there, and a step of the
    optimiser, which is large beside the shares of rows that a start is made of, moves it gently.
    With several classes an FM has one embedding and one weight a value for each of them; the anchors are shared.
    """

    start_IM: torch.Tensor
    size_M: torch.Tensor
    """|z_k|^2. Kept, as it takes in every id: taken anew where the mode changes, else after each step from its ids."""

    def __init__(self, layout: FieldLayout, n_outputs: int, config: LLFMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.config = config
        self.sizes = (config.n_anchors, n_outputs, decided(config.d_embed))
        self.anchor_bias_MC = nn.Parameter(torch.zeros(config.n_anchors, n_outputs))
        self.first_order = EmbeddingTable(layout, config.n_anchors * n_outputs)
        self.embedding = EmbeddingTable(layout, config.n_anchors * n_outputs * self.sizes[-1])
        self.embedding.init_weights("normal", config.embedding_init_scale)
        self.shift = EmbeddingTable(layout, config.n_anchors)
        self.register_buffer("start_IM", torch.zeros(layout.n_ids_total, config.n_anchors))
        self.register_buffer("size_M", torch.zeros(config.n_anchors), persistent=False)
        self._measured = False
        self._moving: tuple[torch.Tensor, torch.Tensor] | None = None

    @torch.no_grad()
    def start_from(self, rows: Batch) -> None:
        """Anchors start as the centres of K-means on these rows."""
        ids_BF, numbers_BN = rows.ids_BF[: self.config.anchor_rows], rows.numbers_BN[: self.config.anchor_rows]
        centres_IM = kmeans(ids_BF, self._values(ids_BF, numbers_BN), len(self.start_IM), self.config.n_anchors)
        self.start_IM.copy_(centres_IM)
        self._measure()

    def train(self, mode: bool = True) -> LLFM:
        """Change the mode; weights may have been loaded, restored or averaged since the sizes were taken."""
        goes_on = self._measured and self.training and mode
        super().train(mode)
        if not goes_on:
            self._measure()
        return self

    def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Logits (B, C)."""
        e_BFMCD = self.embedding(ids_BF, numbers_BN).unflatten(2, self.sizes)
        first_BMC: torch.Tensor = self.first_order(ids_BF, numbers_BN).sum(dim=1).unflatten(1, self.sizes[:2])
        fm_BMC = self.anchor_bias_MC + first_BMC + sum_of_products(e_BFMCD).sum(dim=-1)
        gamma_BM = adaptive_weights(self.config.locality * self._distances(ids_BF, numbers_BN))
        return self.bias + (gamma_BM[..., None] * fm_BMC).sum(dim=1)

    def after_step(self, step: int) -> None:
        """Keep the sizes of the anchors up to date."""
        if self._moving is not None:
            ids_U, before_M = self._moving
            self.size_M += self._anchors(ids_U).detach().square().sum(dim=0) - before_M

    def _distances(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """Squared distances (B, M) of rows and anchors, less |x|^2, which all anchors share and gamma is blind to."""
        start_BFM = self.start_IM[ids_BF] * self._values(ids_BF, numbers_BN)[..., None]
        z_BFM: torch.Tensor = start_BFM + self.config.anchor_rate * self.shift(ids_BF, numbers_BN)
        return self._sizes(ids_BF) - 2 * z_BFM.sum(dim=1)

    def _sizes(self, ids_BF: torch.Tensor) -> torch.Tensor:
        """|z_k|^2; while training, with its gradient for the ids of the batch, the only ones that move."""
        if not self.training:
            return self.size_M
        ids_U = torch.unique(ids_BF)
        part_M = self._anchors(ids_U).square().sum(dim=0)
        self._moving = (ids_U, part_M.detach())
        return self.size_M + (part_M - part_M.detach())

    def _anchors(self, ids_U: torch.Tensor) -> torch.Tensor:
        """The anchors at these ids, (U, M)."""
        return self.start_IM[ids_U] + self.config.anchor_rate * F.embedding(ids_U, self.shift.weight, sparse=True)

    def _values(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
        """What a row has at its ids: one, or its number."""
        ones_BF = torch.ones_like(ids_BF, dtype=self.start_IM.dtype)
        return ones_BF.index_copy(1, self.shift.numerical, numbers_BN.to(ones_BF.dtype))

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
