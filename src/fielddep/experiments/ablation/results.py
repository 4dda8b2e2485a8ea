"""Results of an ablation, as numbers: what every value of a setting gave with every seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from fielddep.experiments.ablation.points import (
    EVALUATED_STEPS,
    LAMBDA,
    TRAINED_STEPS,
    Point,
    Sweep,
    Value,
)
from fielddep.experiments.ablation.run import DEPENDENCY_LOSS, MU_STD, at_steps
from fielddep.experiments.model_rows import METRICS
from fielddep.experiments.results import RunResult

PARTS = ("train", "validation", "test")
OF_DEPENDENCIES: Mapping[str, str] = {
    LAMBDA: MU_STD,
    EVALUATED_STEPS: DEPENDENCY_LOSS,
    TRAINED_STEPS: DEPENDENCY_LOSS,
}
"""The figure of the dependencies that is shown beside the metrics, by setting."""
NOT_SHOWN = "calibration_error"
COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(("dataset", "what", "setting", "setting_value"), pl.String()),
    "seed": pl.Int64(),
    **dict.fromkeys(("split", "metric"), pl.String()),
    "value": pl.Float64(),
}

Runs = Mapping[tuple[str, int], RunResult]
"""Runs by the name of their training and their seed."""


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What the values of a setting gave.

    Attributes:
        dataset: name of the data.
        sweep: the setting and its values.
        runs: at least the runs of its trainings.
        n_seeds: how many of their seeds are looked at.
    """

    dataset: str
    sweep: Sweep
    runs: Runs
    n_seeds: int

    def runs_of(self, point: Point) -> list[RunResult]:
        """All runs of a point, failed ones too."""
        found = (self.runs.get((point.training.name, seed)) for seed in range(self.n_seeds))
        return [run for run in found if run is not None]

    def values(self, value: Value, part: str, metric: str) -> dict[int, float]:
        """A metric of one value of the setting by seed; of finished runs that have it."""
        point = next(point for point in self.sweep.points if point.value == value)
        name = at_steps(metric, point.n_steps)
        named = {run.seed: run.metrics.get(part, {}).get(name) for run in self.runs_of(point) if run.error is None}
        return {seed: figure for seed, figure in named.items() if figure is not None}

    def curves(self, part: str, metric: str) -> dict[int, list[float]]:
        """A metric over all values of the setting, by seed; seeds that lack one of them are left out."""
        by_value = [self.values(point.value, part, metric) for point in self.sweep.points]
        seeds = [seed for seed in range(self.n_seeds) if all(seed in figures for figures in by_value)]
        return {seed: [figures[seed] for figures in by_value] for seed in seeds}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that are shown: those of the task, the loss first, then that of the dependencies."""
        found = {name for run in self.runs.values() for figures in run.metrics.values() for name in figures}
        wanted = [*(name for name in METRICS if name != NOT_SHOWN), OF_DEPENDENCIES.get(self.sweep.setting)]
        return tuple(name for name in wanted if name is not None and name in found)

    @property
    def failures(self) -> tuple[str, ...]:
        """One note a value that has runs that failed."""
        notes = []
        for point in self.sweep.points:
            failed = [run for run in self.runs_of(point) if run.error is not None]
            if failed:
                reasons = "; ".join(dict.fromkeys(str(run.error) for run in failed))
                notes.append(f"{point.training.name}: {len(failed)} of {self.n_seeds} runs failed: {reasons}")
        return tuple(dict.fromkeys(notes))

    def to_frame(self) -> pl.DataFrame:
        """One row a figure."""
        rows = [
            (self.dataset, self.sweep.what, self.sweep.setting, str(point.value), run.seed, part, name, figure)
            for point in self.sweep.points
            for run in self.runs_of(point)
            for part in PARTS
            for name, figure in _figures(run, part, point).items()
        ]
        return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _figures(run: RunResult, part: str, point: Point) -> dict[str, float]:
    """Figures of a run that belong to a point, by the plain names of their metrics."""
    found = run.metrics.get(part, {})
    plain = [name for name in found if "@" not in name]
    named = {name: found.get(at_steps(name, point.n_steps)) for name in plain}
    return {name: figure for name, figure in named.items() if figure is not None}


def finite(figures: Mapping[int, float]) -> list[float]:
    """The values that are numbers."""
    return [figure for figure in figures.values() if math.isfinite(figure)]
