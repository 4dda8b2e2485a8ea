"""Tables and pictures of an ablation.

A table has one row per value of a setting and one column per part of the rows and metric. Pictures (extra `plot`) show
curves over a setting, and boxes of the variants.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fielddep.config.metrics import METRICS, loss_name, metric_title
from fielddep.experiments.ablation.parts import changes
from fielddep.experiments.ablation.plan import (
    EVALUATED_STEPS,
    GLOBAL,
    LAMBDA,
    LAYERS,
    MDL,
    PART,
    TRAINED_STEPS,
    VARIANT,
    WITHOUT,
    ZETA,
    Point,
    Value,
    format_value,
)
from fielddep.experiments.ablation.trainings import DEPENDENCY_LOSS, MU_STD, PARTS, SweepResult
from fielddep.experiments.rendering import ABSENT, Cell, Grid, comparison_grid, dunnett_grid, metric_cells
from fielddep.experiments.significance import Summary
from fielddep.experiments.tables import ComparisonTable
from fielddep.explain.plots import LIGHT, Canvas, tidy

SETTING_LABELS = {
    VARIANT: "variant",
    ZETA: "zeta",
    LAMBDA: "lambda",
    EVALUATED_STEPS: "T at evaluation",
    TRAINED_STEPS: "T of training",
    LAYERS: "layers",
    PART: "variant",
}
SUBJECTS = {
    VARIANT: "variants of MDL",
    ZETA: "global dep with every zeta",
    LAMBDA: "lambda varied around its tuned value",
    EVALUATED_STEPS: "one training, evaluated with other numbers of refinement steps",
    TRAINED_STEPS: "trained with other numbers of refinement steps",
    LAYERS: "trained with other numbers of layers",
    PART: "MDL without single parts",
}
BLUE, ORANGE, GREEN = LIGHT.series[:3]
LOG_RATIO = 30
"""Figures of the dependencies that differ by more than this factor are drawn on a logarithmic axis."""
BOXES = {WITHOUT: ("w/o dep", LIGHT.muted), GLOBAL: ("global dep", ORANGE), MDL: ("MDL", BLUE)}
PART_NAMES = {"train": "training rows", "validation": "validation rows", "test": "test rows"}
X_LABELS = {
    LAMBDA: r"$\lambda$",
    EVALUATED_STEPS: "$T$ at evaluation",
    TRAINED_STEPS: "$T$ of training",
    LAYERS: "layers, the output among them",
}
DASHED = {
    LAMBDA: "the tuned value",
    EVALUATED_STEPS: "the T of training",
    TRAINED_STEPS: "the paper's best",
    LAYERS: "the paper's best",
}
_FIGURES = {DEPENDENCY_LOSS: "dependency loss", MU_STD: "std of mu/lambda"}


def figure_label(metric: str) -> str:
    """Heading of a metric or of a figure of the dependencies."""
    return _FIGURES.get(metric) or metric_title(metric)


def grids_of(result: SweepResult, parts: Sequence[str] = PARTS) -> tuple[Grid, ...]:
    """Tables of one setting; the variants have those of a comparison, with its tests."""
    if result.sweep.setting == PART:
        return (_parts_grid(result),)
    if result.sweep.setting != VARIANT:
        return (_sweep_grid(result, parts),)
    runs = [
        dataclasses.replace(run, model=str(point.value))
        for point in result.sweep.points
        for run in result.runs_of(point)
    ]
    table = ComparisonTable.of(runs, control=str(result.sweep.control))
    shown = [table.tests[metric] for metric in result.metrics if metric in table.tests]
    return (comparison_grid(table), *map(dunnett_grid, shown))


def _sweep_grid(result: SweepResult, parts: Sequence[str]) -> Grid:
    """All values of a setting, on some parts of the rows."""
    columns = [(part, metric) for part in parts for metric in result.metrics]
    cells = [metric_cells(_summaries(result, part, metric), metric) for part, metric in columns]
    rows = zip(result.sweep.points, *cells, strict=True)
    setting = result.sweep.setting
    over = _seeds(result) if result.n_seeds == 1 else f"mean ± standard deviation over {_seeds(result)}"
    return Grid(
        caption=f"{result.dataset}, {SUBJECTS[setting]}: {over}; best in bold.",
        header=(SETTING_LABELS[setting], *(f"{part} {figure_label(metric)}" for part, metric in columns)),
        rows=tuple((Cell(text=_name(result, point)), *found) for point, *found in rows),
        notes=result.failures,
    )


def _parts_grid(result: SweepResult) -> Grid:
    """The loss of every variant on held-out rows, and its change against the full model."""
    columns: list[list[Cell]] = []
    header: list[str] = []
    for part in PARTS[1:]:
        for metric in result.metrics[:1]:
            columns.append(metric_cells(_summaries(result, part, metric), metric))
            columns.append([_change_cell(change) for change in changes(result, part, metric).values()])
            header += [f"{part} {figure_label(metric)}", "change"]
    over = _seeds(result) if result.n_seeds == 1 else f"mean ± standard deviation over {_seeds(result)}"
    return Grid(
        caption=f"{result.dataset}, {SUBJECTS[PART]}: {over}; change in per cent; best in bold.",
        header=(SETTING_LABELS[PART], *header),
        rows=tuple(
            (Cell(text=str(point.value)), *found) for point, *found in zip(result.sweep.points, *columns, strict=True)
        ),
        notes=result.failures,
    )


def _change_cell(change: Summary | None) -> Cell:
    if change is None:
        return Cell(text=ABSENT)
    return Cell(text=f"{change.mean:+.2f} %" + (f" ± {change.sd:.2f}" if change.n > 1 else ""))


def _summaries(result: SweepResult, part: str, metric: str) -> dict[Value, Summary | None]:
    found = result.finite(part, metric)
    return {value: Summary.of(values) if values else None for value, values in found.items()}


def _name(result: SweepResult, point: Point) -> str:
    is_control = point.value == result.sweep.control and bool(result.sweep.control_is)
    return format_value(point.value) + (f" ({result.sweep.control_is})" if is_control else "")


def draw(result: SweepResult, path: Path) -> None:
    """Draw a setting: boxes of the variants, curves of all others.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    if result.sweep.setting == VARIANT:
        draw_boxes(result, path)
    else:
        draw_curves(result, path)


