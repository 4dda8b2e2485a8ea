"""The page of a report: what stands on it, that nothing of the data becomes HTML, and that its code runs."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import REPORT, Run
from fielddep.errors import MissingExtraError
from fielddep.explain.dependencies import Explanation, explain_rows
from fielddep.explain.plots import DARK, LIGHT, N_SERIES
from fielddep.report import page
from fielddep.report.build import read_report, redraw_report, report_training
from fielddep.report.facts import (
    DependencyFacts,
    FieldFacts,
    ImportanceFacts,
    RefinementEffect,
    RefinementFacts,
    Report,
    StepFacts,
)
from fielddep.report.figures import (
    LABEL_HEIGHT,
    MAX_BARS,
    heat_figure,
    importance_figure,
    row_labels,
    row_names,
    weights_figure,
)
from fielddep.report.intervals import Interval
from fielddep.report.markup import Html, empty_tag, escaped, join, tag
from fielddep.report.page import loading_code, render_page, write_page
from tests.helpers import states
from tests.reports import FIELDS, SCRIPT, make_run

RUNS: dict[str, dict[str, Any]] = {
    "binary": {"model__d_embed": 4},
    "multiclass": {"task": "multiclass", "model__d_embed": 4},
    "regression": {"task": "regression", "model__name": "fm", "split__test": 0.0},
}
SECTIONS = ["training", "data", "quality", "learning", "calibration", "scores", "decisions", "dependencies"]
SECTIONS += ["importance", "rows", "evidence"]
WITHOUT = ("decisions", "dependencies", "evidence")
"""Sections that a baseline with numbers as targets does not have."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, settings in RUNS.items():
        run = make_run(folder / f"{name} run", **settings)
        report_training(run)
        found[name] = run
    return found


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Explanation]:
    """A report of a model whose refinement matters, and the paths of its rows."""
    settings = {"model__d_embed": 4, "model__inner_step": "scaled", "model__n_inner_steps": 3, "model__sparsity": 2.0}
    run = make_run(tmp_path_factory.mktemp("refined") / "run", **settings)
    report_training(run)
    report = report_of(run)
    numbers = torch.tensor([row.number for row in report.measured.examples])
    return report, explain_rows(Bundle.load(run.bundle), run.trained.prepared.parts["test"].rows().take(numbers))


def report_of(run: Run) -> Report:
    report = read_report(run)
    assert report is not None
    return report


def figures_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    assert found is not None
    figures: dict[str, Any] = json.loads(found.group(1))
    return figures


