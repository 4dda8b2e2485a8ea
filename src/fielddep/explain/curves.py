"""Curves as numbers: how a training went, how well probabilities are calibrated, how scores of classes are spread.

Shape legend: R rows, N bins, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.errors import SchemaError, UserError
from fielddep.explain.field_table import Array
from fielddep.explain.scores import ScoredRows
from fielddep.training.history import Evaluation
from fielddep.training.metrics import N_CALIBRATION_BINS
from fielddep.training.ranking import bin_stops, tie_stops_of

METRICS = ("logloss", "mse", "auc", "accuracy", "mae", "calibration_error")
N_SCORE_BINS = 40
Z_95 = 1.959963984540054
"""Quantile of the normal distribution for 95 % intervals."""


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """The evaluations of a training in order, the best of them marked.

    Attributes:
        evaluations: what was measured at each.
    """

    evaluations: tuple[Evaluation, ...]

    @property
    def best(self) -> Evaluation | None:
        """The evaluation whose weights were kept."""
        return next((e for e in reversed(self.evaluations) if e.best), None)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the validation metrics that are known, that of the loss first."""
        return tuple(name for name in METRICS if any(name in e.validation for e in self.evaluations))

    def to_frame(self) -> pl.DataFrame:
        """One line an evaluation: step, epoch, seconds, lr, train_loss, validation_<metric> each, best."""
        lines = [
            {
                "step": e.step,
                "epoch": e.epoch,
                "seconds": e.seconds,
                "lr": e.lr,
                "train_loss": e.train_loss,
                **{f"validation_{name}": e.validation.get(name) for name in self.metrics},
                "best": e is self.best,
            }
            for e in self.evaluations
        ]
        return pl.DataFrame(lines, infer_schema_length=None)


def learning_curve(history: Sequence[Evaluation]) -> LearningCurve:
    """The curve of a training; `Run.history` and `Fitted.history` have the evaluations."""
    return LearningCurve(evaluations=tuple(history))


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationCurve:
    """Mean prediction beside mean truth, in bins of about equally many rows by rising prediction.

    Binary: probability of the positive class, and its share. Multi-class: probability of the likeliest class, and how
    often it is right. Regression: predicted and true value.

    Attributes:
        task: binary, multiclass or regression.
        predicted_N: mean prediction of every bin.
        observed_N: mean truth of every bin.
        low_N: lower end of the 95 % interval of `observed_N`: Wilson's for shares, normal for values.
        high_N: its upper end.
        weight_N: weight of the rows of every bin; their number where rows are not weighted.
    """

    task: str
    predicted_N: Array
    observed_N: Array
    low_N: Array
    high_N: Array
    weight_N: Array

    @property
    def gap(self) -> float:
        """Mean distance of prediction and truth over bins: the expected calibration error."""
        return float(np.average(np.abs(self.predicted_N - self.observed_N), weights=self.weight_N))

    def to_frame(self) -> pl.DataFrame:
        """One line a bin: predicted, observed, low, high, weight."""
        return pl.DataFrame(
            {
                "predicted": self.predicted_N,
                "observed": self.observed_N,
                "low": self.low_N,
                "high": self.high_N,
                "weight": self.weight_N,
            }
        )


