"""Page: a report as one HTML file that needs no network, for screens of any size, light and dark, and for print."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path

from fielddep.errors import MissingExtraError
from fielddep.explain.page.about import data_section, head, loading_section, training_section
from fielddep.explain.page.dependencies import dependency_section, rows_section
from fielddep.explain.page.markup import Html, join, tag
from fielddep.explain.page.plots import Plots
from fielddep.explain.page.results import (
    calibration_section,
    importance_section,
    learning_section,
    metrics_section,
    scores_section,
)
from fielddep.explain.report import Report
from fielddep.files import write_text


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
        report: what it tells.
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
    own = resources.files(__name__)
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n',
            tag("title", f"{report.training.target}: report of {report.training.run}"),
            f"\n<style>\n{(own / 'page.css').read_text('utf-8')}</style>\n</head>\n<body>\n",
            tag("main", *body),
            "\n",
            tag("noscript", "The figures of this page are drawn by a script that it brings along; scripts are off."),
            plots.script(),
            f"\n<script>{plotly}</script>\n<script>\n{(own / 'page.js').read_text('utf-8')}</script>\n",
            "</body>\n</html>\n",
        ]
    )


def _sections(report: Report, plots: Plots) -> list[tuple[str, str, Html]]:
    """Name, title and content of every section that there is something to tell for."""
    training, measured = report.training, report.measured
    found = [
        ("training", "What was trained", training_section(report)),
        ("data", "The data", data_section(report.data, target=training.target, rows=measured.rows)),
        ("quality", "How good it is", metrics_section(measured)),
    ]
    loss = "mse" if training.task == "regression" else "logloss"
    if report.history:
        found.append(("learning", "How it learned", learning_section(report.history, loss, plots)))
    if measured.calibration:
        content = calibration_section(measured.calibration, training.task, plots)
        found.append(("calibration", "Can it be taken at its word?", content))
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


def _plotly_script() -> str:
    if not can_draw():
        raise MissingExtraError("a report needs Plotly; pip install 'fielddep[report]'")
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
