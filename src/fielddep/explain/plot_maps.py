"""Heat maps in a grid: how large, how labelled, how coloured (extra `plot`).

Shape legend: F fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fielddep.explain.field_table import Array
from fielddep.explain.plot_canvas import INK, Canvas, literal

PAGE_INCHES = 22.0
"""Width of maps side by side, without their labels."""
MAX_ANNOTATED = 8
"""Fields at most for which every cell has its number written in it."""
LETTER_INCHES = 0.0083
"""Width of a letter for each point of its size."""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """One map: values from -1 to 1 (F, F), a title, and the label of every field, for lines and columns alike."""

    title: str
    values_FF: Array
    labels: Sequence[str]


def draw_heat_maps(maps: Sequence[HeatMap], path: Path, *, title: str = "", n_columns: int | None = None) -> None:
    """Maps in a grid with one colour bar, as large as their labels need.

    Args:
        maps: the maps, line by line.
        path: image file.
        title: line above.
        n_columns: maps side by side; default: as many as fit on a page.
    """
    n_fields = len(maps[0].labels)
    cell = float(np.clip(4.6 / n_fields, 0.16, 0.52))
    font = float(np.clip(cell * 45, 6.0, 9.0))
    side = max(cell * n_fields, 1.8)
    labels = max(len(text) for shown in maps for text in shown.labels) * font * LETTER_INCHES
    alike = all(shown.labels == maps[0].labels for shown in maps)
    if n_columns is None:
        n_rows = -(-len(maps) // max(int(PAGE_INCHES // (side + 0.4)), 1))
        n_columns = -(-len(maps) // n_rows)
    n_rows = -(-len(maps) // n_columns)
    width = (side + 0.25) * n_columns + labels * (1 if alike else n_columns) + 1.4
    height = (side + 0.5 + labels) * n_rows + 0.7
    with Canvas(path, width=width, height=height, n_rows=n_rows, n_columns=n_columns, fixed=True) as canvas:
        for position, axis in enumerate(canvas.axes.flat):
            if position >= len(maps):
                axis.set_axis_off()
                continue
            image = _draw_map(axis, maps[position], font=font)
            first = position % n_columns == 0
            axis.set_yticklabels([] if alike and not first else maps[position].labels)
            axis.set_ylabel("explaining field" if first else "")
        bar = canvas.figure.colorbar(image, ax=canvas.axes, shrink=0.75 / n_rows, pad=0.012, aspect=22)
        bar.set_label("dependency, largest = 1")
        bar.outline.set_visible(False)
        if title:
            canvas.title(title)


def _draw_map(axis: Any, shown: HeatMap, *, font: float) -> Any:
    n_fields = len(shown.labels)
    values_FF = np.ma.masked_array(shown.values_FF, mask=np.eye(n_fields, dtype=bool))
    axis.set_facecolor("#d9d9d9")
    image = axis.imshow(values_FF, cmap="RdBu_r", vmin=-1, vmax=1)
    axis.set_title(literal(shown.title))
    axis.set_xticks(range(n_fields), shown.labels, rotation=90)
    axis.set_yticks(range(n_fields))
    axis.tick_params(length=0, labelsize=font)
    axis.spines[:].set_visible(False)
    axis.set_xticks(np.arange(n_fields + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(n_fields + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=0.6)
    axis.tick_params(which="minor", length=0)
    axis.set_xlabel("explained field")
    if n_fields <= MAX_ANNOTATED:
        _write_numbers(axis, shown.values_FF)
    return image


def _write_numbers(axis: Any, values_FF: Array) -> None:
    for (i, j), value in np.ndenumerate(values_FF):
        if i != j:
            axis.text(
                j,
                i,
                f"{value:+.2f}",
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if abs(value) > 0.55 else INK,
            )
