"""Intervals: how far a metric may be off by the luck of the rows it is measured on, by the bootstrap.

The rows are drawn anew with replacement many times, and every metric is taken of every resample. The middle 95 % of
these values, moved by what they are off on average, make the interval around the metric. The move matters for the
calibration error alone: it grows with the noise of a resample, so its plain percentiles would lie beside its value.

Of very many rows a sample is resampled. Deviations fall with the root of the number of rows, so those of the sample are
scaled down to what all rows have.

Shape legend: R rows, M metrics that are means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fielddep.explain.scores import ScoredRows
from fielddep.training.metrics import N_CALIBRATION_BINS
from fielddep.training.objective import row_losses

N_RESAMPLES = 1000
MAX_ROWS = 50_000
"""Rows at most that are resampled."""
LEVEL = 0.95

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A metric with the interval that holds its true value with a probability of about 95 %."""

    value: float
    low: float
    high: float


def bootstrap_intervals(
    scored: ScoredRows,
    *,
    values: Mapping[str, float] | None = None,
    n_rows: int | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Intervals of the metrics that `Metrics` knows, by the names it has.

    Args:
        scored: rows with their targets; at most `MAX_ROWS` keep the time to a few seconds.
        values: metrics of all rows, where the given rows are a sample of them.
        n_rows: number of all rows; default: those given.
        n_resamples: resamples to draw.
        seed: seed of the resamples.

    Returns:
        One interval a metric; a metric that these rows do not have, such as the AUC of one class, is left out.

    Raises:
        SchemaError: when the targets are not known.
    """
    scored.truth()  # refuses rows without targets
    if not len(scored):
        return {}
    rows = _Losses.of(scored)
    own = rows.metrics(np.ones(len(scored), dtype=np.int64))
    drawn = [rows.metrics(counts) for counts in _resamples(len(scored), n_resamples, seed)]
    shrink = min(1.0, (len(scored) / (n_rows or len(scored))) ** 0.5)
    found = {}
    for name, value in own.items():
        resampled = np.array([metrics[name] for metrics in drawn if name in metrics])
        if len(resampled):
            found[name] = _interval(name, (values or {}).get(name, value), resampled, shrink)
    return found


def _interval(name: str, value: float, resampled: Floats, shrink: float) -> Interval:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - resampled.mean()
    highest = 1.0 if name in ("auc", "accuracy", "calibration_error") else np.inf
    return Interval(
        value=value,
        low=max(0.0, value + shrink * float(low)),
        high=float(min(highest, value + shrink * float(high))),
    )


def _resamples(n_rows: int, n_resamples: int, seed: int) -> Iterator[Counts]:
    """How often each row was drawn, one resample at a time, so that memory does not grow with their number."""
    rng = np.random.default_rng(seed)
    for _ in range(n_resamples):
        yield np.bincount(rng.integers(0, n_rows, n_rows), minlength=n_rows)


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """What all metrics are taken from; rows of a binary target by rising score.

    Attributes:
        names: metrics that are means.
        losses_RM: what they are the mean of.
        weight_R: sample weights.
        ranked: what AUC and calibration need, of a binary target.
    """

    names: tuple[str, ...]
    losses_RM: Floats
    weight_R: Floats
    ranked: _Ranked | None

    @classmethod
    def of(cls, scored: ScoredRows) -> _Losses:
        columns = _mean_metrics(scored)
        losses_RM = np.stack([column.double().numpy() for column in columns.values()], axis=1)
        weight_R = scored.weights()
        if scored.target.task != "binary":
            return cls(names=tuple(columns), losses_RM=losses_RM, weight_R=weight_R, ranked=None)
        order_R = np.argsort(scored.logits_RC[:, 0].float().numpy(), kind="stable")
        ranked = _Ranked.of(scored, order_R)
        return cls(names=tuple(columns), losses_RM=losses_RM[order_R], weight_R=weight_R[order_R], ranked=ranked)

    def metrics(self, counts_R: Counts) -> dict[str, float]:
        """Metrics of a resample in which each row stands so many times."""
        weight_R = self.weight_R * counts_R
        total = float(weight_R.sum())
        if total == 0:
            return {}
        found = dict(zip(self.names, (weight_R @ self.losses_RM / total).tolist(), strict=True))
        return found if self.ranked is None else {**found, **self.ranked.metrics(weight_R, total)}


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    """Rows of a binary target by rising score.

    Attributes:
        label_R: whether a row is of the positive class.
        gap_R: probability less label.
        tie_starts: first row of every different score.
        bin_starts: first row of every bin of the calibration error.
    """

    label_R: npt.NDArray[np.bool_]
    gap_R: Floats
    tie_starts: Counts
    bin_starts: Counts

    @classmethod
    def of(cls, scored: ScoredRows, order_R: Counts) -> _Ranked:
        score_R = scored.logits_RC[:, 0].float().numpy()[order_R]
        probability_R, label_R = scored.predictions()[order_R, 1], scored.truth()[order_R] > 0.5
        n_bins = 1 if probability_R[0] == probability_R[-1] else min(N_CALIBRATION_BINS, len(score_R))
        size, n_larger = divmod(len(score_R), n_bins)
        sizes = np.full(n_bins, size) + (np.arange(n_bins) < n_larger)
        return cls(
            label_R=label_R,
            gap_R=probability_R - label_R,
            tie_starts=np.flatnonzero(np.r_[True, score_R[1:] != score_R[:-1]]),
            bin_starts=np.cumsum(sizes) - sizes,
        )

    def metrics(self, weight_R: Floats, total: float) -> dict[str, float]:
        """AUC, where both classes are there, and calibration error of weighted rows."""
        error = float(np.abs(np.add.reduceat(weight_R * self.gap_R, self.bin_starts)).sum()) / total
        positive_R = weight_R * self.label_R
        positive, negative = (np.add.reduceat(w, self.tie_starts) for w in (positive_R, weight_R - positive_R))
        pairs = float(positive.sum()) * float(negative.sum())
        if pairs == 0:
            return {"calibration_error": error}
        # Ties count half: of the negative rows with the same score, half are below.
        below = np.cumsum(negative) - negative / 2
        return {"auc": float(positive @ below) / pairs, "calibration_error": error}


def _mean_metrics(scored: ScoredRows) -> dict[str, torch.Tensor]:
    """Metrics that are means over rows, as one number a row."""
    target, logits_RC, target_R = scored.target, scored.logits_RC, scored.target_R
    assert target_R is not None
    losses_R = row_losses(logits_RC, target_R, target.task)
    if target.task == "regression":
        return {"mse": losses_R * target.scale**2, "mae": (logits_RC[:, 0] - target_R).abs() * target.scale}
    if target.task == "multiclass":
        return {"logloss": losses_R, "accuracy": (logits_RC.argmax(dim=1) == target_R).float()}
    return {"logloss": losses_R}
