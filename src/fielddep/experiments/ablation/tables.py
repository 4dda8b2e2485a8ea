"""Tables of an ablation: one row a value of a setting, one column a part of the rows and metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from fielddep.experiments.ablation.points import (
    EVALUATED_STEPS,
    LAMBDA,
    LAYERS,
    TRAINED_STEPS,
    VARIANT,
    ZETA,
    Point,
    short,
)
from fielddep.experiments.ablation.results import PARTS, SweepResult, finite
from fielddep.experiments.ablation.run import DEPENDENCY_LOSS, MU_STD
from fielddep.experiments.formatting import ABSENT, decimals, fixed, with_spread
from fielddep.experiments.grid import Cell, Grid
from fielddep.experiments.model_rows import METRICS
from fielddep.experiments.rendering import comparison_grid, dunnett_grid, metric_label
from fielddep.experiments.summary import Summary
from fielddep.experiments.tables import ComparisonTable

SETTING_LABELS = {
    VARIANT: "variant",
    ZETA: "zeta",
    LAMBDA: "lambda",
    EVALUATED_STEPS: "T at evaluation",
    TRAINED_STEPS: "T of training",
    LAYERS: "layers",
}
SUBJECTS = {
    VARIANT: "variants of MDL",
    ZETA: "global dep with every zeta",
    LAMBDA: "lambda varied around its tuned value",
    EVALUATED_STEPS: "one training, evaluated with other numbers of refinement steps",
    TRAINED_STEPS: "trained with other numbers of refinement steps",
    LAYERS: "trained with other numbers of layers",
}
_FIGURES = {DEPENDENCY_LOSS: "dependency loss", MU_STD: "std of mu/lambda"}


def figure_label(metric: str) -> str:
    """Name of a metric or of a figure of the dependencies as a heading."""
    return _FIGURES.get(metric) or metric_label(metric)


def grids_of(result: SweepResult, parts: Sequence[str] = PARTS) -> tuple[Grid, ...]:
    """Tables of one setting: that of the variants is the one of a comparison, with its tests."""
    if result.sweep.setting != VARIANT:
        return (sweep_grid(result, parts),)
    runs = [
        dataclasses.replace(run, model=str(point.value))
        for point in result.sweep.points
        for run in result.runs_of(point)
    ]
    table = ComparisonTable.of(runs, control=str(result.sweep.control))
    shown = [table.tests[metric] for metric in result.metrics if metric in table.tests]
    return (comparison_grid(table), *map(dunnett_grid, shown))


def sweep_grid(result: SweepResult, parts: Sequence[str] = PARTS) -> Grid:
    """All values of a setting, on some parts of the rows."""
    columns = [(part, metric) for part in parts for metric in result.metrics]
    cells = [_column(result, part, metric) for part, metric in columns]
    rows = zip(result.sweep.points, *cells, strict=True)
    setting = result.sweep.setting
    seeds = "one seed" if result.n_seeds == 1 else f"mean ± standard deviation over {result.n_seeds} seeds"
    return Grid(
        caption=f"{result.dataset}, {SUBJECTS[setting]}: {seeds}; best in bold.",
        header=(SETTING_LABELS[setting], *(f"{part} {figure_label(metric)}" for part, metric in columns)),
        rows=tuple((Cell(text=_name(result, point)), *found) for point, *found in rows),
        notes=result.failures,
    )


def _name(result: SweepResult, point: Point) -> str:
    is_control = point.value == result.sweep.control and bool(result.sweep.control_is)
    return short(point.value) + (f" ({result.sweep.control_is})" if is_control else "")


def _column(result: SweepResult, part: str, metric: str) -> list[Cell]:
    values = [finite(result.values(point.value, part, metric)) for point in result.sweep.points]
    summaries = [Summary.of(found) if found else None for found in values]
    present = [summary for summary in summaries if summary is not None]
    text = partial(fixed, n_decimals=decimals(present))
    best = _best(present, metric)
    return [
        Cell(text=with_spread(summary, text, show_zero=True), bold=summary.mean == best)
        if summary is not None
        else Cell(text=ABSENT)
        for summary in summaries
    ]


def _best(summaries: Sequence[Summary], metric: str) -> float | None:
    """The best mean of a metric; figures of the dependencies have none."""
    if metric not in METRICS:
        return None
    best = max if METRICS[metric] == "higher" else min
    return best((summary.mean for summary in summaries), default=None)
