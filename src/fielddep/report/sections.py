"""Sections of the page on the run, its data, how good the model is, and how to use it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime

from fielddep.config.metrics import METRICS, in_order
from fielddep.report.facts import (
    CalibrationPoint,
    DataFacts,
    FieldFacts,
    Histogram,
    ImportanceFacts,
    MeasuredFacts,
    Report,
    Setting,
)
from fielddep.report.figures import (
    MAX_BARS,
    Plots,
    calibration_figure,
    importance_figure,
    learning_figure,
    scores_figure,
)
from fielddep.report.markup import (
    Html,
    bullets,
    facts,
    interval_text,
    join,
    metric_text,
    table,
    tag,
)
from fielddep.training.checkpoint import Evaluation
from fielddep.wording import count, duration, percent, shorten

MAX_CLASSES = 8
MAX_FIELDS = 25
"""Fields that are shown at once; more are unfolded on demand."""
MAX_SETTING, MAX_VALUE = 80, 24
"""Characters of a setting and of a value."""
PARTS = ("train", "validation", "test")


def head(report: Report) -> Html:
    """Title, one sentence, and the metrics in large print."""
    training, measured = report.training, report.measured
    what = f"{training.model.upper()} trained on {training.source}"
    size = f"{count(len(report.data.fields), 'field')}, {count(training.n_rows, 'row')}"
    cards = [
        tag(
            "div",
            tag("span", METRICS[name].title, class_="name"),
            tag("strong", metric_text(found.value)),
            tag("span", interval_text(found), class_="range"),
            class_="card",
        )
        for name, found in list(in_order(measured.metrics).items())[:3]
    ]
    return tag(
        "header",
        tag("p", f"Report on {training.run}", class_="eyebrow"),
        tag("h1", "Predicting ", tag("em", training.target)),
        tag("p", f"{what}: {size}.", class_="lead"),
        tag("div", *cards, class_="cards"),
        tag(
            "p",
            f"Measured on {measured.n_rows:,} {measured.rows}. Below each number: its 95 % interval.",
            class_="note",
        ),
    )


def training_section(report: Report) -> Html:
    """What was trained on what."""
    training, history = report.training, report.history
    sizes = ", ".join(f"{training.parts[part]:,} {part}" for part in PARTS if part in training.parts)
    entries = [
        ("Table", f"{training.source}, {count(training.n_rows, 'row')}"),
        ("Split", f"{sizes}; {training.split}" if sizes else training.split),
        ("Target", _target(report)),
        ("Fields", ", ".join(field.name for field in report.data.fields)),
    ]
    if training.crosses:
        entries.append(("Crosses", f"{', '.join(training.crosses)}: an id for each combination of values"))
    entries.append(("Model", f"{training.model}, {training.n_parameters:,} parameters for {training.n_ids:,} ids"))
    if history:
        kept = next((e for e in reversed(history) if e.best), history[-1])
        entries.append(
            (
                "Training",
                f"{duration(history[-1].seconds)}, {history[-1].epoch:.3g} epochs at "
                f"{history[-1].rows_per_s:,.0f} rows/s; the parameters after {kept.epoch:.3g} epochs were kept",
            )
        )
    entries += [
        ("Made with", ", ".join(f"{name} {version}" for name, version in training.versions)),
        ("Command", training.command),
        ("Written", datetime.fromisoformat(report.made).strftime("%d %B %Y, %H:%M")),
    ]
    return join([facts(entries), _settings(training.changed, training.decided)])


def data_section(data: DataFacts, *, target: str, rows: str) -> Html:
    """Every field in a line, after what a reader should look at first."""
    odd = [(name, f" alone determines {target}. Was it recorded after the fact?") for name in data.leaks]
    odd += [(name, f" was skipped: {reason}") for name, reason in data.skipped]
    odd += [(name, f": {text}" if name else text) for name, text in data.warnings]
    lines = [join([tag("b", name), text]) if name else text for name, text in odd]
    notice = bullets(lines, name="warnings") if lines else tag("p", "No problems were found.", class_="fine")
    shown, more = data.fields[:MAX_FIELDS], data.fields[MAX_FIELDS:]
    parts = [notice, _field_table(shown, rows)]
    if more:
        parts.append(tag("details", tag("summary", f"{len(more)} more fields"), _field_table(more, rows)))
    return join(parts)


def loading_section(report: Report) -> Html:
    """Code and commands that use the model."""
    run = shlex.quote(report.training.run)
    commands = [
        f"fielddep predict {run} new-rows.csv --out predictions.csv",
        f"fielddep evaluate {run} rows-with-target.csv",
        f"fielddep explain {run} new-rows.csv --rows 0 --out explanation",
    ]
    return join(
        [
            tag("pre", tag("code", loading_code(report), class_="python")),
            tag("p", "The same from the command line, for a table of any size:"),
            tag("pre", tag("code", "\n".join(commands), class_="shell")),
        ]
    )


def loading_code(report: Report) -> str:
    """A program that loads the model and predicts one row of frequent values."""
    cells = "".join(f"    {_literal(f.name)}: [{_literal(f.example)}],\n" for f in report.data.fields)
    return (
        "import polars as pl\n"
        "from fielddep import Predictor\n\n"
        f"predictor = Predictor({_literal(report.training.run + '/bundle')})\n"
        "rows = pl.DataFrame({\n"
        f"{cells}"
        "})\n"
        "print(predictor.predict(rows))\n"
    )


def _literal(value: str | None) -> str:
    """Python for a text, in double quotes."""
    return "None" if value is None else json.dumps(value, ensure_ascii=False)


def _target(report: Report) -> str:
    training = report.training
    if not training.classes:
        return f"{training.target}, a number"
    shown = ", ".join(training.classes[:MAX_CLASSES])
    more = f" and {len(training.classes) - MAX_CLASSES} more" if len(training.classes) > MAX_CLASSES else ""
    positive = f"; {training.classes[-1]} is the positive class" if training.task == "binary" else ""
    return f"{training.target}, {len(training.classes)} classes: {shown}{more}{positive}"


def _settings(changed: Sequence[Setting], decided: Sequence[Setting]) -> Html:
    parts = []
    if changed:
        rows = [[s.path, shorten(s.value, MAX_SETTING), s.default] for s in changed]
        parts += [tag("h3", "Settings changed from their defaults"), table(["setting", "value", "default"], rows)]
    if decided:
        rows = [[s.path, shorten(s.value, MAX_SETTING)] for s in decided]
        found = table(["setting", "value"], rows)
        parts.append(tag("details", tag("summary", f"{count(len(decided), 'setting')} chosen from the data"), found))
    return join(parts)


def _field_table(fields: Sequence[FieldFacts], rows: str) -> Html:
    header = ["field", "values", "missing", "rare", f"rare or unseen in {rows}", "most frequent"]
    lines = [
        [
            join([tag("b", field.name), tag("small", field.kind)]),
            "" if field.n_values is None else f"{field.n_values:,}",
            _share(field.missing),
            _share(field.rare),
            _share(field.unknown),
            ", ".join(f"{shorten(value, MAX_VALUE)} ({_share(part)})" for value, part in field.frequent),
        ]
        for field in fields
    ]
    return table(header, lines, numbers=(1, 2, 3, 4), name="fields")


CALIBRATION = {
    "binary": (
        "Rows are grouped by their predicted probability. On the dashed line, what is given 30 % happens in 30 % of "
        "cases; above the line it happens more often than predicted, below it less often."
    ),
    "multiclass": (
        "Rows are grouped by the probability of their likeliest class. On the dashed line, a class given 80 % is right "
        "in 80 % of cases; below it the model is overconfident."
    ),
    "regression": (
        "Rows are grouped by their prediction; each point is the mean of a group. On the dashed line, predictions are "
        "right on average."
    ),
}
SCORES = {
    "binary": (
        "How the predicted probabilities of each class are spread. The less the two outlines overlap, the better the "
        "model tells the classes apart."
    ),
    "multiclass": (
        "How much probability the model gave to the class that a row turned out to be. The further to the right, the "
        "better."
    ),
    "regression": (
        "True and predicted values side by side. Predictions are usually closer to the mean than the truth, the more "
        "so the less the fields say about the target."
    ),
}


def metrics_section(measured: MeasuredFacts) -> Html:
    """Every metric with its interval, next to the base rate."""
    rows = [
        [
            join([tag("b", METRICS[name].title), tag("small", f"{METRICS[name].better} is better")]),
            join([metric_text(found.value), tag("small", interval_text(found))]),
            metric_text(measured.base_rate[name]) if name in measured.base_rate else "-",
        ]
        for name, found in in_order(measured.metrics).items()
    ]
    header = ["metric", "this model and its 95 % interval", "base rate"]
    meanings = [join([tag("b", METRICS[n].title), f": {METRICS[n].meaning}"]) for n in in_order(measured.metrics)]
    return join(
        [
            tag("p", _verdict(measured)),
            table(header, rows, numbers=(1, 2), name="metrics"),
            bullets(meanings, name="quiet"),
            tag("p", _origin(measured), class_="note"),
        ]
    )


def learning_section(history: Sequence[Evaluation], loss: str, plots: Plots) -> Html:
    """Loss over the training."""
    title = METRICS[loss].title
    figure = plots.add("learning", learning_figure(history, title), f"{title} of training and validation rows")
    caption = (
        "Lower is better. Where the validation line rises while the training line still falls, the model memorises its "
        "training rows. The parameters kept are those at the dot, where the validation loss is lowest."
    )
    return _captioned(figure, caption)


def calibration_section(points: Sequence[CalibrationPoint], task: str, plots: Plots) -> Html:
    """Predicted against observed."""
    figure = plots.add("calibration", calibration_figure(points, task=task), "predicted against observed")
    return _captioned(figure, f"{CALIBRATION[task]} Bars are 95 % intervals.")


def scores_section(histogram: Histogram, task: str, plots: Plots) -> Html:
    """How predictions are spread."""
    figure = plots.add("scores", scores_figure(histogram, task=task), "distribution of predictions")
    return _captioned(figure, SCORES[task])


def importance_section(facts: ImportanceFacts, plots: Plots) -> Html:
    """What shuffling each field costs."""
    title = METRICS[facts.metric].title
    caption = (
        f"How much the {title} rises when the values of one field are shuffled among the rows and so say nothing. A "
        "long bar means that the model relies on the field; a bar near zero, that it could do without, or that other "
        f"fields say the same. Mean of {facts.n_repeats} shuffles of {count(facts.n_rows, 'row')}; thin lines show one "
        "standard deviation."
    )
    if len(facts.fields) > MAX_BARS:
        caption += f" The {MAX_BARS} most important of {len(facts.fields)} fields are shown."
    figure = plots.add("importance", importance_figure(facts), f"rise in {title} by field")
    return _captioned(figure, caption)


def _captioned(figure: Html, caption: str) -> Html:
    return tag("figure", figure, tag("figcaption", caption))


def _verdict(measured: MeasuredFacts) -> str:
    """How the loss compares with that of the base rate."""
    name = next(iter(in_order(measured.metrics)), None)
    if name is None or not measured.base_rate.get(name):
        return ""
    found, base, gain = measured.metrics[name], measured.base_rate[name], measured.gain
    title, change = METRICS[name].title, 1 - found.value / base
    if gain is not None and gain.low is not None and gain.high is not None and gain.low <= 0 <= gain.high:
        return (
            f"The {title} may be no better than that of always predicting the base rate, {metric_text(base)}: on other "
            f"rows like these it could be between {metric_text(gain.high)} lower and {metric_text(-gain.low)} higher. "
            "It takes more rows to tell, or fields that say more about the target."
        )
    if found.value > base:
        return f"The {title} is worse than that of always predicting the base rate, {metric_text(base)}."
    return f"The {title} is {percent(change)} below that of always predicting the base rate, {metric_text(base)}."


def _origin(measured: MeasuredFacts) -> str:
    text = (
        f"Measured on {measured.n_rows:,} {measured.rows}. The base rate is that of the {measured.base_of}. Intervals "
        "come from 1,000 bootstrap resamples of the rows; they do not cover the randomness of training."
    )
    if measured.n_sampled < measured.n_rows:
        text += (
            f" Intervals, curves and explanations use a random sample of {measured.n_sampled:,} rows; the intervals "
            "are scaled to all rows."
        )
    if measured.rows == "validation rows":
        text += (
            " Validation rows also decided when to stop, so expect slightly worse results on new rows. Hold out test "
            "rows (split.test) to measure them."
        )
    return text


def _share(value: float) -> str:
    """A share in a table; nothing at all is a dash, and no line is broken inside of it."""
    return percent(value).replace(" ", "\u00a0") if value else "-"
