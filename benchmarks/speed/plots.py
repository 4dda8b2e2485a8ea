"""The pictures of the speed benchmark: line plots in one plain style."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure

COLOUR = "#1f5a93"
MOST_ON_A_LINEAR_SCALE = 20
"""Rates that differ by a larger factor would lie on the axis."""


def draw_line(
    path: Path,
    *,
    x: Sequence[float],
    y: Sequence[float],
    band: tuple[Sequence[float], Sequence[float]],
    x_label: str,
    y_label: str,
    title: str,
    log_x: bool,
) -> None:
    """Draw measured points as a line, with a band for their spread.

    Args:
        path: PNG file; its folder is created if necessary.
        x: positions.
        y: medians.
        band: lower and upper quartiles.
        x_label: what x is.
        y_label: what y is.
        title: line above the plot.
        log_x: whether x is drawn on a logarithmic scale.
    """
    figure = Figure(figsize=(5.0, 3.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.fill_between(x, *band, color=COLOUR, alpha=0.15, linewidth=0)
    axes.plot(x, y, color=COLOUR, marker="o", markersize=4, linewidth=1.5)
    if log_x:
        axes.set_xscale("log")
    axes.set_xticks(x, [_short(value) for value in x])
    if max(y) > MOST_ON_A_LINEAR_SCALE * min(y):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * max([*y, *band[1]]))
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    axes.minorticks_off()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=9)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _short(value: float) -> str:
    """A number with as few characters as it needs.

    Example:
        >>> _short(10_000_000), _short(2048), _short(150_000)
        ('10M', '2,048', '150k')
    """
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:,.6g}{name}"
    return f"{value:,.6g}"
