"""Losses and metrics: the loss of a batch, metrics over many rows, and the metrics of the base rate alone.

`measure` is the only way from rows to metrics. Logloss, squared error and R² are running sums. AUC and calibration
need the scores of a binary target, so memory grows by 13 bytes per row: 5 for score and label (9 with a weight), and 8
more while they are sorted (`ranking.py`). The AUC is exact; nothing is averaged over batches.

Shape legend: B rows of a batch, R rows of a chunk, C outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from fielddep.config.metrics import METRICS, loss_name
from fielddep.encoding.rows import Array, EncodedRows
from fielddep.encoding.target import Target
from fielddep.nn.model import predictions
from fielddep.training.ranking import Column, Ranking, area_under_curve, average_precision, binned_gap, check_n_rows

Values = torch.Tensor | Array


def row_losses(logits_BC: torch.Tensor, target_B: torch.Tensor, task: str) -> torch.Tensor:
    """Loss of every row: logistic, softmax or squared error."""
    if task == "multiclass":
        return F.cross_entropy(logits_BC, target_B, reduction="none")
    if task == "binary":
        return F.binary_cross_entropy_with_logits(logits_BC[:, 0], target_B, reduction="none")
    return (logits_BC[:, 0] - target_B).square()


def mean_loss(
    logits_BC: torch.Tensor, target_B: torch.Tensor, weight_B: torch.Tensor | None, task: str
) -> torch.Tensor:
    """Weighted mean of the row losses; zero if all weights are zero."""
    losses_B = row_losses(logits_BC, target_B, task)
    if weight_B is None:
        return losses_B.mean()
    return (losses_B * weight_B).sum() / weight_B.sum().clamp(min=torch.finfo(weight_B.dtype).tiny)


def _weights(rows: EncodedRows) -> torch.Tensor:
    return torch.ones(len(rows)) if rows.weight_R is None else torch.as_tensor(rows.weight_R)


def base_output(target: Target, chunks: Iterable[EncodedRows]) -> torch.Tensor:
    """Output (C,) of a model that only knows the base rate of the training rows, which are read once."""
    total_C, weight = torch.zeros(target.n_outputs, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for chunk in chunks:
        assert chunk.target_R is not None
        target_R, weight_R = torch.as_tensor(chunk.target_R), _weights(chunk)
        if target.task == "multiclass":
            # Added one by one, where float32 would stop counting a class at 2**24 rows.
            total_C.index_add_(0, target_R, weight_R.double())
        else:
            total_C += (target_R * weight_R).sum(dtype=torch.float64)
        weight += weight_R.sum(dtype=torch.float64)
    mean_C = total_C.float() / weight.float()
    if target.task == "multiclass":
        return mean_C.clamp(1e-6).log()
    return torch.logit(mean_C.clamp(1e-6, 1 - 1e-6)) if target.task == "binary" else mean_C


N_CALIBRATION_BINS = 20


@dataclass(frozen=True, kw_only=True)
class _Spread:
    """Weight and mean of numbers that arrive batch by batch, and their squared distances from the mean.

    Sums of plain squares would lose their digits if the numbers are alike and far from zero.
    """

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values_B: torch.Tensor, weights_B: torch.Tensor) -> _Spread:
        weight = float(weights_B.sum())
        mean = float((values_B * weights_B).sum()) / weight if weight else 0.0
        return cls(weight=weight, mean=mean, squares=float(((values_B - mean).square() * weights_B).sum()))

    def merge(self, other: _Spread) -> _Spread:
        weight = self.weight + other.weight
        if not weight:
            return self
        gap, share = other.mean - self.mean, other.weight / weight
        squares = self.squares + other.squares + gap * gap * self.weight * share
        return _Spread(weight=weight, mean=self.mean + gap * share, squares=squares)


class Metrics:
    """Streaming metrics of a task.

    Binary: logloss, auc, calibration_error, average_precision. Multi-class: logloss, accuracy. Regression: rmse, mae
    and mse, in the target's unit, and r2 against the mean of the rows. `loss` is the logloss or mse. Rows of a single
    class have no AUC and no average precision, and rows of a single target no R².

    Args:
        target: what is predicted.
        ranked: whether to keep the scores of a binary target for AUC and calibration.
    """

    def __init__(self, target: Target, *, ranked: bool = True) -> None:
        self.target = target
        self.ranked = ranked
        self._sums: dict[str, float] = {}
        self._weight = 0.0
        self._targets = _Spread()
        self._scores, self._labels, self._weights = Column(np.float32), Column(np.bool_), Column(np.float32)

    def update(self, logits_BC: torch.Tensor, target_B: Values, weight_B: Values | None = None) -> None:
        """Add rows.

        Raises:
            TrainingError: there are more rows than can be ranked.
        """
        logits_BC, target_B = logits_BC.detach(), torch.as_tensor(target_B).detach()
        weight_B = None if weight_B is None else torch.as_tensor(weight_B)
        weights = torch.ones(len(target_B), device=target_B.device) if weight_B is None else weight_B
        self._weight += float(weights.sum(dtype=torch.float64))
        losses_B = row_losses(logits_BC, target_B, self.target.task)
        if self.target.task == "regression":
            self._add("mse", losses_B, weights)
            self._add("mae", (logits_BC[:, 0] - target_B).abs(), weights)
            self._targets = self._targets.merge(_Spread.of(target_B.double(), weights.double()))
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
        # Sums are over standardised targets, because some units are too large or too small for sums of squares.
        units = {"": 1.0, "target": self.target.scale, "target²": self.target.loss_unit}
        values = {name: total / self._weight * units[METRICS[name].unit] for name, total in self._sums.items()}
        if self.target.task == "regression":
            values |= self._roots()
        if len(self._scores):
            values |= self._ranked()
        values["loss"] = values[loss_name(self.target.task)]
        return values

    def standard_loss(self) -> float:
        """Mean loss of standardised targets, which training minimises; it does not depend on the target's unit."""
        return self._sums[loss_name(self.target.task)] / self._weight if self._weight else math.nan

    def _roots(self) -> dict[str, float]:
        """Metrics that follow from the mean squared error."""
        found, squares = {"rmse": math.sqrt(self.standard_loss()) * self.target.scale}, self._targets.squares
        return {**found, "r2": 1.0 - self._sums["mse"] / squares} if squares > 0 else found

    def _ranked(self) -> dict[str, float]:
        """Metrics that need the order of the scores."""
        weights = self._weights.values() if len(self._weights) else None
        ranking = Ranking(self._scores.values(), self._labels.values(), weights)
        area = area_under_curve(ranking)
        found = {} if area is None else {"auc": area}
        precision = average_precision(ranking)
        found |= {} if precision is None else {"average_precision": precision}
        gap = binned_gap(ranking, N_CALIBRATION_BINS, lambda scores: _positive(scores, self.target))
        return {**found, "calibration_error": gap}

    def _add(self, name: str, values_B: torch.Tensor, weights_B: torch.Tensor) -> None:
        total = float((values_B.double() * weights_B.double()).sum())
        self._sums[name] = self._sums.get(name, 0.0) + total


