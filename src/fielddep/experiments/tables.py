"""The comparison of models over seeds, as numbers; `rendering` makes text of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fielddep.errors import UserError
from fielddep.experiments.model_rows import METRICS, ModelRow, metric_values, model_row, runs_by_name
from fielddep.experiments.results import COSTS, RunResult
from fielddep.experiments.significance import DunnettTable, dunnett_table

__all__ = ["METRICS", "ComparisonTable", "ModelRow", "RunResult", "comparison_tables"]


@dataclass(frozen=True, kw_only=True)
class ComparisonTable:
    """All models on one data set. Build one with `ComparisonTable.of`.

    Attributes:
        dataset: name of the data.
        part: rows that the metrics were taken on.
        control: the model that all others are tested against.
        level: a p value below it is significant.
        rows: one a model in the order of the results, the control last.
        tests: Dunnett's tests by metric; a metric that the control lacks has none.
        notes: failures and what could not be tested.
    """

    dataset: str
    part: str
    control: str
    level: float
    rows: tuple[ModelRow, ...]
    tests: Mapping[str, DunnettTable]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, results: Iterable[RunResult], *, control: str = "mdl", part: str = "test", level: float = 0.05
    ) -> ComparisonTable:
        """Compare the models of one data set.

        Args:
            results: one a run. A failed run is counted and noted, and takes no part in any figure.
            control: name of the control; "mdl (tuned)" where it was run with several settings.
            part: "test" or "validation".
            level: level of significance.

        Raises:
            UserError: for no results, several data sets, a seed that a model has twice, or a control that was run
                with several settings.
        """
        groups = runs_by_name(list(results))
        _check_control(groups, control)
        names = sorted(groups, key=lambda name: name == control)
        rows = tuple(model_row(name, groups[name], part) for name in names)
        tests = {
            metric: _test(groups, metric, part, control)
            for metric in METRICS
            if any(row.name == control and metric in row.metrics for row in rows)
        }
        dataset = groups[names[0]][0].dataset
        table = cls(dataset=dataset, part=part, control=control, level=level, rows=rows, tests=tests, notes=())
        return dataclasses.replace(table, notes=_notes(table, groups))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that some model has, in the order of the columns."""
        return tuple(name for name in METRICS if any(name in row.metrics for row in self.rows))

    @property
    def costs(self) -> tuple[str, ...]:
        """Costs that some model has, in the order of the columns."""
        return tuple(name for name in COSTS if any(name in row.costs for row in self.rows))

    def best(self, metric: str) -> frozenset[str]:
        """Models with the best mean; several only where means are equal."""
        means = {row.name: row.metrics[metric].mean for row in self.rows if metric in row.metrics}
        top = (max if METRICS[metric] == "higher" else min)(means.values(), default=None)
        return frozenset(name for name, mean in means.items() if mean == top)

    def p(self, metric: str, model: str) -> float | None:
        """The p value of "the control is better than this model"; None where it was not tested."""
        return self.tests[metric].p(model) if metric in self.tests else None

    def is_beaten(self, metric: str, model: str) -> bool:
        """Whether the control is significantly better than a model."""
        p = self.p(metric, model)
        return p is not None and p < self.level


def comparison_tables(
    results: Iterable[RunResult], *, control: str = "mdl", part: str = "test", level: float = 0.05
) -> dict[str, ComparisonTable]:
    """One comparison a data set, in the order of their first results."""
    by_dataset: dict[str, list[RunResult]] = {}
    for result in results:
        by_dataset.setdefault(result.dataset, []).append(result)
    return {
        dataset: ComparisonTable.of(runs, control=control, part=part, level=level)
        for dataset, runs in by_dataset.items()
    }


def _check_control(groups: Mapping[str, Sequence[RunResult]], control: str) -> None:
    settings = [name for name, runs in groups.items() if runs[0].model == control]
    if control not in groups and settings:
        raise UserError(f"the control {control!r} was run with several settings; name one of {', '.join(settings)}")


def _test(groups: Mapping[str, Sequence[RunResult]], metric: str, part: str, control: str) -> DunnettTable:
    values = {name: metric_values(runs, metric, part) for name, runs in groups.items()}
    present = {name: runs for name, runs in values.items() if runs}
    table = dunnett_table(present, metric=metric, better=METRICS[metric], control=control)
    return dataclasses.replace(table, dataset=groups[control][0].dataset)


def _notes(table: ComparisonTable, groups: Mapping[str, Sequence[RunResult]]) -> tuple[str, ...]:
    """Failures first, then what is missing."""
    failures = [note for row in table.rows for note in _failure_notes(row)]
    odd = [note for name, runs in groups.items() for note in _odd_notes(name, runs, table.part)]
    return (*failures, *odd, *_untested_notes(table))


def _untested_notes(table: ComparisonTable) -> list[str]:
    """Why tests are absent; a reason that several metrics share is told once."""
    metrics: dict[str, list[str]] = {}
    for metric in table.metrics:
        absent = f"no test: the control {table.control} has no finished run with it"
        for note in table.tests[metric].notes if metric in table.tests else (absent,):
            metrics.setdefault(note, []).append(metric)
    return [f"{', '.join(names)}: {note}" for note, names in metrics.items()]


def _failure_notes(row: ModelRow) -> list[str]:
    """One note a reason, with the seeds that it stopped."""
    by_reason: dict[str, list[int]] = {}
    for seed, reason in row.failures.items():
        by_reason.setdefault(reason, []).append(seed)
    return [
        f"{row.name}: {len(seeds)} of {row.n_runs} runs failed (seed {', '.join(map(str, seeds))}): {reason}"
        for reason, seeds in by_reason.items()
    ]


def _odd_notes(name: str, runs: Sequence[RunResult], part: str) -> list[str]:
    return [
        f"{name}: {metric} of seed {run.seed} is not a number and is left out"
        for run in runs
        if run.error is None
        for metric, value in run.metrics.get(part, {}).items()
        if metric in METRICS and not math.isfinite(value)
    ]
