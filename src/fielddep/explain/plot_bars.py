"""Bars: importance of fields, and what each field does to the prediction of a row (extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fielddep.data.target import amount_text
from fielddep.explain.hiding import REFINEMENT, Effects
from fielddep.explain.importance import HIGHER_IS_BETTER, FieldImportance
from fielddep.explain.plot_canvas import BLUE, FAINT, INK, METRIC_NAMES, ORANGE, Canvas, named_value, short, tidy

MAX_BARS = 40
BAR_INCHES = 0.26
_TITLES = {"permutation": "the values of a field shuffled", "hiding": "a field hidden"}


def draw_importance(importance: FieldImportance, path: Path) -> None:
    """One panel a metric, fields by falling importance for the loss; whiskers are one standard deviation."""
    shown = importance.ranked()[:MAX_BARS]
    positions = [importance.names.index(name) for name in shown]
    n_metrics = len(importance.metrics)
    height = BAR_INCHES * len(shown) + 1.3
    with Canvas(path, width=2.2 + 3.9 * n_metrics, height=height, n_columns=n_metrics, sharey=True) as canvas:
        for axis, metric in zip(canvas.axes[0], importance.metrics, strict=True):
            means, deviations = importance.mean_F(metric)[positions], importance.std_F(metric)[positions]
            _draw_bars(axis, means, np.nan_to_num(deviations) if importance.method == "permutation" else None)
            change = "fall" if metric in HIGHER_IS_BETTER else "rise"
            axis.set_xlabel(f"{change} of {METRIC_NAMES.get(metric, metric)} (as it is: {importance.base[metric]:.4g})")
        _label_bars(canvas.axes[0][0], [short(name) for name in shown])
        left_out = len(importance.names) - len(shown)
        more = f"; {left_out} less important fields not shown" if left_out else ""
        canvas.title(f"What is lost with {_TITLES[importance.method]} ({importance.n_rows:,} rows{more})")


def draw_effects(effects: Effects, path: Path, *, row: int = 0, number: int | None = None) -> None:
    """What each field does to the prediction of a row: prediction as it is minus that with the field hidden."""
    effect_F = effects.effect_RF[row]
    order = np.argsort(-np.abs(effect_F), kind="stable")[:MAX_BARS]
    labels = [_effect_label(effects, row, int(f)) for f in order]
    with Canvas(path, width=7.2, height=BAR_INCHES * len(order) + 1.3) as canvas:
        axis = canvas.axes[0][0]
        _draw_bars(axis, effect_F[order], None)
        _label_bars(axis, labels)
        what = "value" if not effects.classes else f"probability of {short(str(effects.classes[row]))}"
        axis.set_xlabel(f"{what}: as it is, minus with the field hidden")
        name = row if number is None else number
        canvas.title(f"Row {name}, predicted {what}: {amount_text(float(effects.prediction_R[row]))}")


def _label_bars(axis: Any, labels: list[str]) -> None:
    """Names of the bars, the first on top."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)


def _draw_bars(axis: Any, values: Any, deviations: Any) -> None:
    colours = [BLUE if value >= 0 else ORANGE for value in values]
    axis.barh(
        range(len(values)),
        values,
        xerr=deviations,
        height=0.7,
        color=colours,
        error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 2},
    )
    axis.axvline(0, color=FAINT, linewidth=1)
    tidy(axis, grid="x")
    axis.spines["left"].set_visible(False)


def _effect_label(effects: Effects, row: int, position: int) -> str:
    name = effects.names[position]
    return short(name) if name == REFINEMENT else named_value(name, effects.values[name][row])