def draw_curves(result: SweepResult, path: Path) -> None:
    """One row of panels per metric, one column per part of the rows."""
    metrics, setting = result.metrics, result.sweep.setting
    with Canvas(path, width=9.6, height=0.75 + 2.0 * len(metrics), n_rows=len(metrics), n_columns=len(PARTS)) as canvas:
        canvas.title(f"{result.dataset}: {SUBJECTS[setting]}")
        canvas.figure.supxlabel(_note(result), x=0.008, ha="left", fontsize=8, color=LIGHT.ink)
        for row, metric in enumerate(metrics):
            for column, part in enumerate(PARTS):
                _panel(canvas.axes[row][column], result, part, metric)
            canvas.axes[row][0].set_ylabel(_y_label(metric))
        for column, part in enumerate(PARTS):
            canvas.axes[0][column].set_title(PART_NAMES[part])
            canvas.axes[-1][column].set_xlabel(X_LABELS[setting])
        canvas.figure.align_ylabels(canvas.axes[:, 0])


def _panel(axis: Any, result: SweepResult, part: str, metric: str) -> None:
    """The mean over seeds, and the single seeds."""
    sweep, color, found = result.sweep, _color(metric), result.finite(part, metric)
    summaries = {value: summary for value, summary in _summaries(result, part, metric).items() if summary is not None}
    means = [summary.mean for summary in summaries.values()]
    if sweep.setting == EVALUATED_STEPS:
        _seed_lines(axis, result.curves(part, metric), list(found), sweep.control, color)
    else:
        _spread(axis, found, summaries, color)
    axis.plot(list(summaries), means, "o-", color=color, linewidth=1.7, markersize=4.5)
    axis.ticklabel_format(axis="y", useOffset=False)
    if metric in (DEPENDENCY_LOSS, MU_STD) and means and 0 < LOG_RATIO * min(means) < max(means):
        axis.set_yscale("log")
    _scale_x(axis, result)
    tidy(axis)
    if sweep.control in summaries:
        axis.axvline(sweep.control, color=LIGHT.ink, linestyle=(0, (4, 3)), linewidth=0.9, zorder=1.5)


