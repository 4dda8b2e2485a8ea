"""Scored rows: what a model predicts for rows, beside what is true of them. Any model.

Shape legend: R rows, C outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.data.target import Target
from fielddep.errors import SchemaError
from fielddep.explain.field_table import Array
from fielddep.nn.link import predictions
from fielddep.predictor import Predictor, prediction_frame
from fielddep.training.metrics import Metrics


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRows:
    """Outputs of a model for rows, and their targets where they are known.

    Attributes:
        target: what is predicted.
        logits_RC: outputs of the model.
        target_R: targets as models want them, see `Target.encode`; None when unknown.
        weight_R: sample weights; None means one each.
    """

    target: Target
    logits_RC: torch.Tensor
    target_R: torch.Tensor | None = None
    weight_R: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.logits_RC)

    def predictions(self) -> Array:
        """Probabilities of every class (R, classes), or values in the target's unit (R,) for regression."""
        found: Array = predictions(self.logits_RC.double(), self.target).numpy()
        return found

    def truth(self) -> Array:
        """Class index of every row, or its value in the target's unit.

        Raises:
            SchemaError: when the targets are not known.
        """
        if self.target_R is None:
            raise SchemaError(
                f"the target {self.target.name!r} of these rows must be known, but is not; give rows with the target"
            )
        values = self.target_R.double().numpy()
        return values * self.target.scale + self.target.mean if self.target.task == "regression" else values

    def weights(self) -> Array:
        """Sample weight of every row."""
        return np.ones(len(self)) if self.weight_R is None else self.weight_R.double().numpy()

    def metrics(self) -> dict[str, float]:
        """Metrics over all rows; see `Metrics`."""
        self.truth()
        assert self.target_R is not None
        metrics = Metrics(self.target)
        metrics.update(self.logits_RC, self.target_R, self.weight_R)
        return metrics.result()

    def to_frame(self) -> pl.DataFrame:
        """One line a row: the columns of a prediction, and `target` where it is known."""
        frame = prediction_frame(self.logits_RC.double(), self.target)
        if self.target_R is None:
            return frame
        truth = self.truth()
        known = truth if self.target.task == "regression" else [self.target.classes[int(c)] for c in truth]
        return frame.with_columns(pl.Series("target", known))


def score_rows(bundle: Bundle, rows: EncodedTable) -> ScoredRows:
    """Outputs of the model of a bundle for encoded rows."""
    return ScoredRows(
        target=target_of(bundle),
        logits_RC=model_logits(bundle, rows),
        target_R=rows.target_R,
        weight_R=rows.weight_R,
    )


def model_logits(bundle: Bundle, rows: EncodedTable) -> torch.Tensor:
    """Outputs (R, C) on the CPU, a bounded number of rows at a time."""
    device = next(bundle.model.parameters()).device
    return Predictor(bundle, device=str(device)).logits(rows).cpu()


def target_of(bundle: Bundle) -> Target:
    """What the model predicts."""
    target = bundle.encoder.schema.target
    assert target is not None  # no model is trained without one
    return target
