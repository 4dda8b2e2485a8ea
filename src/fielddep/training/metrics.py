"""Metrics over a whole set, gathered batch by batch.

Logloss and squared error are running sums. AUC and calibration need the scores of a binary target, so memory grows by
13 bytes a row that is evaluated: 5 are kept (score and label; 9 with a weight), and the result takes 8 more while they
are sorted (`ranking`). The AUC is exact. Nothing here is ever averaged over batches.
"""

from __future__ import annotations

import numpy as np
import torch

from fielddep.data.store.loader import Rows
from fielddep.data.target import Target
from fielddep.nn.link import predictions
from fielddep.training.objective import row_losses
from fielddep.training.ranking import Column, Ranking, area_under_curve, binned_gap, check_n_rows

N_CALIBRATION_BINS = 20


class Metrics:
    """Streaming metrics of a task.

    Binary: logloss, auc, calibration_error. Multi-class: logloss, accuracy. Regression: mse, mae, in the
    target's own unit. `loss` is the logloss or mse; early stopping looks at it, mse of standardised targets. A set that
    holds one class has no AUC; it is left out rather than invented.

    Args:
        target: what is predicted.
        ranked: whether to keep the scores of a binary target for AUC and calibration.
    """

    def __init__(self, target: Target, *, ranked: bool = True) -> None:
        self.target = target
        self.ranked = ranked
        self._sums: dict[str, float] = {}
        self._weight = 0.0
        self._scores, self._labels, self._weights = Column(np.float32), Column(np.bool_), Column(np.float32)

    def update(self, logits_BC: torch.Tensor, target_B: torch.Tensor, weight_B: torch.Tensor | None = None) -> None:
        """Add a batch.

        Raises:
            TrainingError: for more rows than can be ranked.
        """
        logits_BC, target_B = logits_BC.detach(), target_B.detach()
        weights = torch.ones(len(target_B), device=target_B.device) if weight_B is None else weight_B
        self._weight += float(weights.sum(dtype=torch.float64))
        losses_B = row_losses(logits_BC, target_B, self.target.task)
        if self.target.task == "regression":
            self._add("mse", losses_B, weights)
            self._add("mae", (logits_BC[:, 0] - target_B).abs(), weights)
            return
        self._add("logloss", losses_B, weights)
        if self.target.task == "multiclass":
            self._add("accuracy", (logits_BC.argmax(dim=1) == target_B).float(), weights)
        elif self.ranked:
            self._keep(logits_BC, target_B, weight_B)

    def _keep(self, logits_BC: torch.Tensor, target_B: torch.Tensor, weight_B: torch.Tensor | None) -> None:
        check_n_rows(len(self._scores) + len(target_B))
        self._scores.append(logits_BC[:, 0].float().cpu().numpy())
        self._labels.append((target_B > 0.5).cpu().numpy())
        if weight_B is not None:
            self._weights.append(weight_B.float().cpu().numpy())

    def result(self) -> dict[str, float]:
        """Metrics of everything added so far."""
        if self._weight == 0:
            return {}
        # Sums are those of standardised targets, so that no unit is too large or too small for them.
        units = {"mse": self.target.loss_unit, "mae": self.target.scale}
        values = {name: total / self._weight * units.get(name, 1.0) for name, total in self._sums.items()}
        if len(self._scores):
            values |= self._ranked()
        values["loss"] = values[self._loss_name]
        return values

    def standard_loss(self) -> float:
        """Mean loss as models are trained with it, of standardised targets: it does not depend on the target's unit."""
        return self._sums[self._loss_name] / self._weight

    @property
    def _loss_name(self) -> str:
        return "mse" if self.target.task == "regression" else "logloss"

    def _ranked(self) -> dict[str, float]:
        """Metrics that need the order of the scores."""
        weights = self._weights.values() if len(self._weights) else None
        ranking = Ranking(self._scores.values(), self._labels.values(), weights)
        area = area_under_curve(ranking)
        found = {} if area is None else {"auc": area}
        return {**found, "calibration_error": binned_gap(ranking, N_CALIBRATION_BINS, self._positive)}

    def _positive(self, scores: np.ndarray) -> np.ndarray:
        """Probability of the positive class."""
        return _positive(scores, self.target)

    def _add(self, name: str, values_B: torch.Tensor, weights_B: torch.Tensor) -> None:
        total = float((values_B.double() * weights_B.double()).sum())
        self._sums[name] = self._sums.get(name, 0.0) + total


def auc(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float | None:
    """Exact area under the ROC curve of scores taken as float32, ties counted half; None where one class is absent.

    Example:
        >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
        0.75
    """
    return area_under_curve(Ranking(scores, labels, weights))


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Expected calibration error over bins of equally many rows.

    Example:
        >>> round(calibration_error(np.full(1000, 0.3), np.arange(1000) < 500), 6)
        0.2
    """
    ranking = Ranking(probabilities, labels, weights)
    return binned_gap(ranking, N_CALIBRATION_BINS, lambda scores: scores.astype(np.float64))


def base_rate_metrics(target: Target, base_C: torch.Tensor, rows: Rows) -> dict[str, float]:
    """Metrics of predicting the same output for every row: what a model must beat. Takes no memory for the rows."""
    metrics = Metrics(target, ranked=False)
    negative = positive = 0.0
    for block in rows.blocks():
        assert block.target_R is not None
        metrics.update(base_C.expand(len(block), -1), block.target_R, block.weight_R)
        weights_R = torch.ones(len(block)) if block.weight_R is None else block.weight_R
        is_positive_R = block.target_R > 0.5
        positive += float(weights_R[is_positive_R].sum(dtype=torch.float64))
        negative += float(weights_R[~is_positive_R].sum(dtype=torch.float64))
    found = metrics.result()
    if target.task != "binary" or not found:
        return found
    # All rows are tied: every pair counts half, and there is one bin.
    area = {"auc": 0.5} if positive and negative else {}
    probability = float(_positive(base_C.float().cpu().numpy(), target)[0])
    return {**found, **area, "calibration_error": abs(probability - positive / (positive + negative))}


def _positive(scores: np.ndarray, target: Target) -> np.ndarray:
    """Probability of the positive class."""
    logits = torch.from_numpy(scores).double().unsqueeze(1)
    probabilities: np.ndarray = predictions(logits, target)[:, 1].numpy()
    return probabilities
