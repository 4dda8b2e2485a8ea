"""Heat maps of dependencies with Matplotlib (extra `plot`); the numbers come from elsewhere.

Shape legend: F fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fielddep.explain.dependencies import Explanation, FieldDependencies
from fielddep.explain.field_table import Array
from fielddep.explain.groups import RowGroups
from fielddep.explain.plot_canvas import named_value, short
from fielddep.explain.plot_maps import HeatMap, draw_heat_maps

MAX_ROWS = 3
"""Rows beside the model in one picture, as in the paper's case study."""


def draw_dependencies(tables: Sequence[tuple[str, FieldDependencies, Sequence[str]]], path: Path) -> None:
    """Heat maps side by side, each normalised to (-1, 1), written as an image.

    Args:
        tables: title, numbers and labels of the fields of every map.
        path: image file; its suffix says the format.
    """
    maps = [
        HeatMap(title=title, values_FF=table.normalized(), labels=_shortened(labels)) for title, table, labels in tables
    ]
    draw_heat_maps(maps, path)


def draw_rows(
    model: FieldDependencies, explanation: Explanation, path: Path, *, rows: Sequence[int], numbers: Sequence[int]
) -> None:
    """W(0) of the model beside mu(T) * W(T) of some rows, labelled with their values, as in the paper's case study.

    Args:
        model: W(0).
        explanation: refined rows.
        path: image file.
        rows: positions in `explanation`.
        numbers: what the rows are called, in the same order.
    """
    maps = [HeatMap(title="whole model, W(0)", values_FF=model.normalized(), labels=_shortened(model.fields))]
    for row, number in zip(rows, numbers, strict=True):
        title = f"row {number}, mu(T) W(T)"
        values_FF = explanation.refined(row).normalized()
        maps.append(HeatMap(title=title, values_FF=values_FF, labels=value_labels(explanation, row)))
    draw_heat_maps(maps, path)


def draw_explanation(model: FieldDependencies, explanation: Explanation, path: Path, *, row: int = 0) -> None:
    """W(0) of the model beside mu(T) * W(T) of one row, labelled with the row's values."""
    draw_rows(model, explanation, path, rows=[row], numbers=[row])


def draw_steps(explanation: Explanation, path: Path, *, row: int = 0, number: int | None = None) -> None:
    """W(0), W(1), ... W(T) of a row on one scale, and below what each step changed since W(0), on another."""
    w_SFF = _off_diagonal(explanation.w_RSFF[row])
    change_SFF = w_SFF[1:] - w_SFF[0]
    losses = explanation.loss_RSF[row].sum(axis=1)
    labels = value_labels(explanation, row)
    maps = [
        HeatMap(title=f"W({t}), loss {losses[t]:.4g}", values_FF=w_FF, labels=labels)
        for t, w_FF in enumerate(w_SFF / _largest(w_SFF))
    ]
    maps += [
        HeatMap(title=f"W({t}) - W(0)", values_FF=change_FF, labels=labels)
        for t, change_FF in enumerate(change_SFF / _largest(change_SFF), start=1)
    ]
    changed = f"; below, what changed: at most {_largest(change_SFF):.2g}" if len(change_SFF) else ""
    name = row if number is None else number
    title = f"Row {name}, step by step: the largest entry is {_largest(w_SFF):.2g}{changed}"
    draw_heat_maps(maps, path, title=title, n_columns=len(w_SFF))


def draw_groups(groups: RowGroups, path: Path) -> None:
    """Mean mu(T) * W(T) of all rows, and how that of every group differs from it, on one scale."""
    contrasts = np.stack([_off_diagonal(group.contrast.matrix_FF) for group in groups.groups])
    first = groups.groups[0]
    mean = FieldDependencies(fields=first.pattern.fields, matrix_FF=first.pattern.matrix_FF - first.contrast.matrix_FF)
    labels = _shortened(mean.fields)
    maps = [HeatMap(title="all rows, mean mu(T) W(T)", values_FF=mean.normalized(), labels=labels)]
    for number, (group, contrast_FF) in enumerate(zip(groups.groups, contrasts / _largest(contrasts), strict=True)):
        title = f"group {number}: {group.n_rows:,} rows, {group.share:.0%}"
        maps.append(HeatMap(title=title, values_FF=contrast_FF, labels=labels))
    share = _largest(contrasts) / _largest(_off_diagonal(mean.matrix_FF))
    title = f"Groups of rows, and what sets each apart: differences of at most {share:.2%} of the largest entry"
    draw_heat_maps(maps, path, title=title)


def value_labels(explanation: Explanation, row: int) -> list[str]:
    """The label `field: value` of every field of a row."""
    values = explanation.values.row(row)
    return [named_value(name, str(value)) for name, value in zip(explanation.fields, values, strict=True)]


def _shortened(labels: Sequence[str]) -> list[str]:
    return [short(label) for label in labels]


def _off_diagonal(values: Array) -> Array:
    """Tables with zeros on the diagonal, which carries no meaning."""
    off: Array = values * (1.0 - np.eye(values.shape[-1]))
    return off


def _largest(values: Array) -> float:
    """Size of the largest entry, never zero, to divide by."""
    return max(float(np.abs(values).max(initial=0.0)), 1e-300)
