"""What a training gives, the same for networks and trees, and who may look on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fielddep.data.encoded import EncodedTable
from fielddep.data.store.loader import Rows
from fielddep.data.target import Target
from fielddep.predictor import Predictor
from fielddep.training.metrics import Metrics

Logits = Callable[[EncodedTable], torch.Tensor]


class Watcher:
    """Looks on while a model trains; whatever it raises ends the training and comes out of it unchanged."""

    def on_step(self) -> None:
        """A batch was learned from, or a tree was grown."""

    def on_loss(self, loss: float) -> None:
        """The validation loss is known, in the unit of `Metrics`."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model.

    Attributes:
        logits: raw outputs (rows, C) of encoded rows.
        validation: metrics on the validation rows.
        n_parameters: trained numbers; of trees, their leaves and splits.
        seconds: wall time of the training, evaluations included.
        rows_per_s: rows learned from a second. A tree looks at all training rows once.
        predictor: the network and all around it; None for trees.
    """

    logits: Logits
    validation: dict[str, float]
    n_parameters: int
    seconds: float
    rows_per_s: float
    predictor: Predictor | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics of some rows, and what predicting them took.

    Attributes:
        metrics: by name.
        seconds: wall time from encoded rows to raw outputs; reading rows and metrics are not counted.
        n_rows: rows predicted.
    """

    metrics: dict[str, float]
    seconds: float
    n_rows: int


def measured(logits: Logits, target: Target, rows: Rows) -> Measured:
    """Predict rows block by block and measure."""
    metrics, seconds, n_rows = Metrics(target), 0.0, 0
    for block in rows.blocks():
        assert block.target_R is not None
        start = time.perf_counter()
        outputs_RC = logits(block)
        seconds += time.perf_counter() - start
        metrics.update(outputs_RC.cpu(), block.target_R, block.weight_R)
        n_rows += len(block)
    return Measured(metrics=metrics.result(), seconds=seconds, n_rows=n_rows)
