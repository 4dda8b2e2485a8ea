"""The registry of networks by `model.name`, and `build_model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fielddep.config.mdl import FieldModelConfig, ModelConfig
from fielddep.encoding.rows import Layout
from fielddep.nn.baselines import BASELINES
from fielddep.nn.blend import Blend
from fielddep.nn.direct import direct_networks
from fielddep.nn.mdl import MDL
from fielddep.nn.model import FieldModel

MODELS: dict[str, Callable[[Layout, int, Any], FieldModel]] = {"mdl": MDL, "blend": Blend, **BASELINES}
"""Constructors, which take columns of ids, number of outputs and settings."""


def build_model(
    layout: Layout,
    n_outputs: int,
    config: ModelConfig,
    *,
    regression: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> FieldModel:
    """An untrained model. The same seed gives the same weights; the caller's random state stays the same.

    On the device "meta", nothing is allocated: the model only has shapes.
    """
    assert isinstance(config, FieldModelConfig)  # trees are not built but trained
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = MODELS[config.name](layout, n_outputs, config)
        model.add_direct(direct_networks(layout, n_outputs, config))
    model.regression = regression
    return model
