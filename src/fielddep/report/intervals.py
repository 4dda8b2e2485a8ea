"""Bootstrap intervals: how far a metric may be off by chance.

The rows are resampled with replacement many times. The middle 95 % of the metric over the resamples, shifted by their
mean error, is its interval.

The calibration error has no such interval: chance can only raise it, even for perfect probabilities, and resampling
adds chance of its own. Shown instead is how large it gets by chance alone: targets are drawn many times from the
predicted probabilities, which makes these perfect.

Very many rows are sampled. Deviations fall with the square root of the number of rows, so those of the sample are
scaled down to all rows.

Shape legend: R rows, M metrics that are means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from fielddep.config.metrics import METRICS
from fielddep.explain.curves import ScoredRows
from fielddep.training.metrics import N_CALIBRATION_BINS, row_losses
from fielddep.training.ranking import bin_stops, tie_stops_of

N_RESAMPLES = 1000
N_DRAWS = 200
"""Draws of targets for the calibration error by chance."""
MAX_ROWS = 50_000
"""Rows to resample at most, which takes a few seconds."""
LEVEL = 0.95
GAIN = "gain"
CALIBRATION_ERROR = "calibration_error"

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A metric, and how much of it may be chance: its 95 % interval, or `by_chance` for the calibration error."""

    value: float
    low: float | None = None
    high: float | None = None
    by_chance: float | None = None  # what perfect probabilities exceed on these rows in 5 % of cases


