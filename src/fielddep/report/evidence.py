"""Section of the page on what training rows with the same values did."""

from __future__ import annotations

from fielddep.report.facts import EvidenceFacts, Report, RowFacts
from fielddep.report.figures import evidence_figure
from fielddep.report.markup import Html, Plots, captioned, effect_bar, effect_text, join, table, tag
from fielddep.wording import count

POINTS = 100.0
"""Probabilities are shown in percentage points."""


def evidence_section(facts: EvidenceFacts, report: Report, plots: Plots) -> Html:
    """Which combinations of fields move predictions, and what was seen of the rows that the page explains."""
    scale, unit = (POINTS, "percentage points") if report.training.classes else (1.0, report.training.target)
    figure = evidence_figure(facts, scale=scale, unit=unit)
    caption = (
        "The model counted its training rows by the values of single fields and of two to four fields together. Bars "
        f"show how much what they did moves predictions, on average over {count(facts.n_rows, 'row')}: the distance to "
        "the prediction if the rows with the same values had done as all rows did."
    )
    if len(facts.combinations) < facts.n_combinations:
        caption += f" The {len(facts.combinations)} strongest of {facts.n_combinations} combinations are shown."
    parts = [captioned(plots.add("evidence", figure, "effect of evidence by combination of fields"), caption)]
    rows = [row for row in report.measured.examples if row.seen]
    if rows:
        parts.append(_rows(rows, scale, unit))
    return join(parts)


def _rows(rows: list[RowFacts], scale: float, unit: str) -> Html:
    """What was seen of every row, on one scale."""
    effects = [scale * seen.effect for row in rows for seen in row.seen]
    longest, widest = max(map(abs, effects)) or 1.0, max(len(effect_text(effect)) for effect in effects)
    text = (
        f"For the rows explained above: bars to the right raised the prediction, bars to the left lowered it ({unit})."
    )
    tables = [
        join(
            [
                tag("h3", f"row {row.number:,}: predicted {row.predicted}, true value {row.truth}"),
                _lines(row, scale, longest),
            ]
        )
        for row in rows
    ]
    return tag("div", tag("p", text), *tables, style=f"--amount:{widest}ch")


def _lines(row: RowFacts, scale: float, longest: float) -> Html:
    lines = [[seen.text, effect_bar(scale * seen.effect, longest)] for seen in row.seen]
    return table(["training rows with the same values", "effect"], lines, name="seen")
