"""LightGBM and CatBoost on encoded rows, with their native handling of categories (extra `trees`).

They get the rows, weights and splits of all other models (`tree_rows` says in which form) and stop early on the same
validation loss; predictions use the best number of trees.
"""

from __future__ import annotations

import importlib.util
import time

import torch

from fielddep.data.encoded import EncodedTable
from fielddep.errors import MissingExtraError
from fielddep.experiments.catboost_trees import grow_catboost
from fielddep.experiments.lightgbm_trees import grow_lightgbm
from fielddep.experiments.trained import Trained, Watcher, measured
from fielddep.experiments.tree_configs import TREE_CONFIGS, TreeConfig
from fielddep.experiments.tree_growing import LossTeller, Planting
from fielddep.experiments.tree_rows import TreeColumns, TreeTable
from fielddep.prepared import TrainingData

GROWERS = {"lightgbm": grow_lightgbm, "catboost": grow_catboost}


def installed_trees() -> tuple[str, ...]:
    """Names of the tree models whose library is there."""
    return tuple(name for name in TREE_CONFIGS if importlib.util.find_spec(name) is not None)


def check_installed(name: str) -> None:
    """Refuse a tree model whose library is not there.

    Raises:
        MissingExtraError: names the extra to install.
    """
    if name in TREE_CONFIGS and name not in installed_trees():
        raise MissingExtraError(f"{name} is not installed; pip install 'fielddep[trees]'")


def train_trees(data: TrainingData, watcher: Watcher | None = None) -> Trained:
    """Train the tree model of prepared rows, with early stopping on the validation rows.

    Raises:
        MissingExtraError: its library is not installed.
    """
    assert isinstance(data.config.model, TreeConfig)
    check_installed(data.config.model.name)
    columns = TreeColumns.of(data.encoder)
    parts = {name: TreeTable.of(columns, data.parts[name]) for name in ("train", "validation")}
    teller = LossTeller(data.target, watcher or Watcher())
    start = time.perf_counter()
    grown = GROWERS[data.config.model.name](Planting(data=data, columns=columns, parts=parts, teller=teller))
    seconds = time.perf_counter() - start

    def logits(rows: EncodedTable) -> torch.Tensor:
        return torch.from_numpy(grown.predict(columns.columns(rows)).reshape(len(rows), -1))

    return Trained(
        logits=logits,
        validation=measured(logits, data.target, data.parts["validation"]).metrics,
        n_parameters=grown.n_parameters,
        seconds=seconds,
        rows_per_s=len(parts["train"]) * grown.n_grown / seconds,
    )