class Outline(HTMLParser):
    """Elements, what addresses they name, and all visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text += data


@pytest.mark.parametrize("name", RUNS)
def test_sections_in_their_order(runs: dict[str, Run], name: str) -> None:
    text = render_page(report_of(runs[name]), "")
    expected = [s for s in SECTIONS if s not in WITHOUT or name != "regression"]
    assert re.findall(r'<section id="(\w+)">', text) == [*expected, "use"]
    figures = [n for n in figures_of(text) if not n.startswith("row-")]
    curves = ["roc", "precision-recall"] if name == "binary" else []
    maps = [] if name == "regression" else ["dependencies"]
    evidence = [] if name == "regression" else ["evidence"]
    assert figures == ["learning", "calibration", "scores", *curves, *maps, "importance", *evidence]


@pytest.mark.parametrize("name", RUNS)
def test_nothing_of_the_data_becomes_html(runs: dict[str, Run], name: str) -> None:
    text = render_page(report_of(runs[name]), "")
    outline = Outline(text)
    assert outline.open == []
    assert outline.tags.count("script") == 3  # figures, Plotly and the page's own
    assert SCRIPT in outline.text
    assert "alert(1)</script>" not in text
    for figure in figures_of(text).values():
        assert "<script" not in json.dumps(figure)
        assert "<b>" not in json.dumps(figure)


def test_the_page_needs_no_network(runs: dict[str, Run]) -> None:
    text = (runs["binary"].folder / REPORT).read_text("utf-8")
    own = render_page(report_of(runs["binary"]), "")
    assert {a for a in Outline(own).addresses if not a.startswith("#")} == {"data:,"}
    assert "@import" not in own
    assert "url(" not in own
    assert len(text) > 1_000_000  # Plotly is part of it
    assert (runs["binary"].folder / REPORT).stat().st_size < 8_000_000


@pytest.mark.parametrize("name", RUNS)
def test_figures_are_what_plotly_knows(runs: dict[str, Run], name: str) -> None:
    objects = pytest.importorskip("plotly.graph_objects")
    for figure in figures_of(render_page(report_of(runs[name]), "")).values():
        text = re.sub(r'"@\w+(/[\d.]+)?"', '"#123456"', json.dumps({k: figure[k] for k in ("data", "layout")}))
        assert len(objects.Figure(json.loads(text)).data) == len(figure["data"])


def test_every_colour_is_one_of_the_palette(runs: dict[str, Run]) -> None:
    used, style = set(), (Path(page.__file__).parent / "page.css").read_text("utf-8")
    for run in runs.values():
        text = render_page(report_of(run), "")
        used |= set(re.findall(r'"@(\w+)', json.dumps(figures_of(text))))
        light, dark = text[: text.index("* {")].split("prefers-color-scheme:dark")
        assert all(f"--{name}:{colour};" in light for name, colour in LIGHT.by_name().items())
        assert all(f"--{name}:{colour};" in dark for name, colour in DARK.by_name().items())
    assert {"accent", "muted", "down", "zero", "up", "series1"} <= used
    used |= set(re.findall(r"var\(--(\w+)\)", style))
    assert used - {"amount"} <= LIGHT.by_name().keys() == DARK.by_name().keys()  # one is a width
    assert not re.search("#[0-9a-f]{3}", style.replace("--page: #ffffff", ""))  # paper is white


def test_metrics_next_to_the_base_rate(runs: dict[str, Run]) -> None:
    report = report_of(runs["binary"])
    text = Outline(render_page(report, "")).text
    found = report.measured.metrics["auc"]
    assert f"{found.value:.4f}{found.low:.4f} to {found.high:.4f}0.5000" in text
    assert "Measured on 40 test rows" in text
    assert re.search(r"base rate[^.]*calibration error", text)
    assert not re.search(
        r"base rate[^.]*calibration error", Outline(render_page(report_of(runs["regression"]), "")).text
    )
    assert "split.test" not in text
    assert "split.test" in Outline(render_page(report_of(runs["regression"]), "")).text  # validation rows only


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),  # the ends are those of the gain over the base rate
    [
        (0.25, 0.2, 0.3, r"logloss is 50 % (below|lower)[^.]*base rate[^.]*0\.5"),
        (0.45, -0.1, 0.2, r"logloss[^.]*base rate[^:]*0\.5.*0\.20* lower.*0\.10* higher"),
        (0.7, -0.3, -0.1, r"logloss is worse[^.]*base rate[^.]*0\.5"),
    ],
)
def test_the_verdict(runs: dict[str, Run], value: float, low: float, high: float, verdict: str) -> None:
    report = report_of(runs["binary"])
    logloss = Interval(value=value, low=value - 0.3, high=value + 0.3)  # wide: it does not decide
    gain = Interval(value=0.5 - value, low=low, high=high)
    measured = dataclasses.replace(report.measured, metrics={"logloss": logloss}, base_rate={"logloss": 0.5}, gain=gain)
    assert re.search(verdict, Outline(render_page(dataclasses.replace(report, measured=measured), "")).text)


def test_one_word_for_one_thing(runs: dict[str, Run]) -> None:
    report = report_of(runs["binary"])
    training = dataclasses.replace(report.training, crosses=("a x b",))
    page_text = render_page(dataclasses.replace(report, training=training), "")
    text = Outline(page_text).text
    assert re.search(rf"mdl\b.*\b{training.n_parameters:,} parameters\b.*\b{training.n_ids:,} ids", text)
    assert "the weights after" not in text  # weights are mu; what is kept are parameters
    assert "a x b" in text
    assert re.search(r"unseen in [a-z ]*test rows", text)
    assert "weight mu of price: " in json.dumps(figures_of(page_text)["row-0"])


def test_warnings_of_the_data(runs: dict[str, Run]) -> None:
    text = Outline(render_page(report_of(runs["binary"]), "")).text
    assert re.search(r"leak\b[^.]*\bdetermines good\b", text)
    assert re.search(r"same\b[^.]*\bconstant", text)


def section_of(text: str, name: str) -> str:
    return text.split(f'<section id="{name}">')[1].split("</section>")[0]


def cells_of(section: str) -> list[str]:
    """Texts of the cells below the headers, row by row."""
    bodies = re.findall(r"<tbody>(.*?)</tbody>", section, re.S)
    return [html.unescape(cell) for body in bodies for cell in re.findall(r"<td[^>]*>([^<]*)</td>", body)]


def test_the_confusion_matrix_of_every_threshold(runs: dict[str, Run]) -> None:
    report = report_of(runs["binary"])
    facts = report.measured.thresholds
    assert facts is not None
    text = render_page(report, "")
    roc, precision = figures_of(text)["roc"], figures_of(text)["precision-recall"]
    assert len(roc["thresholds"]) == len(roc["dots"]) == len(precision["dots"]) == len(facts.points)
    for at, point in enumerate(facts.points):
        cells = roc["thresholds"][at]["cells"]
        caught, missed, false, spared = (int(cell) for cell in cells[:4])
        assert (caught, false) == (point.caught, point.false)
        assert (caught + missed, false + spared) == (facts.positive, facts.negative)
        assert roc["dots"][at] == pytest.approx([false / (false + spared), caught / (caught + missed)], abs=1e-5)
        assert precision["dots"][at][0] == roc["dots"][at][1]
        if caught + false:
            assert precision["dots"][at][1] == pytest.approx(caught / (caught + false), abs=1e-5)
            assert float(cells[4]) == pytest.approx(caught / (caught + false), abs=1e-3)
        else:
            assert cells[4] == "-" and precision["dots"][at][1] is None
        assert float(cells[7]) == pytest.approx((caught + spared) / 40, abs=1e-3)
    even = [point.threshold for point in facts.points].index(0.5)
    section = section_of(text, "decisions")
    assert cells_of(section) == roc["thresholds"][even]["cells"]  # what is shown without JavaScript
    assert f'max="{len(facts.points) - 1}" value="{even}" aria-label="' in section
    assert roc["thresholds"][even]["title"] in Outline(section).text and "50 %" in roc["thresholds"][even]["title"]


def test_scores_of_every_class(runs: dict[str, Run]) -> None:
    report = report_of(runs["multiclass"])
    section = section_of(render_page(report, ""), "decisions")
    assert [one.name for one in report.measured.classes if escaped(one.name) not in section] == []
    found = np.array(cells_of(section)).reshape(3, 4)  # names are bold
    expected = [
        [*("-" if x is None else f"{x:.3f}" for x in (q.precision, q.recall, q.f1)), f"{one.weight:.0f}"]
        for one in report.measured.classes
        for q in (one.quality,)
    ]
    assert found.tolist() == expected
    training = dataclasses.replace(report.training, classes=tuple(map(str, range(1234))))
    assert re.search(
        r"\b3 most frequent of 1,234 classes", render_page(dataclasses.replace(report, training=training), "")
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_report_from_before_has_no_decisions(runs: dict[str, Run], name: str) -> None:
    numbers = report_of(runs[name]).to_json()
    for key in ("thresholds", "classes", "refinement"):
        del numbers["measured"][key]
    assert '<section id="decisions">' not in render_page(Report.from_json(numbers), "")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (("right", "wrong", "random"), {"most right", "most wrong", "at random"}),
        (("right", "unsure"), {"most right", "barely right"}),
        (("random",), {"at random"}),
    ],
)
def test_only_rows_that_are_shown_are_announced(
    runs: dict[str, Run], chosen: tuple[str, ...], expected: set[str]
) -> None:
    report = report_of(runs["binary"])
    rows = tuple(dataclasses.replace(report.measured.examples[0], why=why) for why in chosen)
    measured = dataclasses.replace(report.measured, examples=rows)
    section = render_page(dataclasses.replace(report, measured=measured), "").split('<section id="rows">')[1]
    announced = Outline(section[section.index("<p>") : section.index("</p>") + 4]).text.partition(". ")[0].lower()
    assert {
        words for words in ("most right", "most wrong", "barely right", "at random") if words in announced
    } == expected


def test_hovering_names_the_pair() -> None:
    data = heat_figure(("a", "<b>"), [[-1.0, 0.5], [-0.25, -1.0]], notes=("of a", "of b"))["data"][0]
    assert data["z"] == [[None, 0.5], [-0.25, None]]
    assert (data["zmin"], data["zmax"]) == (-0.5, 0.5)
    assert data["text"] == [["", "a → &lt;b&gt;"], ["&lt;b&gt; → a", ""]]
    assert data["customdata"] == [["", "+0.5<br>of b"], ["-0.25<br>of a", ""]]
    assert data["hovertemplate"] == "%{text}: %{customdata}<extra></extra>"
    assert heat_figure(("a", "b"), [[-1.0, 0.0], [0.0, -1.0]])["data"][0]["z"] == [[None, 0.0], [0.0, None]]
    of_row = heat_figure(("a", "b"), [[0.0, 0.1], [0.2, 0.0]], values=("x", "<y>"))["data"][0]
    assert of_row["text"] == [["", "a: x<br>→ b: &lt;y&gt;"], ["b: &lt;y&gt;<br>→ a: x", ""]]


def test_both_axes_of_the_maps_of_rows_name_field_and_value(refined: tuple[Report, Explanation]) -> None:
    report, _ = refined
    figures = figures_of(render_page(report, ""))
    for at, row in enumerate(report.measured.examples):
        labels = [escaped(label).replace("&quot;", '"') for label in row_labels(FIELDS, row.values)]
        for name in (f"row-{at}", f"row-{at}-steps"):
            layout = figures[name]["layout"]
            assert layout["xaxis"]["ticktext"] == layout["yaxis"]["ticktext"] == labels


def test_every_step_of_a_row_is_drawn_on_one_scale(refined: tuple[Report, Explanation]) -> None:
    report, found = refined
    text = render_page(report, "")
    figures, outline = figures_of(text), Outline(text)
    off = 1 - np.eye(len(FIELDS))
    for at in range(len(report.measured.examples)):
        steps = figures[f"row-{at}-steps"]["steps"]
        w_SFF, losses = found.w_RSFF[at] * off, found.loss_RSF[at].sum(axis=1)
        assert len(steps) == 4
        assert all(f"W({t})" in steps[t]["title"] and f"{x:.4g}" in steps[t]["title"] for t, x in enumerate(losses))
        drawn = np.array([[[w or 0.0 for w in line] for line in step["z"]] for step in steps])
        np.testing.assert_allclose(drawn, w_SFF, rtol=1e-4, atol=1e-6)
        heat_map = figures[f"row-{at}-steps"]["data"][0]
        assert heat_map["zmax"] == -heat_map["zmin"] == pytest.approx(np.abs(w_SFF).max(), rel=1e-4)
        said = [[[float(w or 0.0) for w in line] for line in step["customdata"]] for step in steps]
        np.testing.assert_allclose(said, w_SFF, rtol=1e-3, atol=1e-6)
        assert steps[-1]["title"] in outline.text  # what is shown at first, and on paper
        largest, change = np.abs(w_SFF).max(), np.abs(w_SFF - w_SFF[0]).max()
        assert re.search(rf"{largest:.2g}\b.*\b{change:.2g}\.", outline.text)
    assert np.abs(found.w_RSFF[:, -1] - found.w_RSFF[:, 0]).max() > 1e-3
    assert outline.tags.count("input") == len(report.measured.examples) + 1  # and the threshold
    assert text.count('<input type="range" min="0" max="3" value="3" ') == len(report.measured.examples)


def test_all_rows_share_the_scale_of_bars_and_of_maps(refined: tuple[Report, Explanation]) -> None:
    report, _ = refined
    text = render_page(report, "")
    rows = report.measured.examples
    longest = max(abs(effect) for row in rows for effect in row.effects)
    section = section_of(text, "rows")
    widths = [float(width) for width in re.findall(r"(?:left|right):50%;width:([\d.]+)%", section)]
    expected = [50 * abs(e) / longest for row in rows for e in sorted(row.effects, key=lambda e: -abs(e))]
    assert widths == pytest.approx(expected, abs=0.051)
    off = 1 - np.eye(len(FIELDS))
    largest = max(float(np.abs(np.array(row.refinement.dependencies) * off).max()) for row in rows if row.refinement)
    maps = [figures_of(text)[f"row-{at}"]["data"][0] for at in range(len(rows))]
    assert [(one["zmin"], one["zmax"]) for one in maps] == [pytest.approx((-largest, largest), rel=1e-4)] * len(rows)
    said = re.findall(r'<p class="scale">[^<]*-([\d.e-]+)<i class="gradient"></i>\+([\d.e-]+)', section)
    assert said[0::2] == [(f"{largest:.2g}", f"{largest:.2g}")] * len(rows)  # every other one is of the steps


@pytest.mark.parametrize(
    ("task", "change", "loss", "without", "facts"),
    [
        ("binary", 0.0123, 0.4, 0.5, ["1.2 percentage points", "logloss", "0.5000", "0.4000", "30 of the test rows"]),
        ("regression", 1234.5, 9e6, 1e7, ["1,234", "MSE", "10,000,000", "9,000,000"]),
    ],
)
def test_what_refinement_does_stands_first(
    runs: dict[str, Run], task: str, change: float, loss: float, without: float, facts: list[str]
) -> None:
    report = report_of(runs["binary"])
    section = dependency_text(report, task, RefinementEffect(n_rows=30, change=change, loss=loss, loss_without=without))
    first = Outline(section[: section.index("</p>") + 4]).text
    assert "efinement" in first and states(first, *facts)
    useless = RefinementEffect(n_rows=40, change=change, loss=loss, loss_without=loss)
    assert len(Outline(dependency_text(report, task, useless)).text) > len(Outline(section).text)  # a warning
    assert dependency_text(report, task, None).startswith("<h2>Which fields explain which</h2><div")


def dependency_text(report: Report, task: str, effect: RefinementEffect | None) -> str:
    """The section on dependencies of a report with this effect."""
    measured = dataclasses.replace(report.measured, refinement=effect, thresholds=None, scores=None)
    training = dataclasses.replace(report.training, task=task)
    text = render_page(dataclasses.replace(report, measured=measured, training=training, history=()), "")
    return section_of(text, "dependencies")


def test_weights_of_all_fields_over_the_steps(refined: tuple[Report, Explanation]) -> None:
    report, found = refined
    figures = figures_of(render_page(report, ""))
    for at, row in enumerate(report.measured.examples):
        figure = figures[f"row-{at}-weights"]
        share_SF = found.mu_RSF[at] / found.sparsity
        moved = np.argsort(-np.abs(share_SF[-1] - share_SF[0]), kind="stable")[::-1].tolist()
        even, *lines = figure["data"]
        assert (even["x"], even["y"], even["line"]["dash"]) == ([0, 3], [0.25, 0.25], "dash")
        np.testing.assert_allclose([line["y"] for line in lines], share_SF.T[moved], atol=1e-5)
        names = row_names(FIELDS, row.values)
        for f, line in zip(moved, lines, strict=True):
            assert line["x"] == [0, 1, 2, 3]
            said = [f"{names[f]}: {weight:.4g}" for weight in line["y"]]
            assert [html.unescape(text) for text in line["hovertext"]] == said
        labels = {html.unescape(note["text"]) for note in figure["layout"]["annotations"]}
        (even_label,) = labels - set(row_labels(FIELDS, row.values))
        assert even_label.endswith("1/4") and len(labels) == 5


@pytest.mark.parametrize("n_fields", [2, 15, 40])
def test_labels_of_weights_do_not_overlap(n_fields: int) -> None:
    rng = np.random.default_rng(0)
    share_SF = rng.dirichlet(np.ones(n_fields), size=5)
    names = [f"field {f}" for f in range(n_fields)]
    figure = weights_figure(names, share_SF.tolist(), values=["a very long value of a field"] * n_fields)
    layout, (low, high) = figure["layout"], figure["layout"]["yaxis"]["range"]
    height = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
    places = sorted(height * (high - note["y"]) / (high - low) + note["ay"] for note in layout["annotations"])
    assert len(places) == min(n_fields, N_SERIES) + 1
    assert np.diff(places).min() >= LABEL_HEIGHT - 0.2
    assert places[0] >= -0.2 and places[-1] <= height + 0.2
    assert all(low < weight < high for weight in share_SF.ravel())
    others = figure["data"][0]
    assert (others["y"].count(None) == n_fields - N_SERIES - 1) == (n_fields > N_SERIES)


def test_tiny_differences_of_weights_do_not_fill_the_figure() -> None:
    layout = weights_figure(("a", "b"), [[0.5, 0.5], [0.5001, 0.4999]], values=("x", "y"))["layout"]
    low, high = layout["yaxis"]["range"]
    assert high - low > 0.03


def test_steps_only_where_steps_were_taken(runs: dict[str, Run]) -> None:
    assert '<details class="steps">' not in render_page(report_of(runs["regression"]), "")
    report = report_of(runs["binary"])
    assert re.search(r'<details class="steps"><summary>[^<]*\b4 steps', render_page(report, ""))
    rows = []
    for row in report.measured.examples:
        assert row.refinement is not None
        start = dataclasses.replace(row.refinement, steps=row.refinement.steps[:1])
        rows.append(dataclasses.replace(row, refinement=start))
    measured = dataclasses.replace(report.measured, examples=tuple(rows))
    text = render_page(dataclasses.replace(report, measured=measured), "")
    assert '<details class="steps">' not in text
    assert "row-0-steps" not in figures_of(text)


def wide(report: Report, n_fields: int) -> Report:
    """The same report, as if there were many fields."""
    names = tuple(f"field {f}" for f in range(n_fields))
    like: FieldFacts = report.data.fields[0]
    data = dataclasses.replace(report.data, fields=tuple(dataclasses.replace(like, name=name) for name in names))
    rng = np.random.default_rng(0)
    matrix = tuple(map(tuple, rng.normal(size=(n_fields, n_fields)).tolist()))
    weights = tuple(map(float, rng.random(n_fields)))
    part = tuple(line[:12] for line in matrix[:12])
    steps = tuple(StepFacts(loss=0.1, weights=weights, w=part) for _ in range(5))
    refinement = RefinementFacts(dependencies=matrix, shown=tuple(range(12)), steps=steps)
    rows = tuple(
        dataclasses.replace(row, values=names, effects=weights, refinement=refinement)
        for row in report.measured.examples
    )
    importance = ImportanceFacts(
        metric="logloss", n_rows=500, n_repeats=3, fields=tuple((name, 0.1, float("nan")) for name in names)
    )
    measured = dataclasses.replace(report.measured, examples=rows, importance=importance)
    dependencies = DependencyFacts(fields=names, matrix=matrix)
    return dataclasses.replace(report, data=data, measured=measured, dependencies=dependencies)


def test_many_fields_are_bounded_and_said_to_be(runs: dict[str, Run]) -> None:
    text = render_page(wide(report_of(runs["binary"]), 300), "")
    figures = figures_of(text)
    assert figures["dependencies"]["cells"] == figures["row-0"]["cells"] == figures["row-0-steps"]["cells"] == 12
    assert re.search(r"\b10 of (the )?300 fields\b", text)
    assert len(figures["importance"]["data"][0]["x"]) == MAX_BARS
    for section in ("dependencies", "rows"):
        assert re.search(r"\b12 of (the )?300 fields\b", section_of(text, section))
    assert re.search(r"\b20 most important of (the )?300 fields\b", text)
    assert "275 more fields" in text
    assert "288 more fields" in text
    assert len(text) < 2_000_000


def test_the_fields_of_the_strongest_dependencies_stay(runs: dict[str, Run]) -> None:
    report = wide(report_of(runs["binary"]), 100)
    matrix = np.zeros((100, 100))
    matrix[7, 93] = 5.0
    matrix[np.arange(11), np.arange(11) + 20] += 1.0
    facts = DependencyFacts(fields=report.dependencies.fields, matrix=tuple(map(tuple, matrix.tolist())))  # type: ignore[union-attr]
    figure = figures_of(render_page(dataclasses.replace(report, dependencies=facts), ""))["dependencies"]
    shown = figure["layout"]["xaxis"]["ticktext"]
    assert "field 7" in shown
    assert "field 93" in shown
    assert len(shown) == 12


def test_long_names_do_not_merge() -> None:
    names = tuple(f"a name that is much too long {n}" for n in range(3))
    facts = ImportanceFacts(metric="mse", n_rows=9, n_repeats=1, fields=tuple((n, 1.0, 0.0) for n in names))
    axis = importance_figure(facts)["layout"]["yaxis"]
    assert axis["tickvals"] == [0, 1, 2]
    assert len(axis["ticktext"]) == 3
    assert all(len(text) == 18 for text in axis["ticktext"])


@pytest.mark.parametrize("name", RUNS)
def test_the_code_on_the_page_runs(runs: dict[str, Run], name: str) -> None:
    text = (runs[name].folder / REPORT).read_text("utf-8")
    found = re.search(r'<code class="python">(.*?)</code>', text, re.S)
    assert found is not None
    code = html.unescape(found.group(1))
    assert all(json.dumps(field) in code for field in FIELDS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "shape: (1, " in done.stdout
    assert "prediction" in done.stdout


def test_odd_values_in_the_code(runs: dict[str, Run]) -> None:
    report = report_of(runs["binary"])
    odd = 'say "hi"\\\n\t\x00\u2028é😀'
    field = dataclasses.replace(report.data.fields[0], name=odd, column=odd, example=odd)
    other = dataclasses.replace(report.data.fields[1], example=None)
    code = loading_code(dataclasses.replace(report, data=dataclasses.replace(report.data, fields=(field, other))))
    rows = code[code.index("pl.DataFrame(") + len("pl.DataFrame(") : code.index(")\nprint")]
    assert eval(rows) == {odd: [odd], other.name: [None]}


def test_drawn_again_it_is_the_same_page(runs: dict[str, Run], tmp_path: Path) -> None:
    redraw_report(runs["binary"], tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (runs["binary"].folder / REPORT).read_bytes()


def test_without_plotly(runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "can_draw", lambda: False)
    with pytest.raises(MissingExtraError, match=r"Plotly.*fielddep\[report\]"):
        write_page(report_of(runs["binary"]), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_markup_escapes_text_and_attributes() -> None:
    assert escaped("<&>") == "&lt;&amp;&gt;"
    assert escaped(Html("<b>")) == "<b>"
    assert join(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"
    assert empty_tag("input", type="range", aria_label="<") == '<input type="range" aria-label="&lt;">'
    assert tag("a", "x", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">x</a>'


def test_style_and_script_are_part_of_the_package() -> None:
    from importlib import resources

    own = resources.files("fielddep.report")
    assert {"page.css", "page.js"} <= {file.name for file in own.iterdir()}