def bootstrap_intervals(
    scored: ScoredRows,
    *,
    values: Mapping[str, float] | None = None,
    base_C: torch.Tensor | None = None,
    n_rows: int | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Intervals of all metrics by name.

    Args:
        scored: rows with targets, at most `MAX_ROWS`.
        values: metrics of all rows, if the given rows are a sample.
        base_C: constant logits to compare with.
        n_rows: number of all rows; by default of those given.
        n_resamples: resamples to draw.
        seed: seed of the resamples.

    Returns:
        One interval per metric, without metrics that are undefined on these rows, such as the AUC of a single class.
        With `base_C` also `GAIN`: how much lower the loss is than that of `base_C`. It is compared row by row, so
        chance that affects both cancels out.

    Raises:
        SchemaError: if the targets are unknown.
    """
    scored.truth()  # raises an error without targets
    if not len(scored):
        return {}
    rows = _Losses.of(scored, base_C)
    own = rows.metrics(np.ones(len(scored), dtype=np.int64))
    drawn = [rows.metrics(counts) for counts in _resamples(len(scored), n_resamples, seed)]
    shrink = min(1.0, (len(scored) / (n_rows or len(scored))) ** 0.5)
    found = {}
    for name, value in own.items():
        resampled = np.array([metrics[name] for metrics in drawn if name in metrics])
        if len(resampled):
            found[name] = _interval(name, (values or {}).get(name, value), resampled, shrink)
    if rows.ranked is not None and own:
        error = (values or {}).get(CALIBRATION_ERROR, rows.ranked.calibration_error(rows.weight_R))
        chance = rows.ranked.errors_by_chance(rows.weight_R, np.random.default_rng(seed))
        found[CALIBRATION_ERROR] = Interval(value=error, by_chance=shrink * float(np.quantile(chance, LEVEL)))
    return found


def _interval(name: str, value: float, resampled: Floats, shrink: float) -> Interval:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - resampled.mean()
    lowest, highest = (-np.inf, np.inf) if name == GAIN else (METRICS[name].lowest, METRICS[name].highest)
    return Interval(
        value=value,
        low=float(max(lowest, value + shrink * float(low))),
        high=float(min(highest, value + shrink * float(high))),
    )


def _resamples(n_rows: int, n_resamples: int, seed: int) -> Iterator[Counts]:
    """How often each row was drawn, one resample at a time."""
    rng = np.random.default_rng(seed)
    for _ in range(n_resamples):
        yield np.bincount(rng.integers(0, n_rows, n_rows), minlength=n_rows)


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """What metrics are computed from: `losses_RM` for means, `ranked` for the AUC and calibration of two classes.

    Rows of a binary target are sorted by ascending score. `truth_R` is the target of a regression.
    """

    names: tuple[str, ...]
    losses_RM: Floats
    weight_R: Floats
    ranked: _Ranked | None = None
    truth_R: Floats | None = None

    @classmethod
    def of(cls, scored: ScoredRows, base_C: torch.Tensor | None) -> _Losses:
        columns = row_metrics(scored)
        if base_C is not None:
            base_RC = base_C.to(scored.logits_RC).expand(len(scored), -1)
            loss = next(iter(columns))  # the loss comes first
            columns[GAIN] = row_metrics(replace(scored, logits_RC=base_RC))[loss] - columns[loss]
        losses_RM = np.stack([column.double().numpy() for column in columns.values()], axis=1)
        weight_R = scored.weights()
        if scored.target.task != "binary":
            truth_R = scored.truth().astype(np.float64) if scored.target.task == "regression" else None
            return cls(names=tuple(columns), losses_RM=losses_RM, weight_R=weight_R, truth_R=truth_R)
        order_R = np.argsort(scored.logits_RC[:, 0].float().numpy(), kind="stable")
        ranked = _Ranked.of(scored, order_R)
        return cls(names=tuple(columns), losses_RM=losses_RM[order_R], weight_R=weight_R[order_R], ranked=ranked)

    def metrics(self, counts_R: Counts) -> dict[str, float]:
        """Metrics of a resample that has each row this many times."""
        weight_R = self.weight_R * counts_R
        total = float(weight_R.sum())
        if total == 0:
            return {}
        found = dict(zip(self.names, (weight_R @ self.losses_RM / total).tolist(), strict=True))
        if self.truth_R is not None:
            found |= _roots(found["mse"], self.truth_R, weight_R / total)
        return found if self.ranked is None else {**found, **self.ranked.areas(weight_R)}


def _roots(mse: float, truth_R: Floats, share_R: Floats) -> dict[str, float]:
    """RMSE and, unless all targets are equal, R²."""
    variance = float(share_R @ (truth_R - share_R @ truth_R) ** 2)
    return {"rmse": mse**0.5, **({"r2": 1 - mse / variance} if 0 < variance < np.inf else {})}


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    """Rows of a binary target by ascending score, with the first row of every different score and of every bin."""

    label_R: npt.NDArray[np.bool_]
    probability_R: Floats
    tie_starts: Counts
    bin_starts: Counts

    @classmethod
    def of(cls, scored: ScoredRows, order_R: Counts) -> _Ranked:
        score_R = scored.logits_RC[:, 0].float().numpy()[order_R]
        probability_R, label_R = scored.predictions()[order_R, 1], scored.truth()[order_R] > 0.5
        stops = bin_stops(len(score_R), N_CALIBRATION_BINS, tie_stops_of(score_R))
        return cls(
            label_R=label_R,
            probability_R=probability_R,
            tie_starts=np.flatnonzero(np.r_[True, score_R[1:] != score_R[:-1]]),
            bin_starts=np.array([0, *stops[:-1]]),
        )

    def calibration_error(self, weight_R: Floats, label_R: npt.NDArray[np.bool_] | None = None) -> float:
        """Calibration error of weighted rows, with their own labels or with others."""
        gap_R = self.probability_R - (self.label_R if label_R is None else label_R)
        return float(np.abs(np.add.reduceat(weight_R * gap_R, self.bin_starts)).sum() / weight_R.sum())

    def errors_by_chance(self, weight_R: Floats, rng: np.random.Generator) -> Floats:
        """Calibration errors with labels drawn from the predicted probabilities."""
        draws = (rng.random(len(weight_R)) < self.probability_R for _ in range(N_DRAWS))
        return np.array([self.calibration_error(weight_R, label_R) for label_R in draws])

    def areas(self, weight_R: Floats) -> dict[str, float]:
        """AUC of weighted rows, if there are both classes."""
        positive_R = weight_R * self.label_R
        positive, negative = (np.add.reduceat(w, self.tie_starts) for w in (positive_R, weight_R - positive_R))
        pairs = float(positive.sum()) * float(negative.sum())
        if pairs == 0:
            return {}
        # Ties count half: of the negative rows with the same score, half are below.
        below = np.cumsum(negative) - negative / 2
        return {"auc": float(positive @ below) / pairs}


def row_metrics(scored: ScoredRows) -> dict[str, torch.Tensor]:
    """Metrics that are means over rows, as one number per row; the loss comes first."""
    assert scored.target_R is not None
    target, logits_RC, target_R = scored.target, scored.logits_RC, torch.from_numpy(scored.target_R)
    losses_R = row_losses(logits_RC, target_R, target.task)
    if target.task == "regression":
        return {
            "mse": losses_R.double() * target.loss_unit,
            "mae": (logits_RC[:, 0] - target_R).abs().double() * target.scale,
        }
    if target.task == "multiclass":
        return {"logloss": losses_R, "accuracy": (logits_RC.argmax(dim=1) == target_R).float()}
    return {"logloss": losses_R}
