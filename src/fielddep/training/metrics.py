"""Metrics over a whole set, gathered batch by batch.

Logloss and squared error are running sums. AUC and calibration need the scores: 9 bytes a row are kept (score,
label, and a weight where there is one), and the AUC is exact. Nothing here is ever averaged over batches.
"""

from __future__ import annotations

import numpy as np
import torch

from fielddep.data.encoded import EncodedTable
from fielddep.data.target import Target
from fielddep.nn.link import predictions
from fielddep.training.objective import row_losses

N_CALIBRATION_BINS = 20


class Metrics:
    """Streaming metrics of a task.

    Binary: logloss, auc, calibration_error. Multi-class: logloss, accuracy. Regression: mse, mae, in the
    target's own unit. `loss` is what early stopping looks at: logloss or mse. A set that holds one class has no
    AUC; it is left out rather than invented.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._sums: dict[str, float] = {}
        self._weight = 0.0
        self._scores: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []

    def update(self, logits_BC: torch.Tensor, target_B: torch.Tensor, weight_B: torch.Tensor | None = None) -> None:
        """Add a batch."""
        logits_BC, target_B = logits_BC.detach(), target_B.detach()
        weights = torch.ones(len(target_B), device=target_B.device) if weight_B is None else weight_B
        self._weight += float(weights.sum(dtype=torch.float64))
        losses_B = row_losses(logits_BC, target_B, self.target.task)
        if self.target.task == "regression":
            self._add("mse", losses_B * self.target.scale**2, weights)
            self._add("mae", (logits_BC[:, 0] - target_B).abs() * self.target.scale, weights)
            return
        self._add("logloss", losses_B, weights)
        if self.target.task == "multiclass":
            self._add("accuracy", (logits_BC.argmax(dim=1) == target_B).float(), weights)
            return
        self._scores.append(logits_BC[:, 0].float().cpu().numpy())
        self._labels.append((target_B > 0.5).cpu().numpy())
        if weight_B is not None:
            self._weights.append(weight_B.float().cpu().numpy())

    def result(self) -> dict[str, float]:
        """Metrics of everything added so far."""
        if self._weight == 0:
            return {}
        values = {name: total / self._weight for name, total in self._sums.items()}
        if self._scores:
            scores, labels = np.concatenate(self._scores), np.concatenate(self._labels)
            weights = np.concatenate(self._weights) if self._weights else None
            area = auc(scores, labels, weights)
            if area is not None:
                values["auc"] = area
            logits = torch.from_numpy(scores).double().unsqueeze(1)
            positive = predictions(logits, self.target)[:, 1].numpy()
            values["calibration_error"] = calibration_error(positive, labels, weights)
        values["loss"] = values["mse" if self.target.task == "regression" else "logloss"]
        return values

    def _add(self, name: str, values_B: torch.Tensor, weights_B: torch.Tensor) -> None:
        total = float((values_B.double() * weights_B.double()).sum())
        self._sums[name] = self._sums.get(name, 0.0) + total


def auc(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float | None:
    """Exact area under the ROC curve, ties counted half; None where one class is absent.

    Example:
        >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
        0.75
    """
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    weight = np.ones(len(scores)) if weights is None else weights[order].astype(np.float64)
    positive, negative = weight * labels, weight * ~labels
    if positive.sum() == 0 or negative.sum() == 0:
        return None
    starts = np.flatnonzero(np.r_[True, scores[1:] != scores[:-1]])
    positive_at, negative_at = np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)
    below = np.cumsum(negative_at) - negative_at
    return float((positive_at * (below + negative_at / 2)).sum() / (positive.sum() * negative.sum()))


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Expected calibration error over bins of equally many rows.

    Example:
        >>> round(calibration_error(np.full(1000, 0.3), np.arange(1000) < 500), 6)
        0.2
    """
    order = np.argsort(probabilities, kind="stable")
    weight = np.ones(len(order)) if weights is None else weights.astype(np.float64)
    if np.ptp(probabilities) == 0:
        groups = [order]
    else:
        groups = [g for g in np.array_split(order, min(N_CALIBRATION_BINS, len(order))) if len(g)]
    gaps = [abs(float((weight[g] * (probabilities[g] - labels[g])).sum())) for g in groups]
    return float(sum(gaps) / max(weight.sum(), 1e-300))


def base_rate_metrics(target: Target, base_C: torch.Tensor, table: EncodedTable) -> dict[str, float]:
    """Metrics of predicting the same output for every row: what a model must beat."""
    assert table.target_R is not None
    metrics = Metrics(target)
    metrics.update(base_C.expand(len(table), -1), table.target_R, table.weight_R)
    return metrics.result()
