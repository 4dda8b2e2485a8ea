"""Settings of data, training and every model.

`STARTS` of a model are settings that its authors, later benchmarks, or trials by hand on Frappe's validation rows
found good.
"""

from __future__ import annotations

from collections.abc import Mapping

from fielddep.config.factorization import (
    FFMConfig,
    FMConfig,
    FWLConfig,
    IFMConfig,
    INNConfig,
    LLFMConfig,
    LRConfig,
    RaFMConfig,
)
from fielddep.config.mdl import ModelConfig
from fielddep.config.networks import (
    AFNConfig,
    DeepFMConfig,
    FinalMLPConfig,
    NODEConfig,
    SAINTConfig,
    TabNetConfig,
    TabTransformerConfig,
    WideDeepConfig,
    XDeepFMConfig,
)

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
