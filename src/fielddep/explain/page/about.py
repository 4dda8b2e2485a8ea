"""Sections on the run itself: the head of the page, what was trained, the data, and how to use the model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime

from fielddep.explain.page.markup import Html, bullets, facts, join, table, tag
from fielddep.explain.page.words import METRICS, count, duration, in_order, luck, number, share, shortened
from fielddep.explain.report import DataFacts, FieldFacts, Report, Setting

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
    told = f"{count(len(report.data.fields), 'field')}, {count(training.n_rows, 'row')}"
    cards = [
        tag(
            "div",
            tag("span", METRICS[name].title, class_="name"),
            tag("strong", number(found.value)),
            tag("span", luck(found), class_="range"),
            class_="card",
        )
        for name, found in in_order(measured.metrics)[:3]
    ]
    return tag(
        "header",
        tag("p", f"Report of {training.run}", class_="eyebrow"),
        tag("h1", "Predicting ", tag("em", training.target)),
        tag("p", f"{what}: {told}.", class_="lead"),
        tag("div", *cards, class_="cards"),
        tag(
            "p", f"Measured on {measured.n_rows:,} {measured.rows}; below each number its 95 % interval.", class_="note"
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
        entries.append(("Crosses", f"{', '.join(training.crosses)}: pairs of fields whose joint values have ids too"))
    entries.append(("Model", f"{training.model}, {training.n_parameters:,} parameters for {training.n_ids:,} ids"))
    if history:
        kept = next((e for e in reversed(history) if e.best), history[-1])
        entries.append(
            (
                "Training",
                f"{duration(history[-1].seconds)}, {history[-1].epoch:.3g} passes over the training rows at "
                f"{history[-1].rows_per_s:,.0f} rows/s; the parameters after {kept.epoch:.3g} passes were kept",
            )
        )
    entries += [
        ("Made with", ", ".join(f"{name} {version}" for name, version in training.versions)),
        ("Command", training.command),
        ("Report made", datetime.fromisoformat(report.made).strftime("%d %B %Y, %H:%M")),
    ]
    return join([facts(entries), _settings(training.changed, training.decided)])


def data_section(data: DataFacts, *, target: str, rows: str) -> Html:
    """Every field in a line, after what a reader should look at first."""
    odd = [(name, f" alone determines {target}; was it recorded after the fact?") for name in data.leaks]
    odd += [(name, f" was left out: {reason}") for name, reason in data.left_out]
    odd += [(name, f": {text}" if name else text) for name, text in data.warnings]
    told = [join([tag("b", name), text]) if name else text for name, text in odd]
    notice = bullets(told, name="warnings") if told else tag("p", "Nothing odd was found.", class_="fine")
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
        rows = [[s.path, shortened(s.value, MAX_SETTING), s.default] for s in changed]
        parts += [tag("h3", "Settings that were asked for"), table(["setting", "value", "default"], rows)]
    if decided:
        rows = [[s.path, shortened(s.value, MAX_SETTING)] for s in decided]
        found = table(["setting", "value"], rows)
        parts.append(tag("details", tag("summary", f"{count(len(decided), 'setting')} decided from the data"), found))
    return join(parts)


def _field_table(fields: Sequence[FieldFacts], rows: str) -> Html:
    header = ["field", "values", "missing", "rare", f"rare or unseen in {rows}", "most frequent"]
    lines = [
        [
            join([tag("b", field.name), tag("small", field.kind)]),
            "" if field.n_values is None else f"{field.n_values:,}",
            share(field.missing),
            share(field.rare),
            share(field.unknown),
            ", ".join(f"{shortened(value, MAX_VALUE)} ({share(part)})" for value, part in field.frequent),
        ]
        for field in fields
    ]
    return table(header, lines, numbers=(1, 2, 3, 4), name="fields")
