"""Rendering: a comparison or a table of tests as Markdown, CSV or LaTeX.

Markdown and LaTeX are for reading: rounded, and made from a `Grid` of texts. CSV is for machines: every digit, means
and deviations in separate columns, empty cells for what is missing.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fielddep.config.metrics import METRICS, metric_title
from fielddep.errors import UserError
from fielddep.experiments.results import csv_text
from fielddep.experiments.significance import LEVEL, DunnettTable, Summary, Welch
from fielddep.experiments.tables import PART, ComparisonTable
from fielddep.wording import amount, compact, duration, exponent, fixed

Form = Literal["markdown", "csv", "latex"]
SUFFIXES: dict[Form, str] = {"markdown": ".md", "csv": ".csv", "latex": ".tex"}
FAILED = "failed"
ABSENT = "-"
_SMALLEST_P = 1e-16
_DIGITS_OF_SPREAD = 2
_DIGITS_WITHOUT_SPREAD = 4
_MOST_DIGITS = 8

_COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "n_parameters": ("parameters", compact),
    "train_seconds": ("training time", duration),
    "rows_per_s": ("rows/s", partial(amount, n_digits=2)),
    "peak_mb": ("peak memory (MB)", partial(amount, n_digits=2)),
    "predict_seconds": ("prediction time", duration),
    "predict_rows_per_s": ("prediction rows/s", partial(amount, n_digits=2)),
}
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: plain text, whether it is bold (the best of its column), and whether an asterisk follows it."""

    text: str
    bold: bool = False
    star: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table with a one-line caption above and notes below, one paragraph each, all of it plain text.

    The first column is aligned to the left, the others to the right.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """GitHub's Markdown, ending with a line break."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        rows = [map(markdown_text, self.header), rule, *(map(_markdown_cell, row) for row in self.rows)]
        lines = [f"| {' | '.join(texts)} |" for texts in rows]
        paragraphs = [markdown_text(self.caption), "\n".join(lines), *map(markdown_text, self.notes)]
        return "\n\n".join(paragraphs) + "\n"

    def to_latex(self) -> str:
        """A `table` that needs the package booktabs."""
        header, *rows = [
            " & ".join(texts) + r" \\"
            for texts in (map(latex_text, self.header), *(map(_latex_cell, row) for row in self.rows))
        ]
        lines = [
            r"\begin{table}[ht]",
            r"\centering",
            rf"\caption{{{latex_text(self.caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
            r"\toprule",
            header,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par{{\footnotesize {latex_text(note)}\par}}" for note in self.notes),
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    r"""Plain text with Markdown's special characters escaped.

    Example:
        >>> print(markdown_text("a|b *c* wide_deep _d_"))
        a\|b \*c\* wide_deep \_d\_
    """
    escaped = re.sub(r"([\\|*<`\[\]])", r"\\\1", _one_line(text))
    # Within a word an underscore has no meaning; model names stay readable in the source.
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)


def latex_text(text: str) -> str:
    r"""Plain text with LaTeX's special characters escaped.

    Example:
        >>> print(latex_text("wide_deep: 5 % ± 1, p < .05"))
        wide\_deep: 5 \% $\pm$ 1, p $<$ .05
    """
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    return (f"**{text}**" if cell.bold else text) + (r"\*" if cell.star else "")


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.text)
    return (rf"\textbf{{{text}}}" if cell.bold else text) + ("$^{*}$" if cell.star else "")


def render(table: ComparisonTable | DunnettTable, form: Form) -> str:
    """A table as text that ends with a line break.

    Raises:
        UserError: the form is unknown.
    """
    if form not in SUFFIXES:
        raise UserError(f"expected one of {', '.join(SUFFIXES)}, given {form!r}")
    if form == "csv":
        return comparison_csv(table) if isinstance(table, ComparisonTable) else dunnett_csv(table)
    grid = comparison_grid(table) if isinstance(table, ComparisonTable) else dunnett_grid(table)
    return grid.to_markdown() if form == "markdown" else grid.to_latex()


def comparison_grid(table: ComparisonTable) -> Grid:
    """One row per model, one column per metric or cost."""
    columns = [
        metric_cells({row.name: row.metrics.get(metric) for row in table.rows}, metric, table.beaten(metric))
        for metric in table.metrics
    ]
    columns += [_cost_column(table, cost) for cost in table.costs]
    if not columns:
        columns = [[Cell(text=ABSENT) for _ in table.rows]]
    rows = []
    for row, first, *others in zip(table.rows, *columns, strict=True):
        rows.append((Cell(text=row.name), first if row.n_finished else Cell(text=FAILED), *others))
    labels = [*map(metric_title, table.metrics), *(_COSTS[cost][0] for cost in table.costs)]
    header = ("model", *(labels or ["result"]))
    return Grid(caption=_caption(table), header=header, rows=tuple(rows), notes=table.notes)


def decimals(summaries: Sequence[Summary]) -> int:
    """Decimals of a column: two digits of the median spread, or four digits of the largest mean if there is no spread.

    Example:
        >>> decimals([Summary(mean=0.98, sd=0.0008, n=5), Summary(mean=0.97, sd=0.0009, n=5)])
        5
    """
    largest = max((abs(summary.mean) for summary in summaries), default=0.0)
    size = exponent(largest, _DIGITS_WITHOUT_SPREAD)
    spreads = [summary.sd for summary in summaries if summary.sd > 0]
    if not spreads:
        return max(0, _DIGITS_WITHOUT_SPREAD - 1 - size)
    wanted = _DIGITS_OF_SPREAD - 1 - exponent(statistics.median(spreads), _DIGITS_OF_SPREAD)
    return max(0, min(wanted, _MOST_DIGITS - 1 - size))


def with_spread(summary: Summary, text: Callable[[float], str], *, show_zero: bool = False) -> str:
    """Mean ± standard deviation; the latter only for several runs and, without `show_zero`, if it is not 0.

    Example:
        >>> with_spread(Summary(mean=72, sd=3.1, n=5), duration)
        '1 min 12 s ± 3.1 s'
    """
    if summary.n < 2 or (summary.sd == 0 and not show_zero):
        return text(summary.mean)
    return f"{text(summary.mean)} ± {text(summary.sd)}"


def scientific(value: float | None) -> str:
    """Four digits and an exponent, as the paper prints its tests.

    Example:
        >>> scientific(-0.0026324), scientific(None)
        ('-2.632E-03', '-')
    """
    return ABSENT if value is None else f"{value:.3E}"


def p_value(p: float | None) -> str:
    """A p value; one below the precision of any such test is not spelled out.

    Example:
        >>> p_value(0.0375), p_value(1e-40)
        ('3.750E-02', '<1E-16')
    """
    return "<1E-16" if p is not None and p < _SMALLEST_P else scientific(p)


def metric_cells(summaries: Mapping[Any, Summary | None], metric: str, starred: Container[Any] = ()) -> list[Cell]:
    """A column: mean and spread in decimals that suit all of them, the best means in bold."""
    present = [summary for summary in summaries.values() if summary is not None]
    text = partial(fixed, n_decimals=decimals(present))
    best = _best_mean(present, metric)
    return [
        Cell(text=ABSENT)
        if summary is None
        else Cell(text=with_spread(summary, text, show_zero=True), bold=summary.mean == best, star=name in starred)
        for name, summary in summaries.items()
    ]


def _best_mean(summaries: Sequence[Summary], metric: str) -> float | None:
    """None for a figure that is not a metric."""
    if metric not in METRICS:
        return None
    best = max if METRICS[metric].higher_is_better else min
    return best((summary.mean for summary in summaries), default=None)


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
    level = f"; * where {table.control} is significantly better (one-sided Dunnett's test, p < {LEVEL:g})"
    return f"{table.dataset}, {PART} rows: {over}; {best}{level if starred else ''}."


def dunnett_grid(table: DunnettTable) -> Grid:
    """Estimate, standard error, t and p of every model, as the paper prints them, and Welch's test next to them."""
    where = f", {table.dataset}" if table.dataset else ""
    sign = "<" if table.better == "higher" else ">"
    rows = tuple(
        tuple(
            Cell(text=text)
            for text in (
                f"{row.model} minus {table.control}",
                *map(scientific, (row.estimate, row.standard_error, row.t)),
                p_value(row.p),
                *_welch_texts(row.welch),
            )
        )
        for row in table.rows
    )
    return Grid(
        caption=f"Dunnett's test (one-sided), {metric_title(table.metric)}{where}.",
        header=("comparison", "Estimate", "Std. Error", "t value", f"Pr({sign}t)", "Welch t", "Welch df", "Welch p"),
        rows=rows,
        notes=(*_anova_note(table), *_welch_note(table), *table.notes),
    )


