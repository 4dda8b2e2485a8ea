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

from fielddep.errors import MissingExtraError
from fielddep.explain import page
from fielddep.explain.intervals import Interval
from fielddep.explain.page import render_page, write_page
from fielddep.explain.page.figures import MAX_BARS, heat_figure, importance_figure
from fielddep.explain.page.markup import Html, escaped, join, tag
from fielddep.explain.report import DependencyFacts, FieldFacts, ImportanceFacts, Report
from fielddep.run import REPORT, Run
from fielddep.run_report import read_report, redraw_report, report_training
from tests.reports import FIELDS, SCRIPT, make_run

RUNS: dict[str, dict[str, Any]] = {
    "binary": {"model__d_embed": 4},
    "multiclass": {"task": "multiclass", "model__d_embed": 4},
    "regression": {"task": "regression", "model__name": "fm", "split__test": 0.0},
}
SECTIONS = ["training", "data", "quality", "learning", "calibration", "scores", "dependencies", "importance", "rows"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, settings in RUNS.items():
        run, data = make_run(folder / f"{name} run", **settings)
        report_training(run, data)
        found[name] = run
    return found


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
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text += data


@pytest.mark.parametrize("name", RUNS)
def test_sections_in_their_order(runs: dict[str, Run], name: str) -> None:
    text = render_page(report_of(runs[name]), "")
    expected = [s for s in SECTIONS if s != "dependencies" or name != "regression"]
    assert re.findall(r'<section id="(\w+)">', text) == [*expected, "use"]
    figures = [n for n in figures_of(text) if not n.startswith("row-")]
    plain = ["learning", "calibration", "scores", "dependencies", "importance"]
    assert figures == [f for f in plain if f != "dependencies" or name != "regression"]


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


def test_every_colour_is_in_both_themes(runs: dict[str, Run]) -> None:
    style = (Path(page.__file__).parent / "page.css").read_text("utf-8")
    light, dark = style.split("prefers-color-scheme: dark")
    used = set()
    for run in runs.values():
        used |= set(re.findall(r'"@(\w+)', json.dumps(figures_of(render_page(report_of(run), "")))))
    assert {"blue", "orange", "low", "middle", "high"} <= used
    assert all(f"--{name}:" in light for name in used)
    assert all(f"--{name}:" in dark for name in used - {"clear"})


def test_metrics_beside_the_base_rate(runs: dict[str, Run]) -> None:
    report = report_of(runs["binary"])
    text = Outline(render_page(report, "")).text
    found = report.measured.metrics["auc"]
    assert f"{found.value:.4f}{found.low:.4f} to {found.high:.4f}0.5000" in text
    assert "Measured on 40 test rows" in text
    assert "Validation rows also decided when to stop" not in text
    assert "Validation rows also decided when to stop" in Outline(render_page(report_of(runs["regression"]), "")).text


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),  # the ends are those of the gain over the base rate
    [
        (0.25, 0.2, 0.3, "The logloss is 50 % below that of always predicting the base rate, 0.5000."),
        (0.45, -0.1, 0.2, "The logloss cannot be told from that of always predicting the base rate, 0.5000: on other"),
        (0.45, -0.1, 0.2, "it may be between 0.2000 lower and 0.1000 higher"),
        (0.7, -0.3, -0.1, "The logloss is worse than that of always predicting the base rate, 0.5000."),
    ],
)
def test_the_verdict(runs: dict[str, Run], value: float, low: float, high: float, verdict: str) -> None:
    report = report_of(runs["binary"])
    logloss = Interval(value=value, low=value - 0.3, high=value + 0.3)  # wide: it does not decide
    gain = Interval(value=0.5 - value, low=low, high=high)
    measured = dataclasses.replace(report.measured, metrics={"logloss": logloss}, base_rate={"logloss": 0.5}, gain=gain)
    assert verdict in Outline(render_page(dataclasses.replace(report, measured=measured), "")).text


def test_one_word_for_one_thing(runs: dict[str, Run]) -> None:
    report = report_of(runs["binary"])
    training = dataclasses.replace(report.training, crosses=("a x b",))
    page_text = render_page(dataclasses.replace(report, training=training), "")
    text = Outline(page_text).text
    assert f"mdl, {training.n_parameters:,} parameters for {training.n_ids:,} ids" in text
    assert "passes were kept" in text and "the weights after" not in text
    assert "a x b: pairs of fields whose joint values have ids too" in text
    assert "rare or unseen in test rows" in text
    assert "the strongestsays aboutdependency" in text
    assert "weight mu of price: " in json.dumps(figures_of(page_text)["row-0"])


