"""Which models there are: a plain dict from the name in `model.name` to the class."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fielddep.config import ModelConfig
from fielddep.data.batch import FieldLayout
from fielddep.nn.mdl import MDL
from fielddep.nn.model import FieldModel

MODELS: dict[str, Callable[[FieldLayout, int, ModelConfig], FieldModel]] = {"mdl": MDL}


def build_model(layout: FieldLayout, n_outputs: int, config: ModelConfig, *, seed: int = 0) -> FieldModel:
    """A fresh model; the same seed gives the same weights, and the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[config.name](layout, n_outputs, config)
