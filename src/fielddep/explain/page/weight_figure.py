"""The weights of the fields of a row over the steps of refinement, as lines for Plotly.

Shape legend: S steps of refinement with the start, F fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fielddep.explain.field_table import Array
from fielddep.explain.labels import spread
from fielddep.explain.page.figure_base import COLOURS, Figure, figure_of, line_of, plot_text
from fielddep.explain.page.words import row_labels, row_names
from fielddep.explain.report_json import six_digits

MAX_NAMED = 15
"""Fields whose lines are labelled; of more those whose weight moved most."""
MAX_TICKS = 6
LABEL_HEIGHT, LETTER_SIZE = 16, 11
"""Pixels of labels beside lines."""
LEADER = 18
"""Pixels from the end of a line to its label."""


def weights_figure(fields: Sequence[str], weights: Sequence[Sequence[float]], *, values: Sequence[str]) -> Figure:
    """The weight of every field over the steps, those that moved most in colour, beside an even share of all fields.

    Args:
        fields: names of the fields.
        weights: mu/lambda of every field, one line a step.
        values: what the row holds in the fields.
    """
    names, labels = row_names(fields, values), row_labels(fields, values)
    share_SF = np.array(weights)
    n_fields, last = len(fields), len(weights) - 1
    moved = np.argsort(-np.abs(share_SF[-1] - share_SF[0]), kind="stable").tolist()
    named, others = moved[:MAX_NAMED], moved[MAX_NAMED:]
    colours = {f: COLOURS[min(at, len(COLOURS) - 1)] for at, f in enumerate(named)}
    even = line_of([0, last], six_digits([1 / n_fields] * 2), "even share", "@muted", dash="dash")
    data = [_weight_line(names, share_SF, others, "@line")] if others else []
    data += [even | {"hoverinfo": "skip"}]
    data += [_weight_line(names, share_SF, [f], colours[f]) for f in reversed(named)]
    ends = [(float(share_SF[-1, f]), labels[f], colours[f]) for f in named]
    ends.append((1 / n_fields, f"even share, 1/{n_fields}", "@muted"))
    return _labelled_figure(data, ends, _share_range(share_SF), last)


def _weight_line(names: Sequence[str], share_SF: Array, fields: Sequence[int], colour: str) -> Figure:
    """The lines of some fields, one after the other with a gap between."""
    steps = list(range(len(share_SF)))
    x, y, hover = [], [], []
    for f in fields:
        weights = six_digits(share_SF[:, f].tolist())
        x += [*steps, None]
        y += [*weights, None]
        hover += [*(f"{plot_text(names[f])}: {weight:.4g}" for weight in weights), ""]
    return line_of(x[:-1], y[:-1], "", colour) | {
        "mode": "lines+markers",
        "marker": {"color": colour, "size": 5},
        "cliponaxis": False,
        "hovertext": hover[:-1],
        "hoverinfo": "text",
    }


def _share_range(share_SF: Array) -> tuple[float, float]:
    """Room for all weights, and more, so that nothing is made of differences too small to matter."""
    even = 1 / share_SF.shape[1]
    low, high = min(even, float(share_SF.min())), max(even, float(share_SF.max()))
    room = 0.04 * (high - low) + 0.04 * even
    return low - room, high + room


def _labelled_figure(
    data: list[Figure], ends: Sequence[tuple[float, str, str]], scale: tuple[float, float], last: int
) -> Figure:
    """Lines with labels at their right ends: where a line ends, text, colour. The script makes room for the labels."""
    low, high = scale
    height = max(220, LABEL_HEIGHT * len(ends))
    pixel = (high - low) / height
    ends = sorted(ends)
    places = spread([value for value, _, _ in ends], low, high, LABEL_HEIGHT * pixel)
    figure = figure_of(data, x="step of refinement", y="", height=height + 60)
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
    layout["xaxis"] |= {
        "range": [0, last],
        "dtick": math.ceil(last / MAX_TICKS),
        "zeroline": False,
        "automargin": False,
    }
    layout["yaxis"] |= {"range": six_digits(scale), "nticks": MAX_TICKS, "tickfont": {"size": LETTER_SIZE}}
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
        "font": {"size": LETTER_SIZE, "color": "@ink"},
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": f"{colour}/0.6",
    }
