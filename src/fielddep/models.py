"""Which models there are: a plain dict from the name in `model.name` to the class."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from fielddep.baselines import BASELINES
from fielddep.data.batch import FieldLayout
from fielddep.model_config import ModelConfig
from fielddep.nn.mdl import MDL
from fielddep.nn.model import FieldModel


class ModelClass(Protocol):
    """How every model is made: from the columns of ids, its number of outputs and its own settings."""

    def __call__(self, layout: FieldLayout, n_outputs: int, config: Any) -> FieldModel:
        """A model with fresh weights."""


MODELS: dict[str, ModelClass] = {"mdl": MDL, **BASELINES}


def build_model(
    layout: FieldLayout,
    n_outputs: int,
    config: ModelConfig,
    *,
    regression: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> FieldModel:
    """A fresh model; the same seed gives the same weights, and the caller's random state is left alone.

    On the device "meta" nothing is allocated: such a model only tells its sizes.
    """
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = MODELS[config.name](layout, n_outputs, config)
    model.regression = regression
    return model
