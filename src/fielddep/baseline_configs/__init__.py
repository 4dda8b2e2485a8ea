"""Settings of the rivals of MDL, one class a model; `model_config` says what the parts of a class mean.

`STARTS` are settings that their authors, later benchmarks, or trials by hand on Frappe's validation rows found good.
"""

from __future__ import annotations

from collections.abc import Mapping

from fielddep.baseline_configs.machines import (
    FFMConfig,
    FMConfig,
    FWLConfig,
    IFMConfig,
    INNConfig,
    LLFMConfig,
    LRConfig,
    RaFMConfig,
)
from fielddep.baseline_configs.networks import AFNConfig, DeepFMConfig, FinalMLPConfig, WideDeepConfig, XDeepFMConfig
from fielddep.baseline_configs.tabular import NODEConfig, SAINTConfig, TabNetConfig, TabTransformerConfig
from fielddep.model_config import ModelConfig

__all__ = [
    "BASELINE_CONFIGS",
    "AFNConfig",
    "DeepFMConfig",
    "FFMConfig",
    "FMConfig",
    "FWLConfig",
    "FinalMLPConfig",
    "IFMConfig",
    "INNConfig",
    "LLFMConfig",
    "LRConfig",
    "NODEConfig",
    "RaFMConfig",
    "SAINTConfig",
    "TabNetConfig",
    "TabTransformerConfig",
    "WideDeepConfig",
    "XDeepFMConfig",
]

BASELINE_CONFIGS: Mapping[str, type[ModelConfig]] = {
    config().name: config
    for config in (
        *(LRConfig, FMConfig, FFMConfig, XDeepFMConfig, AFNConfig, IFMConfig, INNConfig, LLFMConfig, RaFMConfig),
        *(FWLConfig, WideDeepConfig, DeepFMConfig, NODEConfig, TabNetConfig, TabTransformerConfig, SAINTConfig),
        FinalMLPConfig,
    )
}
