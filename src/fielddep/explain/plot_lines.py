"""Lines: weights of fields over the steps, learning curves, calibration, scores by class (extra `plot`).

Shape legend: S steps of refinement with the start, F fields, C classes, N bins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fielddep.data.target import amount_text
from fielddep.explain.curves import CalibrationCurve, LearningCurve, ScoreDistribution
from fielddep.explain.dependencies import Explanation
from fielddep.explain.labels import spread
from fielddep.explain.plot_canvas import BLUE, COLOURS, FAINT, METRIC_NAMES, ORANGE, Canvas, named_value, short, tidy

MAX_LINES = 10
"""Fields or classes with a colour of their own; of more the others are grey or left out."""
_CALIBRATION_WORDS = {
    "binary": ("predicted probability", "share of positive rows"),
    "multiclass": ("probability of the likeliest class", "share of rows where it is right"),
    "regression": ("predicted value", "mean true value"),
}


def draw_weights(explanation: Explanation, path: Path, *, row: int = 0, number: int | None = None) -> None:
    """The weight mu of every field over the steps of refinement, as a share of lambda; those that moved most are named.

    Args:
        explanation: refined rows.
        path: image file.
        row: position in `explanation`.
        number: what the row is called; default: its position.
    """
    share_SF = explanation.mu_RSF[row] / explanation.sparsity
    n_steps, n_fields = share_SF.shape
    moved = np.argsort(-np.abs(share_SF[-1] - share_SF[0]), kind="stable")[:MAX_LINES].tolist()
    values = explanation.values.row(row)
    with Canvas(path, width=7.4, height=max(3.2, 0.27 * len(moved) + 1.4)) as canvas:
        axis = canvas.axes[0][0]
        axis.axhline(1 / n_fields, color="#9a9a9a", linewidth=1, linestyle="--")
        axis.plot(share_SF[:, [f for f in range(n_fields) if f not in moved]], color="#cfcfcf", linewidth=1)
        for colour, f in zip(COLOURS, moved, strict=False):
            axis.plot(share_SF[:, f], color=colour, linewidth=2, marker="o", markersize=4)
        axis.set_xticks(range(n_steps))
        axis.set_xlabel("step of refinement")
        axis.set_ylabel("mu / lambda")
        tidy(axis)
        ends = [(float(share_SF[-1, f]), named_value(explanation.fields[f], str(values[f]))) for f in moved]
        _label_ends(axis, ends, x=n_steps - 1)
        canvas.title(f"Row {row if number is None else number}: weight of every field")
        others = f"; grey: {n_fields - len(moved)} fields that moved less" if n_fields > len(moved) else ""
        axis.set_title(f"dashed: equal weights{others}")


def draw_learning(curve: LearningCurve, path: Path) -> None:
    """Training and validation loss over the epochs, the kept weights marked, and one panel a further metric."""
    frame = curve.to_frame()
    panels = [name for name in curve.metrics if name != "calibration_error"]
    with Canvas(path, width=4.6 * len(panels), height=3.5, n_columns=len(panels)) as canvas:
        axes = canvas.axes[0]
        axes[0].plot(frame["epoch"], frame["train_loss"], color=ORANGE, linewidth=1.8, label="training")
        for axis, name in zip(axes, panels, strict=True):
            axis.plot(frame["epoch"], frame[f"validation_{name}"], color=BLUE, linewidth=1.8, label="validation")
            if curve.best is not None:
                value = curve.best.validation[name]
                axis.plot([curve.best.epoch], [value], "o", color=BLUE, markersize=6.5, label=f"kept: {value:.4f}")
            axis.set_title(METRIC_NAMES.get(name, name))
            axis.set_xlabel("epoch")
            axis.legend()
            tidy(axis)
        canvas.title("Learning curves")


def draw_calibration(curve: CalibrationCurve, path: Path) -> None:
    """What was predicted against what happened, with 95 % intervals; on the dashed line the two agree."""
    low = min(curve.predicted_N.min(), curve.low_N.min())
    high = max(curve.predicted_N.max(), curve.high_N.max())
    room = 0.04 * max(high - low, 1e-9)
    bars = np.stack([curve.observed_N - curve.low_N, curve.high_N - curve.observed_N]).clip(min=0)
    predicted, observed = _CALIBRATION_WORDS[curve.task]
    with Canvas(path, width=4.8, height=4.7) as canvas:
        axis = canvas.axes[0][0]
        axis.plot([low, high], [low, high], color=FAINT, linewidth=1.2, linestyle="--")
        axis.errorbar(
            curve.predicted_N, curve.observed_N, yerr=bars, fmt="o-", color=BLUE, markersize=4.5, elinewidth=1
        )
        axis.set(xlim=(low - room, high + room), ylim=(low - room, high + room), aspect="equal")
        axis.set(
            xlabel=predicted, ylabel=observed, title=f"mean distance from the dashed line: {amount_text(curve.gap)}"
        )
        tidy(axis)
        canvas.title("Calibration")


def draw_scores(spread: ScoreDistribution, path: Path) -> None:
    """Predicted probabilities of the rows of each class; of many classes the largest."""
    totals_C = spread.weight_CN.sum(axis=1)
    binary = len(spread.classes) == 2
    largest = np.sort(np.argsort(-totals_C, kind="stable")[:MAX_LINES]).tolist()
    with Canvas(path, width=6.6, height=3.6) as canvas:
        axis = canvas.axes[0][0]
        for colour, c in zip(COLOURS, largest, strict=False):
            axis.stairs(spread.share_CN[c], spread.edges, color=colour, fill=binary, alpha=0.35)
            label = f"{short(str(spread.classes[c]))} ({totals_C[c]:,.0f} rows)"
            axis.stairs(spread.share_CN[c], spread.edges, color=colour, linewidth=1.6, label=label)
        meant = short(str(spread.classes[1])) if binary else "the row's own class"
        axis.set(xlim=(0, 1), xlabel=f"predicted probability of {meant}", ylabel="share of the class")
        axis.legend(title="true class")
        tidy(axis)
        left_out = len(totals_C) - len(largest)
        canvas.title("Scores by class" + (f" ({left_out} smaller classes not shown)" if left_out else ""))


def _label_ends(axis: Any, ends: list[tuple[float, str]], *, x: float) -> None:
    """Labels beside the right ends of lines, moved apart where they would overlap, in the colours of the lines."""
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    order = sorted(range(len(ends)), key=lambda e: ends[e][0])
    gap = (high - low) / max(len(ends), MAX_LINES)
    places = spread([ends[e][0] for e in order], low, high, gap)
    right = axis.get_xlim()[1]
    for e, place in zip(order, places, strict=True):
        value, text = ends[e]
        beyond = right + 0.03 * (right - axis.get_xlim()[0])
        axis.plot([x, beyond], [value, place], color=COLOURS[e], linewidth=0.7, clip_on=False)
        axis.text(beyond, place, f" {text}", color=COLOURS[e], va="center", fontsize=8)
    axis.set_xlim(axis.get_xlim()[0], right)
