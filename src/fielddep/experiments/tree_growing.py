"""What the training of both tree libraries shares: who is told of trees, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt

from fielddep.data.target import Target
from fielddep.experiments.trained import Watcher
from fielddep.experiments.tree_configs import TreeConfig
from fielddep.experiments.tree_rows import TreeColumns, TreeTable
from fielddep.prepared import TrainingData

TREES_A_LOSS = 25
"""A watcher is told of the validation loss once in so many trees."""

Matrix = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Grown:
    """Trees that were trained.

    Attributes:
        predict: raw outputs of the columns of rows, with the best number of trees.
        n_parameters: leaves and splits of those.
        n_grown: trees that were grown until the training stopped.
    """

    predict: Callable[[list[Any]], Matrix]
    n_parameters: int
    n_grown: int


@dataclass(frozen=True, kw_only=True)
class Planting:
    """All that a library needs to grow trees.

    Attributes:
        data: settings, target and encoder.
        columns: how encoded rows become columns.
        parts: training and validation rows.
        teller: told of every tree and its validation loss.
    """

    data: TrainingData
    columns: TreeColumns
    parts: Mapping[str, TreeTable]
    teller: LossTeller


class LossTeller:
    """Tells a watcher of every tree, and now and then of the lowest validation loss so far."""

    def __init__(self, target: Target, watcher: Watcher) -> None:
        self.watcher = watcher
        self.unit = target.loss_unit
        self.best = float("inf")
        self.n_trees = 0

    def tell(self, loss: float) -> None:
        """One more tree was grown; the loss is that of the library, squared errors in the standardised unit."""
        self.n_trees += 1
        self.best = min(self.best, loss)
        self.watcher.on_step()
        if self.n_trees % TREES_A_LOSS == 0:
            self.watcher.on_loss(self.best * self.unit)


def library_settings(config: TreeConfig) -> dict[str, Any]:
    """The settings that have the library's own names; those that are None are left to it."""
    ours = ("name", "max_trees", "patience")
    return {key: value for key, value in asdict(config).items() if key not in ours and value is not None}
