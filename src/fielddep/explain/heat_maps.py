"""Heat maps of dependencies with Matplotlib (extra `plot`).

Shape legend: S steps of refinement including the start, F fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fielddep.explain.dependencies import Explanation, FieldDependencies
from fielddep.explain.groups import RowGroups
from fielddep.explain.plots import LIGHT, Canvas, import_matplotlib, literal, named_value, short
from fielddep.explain.rows import Floats
from fielddep.wording import percent

PAGE_INCHES = 22.0
"""Width of maps side by side, without their labels."""
MAX_ANNOTATED = 8
"""Every cell shows its number up to this many fields."""
MAX_ROWS = 3
"""Rows shown next to the model in one picture, as in the paper's case study."""
LETTER_INCHES = 0.0083
"""Width of a letter per point of font size."""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Dependencies; the labels name both rows and columns, and entries as large as `largest` have the full colour."""

    title: str
    values_FF: Floats
    labels: Sequence[str]
    largest: float


def draw_heat_maps(maps: Sequence[HeatMap], path: Path, *, title: str = "", n_columns: int | None = None) -> None:
    """Maps in a grid with one colour bar, as large as their labels need; `n_columns` defaults to what fits a page."""
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
        bar.set_label("dependency")
        if len({shown.largest for shown in maps}) > 1:
            bar.set_ticks([-image.norm.vmax, 0, image.norm.vmax], labels=["-1", "0", "1"])
            bar.set_label("dependency, largest = 1")
        bar.outline.set_visible(False)
        if title:
            canvas.title(title)


def _draw_map(axis: Any, shown: HeatMap, *, font: float) -> Any:
    n_fields = len(shown.labels)
    values_FF = np.ma.masked_array(shown.values_FF, mask=np.eye(n_fields, dtype=bool))
    largest = shown.largest or 1.0  # colours need a range
    image = axis.imshow(values_FF, cmap=_colour_map(), vmin=-largest, vmax=largest)
    axis.set_title(literal(shown.title))
    axis.set_xticks(range(n_fields), shown.labels, rotation=90)
    axis.set_yticks(range(n_fields))
    axis.tick_params(length=0, labelsize=font)
    axis.spines[:].set_visible(False)
    axis.set_xticks(np.arange(n_fields + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(n_fields + 1) - 0.5, minor=True)
    axis.grid(which="minor", color=LIGHT.surface, linewidth=0.6)
    axis.tick_params(which="minor", length=0)
    axis.set_xlabel("explained field")
    if n_fields <= MAX_ANNOTATED:
        _write_numbers(axis, shown)
    return image


def _colour_map() -> Any:
    colours = [LIGHT.down, LIGHT.zero, LIGHT.up]
    return import_matplotlib().colors.LinearSegmentedColormap.from_list("dependencies", colours, N=257)


def _write_numbers(axis: Any, shown: HeatMap) -> None:
    for (i, j), value in np.ndenumerate(shown.values_FF):
        if i != j:
            colour = LIGHT.surface if abs(value) > 0.55 * shown.largest else LIGHT.ink
            axis.text(j, i, f"{value:+.2g}", ha="center", va="center", fontsize=7.5, color=colour)


def draw_dependencies(model: FieldDependencies, path: Path) -> None:
    """W(0) of the model."""
    draw_heat_maps([_map(model, title="model, W(0)")], path)


def draw_rows(
    model: FieldDependencies, explanation: Explanation, path: Path, *, rows: Sequence[int], numbers: Sequence[int]
) -> None:
    """W(0) of the model next to mu(T) * W(T) of some rows, labelled with their values, as in the paper's case study.

    Every map has its own scale. `rows` are positions in the explanation, and `numbers` the row numbers to show.
    """
    maps = [_map(model, title="model, W(0)")]
    for row, number in zip(rows, numbers, strict=True):
        refined = _map(explanation.refined(row), title=f"row {number}, mu(T) W(T)")
        maps.append(replace(refined, labels=_value_labels(explanation, row)))
    draw_heat_maps([replace(one, title=f"{one.title}\nat most {one.largest:.2g}") for one in maps], path)


def draw_steps(explanation: Explanation, path: Path, *, row: int, number: int) -> None:
    """W(0), W(1), ... W(T) of a row on one scale, and below them the change since W(0) on another."""
    w_SFF = _off_diagonal(explanation.w_RSFF[row])
    change_SFF = w_SFF[1:] - w_SFF[0]
    losses = explanation.loss_RSF[row].sum(axis=1)
    labels = _value_labels(explanation, row)
    largest, most_changed = _largest(w_SFF), _largest(change_SFF)
    maps = [
        HeatMap(title=f"W({t}), loss {losses[t]:.4g}", values_FF=w_FF, labels=labels, largest=largest)
        for t, w_FF in enumerate(w_SFF)
    ]
    maps += [
        HeatMap(title=f"W({t}) - W(0)", values_FF=change_FF, labels=labels, largest=most_changed)
        for t, change_FF in enumerate(change_SFF, start=1)
    ]
    changed = f". Below: the change since W(0), at most {most_changed:.2g}" if len(change_SFF) else ""
    title = f"Row {number}, step by step: entries of at most {largest:.2g}{changed}"
    draw_heat_maps(maps, path, title=title, n_columns=len(w_SFF))


def draw_groups(groups: RowGroups, path: Path) -> None:
    """Mean mu(T) * W(T) of all rows, and the difference of each group from it on a scale shared by all groups."""
    contrasts = np.stack([_off_diagonal(group.contrast.matrix_FF) for group in groups.groups])
    largest = _largest(contrasts)
    first = groups.groups[0]
    mean = FieldDependencies(fields=first.pattern.fields, matrix_FF=first.pattern.matrix_FF - first.contrast.matrix_FF)
    maps = [_map(mean, title="all rows, mean mu(T) W(T)")]
    for number, (group, contrast_FF) in enumerate(zip(groups.groups, contrasts, strict=True)):
        title = f"group {number}: {group.n_rows:,} rows, {percent(group.share)}"
        maps.append(HeatMap(title=title, values_FF=contrast_FF, labels=maps[0].labels, largest=largest))
    share = largest / (maps[0].largest or 1.0)
    title = f"How each group differs from all rows: by at most {percent(share)} of the largest entry"
    draw_heat_maps(maps, path, title=title)


def _map(found: FieldDependencies, *, title: str) -> HeatMap:
    """A map on its own scale."""
    values_FF = _off_diagonal(found.matrix_FF)
    labels = [short(name) for name in found.fields]
    return HeatMap(title=title, values_FF=values_FF, labels=labels, largest=_largest(values_FF))


def _value_labels(explanation: Explanation, row: int) -> list[str]:
    """The label `field: value` of every field of a row."""
    values = explanation.values.row(row)
    return [named_value(name, str(value)) for name, value in zip(explanation.fields, values, strict=True)]


def _off_diagonal(values: Floats) -> Floats:
    """Matrices with zeros on the diagonal, which has no meaning."""
    off: Floats = values * (1.0 - np.eye(values.shape[-1]))
    return off


def _largest(values: Floats) -> float:
    """The largest absolute value."""
    return float(np.abs(values).max(initial=0.0))
