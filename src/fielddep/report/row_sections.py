"""Sections of the page on dependencies between fields and on single rows, with their refinement step by step.

Shape legend: S steps of refinement with the start, F fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fielddep.explain.dependencies import Dependency, FieldDependencies, weight_range
from fielddep.explain.plots import spread
from fielddep.explain.rows import Floats
from fielddep.report.facts import DependencyFacts, RefinementFacts, Report, RowFacts, StepFacts, six_digits
from fielddep.report.figures import (
    SERIES,
    Figure,
    Plots,
    colour_scale,
    figure_of,
    heat_figure,
    line_of,
    plot_text,
    steps_figure,
)
from fielddep.report.markup import MAX_VALUE, Html, empty_tag, join, row_labels, row_names, table, tag
from fielddep.wording import count, shorten


def steps_details(
    row: RowFacts, refinement: RefinementFacts, at: int, fields: Sequence[str], plots: Plots
) -> list[Html]:
    """Both figures, folded; nothing where no step was taken."""
    steps, shown = refinement.steps, refinement.shown
    if len(steps) == 1:
        return []
    titles = [f"W({t}), dependency loss {step.loss:.4g}" for t, step in enumerate(steps)]
    maps = steps_figure(
        [fields[f] for f in shown],
        [step.w for step in steps],
        values=[row.values[f] for f in shown],
        titles=titles,
    )
    lines = weights_figure(fields, [step.weights for step in steps], values=row.values)
    heat_map = plots.add(f"row-{at}-steps", maps | {"small": True}, f"dependencies of row {row.number} at one step")
    weights = plots.add(f"row-{at}-weights", lines, f"weight of every field of row {row.number} over the steps")
    figures = tag("div", _map_with_control(heat_map, titles, steps), _captioned(weights, len(fields)), class_="columns")
    summary = tag("summary", f"Refinement in {count(len(steps) - 1, 'step')}")
    return [tag("details", summary, figures, class_="steps")]


def _map_with_control(heat_map: Html, titles: Sequence[str], steps: Sequence[StepFacts]) -> Html:
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
        colour_scale(),
        tag("figcaption", caption),
    )


def _captioned(weights: Html, n_fields: int) -> Html:
    caption = "The network sees the column of a field in W(T) times this weight."
    if n_fields > len(SERIES):
        caption += f" In colour, the {len(SERIES)} of {n_fields} fields that moved most."
    return tag(
        "figure", tag("p", "Weight of every field, mu / lambda", class_="title"), weights, tag("figcaption", caption)
    )


MAX_TICKS = 6
LABEL_HEIGHT, LETTER_SIZE = 16, 11
"""Pixels of labels at the ends of lines."""
LEADER = 18
"""Pixels from the end of a line to its label."""


def weights_figure(fields: Sequence[str], weights: Sequence[Sequence[float]], *, values: Sequence[str]) -> Figure:
    """The weight of every field over the steps, those that moved most in colour, next to an even share.

    Args:
        fields: names of the fields.
        weights: mu/lambda of every field, one line a step.
        values: what the row holds in the fields.
    """
    names, labels = row_names(fields, values), row_labels(fields, values)
    share_SF = np.array(weights)
    n_fields, last = len(fields), len(weights) - 1
    moved = np.argsort(-np.abs(share_SF[-1] - share_SF[0]), kind="stable").tolist()
    named, others = moved[: len(SERIES)], moved[len(SERIES) :]
    colours = dict(zip(named, SERIES, strict=False))
    even = line_of([0, last], six_digits([1 / n_fields] * 2), "even share", "@muted", dash="dash")
    data = [_weight_line(names, share_SF, others, "@line")] if others else []
    data += [even | {"hoverinfo": "skip"}]
    data += [_weight_line(names, share_SF, [f], colours[f]) for f in reversed(named)]
    ends = [(float(share_SF[-1, f]), labels[f], colours[f]) for f in named]
    ends.append((1 / n_fields, f"even share, 1/{n_fields}", "@muted"))
    return _labelled_figure(data, ends, weight_range(share_SF), last)


def _weight_line(names: Sequence[str], share_SF: Floats, fields: Sequence[int], colour: str) -> Figure:
    """The lines of some fields, one after the other with a gap between."""
    steps = list(range(len(share_SF)))
    x, y, hover = [], [], []
    for f in fields:
        weights = six_digits(share_SF[:, f].tolist())
        x += [*steps, None]
        y += [*weights, None]
        hover += [*(f"{plot_text(names[f])}: {weight:.4g}" for weight in weights), ""]
    return line_of(x[:-1], y[:-1], "", colour) | {
        "mode": "lines+markers",
        "marker": {"color": colour, "size": 5},
        "cliponaxis": False,
        "hovertext": hover[:-1],
        "hoverinfo": "text",
    }


def _labelled_figure(
    data: list[Figure], ends: Sequence[tuple[float, str, str]], scale: tuple[float, float], last: int
) -> Figure:
    """Lines with labels at their right ends: where a line ends, text, colour. The script makes room for the labels."""
    low, high = scale
    height = max(220, LABEL_HEIGHT * len(ends))
    pixel = (high - low) / height
    ends = sorted(ends)
    places = spread([value for value, _, _ in ends], low, high, LABEL_HEIGHT * pixel)
    figure = figure_of(data, x="step of refinement", y="", height=height + 60)
    layout = figure["layout"]
    layout |= {
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 12, "r": 12, "t": 10, "b": 50},
        "annotations": [
            _end_label(value, text, colour, x=last, down=round((value - place) / pixel, 1))
            for (value, text, colour), place in zip(ends, places, strict=True)
        ],
    }
    layout["xaxis"] |= {
        "range": [0, last],
        "dtick": math.ceil(last / MAX_TICKS),
        "zeroline": False,
        "automargin": False,
    }
    layout["yaxis"] |= {"range": six_digits(scale), "nticks": MAX_TICKS, "tickfont": {"size": LETTER_SIZE}}
    return figure | {"labelled": True}


def _end_label(value: float, text: str, colour: str, *, x: int, down: float) -> Figure:
    """A label to the right of a point, with a line to it."""
    return {
        "x": x,
        "y": six_digits([value])[0],
        "ax": LEADER,
        "ay": down,
        "text": plot_text(text),
        "xanchor": "left",
        "font": {"size": LETTER_SIZE, "color": "@ink"},
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": f"{colour}/0.6",
    }


MAX_CELLS = 60
"""Fields of the large heat map at most; with more, those of the strongest dependencies."""
MAX_SIDE_BY_SIDE = 12
"""Fields up to which the large heat map leaves room for a table next to it."""
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
        "Each column expresses its field by the others: the stronger the colour, the more the field on the left says "
        "about the field below. This is W(0), where the model starts for every row of the table; further down it is "
        "refined for single rows. Point at a cell, or tap it, to read the pair."
    )
    if len(shown.fields) < len(facts.fields):
        caption += f" The {len(shown.fields)} of {len(facts.fields)} fields with the strongest dependencies are shown."
    rows = [[_name(d.source), _name(d.dependent), f"{d.weight:+.3f}"] for d in whole.strongest(N_STRONGEST)]
    strongest = tag("div", table(["field", "says most about", "dependency"], rows, numbers=(2,)))
    layout = "columns" if len(shown.fields) <= MAX_SIDE_BY_SIDE else "stack"
    return join(
        [tag("div", tag("figure", figure, colour_scale()), strongest, class_=layout), tag("p", caption, class_="note")]
    )


def rows_section(report: Report, plots: Plots) -> Html:
    """A handful of rows, each on a card."""
    names = [field.name for field in report.data.fields]
    unit = "in log-odds" if report.training.classes else f"in units of {report.training.target}"
    text = (
        f"{_choice(report.measured.examples)} Bars show what knowing a value changes ({unit}): the prediction minus "
        "the prediction without that value."
    )
    if report.dependencies is not None:
        text += (
            " The map shows the refined dependencies of the row, mu(T) W(T): what its values say about each other. The "
            "strongest source of a field is the field that says most about it; in a pale column, none says much."
        )
    cards = [_card(row, at, names, report, plots) for at, row in enumerate(report.measured.examples)]
    return join([tag("p", text), *cards])


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
    sources = {} if row.refinement is None else _strongest_sources(row.refinement, names)
    header = ["field and value", "effect", *(["strongest source"] if sources else [])]
    lines = [
        [
            join([tag("small", names[f]), shorten(row.values[f], MAX_VALUE)]),
            _bar(row.effects[f], largest),
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
    """For every field the one that says most about it, by W(T) itself, without the weight mu of the field."""
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


def _bar(effect: float, largest: float) -> Html:
    """A bar to the right for what raises the prediction, to the left for what lowers it."""
    width = 50 * abs(effect) / largest
    side = f"left:50%;width:{width:.1f}%" if effect >= 0 else f"right:50%;width:{width:.1f}%"
    bar = tag("span", tag("i", class_="up" if effect >= 0 else "down", style=side), class_="bar")
    return join([bar, " ", tag("span", f"{effect:+.2f}", class_="amount")])