def calibration_curve(scored: ScoredRows, *, n_bins: int = N_CALIBRATION_BINS) -> CalibrationCurve:
    """Calibration of scored rows in bins of about equally many; rows of equal prediction share a bin.

    Raises:
        SchemaError: when the targets are not known, or no row has a weight above 0.
    """
    predicted_R, observed_R = _predicted(scored), _observed(scored)
    weights_R = scored.weights()
    if not weights_R.sum() > 0:
        raise SchemaError("calibration needs rows with a weight above 0; given none")
    order = np.argsort(predicted_R, kind="stable")
    stops = bin_stops(len(scored), n_bins, tie_stops_of(predicted_R[order]))
    bins = [rows for rows in np.split(order, stops[:-1]) if weights_R[rows].sum() > 0]
    interval = _normal_interval if scored.target.task == "regression" else _wilson_interval
    ends = np.array([interval(observed_R[rows], weights_R[rows]) for rows in bins])
    return CalibrationCurve(
        task=scored.target.task,
        predicted_N=np.array([np.average(predicted_R[rows], weights=weights_R[rows]) for rows in bins]),
        observed_N=np.array([np.average(observed_R[rows], weights=weights_R[rows]) for rows in bins]),
        low_N=ends[:, 0],
        high_N=ends[:, 1],
        weight_N=np.array([weights_R[rows].sum() for rows in bins]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreDistribution:
    """How the predicted probabilities of the rows of each class are spread.

    With two classes it is the probability of the positive class, with more that of the row's own class.

    Attributes:
        classes: labels.
        edges: edges of the bins from 0 to 1.
        weight_CN: weight of the rows of each class in each bin; their number where rows are not weighted.
    """

    classes: tuple[object, ...]
    edges: Array
    weight_CN: Array

    @property
    def share_CN(self) -> Array:
        """Share of each class's rows that lies in each bin; zeros for a class without rows."""
        totals_C1 = self.weight_CN.sum(axis=1, keepdims=True)
        return self.weight_CN / np.where(totals_C1 > 0, totals_C1, 1.0)

    def to_frame(self) -> pl.DataFrame:
        """One line a class and bin: class, low, high, weight, share."""
        n_bins = len(self.edges) - 1
        return pl.DataFrame(
            {
                "class": pl.Series([str(label) for label in self.classes for _ in range(n_bins)], dtype=pl.String),
                "low": np.tile(self.edges[:-1], len(self.classes)),
                "high": np.tile(self.edges[1:], len(self.classes)),
                "weight": self.weight_CN.ravel(),
                "share": self.share_CN.ravel(),
            }
        )


def score_distribution(scored: ScoredRows, *, n_bins: int = N_SCORE_BINS) -> ScoreDistribution:
    """Predicted probabilities by class.

    Raises:
        UserError: for a regression, which has no classes.
        SchemaError: when the targets are not known.
    """
    if scored.target.task == "regression":
        raise UserError(f"target {scored.target.name!r} is a number; only classes have a distribution of scores each")
    class_R = scored.truth().astype(np.int64)
    values_RC = scored.predictions()
    score_R = values_RC[:, 1] if scored.target.task == "binary" else values_RC[np.arange(len(scored)), class_R]
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    weights_R = scored.weights()
    spread = [
        np.histogram(score_R[class_R == c], bins=edges, weights=weights_R[class_R == c])[0]
        for c in range(len(scored.target.classes))
    ]
    return ScoreDistribution(classes=scored.target.classes, edges=edges, weight_CN=np.stack(spread).astype(np.float64))


def _predicted(scored: ScoredRows) -> Array:
    values = scored.predictions()
    if scored.target.task == "binary":
        return values[:, 1]
    return values if scored.target.task == "regression" else values.max(axis=1)


def _observed(scored: ScoredRows) -> Array:
    truth = scored.truth()
    if scored.target.task != "multiclass":
        return truth
    right: npt.NDArray[np.bool_] = scored.predictions().argmax(axis=1) == truth
    return right.astype(np.float64)


def _wilson_interval(hits: Array, weights: Array) -> tuple[float, float]:
    """Interval of a share of weighted rows; it has a width even where all rows are alike."""
    share = float(np.average(hits, weights=weights))
    n_rows = float(weights.sum() ** 2 / (weights**2).sum())
    middle = (share + Z_95**2 / (2 * n_rows)) / (1 + Z_95**2 / n_rows)
    spread = share * (1 - share) / n_rows + Z_95**2 / (4 * n_rows**2)
    half = Z_95 * math.sqrt(spread) / (1 + Z_95**2 / n_rows)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _normal_interval(values: Array, weights: Array) -> tuple[float, float]:
    mean = float(np.average(values, weights=weights))
    half = Z_95 * math.sqrt(float((weights**2 * (values - mean) ** 2).sum())) / float(weights.sum())
    return mean - half, mean + half
