"""Predictions of any model next to the truth: scored rows, learning curves, calibration and scores.

Shape legend: R rows, C outputs or classes, N bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.config.metrics import in_order
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.errors import SchemaError, UserError
from fielddep.explain.rows import Floats, target_of
from fielddep.nn.model import predictions
from fielddep.training.checkpoint import Evaluation
from fielddep.training.metrics import N_CALIBRATION_BINS
from fielddep.training.ranking import bin_stops, tie_stops_of

MIN_CALIBRATION_BINS, MIN_ROWS_PER_BIN = 4, 25
"""Few rows get fewer bins, because a bin of a few rows is mostly noise."""
MIN_SCORE_BINS, MAX_SCORE_BINS = 10, 40
MAX_BINS_TO_ONE = 4000
"""Bins from 0 to 1 at most, if only those near 0 are shown."""
Z_95 = 1.959963984540054
"""Quantile of the normal distribution for 95 % intervals."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRows:
    """Logits of some rows, and their encoded targets and weights; None if unknown, or if all weights are 1."""

    target: Target
    logits_RC: torch.Tensor
    target_R: npt.NDArray[Any] | None = None
    weight_R: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.logits_RC)

    def predictions(self) -> Floats:
        """Probability of every class (R, classes), or values in the unit of a regression target (R,)."""
        found: Floats = predictions(self.logits_RC.double(), self.target).numpy()
        return found

    def truth(self) -> Floats:
        """Class index of every row, or its value in the unit of the target.

        Raises:
            SchemaError: if the targets are unknown.
        """
        if self.target_R is None:
            raise SchemaError(f"these rows have no target. Add the column {self.target.name!r}")
        values = self.target_R.astype(np.float64)
        return values * self.target.scale + self.target.mean if self.target.task == "regression" else values

    def weights(self) -> Floats:
        """Sample weights, with ones by default."""
        return np.ones(len(self)) if self.weight_R is None else self.weight_R.astype(np.float64)


def score_rows(bundle: Bundle, rows: EncodedRows) -> ScoredRows:
    """Encoded rows with the logits of the model."""
    logits_RC = model_logits(bundle, rows)
    return ScoredRows(target=target_of(bundle), logits_RC=logits_RC, target_R=rows.target_R, weight_R=rows.weight_R)


