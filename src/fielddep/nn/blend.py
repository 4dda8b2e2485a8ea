"""Blend: MDL next to gradient-boosted trees on the same evidence.

Networks and trees differ in what they get wrong. So each is trained on its own, and their outputs are added with
weights that `training/mixing.py` finds on validation rows. Trees see rows, not tensors, so only `outputs` is complete;
`forward` is the network alone, which is what training and dependencies need.

Shape legend: R rows, P members, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import EncodedRows, Layout
from fielddep.nn.mdl import MDL

MEMBERS = ("network", "trees", "trees with categories")
"""The members of a blend in words; without evidence, trees need the categories and there are two members."""


class Trees(Protocol):
    """Trained trees: `training/trees.py` has them."""

    @property
    def n_parameters(self) -> int:
        """Leaves and splits."""

    @property
    def n_best(self) -> int:
        """Trees that are used."""

    @property
    def text(self) -> str | None:
        """What a bundle keeps of them."""

    def outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Raw outputs (R, C) of encoded rows."""


class Blend(MDL):
    """MDL and trees. Without trees, as before they are trained, it is MDL.

    Attributes:
        members: names of the network and of the trees.
        trees: one entry for each member but the first; empty before they are trained.
        share_P: weights of the outputs of the members.
    """

    share_P: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: MDLConfig) -> None:
        super().__init__(layout, n_outputs, config)
        self.members = MEMBERS if layout.evidence else (MEMBERS[0], MEMBERS[2])
        self.trees: Sequence[Trees] = ()
        n_members = len(self.members)
        self.register_buffer("share_P", torch.full((n_members,), 1.0 / n_members))

    @torch.no_grad()
    def outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Logits (R, C) of encoded rows: those of all members, weighted."""
        if not self.trees:
            return super().outputs(rows)
        outputs_PRC = self.member_outputs(rows)
        # Not a matrix product, whose rounding depends on the number of rows.
        return (self.share_P.view(-1, 1, 1) * outputs_PRC).sum(dim=0)

    @torch.no_grad()
    def member_outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Logits (P, R, C) of every member."""
        network_RC = super().outputs(rows)
        return torch.stack([network_RC, *(trees.outputs(rows).to(network_RC) for trees in self.trees)])

    @property
    def n_parameters(self) -> int:
        """Number of trained weights, leaves and splits."""
        return super().n_parameters + sum(trees.n_parameters for trees in self.trees)