def test_warnings_of_the_data(runs: dict[str, Run]) -> None:
    text = Outline(render_page(report_of(runs["binary"]), "")).text
    assert "leak alone determines good; was it recorded after the fact?" in text
    assert "same was left out: it is constant" in text


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (("right", "wrong", "random"), "Rows that the model got most right or most wrong, and one drawn at random."),
        (("right", "unsure"), "Rows that the model got most right or least surely right."),
        (("random",), "A row drawn at random."),
    ],
)
def test_only_rows_that_are_shown_are_announced(runs: dict[str, Run], chosen: tuple[str, ...], told: str) -> None:
    report = report_of(runs["binary"])
    rows = tuple(dataclasses.replace(report.measured.examples[0], why=why) for why in chosen)
    measured = dataclasses.replace(report.measured, examples=rows)
    assert told in Outline(render_page(dataclasses.replace(report, measured=measured), "")).text


def test_hovering_names_the_pair() -> None:
    figure = heat_figure(("a", "<b>"), [[-1.0, 0.5], [-0.25, -1.0]], notes=("of a", "of b"))
    assert figure["data"][0]["z"] == [[None, 1.0], [-0.5, None]]
    assert figure["data"][0]["text"] == [["", "a → &lt;b&gt;: +0.5<br>of b"], ["&lt;b&gt; → a: -0.25<br>of a", ""]]
    assert heat_figure(("a", "b"), [[-1.0, 0.0], [0.0, -1.0]])["data"][0]["z"] == [[None, 0.0], [0.0, None]]


def wide(report: Report, n_fields: int) -> Report:
    """The same report, as if there were many fields."""
    names = tuple(f"field {f}" for f in range(n_fields))
    like: FieldFacts = report.data.fields[0]
    data = dataclasses.replace(report.data, fields=tuple(dataclasses.replace(like, name=name) for name in names))
    rng = np.random.default_rng(0)
    matrix = tuple(map(tuple, rng.normal(size=(n_fields, n_fields)).tolist()))
    weights = tuple(map(float, rng.random(n_fields)))
    rows = tuple(
        dataclasses.replace(row, values=names, effects=weights, weights=weights, dependencies=matrix)
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
    assert figures["dependencies"]["cells"] == 60
    assert figures["row-0"]["cells"] == 16
    assert len(figures["importance"]["data"][0]["x"]) == MAX_BARS
    assert "The 60 of 300 fields with the strongest dependencies are shown." in text
    assert "The 20 most important of 300 fields are shown." in text
    assert "275 more fields" in text
    assert "288 more fields" in text
    assert len(text) < 2_000_000


def test_the_fields_of_the_strongest_dependencies_stay(runs: dict[str, Run]) -> None:
    report = wide(report_of(runs["binary"]), 100)
    matrix = np.zeros((100, 100))
    matrix[7, 93] = 5.0
    matrix[np.arange(59), np.arange(59) + 20] += 1.0
    facts = DependencyFacts(fields=report.dependencies.fields, matrix=tuple(map(tuple, matrix.tolist())))  # type: ignore[union-attr]
    figure = figures_of(render_page(dataclasses.replace(report, dependencies=facts), ""))["dependencies"]
    shown = figure["layout"]["xaxis"]["ticktext"]
    assert "field 7" in shown
    assert "field 93" in shown
    assert len(shown) == 60


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
    from fielddep.explain.page.about import loading_code

    report = report_of(runs["binary"])
    odd = 'say "hi"\\\n\t\x00\u2028é😀'
    field = dataclasses.replace(report.data.fields[0], name=odd, example=odd)
    other = dataclasses.replace(report.data.fields[1], example=None)
    code = loading_code(dataclasses.replace(report, data=dataclasses.replace(report.data, fields=(field, other))))
    rows = code[code.index("pl.DataFrame(") + len("pl.DataFrame(") : code.index(")\nprint")]
    assert eval(rows) == {odd: [odd], other.name: [None]}


def test_drawn_again_it_is_the_same_page(runs: dict[str, Run], tmp_path: Path) -> None:
    redraw_report(runs["binary"], tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (runs["binary"].folder / REPORT).read_bytes()


def test_without_plotly(runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "can_draw", lambda: False)
    with pytest.raises(MissingExtraError, match=r"needs Plotly; pip install 'fielddep\[report\]'"):
        write_page(report_of(runs["binary"]), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_markup_escapes_text_and_attributes() -> None:
    assert escaped("<&>") == "&lt;&amp;&gt;"
    assert escaped(Html("<b>")) == "<b>"
    assert join(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"
    assert tag("a", "x", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">x</a>'


def test_style_and_script_are_part_of_the_package() -> None:
    from importlib import resources

    own = resources.files("fielddep.explain.page")
    assert {"page.css", "page.js"} <= {file.name for file in own.iterdir()}