def model_logits(bundle: Bundle, rows: EncodedRows) -> torch.Tensor:
    """Logits (R, C) on the CPU, computed in chunks."""
    return bundle.model.eval().outputs(rows).cpu()


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """The evaluations of a training, in order."""

    evaluations: tuple[Evaluation, ...]

    @property
    def best(self) -> Evaluation | None:
        """The evaluation whose parameters were kept."""
        return next((e for e in reversed(self.evaluations) if e.best), None)

    @property
    def loss_range(self) -> tuple[float, float]:
        """Limits of an axis of losses, ignoring the first training loss, which may be far above the rest."""
        losses = [e.validation["loss"] for e in self.evaluations]
        losses += [e.train_loss for e in self.evaluations[1:] or self.evaluations]
        low, high = min(losses), max(losses)
        room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        return low - room, high + room

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the validation metrics, the loss first."""
        return tuple(in_order(dict.fromkeys(name for e in self.evaluations for name in e.validation)))

    def to_frame(self) -> pl.DataFrame:
        """One line per evaluation: step, epoch, seconds, lr, train_loss, validation_<metric>..., best."""
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
    """The learning curve of a training, from `Run.history` or `Trained.history`."""
    return LearningCurve(evaluations=tuple(history))


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationCurve:
    """Mean prediction next to mean truth, in bins of about equal size, by ascending prediction.

    Binary: probability of the positive class, and its share. Multi-class: probability of the likeliest class, and how
    often it is right. Regression: predicted and true value.

    Attributes:
        task: binary, multiclass or regression.
        predicted_N: mean prediction.
        observed_N: mean truth.
        low_N: lower end of the 95 % interval of `observed_N`: Wilson's for shares, normal for values.
        high_N: upper end of the interval.
        weight_N: total weight of the rows; their number without weights.
    """

    task: str
    predicted_N: Floats
    observed_N: Floats
    low_N: Floats
    high_N: Floats
    weight_N: Floats

    @property
    def gap(self) -> float:
        """Mean distance between prediction and truth; with 20 bins, the expected calibration error."""
        return float(np.average(np.abs(self.predicted_N - self.observed_N), weights=self.weight_N))

    def to_frame(self) -> pl.DataFrame:
        """One line per bin: predicted, observed, low, high, weight."""
        names = ("predicted", "observed", "low", "high", "weight")
        return pl.DataFrame({name: getattr(self, f"{name}_N") for name in names})


def calibration_range(predicted: Floats, low: Floats, high: Floats, *, task: str) -> tuple[float, float]:
    """Limits of both axes of a calibration curve, with room for its intervals; not below 0 for shares."""
    start, stop = min(predicted.min(), low.min()), max(predicted.max(), high.max())
    room = 0.03 * (stop - start or 1.0)
    start -= room
    return float(start if task == "regression" else max(0.0, start)), float(stop + room)


def calibration_curve(scored: ScoredRows, *, n_bins: int | None = None) -> CalibrationCurve:
    """Calibration in bins of about equal size; rows with equal predictions share a bin.

    Args:
        scored: rows with targets.
        n_bins: bins at most; by default as many as the number of rows allows.

    Raises:
        SchemaError: if the targets are unknown, or no row has a weight above 0.
    """
    if n_bins is None:
        n_bins = int(np.clip(len(scored) // MIN_ROWS_PER_BIN, MIN_CALIBRATION_BINS, N_CALIBRATION_BINS))
    predicted_R, observed_R = _predicted(scored), _observed(scored)
    weights_R = scored.weights()
    if not weights_R.sum() > 0:
        raise SchemaError("calibration needs rows with a weight above 0, but all weights are 0")
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
    """The distribution of predicted probabilities within each true class.

    With two classes, it is the probability of the positive class; with more, that of the true class.

    Attributes:
        classes: labels.
        edges: edges of the bins, starting at 0.
        weight_CN: total weight of the rows; their number without weights.
    """

    classes: tuple[object, ...]
    edges: Floats
    weight_CN: Floats

    @property
    def share_CN(self) -> Floats:
        """Share of the rows of each class in each bin; zeros for a class without rows."""
        totals_C1 = self.weight_CN.sum(axis=1, keepdims=True)
        return self.weight_CN / np.where(totals_C1 > 0, totals_C1, 1.0)

    def to_frame(self) -> pl.DataFrame:
        """One line per class and bin: class, low, high, weight, share."""
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


def score_distribution(scored: ScoredRows, *, n_bins: int | None = None) -> ScoreDistribution:
    """Predicted probabilities by class.

    Args:
        scored: rows with targets.
        n_bins: bins from 0 to 1; by default as many as the number of rows allows. With two classes the default ends
            at the largest probabilities, because those of a rare class are all small.

    Raises:
        UserError: for regression, which has no classes.
        SchemaError: if the targets are unknown.
    """
    if scored.target.task == "regression":
        raise UserError(f"scores need classes to compare, but the target {scored.target.name!r} is a number")
    class_R = scored.truth().astype(np.int64)
    values_RC = scored.predictions()
    binary = scored.target.task == "binary"
    score_R = values_RC[:, 1] if binary else values_RC[np.arange(len(scored)), class_R]
    edges = _score_edges(score_R, class_R, binary=binary) if n_bins is None else np.linspace(0.0, 1.0, n_bins + 1)
    score_R = np.minimum(score_R, edges[-1])
    weights_R = scored.weights()
    spread = [
        np.histogram(score_R[class_R == c], bins=edges, weights=weights_R[class_R == c])[0]
        for c in range(len(scored.target.classes))
    ]
    return ScoreDistribution(classes=scored.target.classes, edges=edges, weight_CN=np.stack(spread).astype(np.float64))


def n_score_bins(n_rows: int) -> int:
    """Bins for a histogram of this many predictions."""
    return int(np.clip(2 * n_rows ** (1 / 3), MIN_SCORE_BINS, MAX_SCORE_BINS))


def _score_edges(score_R: Floats, class_R: npt.NDArray[np.int64], *, binary: bool) -> Floats:
    highest = 1.0
    if binary and len(score_R):
        highest = max(float(np.quantile(score_R[class_R == c], 0.999)) for c in np.unique(class_R))
    n_all = min(MAX_BINS_TO_ONE, int(np.ceil(n_score_bins(len(score_R)) / max(highest, 1e-6))))
    n_shown = min(n_all, int(np.ceil(highest * n_all)) + 1)
    return np.arange(n_shown + 1) / n_all


def _predicted(scored: ScoredRows) -> Floats:
    values = scored.predictions()
    if scored.target.task == "binary":
        return values[:, 1]
    return values if scored.target.task == "regression" else values.max(axis=1)


def _observed(scored: ScoredRows) -> Floats:
    truth = scored.truth()
    if scored.target.task != "multiclass":
        return truth
    right: npt.NDArray[np.bool_] = scored.predictions().argmax(axis=1) == truth
    return right.astype(np.float64)


def _wilson_interval(hits: Floats, weights: Floats) -> tuple[float, float]:
    """Interval of a share of weighted rows; its width is above 0 even if all rows are alike."""
    share = float(np.average(hits, weights=weights))
    n_rows = float(weights.sum() ** 2 / (weights**2).sum())
    middle = (share + Z_95**2 / (2 * n_rows)) / (1 + Z_95**2 / n_rows)
    spread = share * (1 - share) / n_rows + Z_95**2 / (4 * n_rows**2)
    half = Z_95 * math.sqrt(spread) / (1 + Z_95**2 / n_rows)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _normal_interval(values: Floats, weights: Floats) -> tuple[float, float]:
    mean = float(np.average(values, weights=weights))
    half = Z_95 * math.sqrt(float((weights**2 * (values - mean) ** 2).sum())) / float(weights.sum())
    return mean - half, mean + half
