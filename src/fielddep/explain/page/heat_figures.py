"""Heat maps of dependencies for Plotly: one, or one for every step of refinement."""

from __future__ import annotations

from collections.abc import Sequence

from fielddep.explain.page.figure_base import Figure, figure_of, label_text, plot_text
from fielddep.explain.page.words import row_labels, row_names

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
        "colorscale": [[0, "@low"], [0.5, "@middle"], [1, "@high"]],
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
    said = [f"<br>{plot_text(note)}" for note in notes] if notes else [""] * len(matrix)
    return {
        "z": [[None if i == j else round(w / largest, 4) for j, w in enumerate(line)] for i, line in enumerate(matrix)],
        "customdata": [
            ["" if i == j else f"{w:+.4g}{said[j]}" for j, w in enumerate(line)] for i, line in enumerate(matrix)
        ],
    }


def _largest(matrices: Sequence[Matrix]) -> float:
    """Size of the largest entry off the diagonal, never zero, to divide by."""
    sizes = (abs(w) for matrix in matrices for i, line in enumerate(matrix) for j, w in enumerate(line) if i != j)
    return max(sizes, default=0.0) or 1.0
