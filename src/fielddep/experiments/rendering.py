"""Rendering: a comparison or a table of Dunnett's tests as Markdown, CSV or LaTeX.

Markdown and LaTeX are for reading: rounded by the rules of `formatting`. CSV is for machines: every digit, means and
deviations in columns of their own, empty cells where there is nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from fielddep.errors import UserError
from fielddep.experiments.formatting import (
    ABSENT,
    amount,
    count,
    decimals,
    duration,
    fixed,
    p_value,
    scientific,
    with_spread,
)
from fielddep.experiments.grid import Cell, Grid
from fielddep.experiments.model_rows import ModelRow
from fielddep.experiments.significance import DunnettTable
from fielddep.experiments.summary import Summary
from fielddep.experiments.tables import ComparisonTable

Form = Literal["markdown", "csv", "latex"]
SUFFIXES: dict[Form, str] = {"markdown": ".md", "csv": ".csv", "latex": ".tex"}
FAILED = "failed"

_LABELS = {"auc": "AUC", "calibration_error": "calibration error", "mse": "MSE", "mae": "MAE"}
_COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "n_parameters": ("parameters", count),
    "train_seconds": ("training time", duration),
    "rows_per_s": ("rows/s", amount),
    "peak_mb": ("peak memory (MB)", amount),
    "predict_seconds": ("prediction time", duration),
    "predict_rows_per_s": ("prediction rows/s", amount),
}


def render(table: ComparisonTable | DunnettTable, form: Form) -> str:
    """A table as text that ends with a line break.

    Raises:
        UserError: for an unknown form.
    """
    if form not in SUFFIXES:
        raise UserError(f"expected one of {', '.join(SUFFIXES)}, given {form!r}")
    if form == "csv":
        return comparison_csv(table) if isinstance(table, ComparisonTable) else dunnett_csv(table)
    grid = comparison_grid(table) if isinstance(table, ComparisonTable) else dunnett_grid(table)
    return grid.to_markdown() if form == "markdown" else grid.to_latex()


def comparison_grid(table: ComparisonTable) -> Grid:
    """One row a model, one column a metric or cost."""
    columns = [_metric_column(table, metric) for metric in table.metrics]
    columns += [_cost_column(table, cost) for cost in table.costs]
    if not columns:
        columns = [[Cell(text=ABSENT) for _ in table.rows]]
    rows = [_row([Cell(text=row.name), *cells], row) for row, *cells in zip(table.rows, *columns, strict=True)]
    labels = [*map(metric_label, table.metrics), *(_COSTS[cost][0] for cost in table.costs)]
    return Grid(
        caption=_caption(table),
        header=("model", *(labels or ["result"])),
        rows=tuple(rows),
        notes=table.notes,
    )


def metric_label(metric: str) -> str:
    """Name of a metric as a heading."""
    return _LABELS.get(metric, metric)


def _row(cells: list[Cell], row: ModelRow) -> tuple[Cell, ...]:
    """Cells of a model; the first figure of one without any finished run says so."""
    return (cells[0], Cell(text=FAILED), *cells[2:]) if row.n_finished == 0 else tuple(cells)


def _metric_column(table: ComparisonTable, metric: str) -> list[Cell]:
    present = [row.metrics[metric] for row in table.rows if metric in row.metrics]
    text, best = partial(fixed, n_decimals=decimals(present)), table.best(metric)
    return [
        Cell(
            text=with_spread(row.metrics[metric], text, show_zero=True),
            bold=row.name in best,
            star=table.is_beaten(metric, row.name),
        )
        if metric in row.metrics
        else Cell(text=ABSENT)
        for row in table.rows
    ]


def _cost_column(table: ComparisonTable, cost: str) -> list[Cell]:
    text = _COSTS[cost][1]
    return [Cell(text=with_spread(row.costs[cost], text) if cost in row.costs else ABSENT) for row in table.rows]


def _caption(table: ComparisonTable) -> str:
    numbers = sorted({row.n_finished for row in table.rows if row.n_finished})
    several = bool(numbers) and numbers[-1] > 1
    seeds = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else "".join(map(str, numbers[:1]))
    over = f"mean ± standard deviation over {seeds} seeds" if several else "one seed"
    best = "best in bold" if table.metrics else "no figures"
    starred = any(test.anova_f is not None for test in table.tests.values())
    level = f"; * where {table.control} is significantly better (one-sided Dunnett's test, p < {table.level:g})"
    return f"{table.dataset}, {table.part} rows: {over}; {best}{level if starred else ''}."


def dunnett_grid(table: DunnettTable) -> Grid:
    """Estimate, standard error, t and p of every model, as the paper prints them."""
    where = f", {table.dataset}" if table.dataset else ""
    sign = "<" if table.better == "higher" else ">"
    rows = tuple(
        tuple(
            Cell(text=text)
            for text in (
                f"{row.model} minus {table.control}",
                *map(scientific, (row.estimate, row.standard_error, row.t)),
                p_value(row.p),
            )
        )
        for row in table.rows
    )
    return Grid(
        caption=f"Dunnett's test (one-sided), {metric_label(table.metric)}{where}.",
        header=("comparison", "Estimate", "Std. Error", "t value", f"Pr({sign}t)"),
        rows=rows,
        notes=(*_anova_note(table), *table.notes),
    )


def _anova_note(table: DunnettTable) -> list[str]:
    if table.anova_f is None:
        return []
    p = p_value(table.anova_p)
    equals = "" if p.startswith("<") else "= "
    return [f"One-way ANOVA: F({len(table.rows)}, {table.df}) = {table.anova_f:.4g}, p {equals}{p}."]


def comparison_csv(table: ComparisonTable) -> str:
    """One line a model."""
    metrics = [f"{metric}_{what}" for metric in table.metrics for what in ("mean", "sd", "p")]
    costs = [f"{cost}_{what}" for cost in table.costs for what in ("mean", "sd")]
    lines = [
        [
            *(table.dataset, table.part, row.name, row.n_finished, row.n_runs),
            *(cell for m in table.metrics for cell in (*_numbers(row.metrics.get(m)), table.p(m, row.name))),
            *(cell for cost in table.costs for cell in _numbers(row.costs.get(cost))),
            "; ".join(dict.fromkeys(row.failures.values())),
        ]
        for row in table.rows
    ]
    return _csv(["dataset", "part", "model", "finished", "runs", *metrics, *costs, "failure"], lines)


def dunnett_csv(table: DunnettTable) -> str:
    """One line a model; the ANOVA stands in every line."""
    names = ["dataset", "metric", "model", "control"]
    numbers = ["estimate", "standard_error", "t", "df", "p", "anova_f", "anova_p"]
    lines = [
        [
            *(table.dataset, table.metric, row.model, table.control),
            *(row.estimate, row.standard_error, row.t, table.df, row.p),
            *(table.anova_f, table.anova_p),
        ]
        for row in table.rows
    ]
    return _csv([*names, *numbers], lines)


def _numbers(summary: Summary | None) -> tuple[float | None, float | None]:
    if summary is None:
        return None, None
    return summary.mean, summary.sd if summary.n > 1 else None


def _csv(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([header, *lines])
    return text.getvalue()
