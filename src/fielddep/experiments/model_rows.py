"""Rows of a comparison: the runs of one data set gathered by model, with mean and spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fielddep.errors import UserError
from fielddep.experiments.results import COSTS, RunResult
from fielddep.experiments.significance import Better
from fielddep.experiments.summary import Summary

# The order of the columns; a metric of another name has no known direction and is not shown.
METRICS: dict[str, Better] = {
    "logloss": "lower",
    "auc": "higher",
    "calibration_error": "lower",
    "accuracy": "higher",
    "mse": "lower",
    "mae": "lower",
}


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model over its seeds.

    Attributes:
        name: name of the model, with its settings where the model was run with several.
        n_runs: runs, failed ones too.
        metrics: figures of the finished runs by metric.
        costs: parameters, times, speeds and memory of the finished runs.
        failures: reason by seed.
    """

    name: str
    n_runs: int
    metrics: Mapping[str, Summary]
    costs: Mapping[str, Summary]
    failures: Mapping[int, str]

    @property
    def n_finished(self) -> int:
        """Runs that did not fail."""
        return self.n_runs - len(self.failures)


def runs_by_name(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Runs by model, or by model and settings where a model was run with several.

    Raises:
        UserError: for no runs, several data sets, or a seed that a model has twice.
    """
    datasets = list(dict.fromkeys(result.dataset for result in results))
    if len(datasets) != 1:
        raise UserError(
            f"a comparison needs the runs of one data set, given {', '.join(datasets) or 'no runs'}; "
            "compare each data set on its own"
        )
    settings: dict[str, set[str]] = {}
    for result in results:
        settings.setdefault(result.model, set()).add(result.settings)
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        several = len(settings[result.model]) > 1
        group = groups.setdefault(f"{result.model} ({result.settings})" if several else result.model, [])
        if any(other.seed == result.seed for other in group):
            raise UserError(f"expected one run a seed, {result.model} has seed {result.seed} twice; keep one of them")
        group.append(result)
    return groups


def model_row(name: str, runs: Sequence[RunResult], part: str) -> ModelRow:
    """Mean and spread of a model's finished runs."""
    finished = [run for run in runs if run.error is None]
    metrics = {metric: metric_values(runs, metric, part) for metric in METRICS}
    costs = {cost: _finite([getattr(run, cost) for run in finished]) for cost in COSTS}
    return ModelRow(
        name=name,
        n_runs=len(runs),
        metrics={metric: Summary.of(values) for metric, values in metrics.items() if values},
        costs={cost: Summary.of(values) for cost, values in costs.items() if values},
        failures={run.seed: run.error for run in runs if run.error is not None},
    )


def metric_values(runs: Sequence[RunResult], metric: str, part: str) -> list[float]:
    """A metric of every finished run that has it as a finite number."""
    return _finite([run.metrics.get(part, {}).get(metric) for run in runs if run.error is None])


def _finite(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value)]