Outputs = Callable[[EncodedRows], torch.Tensor]
"""Raw outputs (R, C) of encoded rows: `FieldModel.outputs`, `TrainedTrees.outputs`."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics of some rows, and the time to predict them.

    Attributes:
        metrics: by name; empty if the sum of weights is zero.
        standard_loss: mean loss of standardised targets, as training sees it.
        seconds: wall time from encoded rows to raw outputs, without reading rows and computing metrics.
        n_rows: rows predicted.
    """

    metrics: dict[str, float]
    standard_loss: float
    seconds: float
    n_rows: int


def measure(outputs: Outputs, target: Target, chunks: Iterable[EncodedRows]) -> Measured:
    """Predict rows with targets chunk by chunk, and measure."""
    metrics, seconds, n_rows = Metrics(target), 0.0, 0
    for chunk in chunks:
        assert chunk.target_R is not None
        start = time.perf_counter()
        outputs_RC = outputs(chunk).cpu()
        seconds += time.perf_counter() - start
        metrics.update(outputs_RC, chunk.target_R, chunk.weight_R)
        n_rows += len(chunk)
    return Measured(metrics=metrics.result(), standard_loss=metrics.standard_loss(), seconds=seconds, n_rows=n_rows)


def base_rate_metrics(target: Target, base_C: torch.Tensor, chunks: Iterable[EncodedRows]) -> dict[str, float]:
    """Metrics of predicting the same output for every row, which a model must beat; memory does not grow with rows."""
    metrics = Metrics(target, ranked=False)
    negative = positive = 0.0
    for chunk in chunks:
        assert chunk.target_R is not None
        metrics.update(base_C.expand(len(chunk), -1), chunk.target_R, chunk.weight_R)
        weights_R, is_positive_R = _weights(chunk), torch.as_tensor(chunk.target_R) > 0.5
        positive += float(weights_R[is_positive_R].sum(dtype=torch.float64))
        negative += float(weights_R[~is_positive_R].sum(dtype=torch.float64))
    found = metrics.result()
    if target.task != "binary" or not found:
        return found
    # All rows are tied, so every pair counts half and there is one bin.
    share = positive / (positive + negative)
    area = {"auc": 0.5, "average_precision": share} if positive and negative else {}
    probability = float(_positive(base_C.float().cpu().numpy(), target)[0])
    return {**found, **area, "calibration_error": abs(probability - share)}


def _positive(scores: np.ndarray, target: Target) -> np.ndarray:
    """Probability of the positive class."""
    logits = torch.from_numpy(scores).double().unsqueeze(1)
    return np.asarray(predictions(logits, target)[:, 1])
