"""Sections on what only this model tells: dependencies between fields, and single rows explained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fielddep.explain.field_table import Dependency, FieldDependencies
from fielddep.explain.page.heat_figures import heat_figure
from fielddep.explain.page.markup import Html, join, table, tag
from fielddep.explain.page.plots import Plots, colour_scale
from fielddep.explain.page.steps import steps_details
from fielddep.explain.page.words import MAX_VALUE, shortened
from fielddep.explain.report import DependencyFacts, RefinementFacts, Report, RowFacts

MAX_CELLS = 60
"""Fields of the large heat map at most; with more, those of the strongest dependencies."""
MAX_BESIDE = 12
"""Fields up to which the large heat map leaves room for a table beside it."""
N_STRONGEST = 10
MAX_LINES = 12
"""Fields of a row that are shown at once; more are unfolded on demand."""
MAX_NAME = 24
"""Characters of a field's name where space is short."""
VERDICTS = {"right": "Most right", "wrong": "Most wrong", "unsure": "Least surely right", "random": "Drawn at random"}


def dependency_section(facts: DependencyFacts, plots: Plots) -> Html:
    """W(0) as a heat map, and its strongest entries."""
    whole = FieldDependencies(fields=facts.fields, matrix_FF=np.array(facts.matrix))
    shown = whole.part(whole.strongest_fields(MAX_CELLS))
    figure = plots.add("dependencies", heat_figure(shown.fields, shown.matrix_FF.tolist()), "field dependencies")
    caption = (
        "Each column tells how its field is put together from the others: the stronger the colour, the more the field "
        "of that line says about the field of that column. This is W(0), where the model starts from in every row; "
        "below it is refined for single rows. Point at a cell, or tap it, to read the pair."
    )
    if len(shown.fields) < len(facts.fields):
        caption += f" The {len(shown.fields)} of {len(facts.fields)} fields with the strongest dependencies are shown."
    rows = [[_name(d.source), _name(d.dependent), f"{d.weight:+.3f}"] for d in whole.strongest(N_STRONGEST)]
    strongest = tag("div", table(["the strongest", "says about", "dependency"], rows, numbers=(2,)))
    beside = "columns" if len(shown.fields) <= MAX_BESIDE else "stack"
    return join(
        [tag("div", tag("figure", figure, colour_scale()), strongest, class_=beside), tag("p", caption, class_="note")]
    )


def rows_section(report: Report, plots: Plots) -> Html:
    """A handful of rows, each on a card."""
    names = [field.name for field in report.data.fields]
    unit = "in log-odds" if report.training.classes else f"in units of {report.training.target}"
    told = (
        f"{_choice(report.measured.examples)} Bars tell what knowing a value changes ({unit}): the prediction as it "
        "is, less the prediction without the value."
    )
    if report.dependencies is not None:
        told += (
            " The map shows the refined dependencies of this very row, mu(T) W(T): what its values say about each "
            "other; a field leans on the one that says most about it. A pale column: the others say little about it."
        )
    cards = [_card(row, at, names, report, plots) for at, row in enumerate(report.measured.examples)]
    return join([tag("p", told), *cards])


def _choice(rows: Sequence[RowFacts]) -> str:
    """Which rows were chosen, in a sentence."""
    chosen = {row.why for row in rows}
    verdicts = " or ".join(VERDICTS[why].lower() for why in VERDICTS if why in chosen and why != "random")
    if not verdicts:
        return "A row drawn at random."
    return f"Rows that the model got {verdicts}{', and one drawn at random' if 'random' in chosen else ''}."


def _card(row: RowFacts, at: int, names: Sequence[str], report: Report, plots: Plots) -> Html:
    verdict = tag("span", VERDICTS[row.why], class_=f"pill {row.why}")
    target = report.training.target
    parts = [
        tag("p", verdict, tag("span", f"row {row.number:,} of the {report.measured.rows}", class_="where")),
        tag("h3", f"{target}: predicted {row.predicted}, true {row.truth}"),
    ]
    columns, below = [tag("div", *_value_tables(row, names))], []
    if row.refinement is not None:
        columns.append(tag("figure", _row_map(row, row.refinement, at, names, plots), colour_scale()))
        below = steps_details(row, row.refinement, at, names, plots)
    return tag("article", *parts, tag("div", *columns, class_="columns"), *below, class_="row")


def _row_map(row: RowFacts, refinement: RefinementFacts, at: int, names: Sequence[str], plots: Plots) -> Html:
    shown = _refined(refinement, names).part(list(refinement.shown))
    figure = heat_figure(
        shown.fields,
        shown.matrix_FF.tolist(),
        values=[row.values[f] for f in refinement.shown],
        notes=[f"weight mu of {names[f]}: {refinement.weights[f]:.3f}" for f in refinement.shown],
    )
    return plots.add(f"row-{at}", figure | {"small": True}, f"refined dependencies of row {row.number}")


def _refined(refinement: RefinementFacts, names: Sequence[str]) -> FieldDependencies:
    return FieldDependencies(fields=tuple(names), matrix_FF=np.array(refinement.dependencies))


def _value_tables(row: RowFacts, names: Sequence[str]) -> list[Html]:
    """Fields by falling effect, with bars."""
    order = sorted(range(len(names)), key=lambda f: -abs(row.effects[f]))
    largest = max(map(abs, row.effects), default=0.0) or 1.0
    leanings = {} if row.refinement is None else _leanings(row.refinement, names)
    header = ["field and value", "effect", *(["leans on"] if leanings else [])]
    lines = [
        [
            join([tag("small", names[f]), shortened(row.values[f], MAX_VALUE)]),
            _bar(row.effects[f], largest),
            *([_leaning(leanings[names[f]])] if leanings else []),
        ]
        for f in order
    ]
    tables = [table(header, lines[:MAX_LINES], name="values")]
    if lines[MAX_LINES:]:
        more = table(header, lines[MAX_LINES:], name="values")
        tables.append(tag("details", tag("summary", f"{len(lines) - MAX_LINES} more fields"), more))
    return tables


def _leanings(refinement: RefinementFacts, names: Sequence[str]) -> dict[str, Dependency]:
    """For every field the one that says most about it, by W(T) itself, without the weight mu of the field."""
    refined, weight_F = _refined(refinement, names), np.array(refinement.weights)
    w_FF = np.divide(refined.matrix_FF, weight_F, out=np.zeros_like(refined.matrix_FF), where=weight_F > 0)
    entries = FieldDependencies(fields=refined.fields, matrix_FF=w_FF).leanings().entries
    return {entry.dependent: entry for entry in entries}


def _leaning(entry: Dependency) -> Html:
    if entry.weight == 0:
        return tag("span", "-", class_="muted")
    return join([_name(entry.source), " ", tag("span", f"{entry.weight:+.2f}", class_="muted")])


def _name(field: str) -> str:
    return shortened(field, MAX_NAME)


def _bar(effect: float, largest: float) -> Html:
    """A bar to the right for what raises the prediction, to the left for what lowers it."""
    width = 50 * abs(effect) / largest
    side = f"left:50%;width:{width:.1f}%" if effect >= 0 else f"right:50%;width:{width:.1f}%"
    bar = tag("span", tag("i", class_="up" if effect >= 0 else "down", style=side), class_="bar")
    return join([bar, " ", tag("span", f"{effect:+.2f}", class_="amount")])
