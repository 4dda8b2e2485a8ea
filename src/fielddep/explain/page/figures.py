"""Figures of a page for Plotly, as plain values.

Colours are names such as `@blue`, which the page's script replaces by those of the light or dark theme; it looks for
them under keys that end in `color` or `colorscale` only, as a field may have such a name too. Texts that Plotly shows
are escaped, as it reads tags in them.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from fielddep.explain.page.words import shortened
from fielddep.explain.report import CalibrationPoint, Histogram, ImportanceFacts
from fielddep.training.history import Evaluation

Figure = dict[str, Any]

MAX_LABEL = 18
MAX_BARS = 20
BAR_HEIGHT = 26
PLOT_HEIGHT = 320
GROUP_COLOURS = ("@blue", "@orange", "@green", "@purple", "@red", "@grey")


def learning_figure(history: Sequence[Evaluation], loss: str) -> Figure:
    """Loss of training and validation rows over the passes, with the evaluation whose weights were kept."""
    epochs = _rounded([e.epoch for e in history])
    kept = next((e for e in reversed(history) if e.best), None)
    data = [
        _line(epochs, _rounded([e.train_loss for e in history]), "training rows", "@grey", dash="dot"),
        _line(epochs, _rounded([e.validation["loss"] for e in history]), "validation rows", "@blue"),
    ]
    if kept is not None:
        best = _line(_rounded([kept.epoch]), _rounded([kept.validation["loss"]]), "kept", "@orange")
        data.append(best | {"mode": "markers", "marker": {"color": "@orange", "size": 11}})
    figure = _figure(data, x="passes over the training rows", y=loss)
    figure["layout"]["yaxis"] |= {"range": _rounded(_loss_range(history))}
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
        "x": _rounded(predicted),
        "y": _rounded([point.observed for point in points]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": _rounded([max(0.0, point.high - point.observed) for point in points]),
            "arrayminus": _rounded([max(0.0, point.observed - point.low) for point in points]),
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
    diagonal = _line(_rounded(ends), _rounded(ends), "perfect", "@grey", dash="dash") | {"hoverinfo": "skip"}
    names = {"binary": ("predicted probability", "share that happened"), "regression": ("predicted", "true")}
    x, y = names.get(task, ("probability of the likeliest class", "share that was right"))
    figure = _figure([diagonal, marks], x=x, y=y)
    for axis in ("xaxis", "yaxis"):
        figure["layout"][axis] |= {"range": _rounded(ends), **({"tickformat": ".3~p"} if share else {})}
    return figure


def scores_figure(histogram: Histogram, *, task: str) -> Figure:
    """Shares of rows by prediction, one outline a group."""
    edges = _rounded(histogram.edges)
    data = []
    for colour, (name, shares) in zip(GROUP_COLOURS, histogram.shares, strict=False):
        outline = _line(edges, [*_rounded(shares), 0], plot_text(name), colour)
        outline["line"]["shape"] = "hv"
        data.append(outline | {"fill": "tozeroy", "fillcolor": f"{colour}/0.12"})
    names = {"binary": "predicted probability", "regression": "value"}
    figure = _figure(data, x=names.get(task, "predicted probability of the true class"), y="share of rows")
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
        "x": _rounded([mean for _, mean, _ in shown]),
        "y": list(range(len(shown))),
        "error_x": {"type": "data", "array": _rounded([s if math.isfinite(s) else 0.0 for _, _, s in shown])}
        | {"color": "@muted", "thickness": 1.2, "width": 3},
        "marker": {"color": "@blue"},
        "hovertext": [f"{plot_text(name)}: {mean:+.4g}" for name, mean, _ in shown],
        "hoverinfo": "text",
    }
    figure = _figure([bars], x=f"rise of the {facts.metric}", y="", height=90 + BAR_HEIGHT * len(shown))
    figure["layout"]["yaxis"] |= {
        "tickvals": list(range(len(shown))),
        "ticktext": [label_text(name) for name, _, _ in shown],
        "showgrid": False,
        "zeroline": False,
    }
    figure["layout"] |= {"showlegend": False, "bargap": 0.35}
    return figure


def heat_figure(
    fields: Sequence[str],
    matrix: Sequence[Sequence[float]],
    *,
    columns: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
) -> Figure:
    """Dependencies: a column expresses its field by the others. The script makes the cells square.

    Args:
        fields: names of rows and columns.
        matrix: one line a source.
        columns: what the columns are called, if not by their fields.
        notes: a text a column that the hover adds.
    """
    largest = max((abs(w) for i, line in enumerate(matrix) for j, w in enumerate(line) if i != j), default=0.0) or 1.0
    names = [plot_text(name) for name in fields]
    shown = [plot_text(name) for name in (columns or fields)]
    z = [[None if i == j else round(w / largest, 4) for j, w in enumerate(line)] for i, line in enumerate(matrix)]
    hover = [
        [
            "" if i == j else f"{names[i]} → {shown[j]}: {w:+.4g}" + (f"<br>{plot_text(notes[j])}" if notes else "")
            for j, w in enumerate(line)
        ]
        for i, line in enumerate(matrix)
    ]
    data = {
        "type": "heatmap",
        "z": z,
        "text": hover,
        "hoverinfo": "text",
        "zmin": -1,
        "zmax": 1,
        "colorscale": [[0, "@low"], [0.5, "@middle"], [1, "@high"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    figure = _figure([data], x="explained field", y="explaining field")
    ticks = {"tickvals": list(range(len(fields))), "showgrid": False, "zeroline": False, "ticks": ""}
    figure["layout"]["xaxis"] |= ticks | {
        "ticktext": [label_text(name) for name in columns or fields],
        "tickangle": -90,
    }
    figure["layout"]["yaxis"] |= ticks | {"ticktext": [label_text(name) for name in fields], "autorange": "reversed"}
    return figure | {"cells": len(fields)}


def plot_text(text: str) -> str:
    """Text that Plotly shows as it is, whatever it holds."""
    return html.escape(text, quote=False)


def label_text(text: str) -> str:
    """A label of bounded length."""
    return plot_text(shortened(text, MAX_LABEL))


def _line(x: list[float], y: list[float], name: str, colour: str, dash: str = "solid") -> Figure:
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": line}


def _figure(data: list[Figure], *, x: str, y: str, height: int = PLOT_HEIGHT) -> Figure:
    def axis(title: str) -> Figure:
        return {
            "title": {"text": plot_text(title), "standoff": 12, "font": {"size": 13}},
            "automargin": True,
            "fixedrange": True,
            "gridcolor": "@line",
            "zerolinecolor": "@line",
            "linecolor": "@line",
        }

    layout = {
        "height": height,
        "margin": {"l": 12, "r": 12, "t": 12, "b": 12},
        "paper_bgcolor": "@clear",
        "plot_bgcolor": "@clear",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@muted"},
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@line", "font": {"color": "@ink"}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "dragmode": False,
        "xaxis": axis(x),
        "yaxis": axis(y),
    }
    return {"data": data, "layout": layout}


def _rounded(values: Sequence[float]) -> list[float]:
    """Six digits, which is more than a screen can show and a third of the file."""
    return [float(f"{value:.6g}") for value in values]