def _seed_lines(axis: Any, curves: Mapping[int, list[float]], xs: list[Any], control: Any, color: str) -> None:
    """Single seeds, shifted to meet at the control, because seeds differ more from each other than steps do."""
    at = xs.index(control) if control in xs else 0
    level = {seed: curve[at] for seed, curve in curves.items() if math.isfinite(curve[at])}
    for seed, own in level.items():
        shift = sum(level.values()) / len(level) - own
        axis.plot(xs, [y + shift for y in curves[seed]], color=color, alpha=0.4, linewidth=0.9)


def _spread(axis: Any, found: Mapping[Any, list[float]], summaries: Mapping[Any, Summary], color: str) -> None:
    """Every run, and a band of one standard deviation that stays within the range of the runs."""
    for value, values in found.items():
        axis.plot([value] * len(values), values, ".", color=color, alpha=0.5, markersize=4)
    low = [max(s.mean - s.sd, min(found[value])) for value, s in summaries.items()]
    high = [min(s.mean + s.sd, max(found[value])) for value, s in summaries.items()]
    axis.fill_between(list(summaries), low, high, color=color, alpha=0.15, linewidth=0)


def _scale_x(axis: Any, result: SweepResult) -> None:
    values = [point.value for point in result.sweep.points]
    if result.sweep.setting == LAMBDA:
        axis.set_xscale("log")
        axis.minorticks_off()
    axis.set_xticks(values, [format_value(value) for value in values])


def draw_boxes(result: SweepResult, path: Path) -> None:
    """One panel per metric, with a box of every variant and its single runs on the test rows."""
    metrics = result.metrics
    with Canvas(path, width=3.5 * len(metrics), height=3.4, n_columns=len(metrics)) as canvas:
        canvas.title(f"{result.dataset}: {SUBJECTS[VARIANT]}, test rows ({_seeds(result)})")
        for axis, metric in zip(canvas.axes[0], metrics, strict=True):
            found = result.finite("test", metric)
            for place, (value, values) in enumerate(found.items()):
                if values:
                    _box(axis, place, values, BOXES[str(value)][1])
            axis.set_xticks(range(len(found)), [BOXES[str(value)][0] for value in found])
            axis.set_xlim(-0.6, len(found) - 0.4)
            axis.ticklabel_format(axis="y", useOffset=False)
            axis.set_title(f"{figure_label(metric)} ({METRICS[metric].better} is better)")
            tidy(axis, grid="y")


def _box(axis: Any, place: int, values: list[float], color: str) -> None:
    line = {"color": color, "linewidth": 1.3}
    axis.boxplot(
        [values],
        positions=[place],
        widths=0.5,
        showfliers=False,  # every run is drawn
        patch_artist=True,
        boxprops={"facecolor": color, "alpha": 0.3, "edgecolor": color},
        medianprops={**line, "linewidth": 2},
        whiskerprops=line,
        capprops=line,
    )
    # Side by side, so that equal runs can be distinguished; not at random, so that a picture can be reproduced.
    xs = [place + 0.07 * (number - (len(values) - 1) / 2) for number in range(len(values))]
    axis.plot(xs, values, "o", color=color, markersize=4.5, markeredgecolor="white", markeredgewidth=0.7)


def _color(metric: str) -> str:
    if metric in (DEPENDENCY_LOSS, MU_STD):
        return GREEN
    return BLUE if metric in ("rmse", *map(loss_name, ("binary", "regression"))) else ORANGE


def _y_label(metric: str) -> str:
    return r"std of $\mu^{(T)}/\lambda$" if metric == MU_STD else figure_label(metric)


def _seeds(result: SweepResult) -> str:
    return "one seed" if result.n_seeds == 1 else f"{result.n_seeds} seeds"


def _note(result: SweepResult) -> str:
    """What the marks of a picture of curves mean."""
    dashed = f"dashed: {DASHED[result.sweep.setting]}"
    if result.n_seeds == 1:
        return f"One seed; {dashed}."
    paired = result.sweep.setting == EVALUATED_STEPS
    spread = (
        "thin: single seeds, shifted to meet there" if paired else "dots: single runs; band: one standard deviation"
    )
    return f"Mean over {result.n_seeds} seeds; {dashed}; {spread}."
