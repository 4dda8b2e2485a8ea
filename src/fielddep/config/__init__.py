"""Settings of data, training and every model; here is the registry of the models."""

from __future__ import annotations

from collections.abc import Mapping

from fielddep.config import factorization, networks, trees
from fielddep.config.mdl import MDLConfig, ModelConfig

MODEL_CONFIGS: Mapping[str, type[ModelConfig]] = {
    "mdl": MDLConfig,
    "blend": trees.BlendConfig,
    "lr": factorization.LRConfig,
    "fm": factorization.FMConfig,
    "ffm": factorization.FFMConfig,
    "xdeepfm": networks.XDeepFMConfig,
    "afn": networks.AFNConfig,
    "ifm": factorization.IFMConfig,
    "inn": factorization.INNConfig,
    "llfm": factorization.LLFMConfig,
    "rafm": factorization.RaFMConfig,
    "fwl": factorization.FWLConfig,
    "wide_deep": networks.WideDeepConfig,
    "deepfm": networks.DeepFMConfig,
    "node": networks.NODEConfig,
    "tabnet": networks.TabNetConfig,
    "tabtransformer": networks.TabTransformerConfig,
    "saint": networks.SAINTConfig,
    "finalmlp": networks.FinalMLPConfig,
    "lightgbm": trees.LightGBMConfig,
    "catboost": trees.CatBoostConfig,
}
"""Settings of every model by name."""
TREES = tuple(name for name, config in MODEL_CONFIGS.items() if issubclass(config, trees.TreeConfig))
"""Models of a comparison only; a bundle holds a network, or a blend."""
NETWORKS = tuple(name for name in MODEL_CONFIGS if name not in TREES)
"""Names that `model.name` accepts."""
