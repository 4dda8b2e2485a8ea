"""What all figures of a page have in common, as plain values for Plotly.

Colours are names such as `@blue`, which the page's script replaces by those of the light or dark theme; it looks for
them under keys that end in `color` or `colorscale` only, as a field may have such a name too. Texts that Plotly shows
are escaped, as it reads tags in them.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from fielddep.explain.page.words import shortened

Figure = dict[str, Any]

MAX_LABEL = 18
PLOT_HEIGHT = 320
COLOURS = ("@blue", "@orange", "@green", "@purple", "@red", "@grey")


def plot_text(text: str) -> str:
    """Text that Plotly shows as it is, whatever it holds."""
    return html.escape(text, quote=False)


def label_text(text: str) -> str:
    """A label of bounded length."""
    return plot_text(shortened(text, MAX_LABEL))


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
