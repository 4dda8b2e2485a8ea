"""Sections of the page on dependencies between fields and on single rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fielddep.config.metrics import METRICS, loss_name
from fielddep.explain.dependencies import Dependency, FieldDependencies
from fielddep.report.facts import (
    DependencyFacts,
    MeasuredFacts,
    RefinementEffect,
    RefinementFacts,
    Report,
    RowFacts,
    StepFacts,
)
from fielddep.report.figures import (
    SERIES,
    Figure,
    heat_figure,
    largest_entry,
    steps_figure,
    weights_figure,
)
from fielddep.report.markup import (
    Html,
    Plots,
    colour_scale,
    effect_bar,
    effect_text,
    empty_tag,
    join,
    metric_text,
    table,
    tag,
)
from fielddep.wording import amount, count, shorten

VERDICTS = {"right": "Most right", "wrong": "Most wrong", "unsure": "Barely right", "random": "Drawn at random"}
MAX_CELLS = 12
"""Fields in the heat map of the model at most; of more, those with the strongest dependencies."""
N_STRONGEST = 10
MAX_LINES = 12
"""Fields of a row that are shown at first; the others can be unfolded."""
MAX_NAME, MAX_VALUE = 24, 60
"""Characters of a field name and of a value."""


def dependency_section(facts: DependencyFacts, measured: MeasuredFacts, task: str, plots: Plots) -> Html:
    """What refinement does to the predictions, W(0) as a heat map, and its strongest entries."""
    model = FieldDependencies(fields=facts.fields, matrix_FF=np.array(facts.matrix))
    shown = model.part(model.strongest_fields(MAX_CELLS))
    figure = heat_figure(shown.fields, shown.matrix_FF.tolist())
    caption = (
        "Each column expresses one field by the others: the stronger the colour, the more the field on the left says "
        "about the field below. This is W(0), from which the model starts in every row; further down it is refined for "
        "single rows. Hover over a cell, or tap it, to see its pair of fields."
    )
    rows = [[_name(d.source), _name(d.dependent), f"{d.weight:+.3f}"] for d in model.strongest(N_STRONGEST)]
    strongest = tag("div", table(["field", "explains", "dependency"], rows, numbers=(2,), name="names"))
    heat_map = tag("figure", plots.add("dependencies", figure, "field dependencies"), colour_scale(figure))
    return join(
        [
            *([] if measured.refinement is None else [tag("p", _refinement_text(measured.refinement, measured, task))]),
            tag("div", heat_map, strongest, class_="columns"),
            tag("p", caption + _strongest_of(len(shown.fields), len(facts.fields)), class_="note"),
        ]
    )


def _refinement_text(effect: RefinementEffect, measured: MeasuredFacts, task: str) -> str:
    """What the refinement does to the predictions, in words."""
    if task == "regression":
        change = f"predictions by {amount(effect.change, 2)}"
    else:
        change = f"predicted probabilities by {amount(100 * effect.change, 2)} percentage points"
    title, loss, without = METRICS[loss_name(task)].title, metric_text(effect.loss), metric_text(effect.loss_without)
    rows = f"{effect.n_rows:,} {'of the ' if effect.n_rows < measured.n_rows else ''}{measured.rows}"
    text = (
        f"Refinement, which adapts the dependencies to every row, moves {change} on average. Without it, the {title} "
        f"would be {f'the same, {loss}' if loss == without else f'{without} instead of {loss}'} ({rows})."
    )
    if loss == without or effect.loss_without < effect.loss:
        text += " It does not make the predictions better, so do not read much into the refined maps of single rows."
    return text


def _strongest_of(n_shown: int, n_fields: int) -> str:
    """A sentence on the fields that a heat map leaves out, if there are any."""
    if n_shown == n_fields:
        return ""
    return f" The {n_shown} of {n_fields} fields with the strongest dependencies are shown."


def rows_section(report: Report, plots: Plots) -> Html:
    """A few rows explained, each on a card. Bars and maps have the same scales on all cards."""
    rows = report.measured.examples
    unit = "in log-odds" if report.training.classes else f"in units of {report.training.target}"
    text = (
        f"{_choice(rows)} Bars show how much a value raises or lowers the prediction ({unit}), compared with the same "
        "row without that value."
    )
    refined = [row.refinement for row in rows if row.refinement is not None]
    if refined:
        text += (
            " The map shows the refined dependencies of the row, mu(T) W(T): what its values say about each other. The "
            "strongest source of a field is the field that says most about it; in a pale column, no field says much."
            f"{_strongest_of(len(refined[0].shown), len(report.data.fields))}"
        )
    if len(rows) > 1:
        text += " All rows share one scale."
    scales = _Scales(
        effect=max((abs(effect) for row in rows for effect in row.effects), default=0.0) or 1.0,
        dependency=largest_entry(one.dependencies for one in refined),
    )
    widest = max((len(effect_text(effect)) for row in rows for effect in row.effects), default=0)
    cards = tag(
        "div", *(_card(row, at, report, scales, plots) for at, row in enumerate(rows)), style=f"--amount:{widest}ch"
    )
    return join([tag("p", text), cards])


@dataclass(frozen=True, kw_only=True)
class _Scales:
    """The longest bar and the strongest colour of all rows."""

    effect: float
    dependency: float


def _choice(rows: Sequence[RowFacts]) -> str:
    """Which rows were chosen, as a sentence."""
    chosen = {row.why for row in rows}
    verdicts = " or ".join(VERDICTS[why].lower() for why in VERDICTS if why in chosen and why != "random")
    if not verdicts:
        return "A row drawn at random."
    return f"Rows that the model got {verdicts}{', and one drawn at random' if 'random' in chosen else ''}."


def _card(row: RowFacts, at: int, report: Report, scales: _Scales, plots: Plots) -> Html:
    names = [field.name for field in report.data.fields]
    verdict = tag("span", VERDICTS[row.why], class_=f"pill {row.why}")
    columns, below = [tag("div", *_value_tables(row, names, scales.effect))], []
    if row.refinement is not None:
        figure = _row_map(row, row.refinement, names, scales.dependency)
        heat_map = plots.add(f"row-{at}", figure, f"refined dependencies of row {row.number}")
        columns.append(tag("figure", heat_map, colour_scale(figure)))
        below = _steps(row, row.refinement, at, names, plots)
    return tag(
        "article",
        tag("p", verdict, tag("span", f"row {row.number:,} of the {report.measured.rows}", class_="where")),
        tag("h3", f"{report.training.target}: predicted {row.predicted}, true value {row.truth}"),
        *([tag("p", f"Its members predict: {row.members}.")] if row.members else []),
        tag("div", *columns, class_="columns"),
        *below,
        class_="row",
    )


def _row_map(row: RowFacts, refinement: RefinementFacts, names: Sequence[str], largest: float) -> Figure:
    shown = _refined(refinement, names).part(list(refinement.shown))
    figure = heat_figure(
        shown.fields,
        shown.matrix_FF.tolist(),
        largest=largest,
        values=[row.values[f] for f in refinement.shown],
        notes=[f"weight mu of {names[f]}: {refinement.weights[f]:.3f}" for f in refinement.shown],
    )
    return figure | {"small": True}


def _refined(refinement: RefinementFacts, names: Sequence[str]) -> FieldDependencies:
    return FieldDependencies(fields=tuple(names), matrix_FF=np.array(refinement.dependencies))


def _value_tables(row: RowFacts, names: Sequence[str], longest: float) -> list[Html]:
    """Fields with a bar for their effect, the largest first."""
    order = sorted(range(len(names)), key=lambda f: -abs(row.effects[f]))
    sources = {} if row.refinement is None else _strongest_sources(row.refinement, names)
    header = ["field and value", "effect", *(["strongest source"] if sources else [])]
    lines = [
        [
            join([tag("small", names[f]), shorten(row.values[f], MAX_VALUE)]),
            effect_bar(row.effects[f], longest),
            *([_source(sources[names[f]])] if sources else []),
        ]
        for f in order
    ]
    tables = [table(header, lines[:MAX_LINES], name="values")]
    if lines[MAX_LINES:]:
        more = table(header, lines[MAX_LINES:], name="values")
        tables.append(tag("details", tag("summary", f"{len(lines) - MAX_LINES} more fields"), more))
    return tables


def _strongest_sources(refinement: RefinementFacts, names: Sequence[str]) -> dict[str, Dependency]:
    """The strongest source of every field by W(T), without the weights mu."""
    refined, weight_F = _refined(refinement, names), np.array(refinement.weights)
    w_FF = np.divide(refined.matrix_FF, weight_F, out=np.zeros_like(refined.matrix_FF), where=weight_F > 0)
    entries = FieldDependencies(fields=refined.fields, matrix_FF=w_FF).strongest_sources().entries
    return {entry.dependent: entry for entry in entries}


def _source(entry: Dependency) -> Html:
    if entry.weight == 0:
        return tag("span", "-", class_="muted")
    return join([_name(entry.source), " ", tag("span", f"{entry.weight:+.2f}", class_="muted")])


def _name(field: str) -> str:
    return shorten(field, MAX_NAME)


def _steps(row: RowFacts, refinement: RefinementFacts, at: int, fields: Sequence[str], plots: Plots) -> list[Html]:
    """Dependencies and weights at every step, folded; nothing if there was no step."""
    steps, shown = refinement.steps, refinement.shown
    if len(steps) == 1:
        return []
    titles = [f"W({t}), dependency loss {step.loss:.4g}" for t, step in enumerate(steps)]
    names, values = [fields[f] for f in shown], [row.values[f] for f in shown]
    maps = steps_figure(names, [step.w for step in steps], values=values, titles=titles) | {"small": True}
    lines = weights_figure(fields, [step.weights for step in steps], values=row.values)
    heat_map = plots.add(f"row-{at}-steps", maps, f"dependencies of row {row.number} at one step")
    weights = plots.add(f"row-{at}-weights", lines, f"weight of every field of row {row.number} at each step")
    caption = "The network sees each column of W(T) multiplied by the weight of its field."
    if len(fields) > len(SERIES):
        caption += f" In colour: the {len(SERIES)} of {len(fields)} fields that moved most."
    title = tag("p", "Weight of every field, mu / lambda", class_="title")
    lines_figure = tag("figure", title, weights, tag("figcaption", caption))
    summary = tag("summary", f"Refinement in {count(len(steps) - 1, 'step')}")
    columns = tag("div", _map_with_slider(heat_map, colour_scale(maps), steps, titles), lines_figure, class_="columns")
    return [tag("details", summary, columns, class_="steps")]


def _map_with_slider(heat_map: Html, scale: Html, steps: Sequence[StepFacts], titles: Sequence[str]) -> Html:
    """The map of one step, at first the last, below the slider that chooses it."""
    last = str(len(steps) - 1)
    slider = empty_tag("input", type="range", min="0", max=last, value=last, aria_label="step of refinement")
    w_SFF = np.array([step.w for step in steps]) * (1 - np.eye(len(steps[0].w)))
    caption = (
        f"All steps share one scale: the largest entry is {np.abs(w_SFF).max():.2g}, and none moved from W(0) by more "
        f"than {np.abs(w_SFF - w_SFF[0]).max():.2g}."
    )
    return tag(
        "figure",
        tag("p", tag("output", titles[-1]), class_="title"),
        tag("label", "W(0)", slider, f"W({last})", class_="step"),
        heat_map,
        scale,
        tag("figcaption", caption),
    )
