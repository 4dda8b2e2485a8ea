"""Figures of the page as plain values for Plotly.

Colours are names such as `@up`, which the page's script replaces by those of the light or dark theme; it looks for
them under keys that end in `color` or `colorscale` only, as a field may have such a name too. Texts that Plotly shows
are escaped, as it reads tags in them.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fielddep.config.metrics import metric_title
from fielddep.explain.curves import calibration_range, learning_curve
from fielddep.explain.palette import N_SERIES
from fielddep.explain.plots import CALIBRATION_LABELS
from fielddep.report.facts import CalibrationPoint, Histogram, ImportanceFacts, six_digits
from fielddep.report.markup import Html, row_labels, row_names, tag
from fielddep.training.checkpoint import Evaluation
from fielddep.wording import shorten

Figure = dict[str, Any]

MAX_LABEL = 18
PLOT_HEIGHT = 320
CLEAR = "rgba(0, 0, 0, 0)"
SERIES = tuple(f"@series{n}" for n in range(N_SERIES))


def plot_text(text: str) -> str:
    """Text that Plotly shows as it is, whatever it holds."""
    return html.escape(text, quote=False)


def label_text(text: str) -> str:
    """A label of bounded length."""
    return plot_text(shorten(text, MAX_LABEL))


def line_of(
    x: Sequence[float | None], y: Sequence[float | None], name: str, colour: str, dash: str = "solid"
) -> Figure:
    """A line through points, broken where there is none."""
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": line}


def figure_of(data: list[Figure], *, x: str, y: str, height: int = PLOT_HEIGHT) -> Figure:
    """Data with axes in the manner of the page.

    Args:
        data: what is drawn.
        x: title of the horizontal axis.
        y: title of the vertical axis.
        height: pixels.
    """

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
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@muted"},
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@line", "font": {"color": "@ink"}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "dragmode": False,
        "xaxis": axis(x),
        "yaxis": axis(y),
    }
    return {"data": data, "layout": layout}


MAX_BARS = 20
BAR_HEIGHT = 26


def learning_figure(history: Sequence[Evaluation], loss: str) -> Figure:
    """Loss of training and validation rows over the epochs, with the evaluation whose parameters were kept."""
    curve = learning_curve(history)
    epochs = six_digits([e.epoch for e in history])
    data = [
        line_of(epochs, six_digits([e.train_loss for e in history]), "training", "@muted", dash="dot"),
        line_of(epochs, six_digits([e.validation["loss"] for e in history]), "validation", "@accent"),
    ]
    if curve.best is not None:
        kept = line_of(six_digits([curve.best.epoch]), six_digits([curve.best.validation["loss"]]), "kept", "@accent")
        data.append(kept | {"mode": "markers", "marker": {"color": "@accent", "size": 11}})
    figure = figure_of(data, x="epoch", y=loss)
    figure["layout"]["yaxis"] |= {"range": six_digits(curve.loss_range)}
    return figure


def calibration_figure(points: Sequence[CalibrationPoint], *, task: str) -> Figure:
    """What was predicted against what happened, with the diagonal of a perfect model."""
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
            "color": "@accent",
            "thickness": 1.2,
            "width": 3,
        },
        "line": {"color": "@accent", "width": 1.5},
        "marker": {"color": "@accent", "size": 7},
        "hovertemplate": "predicted %{x}<br>happened %{y}<extra></extra>",
    }
    low, high = np.array([point.low for point in points]), np.array([point.high for point in points])
    ends = calibration_range(np.array(predicted), low, high, task=task)
    diagonal = line_of(six_digits(ends), six_digits(ends), "perfect", "@muted", dash="dash") | {"hoverinfo": "skip"}
    x, y = CALIBRATION_LABELS[task]
    figure = figure_of([diagonal, marks], x=x, y=y)
    for axis in ("xaxis", "yaxis"):
        figure["layout"][axis] |= {"range": six_digits(ends), **({"tickformat": ".3~p"} if share else {})}
    return figure


def scores_figure(histogram: Histogram, *, task: str) -> Figure:
    """Shares of rows by prediction, one outline a group."""
    edges = six_digits(histogram.edges)
    data = []
    for colour, (name, shares) in zip(SERIES, histogram.shares, strict=False):
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
        "marker": {"color": "@accent"},
        "hovertext": [f"{plot_text(name)}: {mean:+.4g}" for name, mean, _ in shown],
        "hoverinfo": "text",
    }
    figure = figure_of([bars], x=f"rise in {metric_title(facts.metric)}", y="", height=90 + BAR_HEIGHT * len(shown))
    figure["layout"]["yaxis"] |= {
        "tickvals": list(range(len(shown))),
        "ticktext": [label_text(name) for name, _, _ in shown],
        "showgrid": False,
        "zeroline": False,
    }
    figure["layout"] |= {"showlegend": False, "bargap": 0.35}
    return figure


Matrix = Sequence[Sequence[float]]


def heat_figure(
    fields: Sequence[str], matrix: Matrix, *, values: Sequence[str] | None = None, notes: Sequence[str] | None = None
) -> Figure:
    """Dependencies: a column expresses its field by the others. The script makes the cells square.

    Args:
        fields: names of the fields.
        matrix: one line a source.
        values: what a row holds in them.
        notes: a text a column that the hover adds.
    """
    figure = _map_figure(fields, values)
    figure["data"][0] |= _cells(matrix, _largest([matrix]), notes)
    return figure


def steps_figure(
    fields: Sequence[str], matrices: Sequence[Matrix], *, values: Sequence[str], titles: Sequence[str]
) -> Figure:
    """Dependencies of a row at every step on one scale; the script shows one of the `steps` at a time.

    Args:
        fields: names of the fields.
        matrices: one a step.
        values: what the row holds in the fields.
        titles: one a step.
    """
    largest = _largest(matrices)
    steps = [{"title": title} | _cells(matrix, largest) for title, matrix in zip(titles, matrices, strict=True)]
    return _map_figure(fields, values) | {"steps": steps}


def _map_figure(fields: Sequence[str], values: Sequence[str] | None) -> Figure:
    """A heat map without its cells."""
    names = fields if values is None else row_names(fields, values)
    labels = map(label_text, fields) if values is None else map(plot_text, row_labels(fields, values))
    data = {
        "type": "heatmap",
        "text": _pairs(list(map(plot_text, names)), " → " if values is None else "<br>→ "),
        "hovertemplate": "%{text}: %{customdata}<extra></extra>",
        "hoverongaps": False,
        "zmin": -1,
        "zmax": 1,
        "colorscale": [[0, "@down"], [0.5, "@zero"], [1, "@up"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    figure = figure_of([data], x="explained field", y="explaining field")
    ticks = {
        "tickvals": list(range(len(fields))),
        "ticktext": list(labels),
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }
    figure["layout"]["xaxis"] |= ticks | {"tickangle": -90}
    figure["layout"]["yaxis"] |= ticks | {"autorange": "reversed"}
    return figure | {"cells": len(fields)}


def _pairs(names: Sequence[str], between: str) -> list[list[str]]:
    """Which field says something about which, for every cell off the diagonal."""
    return [
        ["" if i == j else source + between + name for j, name in enumerate(names)] for i, source in enumerate(names)
    ]


def _cells(matrix: Matrix, largest: float, notes: Sequence[str] | None = None) -> Figure:
    """Colours from -1 to 1, and what hovering says of each cell; none on the diagonal."""
    endings = [f"<br>{plot_text(note)}" for note in notes] if notes else [""] * len(matrix)
    return {
        "z": [[None if i == j else round(w / largest, 4) for j, w in enumerate(line)] for i, line in enumerate(matrix)],
        "customdata": [
            ["" if i == j else f"{w:+.4g}{endings[j]}" for j, w in enumerate(line)] for i, line in enumerate(matrix)
        ],
    }


def _largest(matrices: Sequence[Matrix]) -> float:
    """Size of the largest entry off the diagonal, never zero, to divide by."""
    sizes = (abs(w) for matrix in matrices for i, line in enumerate(matrix) for j, w in enumerate(line) if i != j)
    return max(sizes, default=0.0) or 1.0


class Plots:
    """Figures by name, in the order in which they were added."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def add(self, name: str, figure: Figure, label: str) -> Html:
        """Keep a figure and give its place on the page.

        Args:
            name: unique name.
            figure: data and layout for Plotly.
            label: what it shows, for those who cannot see it.
        """
        self.figures[name] = figure
        height = figure["layout"]["height"]
        return tag("div", class_="plot", id=f"plot-{name}", role="img", aria_label=label, style=f"height:{height}px")

    def script(self) -> Html:
        """All figures as JSON that the page's script reads."""
        # No "<" may stand in a script element, as a value could end it.
        text = json.dumps(self.figures, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        return Html(f'<script type="application/json" id="figures">{text}</script>')


def colour_scale() -> Html:
    """What the colours of a heat map mean."""
    return tag("p", "opposite", tag("i", class_="gradient"), "alike", class_="scale")
