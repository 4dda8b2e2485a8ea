"""The small network behind every deep model here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from fielddep.nn.norm import BatchNorm


def build_mlp(
    d_in: int,
    hidden: Sequence[int],
    n_outputs: int,
    *,
    batch_norm: Literal["all", "hidden", "none"] = "all",
    dropout: float = 0.0,
) -> nn.Sequential:
    """ReLU layers with BatchNorm in front of all, all but the first, or none of the hidden ones."""
    layers: list[nn.Module] = []
    for depth, width in enumerate(hidden):
        if batch_norm == "all" or (batch_norm == "hidden" and depth > 0):
            layers.append(BatchNorm(d_in))
        layers += [nn.Linear(d_in, width), nn.ReLU()]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        d_in = width
    layers.append(nn.Linear(d_in, n_outputs))
    return nn.Sequential(*layers)
