"""Supervised learning on large categorical tables, with the dependencies between the fields of every row.

Public names are imported on first use, so `import fielddep` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fielddep.artifacts.bundle import Bundle
    from fielddep.artifacts.predictor import Predictor
    from fielddep.config.data import DataConfig, SplitConfig
    from fielddep.config.mdl import MDLConfig
    from fielddep.config.settings import Config, TrainConfig
    from fielddep.encoding.describe import describe
    from fielddep.errors import FieldDepError, UserError
    from fielddep.explain.dependencies import Explanation
    from fielddep.sklearn_api.estimators import BaselineClassifier, BaselineRegressor, MDLClassifier, MDLRegressor
    from fielddep.tables.row_stream import read_table
    from fielddep.training.fit import fit

_HOMES = {
    "BaselineClassifier": "sklearn_api.estimators",
    "BaselineRegressor": "sklearn_api.estimators",
    "Bundle": "artifacts.bundle",
    "Config": "config.settings",
    "DataConfig": "config.settings",
    "Explanation": "explain.dependencies",
    "FieldDepError": "errors",
    "MDLClassifier": "sklearn_api.estimators",
    "MDLConfig": "config.mdl",
    "MDLRegressor": "sklearn_api.estimators",
    "Predictor": "artifacts.predictor",
    "SplitConfig": "config.settings",
    "TrainConfig": "config.settings",
    "UserError": "errors",
    "describe": "encoding.describe",
    "fit": "training.fit",
    "read_table": "tables.row_stream",
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
    "fit",
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