def _welch_texts(test: Welch | None) -> tuple[str, ...]:
    return (ABSENT,) * 3 if test is None else (scientific(test.t), f"{test.df:.1f}", p_value(test.p_holm))


def _welch_note(table: DunnettTable) -> list[str]:
    if all(row.welch is None for row in table.rows):
        return []
    return [
        "Dunnett's test pools the spread of all models; Welch's test uses those of the two models alone, its p values "
        "are adjusted by Holm's method."
    ]


def _anova_note(table: DunnettTable) -> list[str]:
    if table.anova_f is None:
        return []
    p = p_value(table.anova_p)
    equals = "" if p.startswith("<") else "= "
    return [f"One-way ANOVA: F({len(table.rows)}, {table.df}) = {table.anova_f:.4g}, p {equals}{p}."]


def comparison_csv(table: ComparisonTable) -> str:
    """One line per model."""
    metrics = [f"{metric}_{what}" for metric in table.metrics for what in ("mean", "sd", "p")]
    costs = [f"{cost}_{what}" for cost in table.costs for what in ("mean", "sd")]
    lines = [
        [
            *(table.dataset, PART, row.name, row.n_finished, row.n_runs),
            *(cell for m in table.metrics for cell in (*_numbers(row.metrics.get(m)), table.p(m, row.name))),
            *(cell for cost in table.costs for cell in _numbers(row.costs.get(cost))),
            "; ".join(dict.fromkeys(row.failures.values())),
        ]
        for row in table.rows
    ]
    return csv_text(["dataset", "part", "model", "finished", "runs", *metrics, *costs, "failure"], lines)


def dunnett_csv(table: DunnettTable) -> str:
    """One line per model, with the ANOVA in every line."""
    names = ["dataset", "metric", "model", "control"]
    numbers = ["estimate", "standard_error", "t", "df", "p", "anova_f", "anova_p"]
    welch = ["welch_t", "welch_df", "welch_p", "welch_p_holm"]
    lines = [
        [
            *(table.dataset, table.metric, row.model, table.control),
            *(row.estimate, row.standard_error, row.t, table.df, row.p),
            *(table.anova_f, table.anova_p),
            *(dataclasses.astuple(row.welch) if row.welch else [None] * len(welch)),
        ]
        for row in table.rows
    ]
    return csv_text([*names, *numbers, *welch], lines)


def _numbers(summary: Summary | None) -> tuple[float | None, float | None]:
    if summary is None:
        return None, None
    return summary.mean, summary.sd if summary.n > 1 else None
