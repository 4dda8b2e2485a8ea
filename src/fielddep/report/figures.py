"""Figures of the page as plain values for Plotly.

Colours are names such as `@up`, which the script of the page replaces by those of the light or dark theme. It looks for
them only under keys that end in `color` or `colorscale`, because a field may have such a name too. Text is escaped,
because Plotly interprets tags.

Shape legend: S steps of refinement including the start, F fields.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fielddep.config.metrics import METRICS
from fielddep.explain.curves import calibration_range, learning_curve
from fielddep.explain.dependencies import weight_range
from fielddep.explain.plots import CALIBRATION_LABELS, N_SERIES, spread
from fielddep.explain.rows import Floats
from fielddep.report.facts import (
    CalibrationPoint,
    EvidenceFacts,
    Histogram,
    ImportanceFacts,
    ThresholdFacts,
    six_digits,
)
from fielddep.training.checkpoint import Evaluation
from fielddep.wording import percent, shorten, value_label

Figure = dict[str, Any]
Matrix = Sequence[Sequence[float]]

MAX_LABEL = 18
MAX_ROW_NAME, MAX_ROW_LABEL = 32, 20
"""Characters of `field: value`, when hovering and next to a figure; both fit a phone."""
PLOT_HEIGHT = 320
MAX_BARS = 20
BAR_HEIGHT = 26
MAX_TICKS = 6
LABEL_HEIGHT, FONT_SIZE = 16, 11
"""Pixels of the labels at the ends of lines."""
LEADER = 18
"""Pixels from the end of a line to its label."""
CLEAR = "rgba(0, 0, 0, 0)"
SERIES = tuple(f"@series{n}" for n in range(N_SERIES))


def row_names(fields: Sequence[str], values: Sequence[str]) -> list[str]:
    """`field: value` for every field of a row, shown when hovering."""
    return [value_label(field, value, MAX_ROW_NAME) for field, value in zip(fields, values, strict=True)]


def row_labels(fields: Sequence[str], values: Sequence[str]) -> list[str]:
    """`field: value` for every field of a row, shown next to a figure."""
    return [value_label(field, value, MAX_ROW_LABEL) for field, value in zip(fields, values, strict=True)]


def learning_figure(history: Sequence[Evaluation], loss: str) -> Figure:
    """Training and validation loss by epoch, with a dot at the parameters that were kept."""
    curve = learning_curve(history)
    epochs = six_digits([e.epoch for e in history])
    data = [
        _line(epochs, six_digits([e.train_loss for e in history]), "training", "@muted", dash="dot"),
        _line(epochs, six_digits([e.validation["loss"] for e in history]), "validation", "@accent"),
    ]
    if curve.best is not None:
        kept = _line(six_digits([curve.best.epoch]), six_digits([curve.best.validation["loss"]]), "kept", "@accent")
        data.append(kept | {"mode": "markers", "marker": {"color": "@accent", "size": 11}})
    figure = _figure(data, x="epoch", y=loss)
    figure["layout"]["yaxis"] |= {"range": six_digits(curve.loss_range)}
    return figure


def calibration_figure(points: Sequence[CalibrationPoint], *, task: str) -> Figure:
    """Predictions against what happened, with the diagonal of a perfect model."""
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
        "hovertemplate": "predicted %{x}<br>observed %{y}<extra></extra>",
    }
    low, high = np.array([point.low for point in points]), np.array([point.high for point in points])
    ends = six_digits(calibration_range(np.array(predicted), low, high, task=task))
    diagonal = _line(ends, ends, "perfect", "@muted", dash="dash") | {"hoverinfo": "skip"}
    x, y = CALIBRATION_LABELS[task]
    figure = _figure([diagonal, marks], x=x, y=y)
    for axis in ("xaxis", "yaxis"):
        figure["layout"][axis] |= {"range": ends, **({} if task == "regression" else {"tickformat": ".3~p"})}
    return figure


def scores_figure(histogram: Histogram, *, task: str) -> Figure:
    """Share of rows by prediction, one outline per group."""
    edges = six_digits(histogram.edges)
    data = []
    for colour, (name, shares) in zip(SERIES, histogram.shares, strict=False):
        outline = _line(edges, [*six_digits(shares), 0], plot_text(name), colour)
        outline["line"]["shape"] = "hv"
        data.append(outline | {"fill": "tozeroy", "fillcolor": f"{colour}/0.12"})
    names = {"binary": "predicted probability", "regression": "value"}
    figure = _figure(data, x=names.get(task, "predicted probability of the true class"), y="share of rows")
    figure["layout"]["yaxis"] |= {"tickformat": ".3~p", "rangemode": "tozero"}
    if task != "regression":
        figure["layout"]["xaxis"] |= {"tickformat": ".3~p", "range": [0, edges[-1]]}
    return figure


def roc_figure(facts: ThresholdFacts) -> Figure:
    """ROC curve, with the diagonal of guessing. The script puts a dot at the threshold that the slider selects."""
    dots = [(point.false / facts.negative, point.caught / facts.positive) for point in facts.points]
    x, y = "false alarms, of the other rows", "found, of the positive rows"
    return _threshold_figure(facts, [*dots, (0.0, 0.0)], guessing=[0, 1], x=x, y=y)


def precision_recall_figure(facts: ThresholdFacts) -> Figure:
    """Precision by recall, with the precision of guessing. The dot is that of `roc_figure`."""
    found = [facts.quality(point) for point in facts.points]
    share = six_digits([facts.positive / (facts.positive + facts.negative)] * 2)
    dots = [(one.recall or 0.0, one.precision) for one in found]
    return _threshold_figure(facts, dots, guessing=share, x="recall", y="precision")


def _threshold_figure(
    facts: ThresholdFacts, dots: Sequence[tuple[float, float | None]], *, guessing: list[float], x: str, y: str
) -> Figure:
    """A curve of shares with one dot per threshold; any further dots only complete the curve."""
    across, up = six_digits([x for x, _ in dots]), [None if y is None else six_digits([y])[0] for _, y in dots]
    said = [f"from {percent(point.threshold)}" for point in facts.points]
    curve = _line(across, up, "this model", "@accent") | {
        "text": [*said, *[""] * (len(dots) - len(said))],
        "hovertemplate": f"%{{text}}<br>{x} %{{x}}<br>{y} %{{y}}<extra></extra>",
    }
    dot = _line([], [], "threshold", "@up") | {"mode": "markers", "marker": {"color": "@up", "size": 11}}
    dashed = _line([0, 1], guessing, "guessing", "@muted", dash="dash") | {"hoverinfo": "skip"}
    figure = _figure([dashed, curve, dot | {"hoverinfo": "skip", "cliponaxis": False}], x=x, y=y)
    for axis in ("xaxis", "yaxis"):
        figure["layout"][axis] |= {"range": [0, 1], "tickformat": ".3~p", "zeroline": False}
    return figure | {"dots": list(zip(across, up, strict=True))[: len(facts.points)]}


def importance_figure(facts: ImportanceFacts) -> Figure:
    """One bar per field, the most important on top."""
    shown = facts.fields[:MAX_BARS][::-1]
    deviations = six_digits([std if math.isfinite(std) else 0.0 for _, _, std in shown])
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": six_digits([mean for _, mean, _ in shown]),
        "y": list(range(len(shown))),
        "error_x": {"type": "data", "array": deviations, "color": "@muted", "thickness": 1.2, "width": 3},
        "marker": {"color": "@accent"},
        "hovertext": [f"{plot_text(name)}: {mean:+.4g}" for name, mean, _ in shown],
        "hoverinfo": "text",
    }
    height = 90 + BAR_HEIGHT * len(shown)
    figure = _figure([bars], x=f"rise in {METRICS[facts.metric].title}", y="", height=height)
    figure["layout"]["yaxis"] |= _ticks([_label(name) for name, _, _ in shown])
    figure["layout"] |= {"showlegend": False, "bargap": 0.35}
    return figure


def evidence_figure(facts: EvidenceFacts, *, scale: float, unit: str) -> Figure:
    """One bar per combination of fields, the strongest on top; effects are multiplied by `scale`."""
    shown = [(name, scale * effect) for name, effect in facts.combinations[::-1]]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": six_digits([effect for _, effect in shown]),
        "y": list(range(len(shown))),
        "marker": {"color": "@accent"},
        "hovertext": [f"{plot_text(name)}: {effect:.4g}" for name, effect in shown],
        "hoverinfo": "text",
    }
    figure = _figure([bars], x=f"mean effect, {unit}", y="", height=90 + BAR_HEIGHT * len(shown))
    figure["layout"]["yaxis"] |= _ticks([_label(name) for name, _ in shown])
    figure["layout"] |= {"showlegend": False, "bargap": 0.35}
    return figure


def heat_figure(
    fields: Sequence[str],
    matrix: Matrix,
    *,
    largest: float | None = None,
    values: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
) -> Figure:
    """Dependencies, one line per source: a column expresses its field by the others. The script makes cells square.

    Colours reach from `-largest` to `largest`, by default the largest entry. Labels have the values of a row if they
    are given. Hovering adds the note of the column.
    """
    figure = _map_figure(fields, values, largest_entry([matrix]) if largest is None else largest)
    figure["data"][0] |= _cells(matrix, notes)
    return figure


def steps_figure(
    fields: Sequence[str], matrices: Sequence[Matrix], *, values: Sequence[str], titles: Sequence[str]
) -> Figure:
    """Dependencies of a row, with one matrix and title per step, on one scale. The script shows one step at a time."""
    steps = [{"title": title} | _cells(matrix) for title, matrix in zip(titles, matrices, strict=True)]
    return _map_figure(fields, values, largest_entry(matrices)) | {"steps": steps}


def _map_figure(fields: Sequence[str], values: Sequence[str] | None, largest: float) -> Figure:
    """A heat map without its cells."""
    names = fields if values is None else row_names(fields, values)
    labels = map(_label, fields) if values is None else map(plot_text, row_labels(fields, values))
    data = {
        "type": "heatmap",
        "text": _pairs(list(map(plot_text, names)), " → " if values is None else "<br>→ "),
        "hovertemplate": "%{text}: %{customdata}<extra></extra>",
        "hoverongaps": False,
        "zmin": -largest,
        "zmax": largest,
        "colorscale": [[0, "@down"], [0.5, "@zero"], [1, "@up"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    figure = _figure([data], x="explained field", y="explaining field")
    ticks = _ticks(list(labels)) | {"ticks": ""}
    figure["layout"]["xaxis"] |= ticks | {"tickangle": -90}
    figure["layout"]["yaxis"] |= ticks | {"autorange": "reversed"}
    return figure | {"cells": len(fields)}


def _pairs(names: Sequence[str], between: str) -> list[list[str]]:
    """Source and dependent field of every cell off the diagonal."""
    return [
        ["" if i == j else source + between + name for j, name in enumerate(names)] for i, source in enumerate(names)
    ]


def _cells(matrix: Matrix, notes: Sequence[str] | None = None) -> Figure:
    """Value and hover text of every cell off the diagonal."""
    endings = [f"<br>{plot_text(note)}" for note in notes] if notes else [""] * len(matrix)
    return {
        "z": [[None if i == j else w for j, w in enumerate(six_digits(line))] for i, line in enumerate(matrix)],
        "customdata": [
            ["" if i == j else f"{w:+.4g}{endings[j]}" for j, w in enumerate(line)] for i, line in enumerate(matrix)
        ],
    }


def largest_entry(matrices: Iterable[Matrix]) -> float:
    """The largest absolute value off the diagonal; 1 if all are zero, because colours need a range."""
    sizes = (abs(w) for matrix in matrices for i, line in enumerate(matrix) for j, w in enumerate(line) if i != j)
    return six_digits([max(sizes, default=0.0)])[0] or 1.0


def weights_figure(fields: Sequence[str], weights: Matrix, *, values: Sequence[str]) -> Figure:
    """The weight mu / lambda of every field at each step; the fields that moved most have a colour and a label."""
    names, labels = row_names(fields, values), row_labels(fields, values)
    share_SF = np.array(weights)
    n_fields, last = len(fields), len(weights) - 1
    moved = np.argsort(-np.abs(share_SF[-1] - share_SF[0]), kind="stable").tolist()
    named, others = moved[:N_SERIES], moved[N_SERIES:]
    colours = dict(zip(named, SERIES, strict=False))
    data = [_weight_line(names, share_SF, others, "@line")] if others else []
    even = six_digits([1 / n_fields] * 2)
    data.append(_line([0, last], even, "equal weights", "@muted", dash="dash") | {"hoverinfo": "skip"})
    data += [_weight_line(names, share_SF, [f], colours[f]) for f in reversed(named)]
    ends = [(float(share_SF[-1, f]), labels[f], colours[f]) for f in named]
    ends.append((1 / n_fields, f"equal weights, 1/{n_fields}", "@muted"))
    return _labelled_figure(data, ends, weight_range(share_SF), last)


def _weight_line(names: Sequence[str], share_SF: Floats, fields: Sequence[int], colour: str) -> Figure:
    """The lines of some fields as one trace, with gaps between them."""
    steps = list(range(len(share_SF)))
    x, y, hover = [], [], []
    for f in fields:
        weights = six_digits(share_SF[:, f].tolist())
        x += [*steps, None]
        y += [*weights, None]
        hover += [*(f"{plot_text(names[f])}: {weight:.4g}" for weight in weights), ""]
    return _line(x[:-1], y[:-1], "", colour) | {
        "mode": "lines+markers",
        "marker": {"color": colour, "size": 5},
        "cliponaxis": False,
        "hovertext": hover[:-1],
        "hoverinfo": "text",
    }


def _labelled_figure(
    data: list[Figure], ends: Sequence[tuple[float, str, str]], scale: tuple[float, float], last: int
) -> Figure:
    """Lines with labels (value, text, colour) at their right ends. The script makes room for them."""
    low, high = scale
    height = max(220, LABEL_HEIGHT * len(ends))
    pixel = (high - low) / height
    ends = sorted(ends)
    places = spread([value for value, _, _ in ends], low, high, LABEL_HEIGHT * pixel)
    figure = _figure(data, x="step of refinement", y="", height=height + 60)
    layout = figure["layout"]
    layout |= {
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 12, "r": 12, "t": 10, "b": 50},
        "annotations": [
            _end_label(value, text, colour, x=last, down=round((value - place) / pixel, 1))
            for (value, text, colour), place in zip(ends, places, strict=True)
        ],
    }
    dtick = math.ceil(last / MAX_TICKS)
    layout["xaxis"] |= {"range": [0, last], "dtick": dtick, "zeroline": False, "automargin": False}
    layout["yaxis"] |= {"range": six_digits(scale), "nticks": MAX_TICKS, "tickfont": {"size": FONT_SIZE}}
    return figure | {"labelled": True}


def _end_label(value: float, text: str, colour: str, *, x: int, down: float) -> Figure:
    """A label to the right of a point, with a line to it."""
    return {
        "x": x,
        "y": six_digits([value])[0],
        "ax": LEADER,
        "ay": down,
        "text": plot_text(text),
        "xanchor": "left",
        "font": {"size": FONT_SIZE, "color": "@ink"},
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": f"{colour}/0.6",
    }


def plot_text(text: str) -> str:
    """Text that Plotly shows literally."""
    return html.escape(text, quote=False)


def _label(text: str) -> str:
    return plot_text(shorten(text, MAX_LABEL))


def _ticks(labels: list[str]) -> Figure:
    return {"tickvals": list(range(len(labels))), "ticktext": labels, "showgrid": False, "zeroline": False}


def _line(x: Sequence[float | None], y: Sequence[float | None], name: str, colour: str, dash: str = "solid") -> Figure:
    """A line with a gap at every None."""
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": line}


def _figure(data: list[Figure], *, x: str, y: str, height: int = PLOT_HEIGHT) -> Figure:
    """Data with titled axes in the style of the page; the height is in pixels."""
    layout = {
        "height": height,
        "margin": {"l": 12, "r": 24, "t": 12, "b": 12},  # half of "100%" stands right of its axis
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@muted"},
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@line", "font": {"color": "@ink"}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "dragmode": False,
        "xaxis": _axis(x),
        "yaxis": _axis(y),
    }
    return {"data": data, "layout": layout}


def _axis(title: str) -> Figure:
    return {
        "title": {"text": plot_text(title), "standoff": 12, "font": {"size": 13}},
        "automargin": True,
        "fixedrange": True,
        "gridcolor": "@line",
        "zerolinecolor": "@line",
        "linecolor": "@line",
    }
