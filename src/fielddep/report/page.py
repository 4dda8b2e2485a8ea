"""Page: a report as one HTML file, with its head and the sections on the run, its data and how to use the model.

It needs no network and fits screens of any size, light and dark, and paper.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path

from fielddep.config.metrics import METRICS, in_order, loss_name
from fielddep.errors import MissingExtraError
from fielddep.explain.plots import DARK, LIGHT
from fielddep.report.evidence import evidence_section
from fielddep.report.facts import DataFacts, FieldFacts, Report, Setting, TrainingFacts
from fielddep.report.markup import Html, Plots, bullets, interval_text, join, metric_text, table, tag
from fielddep.report.quality import (
    calibration_section,
    classes_section,
    importance_section,
    learning_section,
    metrics_section,
    scores_section,
    threshold_section,
)
from fielddep.report.sections import dependency_section, rows_section
from fielddep.tables.files import write_text
from fielddep.wording import count, duration, percent, shorten

MAX_CLASSES = 8
MAX_FIELDS = 25
"""Fields that are shown at first; the others can be unfolded."""
MAX_SETTING, MAX_VALUE = 80, 24
"""Characters of a setting and of a value."""
PARTS = ("train", "validation", "test")


def can_draw() -> bool:
    """Whether Plotly is installed."""
    return importlib.util.find_spec("plotly") is not None


def write_page(report: Report, path: Path) -> None:
    """Write a report as one HTML file.

    Raises:
        MissingExtraError: if Plotly is not installed.
        UserError: if the file cannot be written.
    """
    write_text(path, render_page(report, _plotly_script()))


def render_page(report: Report, plotly: str) -> str:
    """The page as text, including the script of Plotly."""
    plots = Plots()
    sections = _sections(report, plots)
    links = [tag("a", title, href=f"#{name}") for name, title, _ in sections]
    body = [
        _head(report),
        tag("nav", *links, aria_label="Contents"),
        *(tag("section", tag("h2", title), content, id=name) for name, title, content in sections),
        tag("footer", f"Written by fielddep {dict(report.training.versions)['fielddep']}."),
    ]
    own = resources.files("fielddep.report")
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n',
            tag("title", f"{report.training.target}: report on {report.training.run}"),
            f"\n<style>\n{_colours()}{(own / 'page.css').read_text('utf-8')}</style>\n</head>\n<body>\n",
            tag("main", *body),
            "\n",
            tag("noscript", "The figures on this page need JavaScript, which is disabled."),
            plots.script(),
            f"\n<script>{plotly}</script>\n<script>\n{(own / 'page.js').read_text('utf-8')}</script>\n",
            "</body>\n</html>\n",
        ]
    )


def _sections(report: Report, plots: Plots) -> list[tuple[str, str, Html]]:
    """Name, title and content of every section that has something to show."""
    training, measured = report.training, report.measured
    found = [
        ("training", "What was trained", _training_section(report)),
        ("data", "The data", _data_section(report.data, target=training.target, rows=measured.rows)),
        ("quality", "How good it is", metrics_section(measured)),
    ]
    if report.history:
        found.append(("learning", "How it learned", learning_section(report.history, loss_name(training.task), plots)))
    if measured.calibration:
        content = calibration_section(measured.calibration, training.task, plots)
        found.append(("calibration", "Calibration", content))
    if measured.scores is not None:
        content = scores_section(measured.scores, training.task, plots)
        found.append(("scores", "Distribution of predictions", content))
    if measured.thresholds is not None:
        content = threshold_section(measured.thresholds, training.classes, plots)
        found.append(("decisions", "Right and wrong decisions", content))
    if measured.classes:
        content = classes_section(measured.classes, len(training.classes))
        found.append(("decisions", "How well each class is recognised", content))
    if report.dependencies is not None:
        content = dependency_section(report.dependencies, measured, training.task, plots)
        found.append(("dependencies", "Which fields explain which", content))
    if measured.importance is not None:
        found.append(("importance", "Which fields matter", importance_section(measured.importance, plots)))
    if measured.examples:
        found.append(("rows", "Some rows explained", rows_section(report, plots)))
    if measured.evidence is not None:
        content = evidence_section(measured.evidence, report, plots)
        found.append(("evidence", "What rows with the same values did", content))
    return [*found, ("use", "Use the model", _loading_section(report))]


def _colours() -> str:
    """The colours of both themes for the style sheet and the script; paper is always light."""
    light, dark = ("".join(f"--{n}:{c};" for n, c in theme.by_name().items()) for theme in (LIGHT, DARK))
    return (
        f":root{{{light}color-scheme:light}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-printing]){{{dark}color-scheme:dark}}}}\n"
    )


def _plotly_script() -> str:
    if not can_draw():
        raise MissingExtraError("a report needs Plotly; pip install 'fielddep[report]'")
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _head(report: Report) -> Html:
    """Title, one sentence, and the metrics in large print."""
    training, measured = report.training, report.measured
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
    note = f"Measured on {measured.n_rows:,} {measured.rows}. Below each number is its 95 % interval."
    return tag(
        "header",
        tag("p", f"Report on {training.run}", class_="eyebrow"),
        tag("h1", "Predicting ", tag("em", training.target)),
        tag("p", f"{training.model.upper()} trained on {training.source}: {size}.", class_="lead"),
        tag("div", *cards, class_="cards"),
        tag("p", note, class_="note"),
    )


def _training_section(report: Report) -> Html:
    training, history = report.training, report.history
    sizes = ", ".join(f"{training.parts[part]:,} {part}" for part in PARTS if part in training.parts)
    entries = [
        ("Table", f"{training.source}, {count(training.n_rows, 'row')}"),
        ("Split", f"{sizes}; {training.split}" if sizes else training.split),
        ("Target", _target_text(training)),
        ("Fields", ", ".join(field.name for field in report.data.fields)),
    ]
    if training.crosses:
        entries.append(("Crosses", f"{', '.join(training.crosses)}: one id per combination of values"))
    entries.append(("Model", f"{training.model}, {training.n_parameters:,} parameters for {training.n_ids:,} ids"))
    if history:
        last, kept = history[-1], next((e for e in reversed(history) if e.best), history[-1])
        speed = f"{duration(last.seconds)}, {last.epoch:.3g} epochs at {last.rows_per_s:,.0f} rows/s"
        entries.append(("Training", f"{speed}; the parameters after {kept.epoch:.3g} epochs were kept"))
    entries += [
        ("Versions", ", ".join(f"{name} {version}" for name, version in training.versions)),
        ("Command", training.command),
        ("Written", datetime.fromisoformat(report.made).strftime("%d %B %Y, %H:%M")),
    ]
    facts = tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in entries))
    return join([facts, _settings(training.changed, training.decided)])


def _target_text(training: TrainingFacts) -> str:
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


def _data_section(data: DataFacts, *, target: str, rows: str) -> Html:
    """One line per field, after anything that deserves attention."""
    odd = [(name, f" alone determines {target}. Was it recorded after the fact?") for name in data.leaks]
    odd += [(name, f" was skipped: {reason}") for name, reason in data.skipped]
    odd += [(name, f": {text}" if name else text) for name, text in data.warnings]
    lines = [join([tag("b", name), text]) if name else text for name, text in odd]
    notice = bullets(lines, name="warnings") if lines else tag("p", "No problems found.", class_="fine")
    shown, more = data.fields[:MAX_FIELDS], data.fields[MAX_FIELDS:]
    parts = [notice, _field_table(shown, rows)]
    if more:
        parts.append(tag("details", tag("summary", f"{len(more)} more fields"), _field_table(more, rows)))
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


def _share(value: float) -> str:
    """A share with a space that does not break; a dash for 0."""
    return percent(value).replace(" ", "\u00a0") if value else "-"


def _loading_section(report: Report) -> Html:
    run = shlex.quote(report.training.run)
    commands = [
        f"fielddep predict {run} new-rows.csv --out predictions.csv",
        f"fielddep evaluate {run} rows-with-target.csv",
        f"fielddep explain {run} new-rows.csv --rows 0 --out explanation",
    ]
    return join(
        [
            tag("pre", tag("code", loading_code(report), class_="python")),
            tag("p", "The same on the command line, for tables of any size:"),
            tag("pre", tag("code", "\n".join(commands), class_="shell")),
        ]
    )


def loading_code(report: Report) -> str:
    """A program that loads the model and predicts one row of frequent values."""
    examples = {f.column or f.name: f.example for f in report.data.fields}
    cells = "".join(f"    {_literal(column)}: [{_literal(example)}],\n" for column, example in examples.items())
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
    """Python code for a text, in double quotes."""
    return "None" if value is None else json.dumps(value, ensure_ascii=False)
