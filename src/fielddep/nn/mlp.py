"""The small network behind every deep model here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from fielddep.nn.norm import BatchNorm

NormPlaces = Literal["all", "hidden", "none"]


def build_mlp(
    d_in: int, hidden: Sequence[int], n_outputs: int, *, batch_norm: NormPlaces = "all", dropout: float = 0.0
) -> nn.Sequential:
    """Hidden layers as `build_hidden` makes them, and a linear one of `n_outputs`."""
    layers = build_hidden(d_in, hidden, batch_norm=batch_norm, dropout=dropout)
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else d_in, n_outputs))


def build_hidden(
    d_in: int,
    hidden: Sequence[int],
    *,
    batch_norm: NormPlaces = "all",
    norm_last: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """ReLU layers with BatchNorm in front of all, all but the first, or none of them.

    Args:
        d_in: inputs.
        hidden: widths.
        batch_norm: which layers have one.
        norm_last: it stands behind the linear part of a layer. In front it would undo what scales the inputs.
        dropout: behind every layer.
    """
    layers: list[nn.Module] = []
    for depth, width in enumerate(hidden):
        layer: list[nn.Module] = [nn.Linear(d_in, width)]
        if batch_norm == "all" or (batch_norm == "hidden" and depth > 0):
            layer.insert(int(norm_last), BatchNorm(width if norm_last else d_in))
        layers += [*layer, nn.ReLU()]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        d_in = width
    return nn.Sequential(*layers)
