"""The models: a plain dict from `model.name` to the class, and `build_model`."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from fielddep.config.mdl import ModelConfig
from fielddep.encoding.rows import Layout
from fielddep.nn.baselines import BASELINES
from fielddep.nn.mdl import MDL
from fielddep.nn.model import FieldModel


class ModelClass(Protocol):
    """The constructor of every model: columns of ids, number of outputs, settings."""

    def __call__(self, layout: Layout, n_outputs: int, config: Any) -> FieldModel:
        """A model with fresh weights."""


MODELS: dict[str, ModelClass] = {"mdl": MDL, **BASELINES}


def build_model(
    layout: Layout,
    n_outputs: int,
    config: ModelConfig,
    *,
    regression: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> FieldModel:
    """A fresh model; the same seed gives the same weights, and the caller's random state is not touched.

    On the device "meta" nothing is allocated: such a model has shapes only.
    """
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = MODELS[config.name](layout, n_outputs, config)
    model.regression = regression
    return model
