"""Metrics: the name of each, which way is better, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

KnownTask = Literal["binary", "multiclass", "regression"]
Better = Literal["higher", "lower"]
Monitor = Literal[
    "loss", "logloss", "auc", "average_precision", "calibration_error", "accuracy", "rmse", "mae", "r2", "mse"
]
"""What may stop training: the loss, or any metric."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: key in saved files.
        title: name for readers.
        meaning: how to read it.
        lowest: the smallest possible value.
        in_log: whether short lists, such as a line of the training log, show it.
        in_tables: whether tables for readers show it; saved files have every metric.
        instead: metric that tells readers the same; where it is known, this one is not shown.
    """

    name: str
    title: str
    tasks: tuple[KnownTask, ...]
    higher_is_better: bool = False
    unit: Literal["", "target", "target²"] = ""
    lowest: float = 0.0
    meaning: str
    in_log: bool = True
    in_tables: bool = True
    instead: str | None = None

    @property
    def highest(self) -> float:
        """The largest possible value."""
        return 1.0 if self.higher_is_better else math.inf

    @property
    def better(self) -> Better:
        """Which way is better."""
        return "higher" if self.higher_is_better else "lower"


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="logloss",
            title="logloss",
            tasks=("binary", "multiclass"),
            meaning="how much probability was missing from what happened; confident errors cost most",
        ),
        Metric(
            name="rmse",
            title="RMSE",
            tasks=("regression",),
            unit="target",
            meaning="root of the mean squared error: like MAE, but large errors count most",
        ),
        Metric(
            name="mse",
            title="MSE",
            tasks=("regression",),
            unit="target²",
            meaning="mean squared error, which training minimises",
            instead="rmse",
        ),
        Metric(
            name="auc",
            title="AUC",
            tasks=("binary",),
            higher_is_better=True,
            meaning="how often a row of the positive class scores above one of the other class; 0.5 is guessing, "
            "1 is perfect",
        ),
        Metric(
            name="accuracy",
            title="accuracy",
            tasks=("multiclass",),
            higher_is_better=True,
            meaning="share of rows whose likeliest class is right",
        ),
        Metric(
            name="mae",
            title="MAE",
            tasks=("regression",),
            unit="target",
            meaning="mean absolute error: the average size of an error, in the unit of the target",
        ),
        Metric(
            name="r2",
            title="R²",
            tasks=("regression",),
            higher_is_better=True,
            lowest=-math.inf,
            meaning="share of the variance of the target that is predicted; 0 is always predicting the mean of these "
            "rows, 1 is perfect",
        ),
        Metric(
            name="calibration_error",
            title="calibration error",
            tasks=("binary",),
            meaning="average distance between predicted probabilities and what happened; 0.01 is one percentage "
            "point. Chance alone raises it, even if every probability is right",
            in_log=False,
        ),
        Metric(
            name="average_precision",
            title="average precision",
            tasks=("binary",),
            higher_is_better=True,
            meaning="mean precision over all rows of the positive class, each at its own score as the threshold; the "
            "share of the class is guessing, 1 is perfect",
            in_log=False,
            in_tables=False,
        ),
    )
}
"""Every metric in display order."""


def loss_name(task: str) -> str:
    """The metric that training minimises.

    Example:
        >>> loss_name("multiclass"), loss_name("regression")
        ('logloss', 'mse')
    """
    return "mse" if task == "regression" else "logloss"


def monitored_metrics(task: str) -> list[str]:
    """What `train.monitor` may be for a task.

    Example:
        >>> monitored_metrics("multiclass")
        ['loss', 'logloss', 'accuracy']
    """
    return ["loss", *(name for name, metric in METRICS.items() if task in metric.tasks)]


def in_order(found: Mapping[str, T], *, brief: bool = False) -> dict[str, T]:
    """Metrics for readers in display order; with `brief`, only those of short lists.

    The MSE is shown only for files from before the RMSE was measured.

    Example:
        >>> in_order({"loss": 0.2, "calibration_error": 0.01, "auc": 0.9, "logloss": 0.2})
        {'logloss': 0.2, 'auc': 0.9, 'calibration_error': 0.01}
    """
    known = [metric for name, metric in METRICS.items() if name in found and metric.instead not in found]
    return {metric.name: found[metric.name] for metric in known if (metric.in_log if brief else metric.in_tables)}


def metric_title(name: str) -> str:
    """The title of a metric; any other figure keeps its name."""
    return METRICS[name].title if name in METRICS else name
