"""fielddep: supervised learning on large categorical tables, with the dependencies between fields of every row.

Public names are imported when they are first used, so that `import fielddep` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fielddep.bundle import Bundle
    from fielddep.config import Config, DataConfig, SplitConfig, TrainConfig
    from fielddep.data.describe import describe
    from fielddep.data.readers import read_table
    from fielddep.errors import FieldDepError, UserError
    from fielddep.estimators import BaselineClassifier, BaselineRegressor, MDLClassifier, MDLRegressor
    from fielddep.explain.dependencies import Explanation
    from fielddep.fitting import fit_table
    from fielddep.model_config import MDLConfig
    from fielddep.predictor import Predictor

_HOMES = {
    "BaselineClassifier": "estimators",
    "BaselineRegressor": "estimators",
    "Bundle": "bundle",
    "Config": "config",
    "DataConfig": "config",
    "Explanation": "explain.dependencies",
    "FieldDepError": "errors",
    "MDLClassifier": "estimators",
    "MDLConfig": "model_config",
    "MDLRegressor": "estimators",
    "Predictor": "predictor",
    "SplitConfig": "config",
    "TrainConfig": "config",
    "UserError": "errors",
    "describe": "data.describe",
    "fit_table": "fitting",
    "read_table": "data.readers",
}

__all__ = [
    "BaselineClassifier",
    "BaselineRegressor",
    "Bundle",
    "Config",
    "DataConfig",
    "Explanation",
    "FieldDepError",
    "MDLClassifier",
    "MDLConfig",
    "MDLRegressor",
    "Predictor",
    "SplitConfig",
    "TrainConfig",
    "UserError",
    "describe",
    "fit_table",
    "read_table",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("fielddep")
    if name not in _HOMES:
        raise AttributeError(f"module 'fielddep' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fielddep.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
