"""RaFM: the rank-aware factorization machine (Chen 2019).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size of a level, I joint ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fielddep.config.factorization import RaFMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import ConfigError
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import sum_of_products
from fielddep.nn.model import FieldModel, require_size


@dataclass(frozen=True, kw_only=True)
class LevelProducts:
    """Sums (B, C) of the products of one level's embeddings, over three kinds of pairs.

    An embedding is *free* at the highest level of its value and *dependent* at the levels below.
    """

    free: torch.Tensor
    """Pairs of two free embeddings."""
    mixed: torch.Tensor
    """A free and a dependent one; gradients reach the dependent one only with `joint`."""
    mixed_dependent: torch.Tensor
    """The same numbers; gradients reach the dependent one only."""
    dependent: torch.Tensor
    """Pairs of two dependent ones: what the next level gives to those pairs instead."""


class RaFM(FieldModel):
    """Frequent values have further, larger embeddings; a pair takes those of the highest level that both have.

    y = b + sum_i w[c_i] + sum_{i<j} <e_k[c_i], e_k[c_j]>, k = min(level of c_i, level of c_j). A value is of level 1
    plus the number of `thresholds` that its count in training exceeds; where counts are not known, of the highest.
    With several classes a value has one embedding per level and class.

    The task loss trains the free embeddings. The dependent ones are used in pairs with rarer values; a loss of weight
    `distill` trains them, by which the model cut off after level k learns to predict like the one cut off after k + 1.
    With `joint` the task loss trains them too, through their pairs with free ones.
    """

    level_I: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: RaFMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.distill = config.distill
        self.joint = config.joint
        level_I = levels_of_ids(layout, _thresholds(config))
        self.register_buffer("level_I", torch.from_numpy(level_I), persistent=False)
        self.first_order = EmbeddingTable(layout, n_outputs)
        std = config.embedding_init_scale
        tables = [EmbeddingTable(layout, n_outputs * require_size(config.d_embed), std=std)]
        for level, d_level in enumerate(config.d_levels, start=2):
            tables.append(EmbeddingTable(layout, n_outputs * d_level, std=std, kept_I=level_I >= level))
        self.levels = nn.ModuleList(tables)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        return self._outputs(inputs, self._lower_levels(inputs))[-1]

    def training_forward(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits, and the loss that trains the dependent embeddings."""
        lower = self._lower_levels(inputs)
        outputs = self._outputs(inputs, lower)
        if self.distill == 0 or not lower:
            return self._mixed(outputs[-1], inputs), None
        penalty = torch.zeros_like(outputs[-1][0, 0])
        for level, student_BC, teacher_BC in zip(lower, outputs[:-1], outputs[1:], strict=True):
            trained_BC = level.mixed_dependent + level.dependent
            student_BC = (student_BC - trained_BC).detach() + trained_BC
            penalty = penalty + self._difference(student_BC, teacher_BC.detach())
        return self._mixed(outputs[-1], inputs), self.distill * penalty

    def _outputs(self, inputs: Inputs, lower: Sequence[LevelProducts]) -> list[torch.Tensor]:
        """Logits (B, C) of the model cut off after each level; the last is the model itself."""
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        sum_BC = self.bias + first_BC
        outputs = []
        for level in lower:
            sum_BC = sum_BC + level.free + level.mixed
            outputs.append(sum_BC + level.dependent)
        top_BFCD = self.levels[-1](inputs).unflatten(2, (self.n_outputs, -1))
        return [*outputs, sum_BC + sum_of_products(top_BFCD).sum(dim=-1)]

    def _lower_levels(self, inputs: Inputs) -> list[LevelProducts]:
        """Products of all levels but the highest, where every embedding is free."""
        level_BF = self.level_I[inputs.ids_BF]
        for one in inputs.lists:  # the highest of its values, because those of lower levels are zero there
            highest_B = level_BF.new_zeros(len(level_BF)).scatter_reduce(0, one.row_V, self.level_I[one.ids_V], "amax")
            level_BF = level_BF.index_copy(1, torch.tensor([one.column], device=level_BF.device), highest_B[:, None])
        return [
            _level_products(table(inputs).unflatten(2, (self.n_outputs, -1)), level_BF > level, joint=self.joint)
            for level, table in enumerate(self.levels[:-1], start=1)
        ]

    def _difference(self, student_BC: torch.Tensor, teacher_BC: torch.Tensor) -> torch.Tensor:
        """Mean loss of the student with the teacher's predictions as soft targets."""
        if self.regression:
            return F.mse_loss(student_BC, teacher_BC)
        if self.n_outputs == 1:
            return F.binary_cross_entropy_with_logits(student_BC, teacher_BC.sigmoid())
        return F.cross_entropy(student_BC, teacher_BC.softmax(dim=1))


def _level_products(e_BFCD: torch.Tensor, dependent_BF: torch.Tensor, *, joint: bool) -> LevelProducts:
    """Products by kind of pair from sums over fields, as in an FM; `e_BFCD` is zero where the level is absent."""
    dependent_BF = dependent_BF.to(e_BFCD.dtype)
    square_BFC = e_BFCD.square().sum(dim=3)
    of_dependent_BCD = (dependent_BF.unsqueeze(1) @ e_BFCD.flatten(2)).view(-1, *e_BFCD.shape[2:])
    of_free_BCD = e_BFCD.sum(dim=1) - of_dependent_BCD
    squares_dependent_BC = (square_BFC * dependent_BF[..., None]).sum(dim=1)
    squares_free_BC = square_BFC.sum(dim=1) - squares_dependent_BC
    return LevelProducts(
        free=0.5 * (of_free_BCD.square().sum(dim=2) - squares_free_BC),
        mixed=(of_free_BCD * (of_dependent_BCD if joint else of_dependent_BCD.detach())).sum(dim=2),
        mixed_dependent=(of_free_BCD.detach() * of_dependent_BCD).sum(dim=2),
        dependent=0.5 * (of_dependent_BCD.square().sum(dim=2) - squares_dependent_BC),
    )


def levels_of_ids(layout: Layout, thresholds: Sequence[int]) -> npt.NDArray[np.int64]:
    """Level of every joint id: 1 plus the number of thresholds that its count exceeds.

    Example:
        >>> counts = (np.array([0, 5, 90, 11]),)
        >>> levels_of_ids(Layout(names=("user",), n_ids=(4,), counts=counts), (10, 50)).tolist()
        [1, 1, 3, 2]
    """
    if layout.counts is None:
        return np.full(layout.n_ids_total, 1 + len(thresholds))
    count_I = np.concatenate(layout.of_owners(layout.counts))
    return 1 + np.searchsorted(np.asarray(thresholds), count_I, side="left").astype(np.int64)


def _thresholds(config: RaFMConfig) -> tuple[int, ...]:
    sizes = (require_size(config.d_embed), *config.d_levels)
    for name, values in (("model.d_embed and model.d_levels", sizes), ("model.thresholds", config.thresholds)):
        if any(low >= high for low, high in pairwise(values)):
            raise ConfigError(f"{name} must ascend; given {values}")
    if len(config.thresholds) != len(config.d_levels):
        raise ConfigError(
            f"expected one threshold per further level; model.thresholds has {len(config.thresholds)} and "
            f"model.d_levels {len(config.d_levels)}. Give as many of both"
        )
    return config.thresholds
