"""The comparison of models over seeds, as numbers: runs of one data set by model, and tests between models.

`rendering` turns it into text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fielddep.config.metrics import METRICS, in_order
from fielddep.errors import UserError
from fielddep.experiments.results import COSTS, RunResult
from fielddep.experiments.significance import DunnettTable, Summary, dunnett_table

PART = "test"
"""Models are compared on test rows."""


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model over its seeds.

    Attributes:
        name: name of the model, with its settings if the model was run with several.
        n_runs: number of runs, including failed ones.
        metrics: figures of the finished runs by metric.
        costs: parameters, times, speeds and memory of the finished runs.
        failures: reason by seed.
    """

    name: str
    n_runs: int
    metrics: Mapping[str, Summary]
    costs: Mapping[str, Summary]
    failures: Mapping[int, str]

    @classmethod
    def of(cls, name: str, runs: Sequence[RunResult]) -> ModelRow:
        """Mean and spread of a model's finished runs."""
        finished = [run for run in runs if run.error is None]
        metrics = {metric: _metric_values(runs, metric) for metric in METRICS}
        costs = {cost: _finite([getattr(run, cost) for run in finished]) for cost in COSTS}
        return cls(
            name=name,
            n_runs=len(runs),
            metrics={metric: Summary.of(values) for metric, values in metrics.items() if values},
            costs={cost: Summary.of(values) for cost, values in costs.items() if values},
            failures={run.seed: run.error for run in runs if run.error is not None},
        )

    @property
    def n_finished(self) -> int:
        """Runs that did not fail."""
        return self.n_runs - len(self.failures)


def _metric_values(runs: Sequence[RunResult], metric: str) -> list[float]:
    """A metric of every finished run that has it as a finite number."""
    return _finite([run.metrics.get(PART, {}).get(metric) for run in runs if run.error is None])


def _finite(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value)]


@dataclass(frozen=True, kw_only=True)
class ComparisonTable:
    """All models on the test rows of one data set. Build one with `ComparisonTable.of`.

    Attributes:
        control: the model that all others are tested against.
        rows: one per model in the order of the results, the control last.
        tests: Dunnett's tests by metric; there is none for a metric that the control lacks.
        notes: failures and what could not be tested.
    """

    dataset: str
    control: str
    rows: tuple[ModelRow, ...]
    tests: Mapping[str, DunnettTable]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, results: Iterable[RunResult], *, control: str = "mdl") -> ComparisonTable:
        """Compare the models of one data set.

        Args:
            results: one per run. A failed run is counted and noted, but is part of no figure.
            control: name of the control; "mdl (tuned)" if it was run with several settings.

        Raises:
            UserError: there are no results or several data sets, a model has a seed twice, or the control was run with
                several settings.
        """
        groups = _runs_by_name(list(results))
        several = [name for name, runs in groups.items() if runs[0].model == control]
        if control not in groups and several:
            raise UserError(f"the control {control!r} was run with several settings; name one of {', '.join(several)}")
        rows = tuple(ModelRow.of(name, groups[name]) for name in sorted(groups, key=lambda name: name == control))
        tested = [metric for row in rows if row.name == control for metric in row.metrics]
        tests = {metric: _test(groups, metric, control) for metric in tested}
        dataset = next(iter(groups.values()))[0].dataset
        table = cls(dataset=dataset, control=control, rows=rows, tests=tests, notes=())
        return dataclasses.replace(table, notes=_notes(table, groups))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that some model has, in the order of the columns."""
        return tuple(in_order(dict.fromkeys(name for row in self.rows for name in row.metrics)))

    @property
    def costs(self) -> tuple[str, ...]:
        """Costs that some model has, in the order of the columns."""
        return tuple(name for name in COSTS if any(name in row.costs for row in self.rows))

    def p(self, metric: str, model: str) -> float | None:
        """The p value of "the control is better than this model"; None if it was not tested."""
        return self.tests[metric].p(model) if metric in self.tests else None

    def beaten(self, metric: str) -> frozenset[str]:
        """Models that the control is significantly better than."""
        tested = metric in self.tests
        return frozenset(row.name for row in self.rows if tested and self.tests[metric].is_significant(row.name))


def _runs_by_name(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Runs by model, or by model and settings if a model was run with several."""
    datasets = list(dict.fromkeys(result.dataset for result in results))
    if len(datasets) != 1:
        raise UserError(
            f"expected runs of one data set, given {', '.join(datasets) or 'no runs'}; compare each data set on its own"
        )
    settings: dict[str, set[str]] = {}
    for result in results:
        settings.setdefault(result.model, set()).add(result.settings)
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        several = len(settings[result.model]) > 1
        group = groups.setdefault(f"{result.model} ({result.settings})" if several else result.model, [])
        if any(other.seed == result.seed for other in group):
            raise UserError(
                f"expected one run per seed, but {result.model} has seed {result.seed} twice; keep one of them"
            )
        group.append(result)
    return groups


def _test(groups: Mapping[str, Sequence[RunResult]], metric: str, control: str) -> DunnettTable:
    values = {name: _metric_values(runs, metric) for name, runs in groups.items()}
    present = {name: runs for name, runs in values.items() if runs}
    table = dunnett_table(present, metric=metric, better=METRICS[metric].better, control=control)
    return dataclasses.replace(table, dataset=groups[control][0].dataset)


def _notes(table: ComparisonTable, groups: Mapping[str, Sequence[RunResult]]) -> tuple[str, ...]:
    """Failures first, then what is missing."""
    failures = [note for row in table.rows for note in _failure_notes(row)]
    odd = [
        f"{name}: {metric} of seed {run.seed} is not a number and is skipped"
        for name, runs in groups.items()
        for run in runs
        if run.error is None
        for metric, value in run.metrics.get(PART, {}).items()
        if metric in METRICS and not math.isfinite(value)
    ]
    return (*failures, *odd, *_untested_notes(table))


def _untested_notes(table: ComparisonTable) -> list[str]:
    """Why tests are absent, with one note for the metrics that share a reason."""
    metrics: dict[str, list[str]] = {}
    for metric in table.metrics:
        absent = f"no test: the control {table.control} has no finished run with it"
        for note in table.tests[metric].notes if metric in table.tests else (absent,):
            metrics.setdefault(note, []).append(metric)
    return [f"{', '.join(names)}: {note}" for note, names in metrics.items()]


def _failure_notes(row: ModelRow) -> list[str]:
    """One note per reason, with the seeds that failed."""
    by_reason: dict[str, list[int]] = {}
    for seed, reason in row.failures.items():
        by_reason.setdefault(reason, []).append(seed)
    return [
        f"{row.name}: {len(seeds)} of {row.n_runs} runs failed (seed {', '.join(map(str, seeds))}): {reason}"
        for reason, seeds in by_reason.items()
    ]
