"""Page: a report as one HTML file that needs no network, for screens of any size, light and dark, and for print."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path

from fielddep.config.metrics import loss_name
from fielddep.errors import MissingExtraError
from fielddep.explain.palette import DARK, LIGHT
from fielddep.report.facts import Report
from fielddep.report.figures import Plots
from fielddep.report.markup import Html, join, tag
from fielddep.report.row_sections import dependency_section, rows_section
from fielddep.report.sections import (
    calibration_section,
    data_section,
    head,
    importance_section,
    learning_section,
    loading_section,
    metrics_section,
    scores_section,
    training_section,
)
from fielddep.tables.files import write_text


def can_draw() -> bool:
    """Whether the library that draws pages is installed."""
    return importlib.util.find_spec("plotly") is not None


def write_page(report: Report, path: Path) -> None:
    """Write a report as one HTML file.

    Raises:
        MissingExtraError: when Plotly is not installed.
        UserError: when the file cannot be written.
    """
    write_text(path, render_page(report, _plotly_script()))


def render_page(report: Report, plotly: str) -> str:
    """The page as text.

    Args:
        report: the numbers.
        plotly: the script that draws, which becomes part of the page.
    """
    plots = Plots()
    sections = _sections(report, plots)
    links = [tag("a", title, href=f"#{name}") for name, title, _ in sections]
    body = [
        head(report),
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
            tag("noscript", "This page draws its figures with a script, and scripts are disabled."),
            plots.script(),
            f"\n<script>{plotly}</script>\n<script>\n{(own / 'page.js').read_text('utf-8')}</script>\n",
            "</body>\n</html>\n",
        ]
    )


def _sections(report: Report, plots: Plots) -> list[tuple[str, str, Html]]:
    """Name, title and content of every section that has something to show."""
    training, measured = report.training, report.measured
    found = [
        ("training", "What was trained", training_section(report)),
        ("data", "The data", data_section(report.data, target=training.target, rows=measured.rows)),
        ("quality", "How good it is", metrics_section(measured)),
    ]
    if report.history:
        found.append(("learning", "How it learned", learning_section(report.history, loss_name(training.task), plots)))
    if measured.calibration:
        content = calibration_section(measured.calibration, training.task, plots)
        found.append(("calibration", "Calibration", content))
    if measured.scores is not None:
        found.append(("scores", "How predictions are spread", scores_section(measured.scores, training.task, plots)))
    if report.dependencies is not None:
        content = dependency_section(report.dependencies, plots)
        found.append(("dependencies", "Which fields explain which", content))
    if measured.importance is not None:
        found.append(("importance", "Which fields matter", importance_section(measured.importance, plots)))
    if measured.examples:
        found.append(("rows", "Some rows explained", rows_section(report, plots)))
    return [*found, ("use", "Use the model", join([loading_section(report)]))]


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
