"""Figures on how good a model is, for Plotly: learning, calibration, scores and importance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fielddep.explain.page.figure_base import COLOURS, Figure, figure_of, label_text, line_of, plot_text
from fielddep.explain.report import CalibrationPoint, Histogram, ImportanceFacts
from fielddep.explain.report_json import six_digits
from fielddep.training.history import Evaluation

MAX_BARS = 20
BAR_HEIGHT = 26


def learning_figure(history: Sequence[Evaluation], loss: str) -> Figure:
    """Loss of training and validation rows over the passes, with the evaluation whose weights were kept."""
    epochs = six_digits([e.epoch for e in history])
    kept = next((e for e in reversed(history) if e.best), None)
    data = [
        line_of(epochs, six_digits([e.train_loss for e in history]), "training rows", "@grey", dash="dot"),
        line_of(epochs, six_digits([e.validation["loss"] for e in history]), "validation rows", "@blue"),
    ]
    if kept is not None:
        best = line_of(six_digits([kept.epoch]), six_digits([kept.validation["loss"]]), "kept", "@orange")
        data.append(best | {"mode": "markers", "marker": {"color": "@orange", "size": 11}})
    figure = figure_of(data, x="passes over the training rows", y=loss)
    figure["layout"]["yaxis"] |= {"range": six_digits(_loss_range(history))}
    return figure


def _loss_range(history: Sequence[Evaluation]) -> list[float]:
    """Room for all losses but the first of the training rows, which may be far above all that matters."""
    losses = [e.validation["loss"] for e in history] + [e.train_loss for e in history[1:] or history]
    low, high = min(losses), max(losses)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return [low - room, high + room]


def calibration_figure(points: Sequence[CalibrationPoint], *, task: str) -> Figure:
    """What was predicted against what happened, beside the diagonal of a perfect model."""
    share = task != "regression"
    predicted = [point.predicted for point in points]
    marks = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "this model",
        "x": six_digits(predicted),
        "y": six_digits([point.observed for point in points]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": six_digits([max(0.0, point.high - point.observed) for point in points]),
            "arrayminus": six_digits([max(0.0, point.observed - point.low) for point in points]),
            "color": "@blue",
            "thickness": 1.2,
            "width": 3,
        },
        "line": {"color": "@blue", "width": 1.5},
        "marker": {"color": "@blue", "size": 7},
        "hovertemplate": "predicted %{x}<br>happened %{y}<extra></extra>",
    }
    ends = [min(predicted + [point.low for point in points]), max(predicted + [point.high for point in points])]
    room = 0.03 * (ends[1] - ends[0] or 1.0)
    ends = [max(0.0, ends[0] - room) if share else ends[0] - room, ends[1] + room]
    diagonal = line_of(six_digits(ends), six_digits(ends), "perfect", "@grey", dash="dash") | {"hoverinfo": "skip"}
    names = {"binary": ("predicted probability", "share that happened"), "regression": ("predicted", "true")}
    x, y = names.get(task, ("probability of the likeliest class", "share that was right"))
    figure = figure_of([diagonal, marks], x=x, y=y)
    for axis in ("xaxis", "yaxis"):
        figure["layout"][axis] |= {"range": six_digits(ends), **({"tickformat": ".3~p"} if share else {})}
    return figure


def scores_figure(histogram: Histogram, *, task: str) -> Figure:
    """Shares of rows by prediction, one outline a group."""
    edges = six_digits(histogram.edges)
    data = []
    for colour, (name, shares) in zip(COLOURS, histogram.shares, strict=False):
        outline = line_of(edges, [*six_digits(shares), 0], plot_text(name), colour)
        outline["line"]["shape"] = "hv"
        data.append(outline | {"fill": "tozeroy", "fillcolor": f"{colour}/0.12"})
    names = {"binary": "predicted probability", "regression": "value"}
    figure = figure_of(data, x=names.get(task, "predicted probability of the true class"), y="share of rows")
    figure["layout"]["yaxis"] |= {"tickformat": ".3~p", "rangemode": "tozero"}
    if task != "regression":
        figure["layout"]["xaxis"] |= {"tickformat": ".3~p", "range": [0, edges[-1]]}
    return figure


def importance_figure(facts: ImportanceFacts) -> Figure:
    """One bar a field, the most important at the top."""
    shown = facts.fields[:MAX_BARS][::-1]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": six_digits([mean for _, mean, _ in shown]),
        "y": list(range(len(shown))),
        "error_x": {"type": "data", "array": six_digits([s if math.isfinite(s) else 0.0 for _, _, s in shown])}
        | {"color": "@muted", "thickness": 1.2, "width": 3},
        "marker": {"color": "@blue"},
        "hovertext": [f"{plot_text(name)}: {mean:+.4g}" for name, mean, _ in shown],
        "hoverinfo": "text",
    }
    figure = figure_of([bars], x=f"rise of the {facts.metric}", y="", height=90 + BAR_HEIGHT * len(shown))
    figure["layout"]["yaxis"] |= {
        "tickvals": list(range(len(shown))),
        "ticktext": [label_text(name) for name, _, _ in shown],
        "showgrid": False,
        "zeroline": False,
    }
    figure["layout"] |= {"showlegend": False, "bargap": 0.35}
    return figure
