"""Sections of the page on how good the model is, on dependencies between fields and on single rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fielddep.config.metrics import METRICS, in_order
from fielddep.explain.dependencies import Dependency, FieldDependencies
from fielddep.report.facts import (
    CalibrationPoint,
    DependencyFacts,
    Histogram,
    ImportanceFacts,
    MeasuredFacts,
    RefinementFacts,
    Report,
    RowFacts,
    StepFacts,
)
from fielddep.report.figures import (
    MAX_BARS,
    SERIES,
    calibration_figure,
    heat_figure,
    importance_figure,
    learning_figure,
    scores_figure,
    steps_figure,
    weights_figure,
)
from fielddep.report.intervals import N_RESAMPLES
from fielddep.report.markup import (
    Html,
    Plots,
    bullets,
    captioned,
    colour_scale,
    empty_tag,
    interval_text,
    join,
    metric_text,
    table,
    tag,
)
from fielddep.training.checkpoint import Evaluation
from fielddep.wording import count, percent, shorten

CALIBRATION = {
    "binary": (
        "Rows are grouped by their predicted probability. On the dashed line, predictions of 30 % come true 30 % of "
        "the time. Above the line, the positive class is more frequent than predicted; below it, less frequent."
    ),
    "multiclass": (
        "Rows are grouped by the probability of their likeliest class. On the dashed line, predictions of 80 % are "
        "right 80 % of the time. Below the line, the model is overconfident."
    ),
    "regression": (
        "Rows are grouped by their prediction, and each point is the mean of a group. On the dashed line, predictions "
        "are right on average."
    ),
}
SCORES = {
    "binary": (
        "The predicted probabilities in each class. The less the two outlines overlap, the better the model tells the "
        "classes apart."
    ),
    "multiclass": "The probability that the model gave to the true class. Further right is better.",
    "regression": (
        "True and predicted values. Predictions usually lie closer to the mean than the truth, especially if the "
        "fields say little about the target."
    ),
}
VERDICTS = {"right": "Most right", "wrong": "Most wrong", "unsure": "Barely right", "random": "Drawn at random"}
MAX_CELLS = 60
"""Fields in the large heat map at most; of more, those with the strongest dependencies."""
MAX_SIDE_BY_SIDE = 12
"""Up to this many fields, the large heat map has room for a table next to it."""
N_STRONGEST = 10
MAX_LINES = 12
"""Fields of a row that are shown at first; the others can be unfolded."""
MAX_NAME, MAX_VALUE = 24, 60
"""Characters of a field name and of a value."""


def metrics_section(measured: MeasuredFacts) -> Html:
    """Every metric with its interval, next to the base rate."""
    metrics = in_order(measured.metrics)
    rows = [
        [
            join([tag("b", METRICS[name].title), tag("small", f"{METRICS[name].better} is better")]),
            join([metric_text(found.value), tag("small", interval_text(found))]),
            metric_text(measured.base_rate[name]) if name in measured.base_rate else "-",
        ]
        for name, found in metrics.items()
    ]
    header = ["metric", "this model and its 95 % interval", "base rate"]
    meanings = [join([tag("b", METRICS[name].title), f": {METRICS[name].meaning}"]) for name in metrics]
    return join(
        [
            tag("p", _verdict(measured)),
            table(header, rows, numbers=(1, 2), name="metrics"),
            bullets(meanings, name="quiet"),
            tag("p", _origin(measured), class_="note"),
        ]
    )


def _verdict(measured: MeasuredFacts) -> str:
    """How the loss compares with that of the base rate."""
    name = next(iter(in_order(measured.metrics)), None)
    if name is None or not measured.base_rate.get(name):
        return ""
    value, base, gain = measured.metrics[name].value, measured.base_rate[name], measured.gain
    title = METRICS[name].title
    if gain is not None and gain.low is not None and gain.high is not None and gain.low <= 0 <= gain.high:
        return (
            f"The {title} may be no better than that of always predicting the base rate, {metric_text(base)}: on "
            f"similar rows it could be between {metric_text(gain.high)} lower and {metric_text(-gain.low)} higher. "
            "More rows would give a clearer answer; fields that say more about the target would help the model."
        )
    change = "worse" if value > base else f"{percent(1 - value / base)} lower"
    return f"The {title} is {change} than that of always predicting the base rate, {metric_text(base)}."


def _origin(measured: MeasuredFacts) -> str:
    text = (
        f"Measured on {measured.n_rows:,} {measured.rows}. The base rate is that of the {measured.base_of}. Intervals "
        f"come from {N_RESAMPLES:,} bootstrap resamples of the rows; they do not cover the randomness of training."
    )
    if measured.n_sampled < measured.n_rows:
        text += (
            f" Intervals, curves and explanations use a random sample of {measured.n_sampled:,} rows; the intervals "
            "are scaled to all rows."
        )
    if measured.rows == "validation rows":
        text += (
            " Validation rows also decided when to stop training, so expect slightly worse results on new rows. Hold "
            "out test rows (split.test) to measure them."
        )
    return text


def learning_section(history: Sequence[Evaluation], loss: str, plots: Plots) -> Html:
    """Loss during training."""
    title = METRICS[loss].title
    figure = plots.add("learning", learning_figure(history, title), f"{title} of training and validation rows")
    caption = (
        "Lower is better. If the validation line rises while the training line still falls, the model memorises its "
        "training rows. The dot marks the parameters that were kept, where the validation loss is lowest."
    )
    return captioned(figure, caption)


def calibration_section(points: Sequence[CalibrationPoint], task: str, plots: Plots) -> Html:
    """Predicted against observed."""
    figure = plots.add("calibration", calibration_figure(points, task=task), "predicted against observed")
    return captioned(figure, f"{CALIBRATION[task]} Bars are 95 % intervals.")


def scores_section(histogram: Histogram, task: str, plots: Plots) -> Html:
    """Distribution of the predictions."""
    return captioned(
        plots.add("scores", scores_figure(histogram, task=task), "distribution of predictions"), SCORES[task]
    )


def importance_section(facts: ImportanceFacts, plots: Plots) -> Html:
    """What shuffling each field costs."""
    title = METRICS[facts.metric].title
    caption = (
        f"How much the {title} rises when the values of one field are shuffled among the rows and so lose their "
        "meaning. The model relies on fields with long bars. A field with a bar near zero says little, or only what "
        f"other fields say too. Mean of {facts.n_repeats} shuffles of {count(facts.n_rows, 'row')}; thin lines show "
        "one standard deviation."
    )
    if len(facts.fields) > MAX_BARS:
        caption += f" The {MAX_BARS} most important of {len(facts.fields)} fields are shown."
    return captioned(plots.add("importance", importance_figure(facts), f"rise in {title} by field"), caption)


def dependency_section(facts: DependencyFacts, plots: Plots) -> Html:
    """W(0) as a heat map, and its strongest entries."""
    model = FieldDependencies(fields=facts.fields, matrix_FF=np.array(facts.matrix))
    shown = model.part(model.strongest_fields(MAX_CELLS))
    figure = plots.add("dependencies", heat_figure(shown.fields, shown.matrix_FF.tolist()), "field dependencies")
    caption = (
        "Each column expresses one field by the others: the stronger the colour, the more the field on the left says "
        "about the field below. This is W(0), from which the model starts in every row; further down it is refined for "
        "single rows. Hover over a cell, or tap it, to see its pair of fields."
    )
    if len(shown.fields) < len(facts.fields):
        caption += f" The {len(shown.fields)} of {len(facts.fields)} fields with the strongest dependencies are shown."
    rows = [[_name(d.source), _name(d.dependent), f"{d.weight:+.3f}"] for d in model.strongest(N_STRONGEST)]
    strongest = tag("div", table(["field", "explains", "dependency"], rows, numbers=(2,)))
    layout = "columns" if len(shown.fields) <= MAX_SIDE_BY_SIDE else "stack"
    return join(
        [tag("div", tag("figure", figure, colour_scale()), strongest, class_=layout), tag("p", caption, class_="note")]
    )


def rows_section(report: Report, plots: Plots) -> Html:
    """A few rows explained, each on a card."""
    names = [field.name for field in report.data.fields]
    unit = "in log-odds" if report.training.classes else f"in units of {report.training.target}"
    text = (
        f"{_choice(report.measured.examples)} Bars show how much a value raises or lowers the prediction ({unit}), "
        "compared with the same row without that value."
    )
    if report.dependencies is not None:
        text += (
            " The map shows the refined dependencies of the row, mu(T) W(T): what its values say about each other. The "
            "strongest source of a field is the field that says most about it; in a pale column, no field says much."
        )
    cards = [_card(row, at, names, report, plots) for at, row in enumerate(report.measured.examples)]
    return join([tag("p", text), *cards])


def _choice(rows: Sequence[RowFacts]) -> str:
    """Which rows were chosen, as a sentence."""
    chosen = {row.why for row in rows}
    verdicts = " or ".join(VERDICTS[why].lower() for why in VERDICTS if why in chosen and why != "random")
    if not verdicts:
        return "A row drawn at random."
    return f"Rows that the model got {verdicts}{', and one drawn at random' if 'random' in chosen else ''}."


def _card(row: RowFacts, at: int, names: Sequence[str], report: Report, plots: Plots) -> Html:
    verdict = tag("span", VERDICTS[row.why], class_=f"pill {row.why}")
    columns, below = [tag("div", *_value_tables(row, names))], []
    if row.refinement is not None:
        columns.append(tag("figure", _row_map(row, row.refinement, at, names, plots), colour_scale()))
        below = _steps(row, row.refinement, at, names, plots)
    return tag(
        "article",
        tag("p", verdict, tag("span", f"row {row.number:,} of the {report.measured.rows}", class_="where")),
        tag("h3", f"{report.training.target}: predicted {row.predicted}, true value {row.truth}"),
        tag("div", *columns, class_="columns"),
        *below,
        class_="row",
    )


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
    """Fields with a bar for their effect, the largest first."""
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


def _bar(effect: float, largest: float) -> Html:
    """A bar to the right for a value that raises the prediction, to the left for one that lowers it."""
    width = 50 * abs(effect) / largest
    side = f"left:50%;width:{width:.1f}%" if effect >= 0 else f"right:50%;width:{width:.1f}%"
    bar = tag("span", tag("i", class_="up" if effect >= 0 else "down", style=side), class_="bar")
    return join([bar, " ", tag("span", f"{effect:+.2f}", class_="amount")])


def _steps(row: RowFacts, refinement: RefinementFacts, at: int, fields: Sequence[str], plots: Plots) -> list[Html]:
    """Dependencies and weights at every step, folded; nothing if there was no step."""
    steps, shown = refinement.steps, refinement.shown
    if len(steps) == 1:
        return []
    titles = [f"W({t}), dependency loss {step.loss:.4g}" for t, step in enumerate(steps)]
    names, values = [fields[f] for f in shown], [row.values[f] for f in shown]
    maps = steps_figure(names, [step.w for step in steps], values=values, titles=titles)
    lines = weights_figure(fields, [step.weights for step in steps], values=row.values)
    heat_map = plots.add(f"row-{at}-steps", maps | {"small": True}, f"dependencies of row {row.number} at one step")
    weights = plots.add(f"row-{at}-weights", lines, f"weight of every field of row {row.number} at each step")
    caption = "The network sees each column of W(T) multiplied by the weight of its field."
    if len(fields) > len(SERIES):
        caption += f" In colour: the {len(SERIES)} of {len(fields)} fields that moved most."
    title = tag("p", "Weight of every field, mu / lambda", class_="title")
    lines_figure = tag("figure", title, weights, tag("figcaption", caption))
    summary = tag("summary", f"Refinement in {count(len(steps) - 1, 'step')}")
    columns = tag("div", _map_with_slider(heat_map, titles, steps), lines_figure, class_="columns")
    return [tag("details", summary, columns, class_="steps")]


def _map_with_slider(heat_map: Html, titles: Sequence[str], steps: Sequence[StepFacts]) -> Html:
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
