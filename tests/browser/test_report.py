"""The page of a report in a real browser: drawn without errors, readable, and fitting any screen and paper."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.run import REPORT, Run
from fielddep.report.build import read_report, report_training
from fielddep.report.figures import MAX_LABEL, row_names
from fielddep.report.page import write_page
from fielddep.report.sections import VERDICTS
from fielddep.wording import shorten
from tests.reports import FIELDS, make_run

webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed; pip install 'fielddep[dev]'")
Keys = webdriver.Keys
pytest.importorskip("plotly", reason="Plotly is not installed; pip install 'fielddep[report]'")

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS, SCHEMES = (375, 1440), ("light", "dark")
READABLE = 4.5
"""Contrast of text that the accessibility guidelines ask for."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium and its driver are not installed; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"model__d_embed": 4, "model__inner_step": "scaled"}
    run = make_run(tmp_path_factory.mktemp("browser") / "run", **settings)
    return report_training(run)


def show(browser: Any, page: Path, *, width: int = 1440, scheme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(page.as_uri())


def ask(browser: Any, script: str, *values: object) -> Any:
    return browser.execute_script(script, *values)


def unfold_steps(browser: Any) -> None:
    """Unfold the steps of every row, as a reader does, and wait until they are drawn."""
    for summary in browser.find_elements("css selector", ".steps > summary"):
        ask(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", summary)
        summary.click()
    _wait(
        browser,
        "return [...document.querySelectorAll('.steps .plot')].every(place => place.querySelector('svg.main-svg'))",
    )


def hover(browser: Any, plot: str, x: float, y: float) -> str:
    """What is said of a point of a figure, given in units of its axes."""
    left, top = ask(
        browser,
        "const place = document.getElementById(arguments[0]);"
        "place.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const box = place.getBoundingClientRect(), {xaxis, yaxis} = place._fullLayout;"
        "return [box.left + xaxis._offset + xaxis.l2p(arguments[1]),"
        " box.top + yaxis._offset + yaxis.l2p(arguments[2])]",
        plot,
        x,
        y,
    )
    for step in (0.5, 0):
        mouse = {"type": "mouseMoved", "x": left + step, "y": top + step}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    return _wait(browser, f"return document.querySelector('#{plot} .hoverlayer').textContent")


def contrast(first: str, second: str) -> float:
    """Contrast of two colours given as rgb(...), from 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])

    dark, light = sorted(map(luminance, (first, second)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_drawn_without_errors_and_without_overflow(browser: Any, page: Path, width: int, scheme: str) -> None:
    browser.get_log("browser")
    show(browser, page, width=width, scheme=scheme)
    assert ask(browser, "return document.querySelectorAll('.steps .plot > *').length") == 0  # drawn when unfolded
    unfold_steps(browser)
    assert browser.get_log("browser") == []
    assert ask(browser, "return document.documentElement.scrollWidth") <= width
    plots = ask(
        browser,
        "return [...document.querySelectorAll('.plot')].map(place => ({id: place.id, room: place.clientWidth,"
        " drawn: place.querySelector('svg.main-svg').clientWidth,"
        " beyond: Math.max(...[...place.querySelectorAll('.ytick text, .annotation-text')].map(text =>"
        "  text.getBoundingClientRect().right - place.getBoundingClientRect().right)),"
        " marks: place.querySelectorAll('.trace path, .barlayer path, .heatmaplayer image').length}))",
    )
    names = [plot["id"] for plot in plots]
    plain = ("learning", "calibration", "scores", "roc", "precision-recall", "dependencies", "importance")
    assert names[:7] == [f"plot-{n}" for n in plain]
    n_rows = len(ask(browser, "return [...document.querySelectorAll('.row')].map(row => row.className)"))
    assert n_rows >= 3
    assert names[7:] == [f"plot-row-{row}{what}" for row in range(n_rows) for what in ("", "-steps", "-weights")]
    assert all(plot["marks"] > 0 for plot in plots)
    assert all(0 < plot["drawn"] <= plot["room"] for plot in plots)
    assert all(plot["beyond"] <= 0 for plot in plots)


@pytest.fixture(scope="module", params=["binary", "multiclass", "regression"])
def long_page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with names of 60 characters, long values, and a target of about 200,000."""
    rng = np.random.default_rng(0)
    names = [f"{'the_name_of_a_column_of_a_table_of_houses_' * 2}"[:58] + f"{f:02d}" for f in range(14)]
    values = np.array([f"value number {v} of a long list" for v in range(5)])
    code = rng.integers(0, 5, (400, len(names)))
    price = (200_000 + 30_000 * (code[:, 0] - 2) + 50_000 * rng.normal(size=400)).round()
    target = "price_of_the_house_in_us_dollars_on_the_day_on_which_it_sold"
    labels = {
        "regression": price,
        "binary": np.where(price > 200_000, "more_than_the_house_next_to_it_sold_for", "less"),
        "multiclass": np.array([f"a_house_of_price_class_number_{c}" for c in range(3)])[code[:, 0] % 3],
    }
    table = pl.DataFrame({name: values[code[:, f]] for f, name in enumerate(names)})
    settings = {"data__target": target, "data__exclude": [], "model__d_embed": 4, "model__inner_step": "scaled"}
    folder = tmp_path_factory.mktemp("long") / "run"
    run = make_run(folder, table=table.with_columns(pl.Series(target, labels[request.param])), **settings)
    return report_training(run)


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_and_large_numbers_fit(browser: Any, long_page: Path, width: int) -> None:
    show(browser, long_page, width=width)
    unfold_steps(browser)
    ask(browser, "document.querySelectorAll('details').forEach(part => (part.open = true))")
    cut_off = (
        "const found = [], box = (element) => element.getBoundingClientRect();"
        "for (const part of document.querySelectorAll('.scroll'))"
        "  if (part.scrollWidth > part.clientWidth) found.push(part.textContent);"
        "for (const part of document.querySelectorAll('main :not(pre, pre *, .plot *)'))"
        "  if (box(part).right > window.innerWidth) found.push(part.textContent);"
        "for (const part of document.querySelectorAll('.card strong, .amount, td > *'))"
        "  if (box(part).right > box(part.parentElement).right + 1) found.push(part.textContent);"
        "for (const text of document.querySelectorAll('.plot .xtick text, .plot .ytick text, .plot .legendtext')) {"
        "  const [one, all] = [box(text), box(text.closest('.plot'))];"
        "  if (one.left < all.left - 1 || one.right > all.right + 1) found.push(text.textContent) }"
        "return found"
    )
    assert ask(browser, cut_off) == []
    assert ask(browser, "return document.querySelectorAll('.fields td').length") == 14 * 6


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_of_all_rows_have_one_scale(browser: Any, long_page: Path, width: int) -> None:
    report = read_report(Run.open(long_page.parent))
    assert report is not None
    show(browser, long_page, width=width)
    ask(browser, "document.querySelectorAll('details').forEach(part => (part.open = true))")
    drawn = ask(
        browser, "return [...document.querySelectorAll('.bar i')].map(bar => bar.getBoundingClientRect().width)"
    )
    effects = [sorted(map(abs, row.effects), reverse=True) for row in report.measured.examples]
    sizes = np.array([size for row in effects for size in row])
    np.testing.assert_allclose(drawn, sizes * max(drawn) / sizes.max(), atol=0.6)  # pixels


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_are_readable(browser: Any, page: Path, scheme: str) -> None:
    show(browser, page, scheme=scheme)
    colours = ask(
        browser,
        "const of = (query, what) => getComputedStyle(document.querySelector(query))[what];"
        "return {page: of('body', 'backgroundColor'), text: of('body', 'color'), note: of('.note', 'color'),"
        " card: of('.card', 'backgroundColor'), code: of('pre', 'backgroundColor'), link: of('summary', 'color'),"
        " warn: of('.warnings', 'backgroundColor'), tick: of('#plot-learning .xtick text', 'fill'),"
        " pills: arguments[0].map(why => {"
        "  document.querySelector('.pill').className = `pill ${why}`; return of('.pill', 'color') })}",
        list(VERDICTS),
    )
    dark = contrast(colours["page"], "rgb(0, 0, 0)") < contrast(colours["page"], "rgb(255, 255, 255)")
    assert dark == (scheme == "dark")
    for ground in ("page", "card", "code", "warn"):
        assert contrast(colours[ground], colours["text"]) >= READABLE
    for text in ("note", "link", "tick"):
        assert contrast(colours["page"], colours[text]) >= READABLE
    for pill in colours["pills"]:
        assert contrast(colours["card"], pill) >= READABLE


def test_a_change_of_the_theme_draws_the_figures_anew(browser: Any, page: Path) -> None:
    show(browser, page)
    fill = "return getComputedStyle(document.querySelector('#plot-learning .xtick text')).fill"
    before = ask(browser, fill)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert _wait(browser, f"const fill = (() => {{ {fill} }})(); return fill !== '{before}' ? fill : ''")


@pytest.mark.parametrize("width", WIDTHS)
def test_hovering_a_cell_names_the_pair_and_the_value(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width=width)
    source, dependent = 1, 2
    text = hover(browser, "plot-dependencies", dependent, source)
    value = ask(
        browser, "return document.getElementById('plot-dependencies').data[0].z[arguments[0]][arguments[1]]", 1, 2
    )
    assert text.startswith(f"{FIELDS[source]} → {FIELDS[dependent]}: {'+' if value >= 0 else '-'}")
    assert float(text.rsplit(": ", 1)[1]) * value > 0


@pytest.mark.parametrize("width", WIDTHS)
def test_hovering_the_steps_of_a_row_names_fields_and_values(browser: Any, page: Path, width: int) -> None:
    report = read_report(Run.open(page.parent))
    assert report is not None
    row = report.measured.examples[0]
    assert row.refinement is not None
    names, steps = row_names(FIELDS, row.values), row.refinement.steps
    show(browser, page, width=width)
    unfold_steps(browser)
    assert hover(browser, "plot-row-0-steps", 2, 1) == f"{names[1]}→ {names[2]}: {steps[-1].w[1][2]:+.4g}"
    weight = max(steps[3].weights)
    named = names[steps[3].weights.index(weight)]
    assert hover(browser, "plot-row-0-weights", 3, weight) == f"{named}: {weight:.4g}"
    inside = (
        "const label = document.querySelector('#plot-row-0-weights .hoverlayer').getBoundingClientRect();"
        "return label.left >= 0 && label.right <= window.innerWidth"
    )
    assert ask(browser, inside)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_control_goes_through_the_steps(browser: Any, page: Path, width: int) -> None:
    browser.get_log("browser")
    show(browser, page, width=width)
    unfold_steps(browser)
    control = browser.find_element("css selector", ".steps input")
    state = (
        "const place = document.getElementById('plot-row-0-steps');"
        "const {title, z} = JSON.parse(document.getElementById('figures').textContent)['row-0-steps']"
        "  .steps[document.querySelector('.steps input').value];"
        "return {title: place.parentElement.querySelector('output').textContent, expected: title,"
        " said: document.querySelector('.steps input').getAttribute('aria-valuetext'),"
        " fits: JSON.stringify(z) === JSON.stringify(place.data[0].z),"
        " picture: place.querySelector('.heatmaplayer image').href.baseVal,"
        " other: document.querySelectorAll('.steps output')[1].textContent}"
    )
    seen = [ask(browser, state)]
    control.send_keys(Keys.ARROW_LEFT)
    seen.append(ask(browser, state))
    control.send_keys(Keys.HOME)
    seen.append(ask(browser, state))
    moved = "return document.querySelector('.steps output').textContent.startsWith('W(2)')"
    # Pressed until it moves: what is still being drawn may shift it away from a press.
    _wait(browser, moved, before=lambda: press(browser, control, 0.5, touch=width < 500))
    seen.append(ask(browser, state))
    assert [found["title"][:5] for found in seen] == ["W(4),", "W(3),", "W(0),", "W(2),"]
    assert all(found["title"] == found["expected"] == found["said"] and found["fits"] for found in seen)
    assert len({found["picture"] for found in seen}) == 4
    assert {found["other"][:5] for found in seen} == {"W(4),"}  # the other rows stay as they are
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_threshold_follows_keys_and_fingers(browser: Any, page: Path, width: int) -> None:
    browser.get_log("browser")
    show(browser, page, width=width)
    figures = "JSON.parse(document.getElementById('figures').textContent)"
    state = (
        "const part = document.getElementById('decisions'), at = Number(part.querySelector('input').value);"
        f"const {{thresholds, dots}} = {figures}.roc, dot = document.getElementById('plot-roc').data.at(-1);"
        f"const other = document.getElementById('plot-precision-recall').data.at(-1);"
        "return {at, last: dots.length - 1, said: part.querySelector('input').getAttribute('aria-valuetext'),"
        " title: part.querySelector('output').textContent, expected: thresholds[at],"
        " cells: [...part.querySelectorAll('tbody td')].map(cell => cell.textContent),"
        f" dots: [[dot.x[0], dot.y[0]], [other.x[0], other.y[0]]],"
        f" meant: [dots[at], {figures}['precision-recall'].dots[at]]}}"
    )
    control = browser.find_element("css selector", "#decisions input")
    seen = [ask(browser, state)]
    for key in (Keys.ARROW_LEFT, Keys.HOME, Keys.END):
        control.send_keys(key)
        seen.append(ask(browser, state))
    moved = "const at = document.querySelector('#decisions input'); return at.value !== at.max ? at.value : ''"
    _wait(browser, moved, before=lambda: press(browser, control, 0.5, touch=width < 500))
    seen.append(ask(browser, state))
    start, last = seen[0]["at"], seen[0]["last"]
    assert "50 %" in seen[0]["title"]
    assert [found["at"] for found in seen[:4]] == [start, start - 1, 0, last] and 0 < seen[4]["at"] < last
    for found in seen:
        assert found["title"] == found["said"] == found["expected"]["title"]
        assert found["cells"] == found["expected"]["cells"] and len(found["cells"]) == 8
        assert found["dots"] == found["meant"]
    assert browser.get_log("browser") == []


def press(browser: Any, element: Any, share: float, *, touch: bool) -> None:
    """Touch or click an element at a share of its width."""
    ask(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    box = ask(browser, "return arguments[0].getBoundingClientRect()", element)
    at = {"x": box["left"] + share * box["width"], "y": box["top"] + box["height"] / 2}
    if touch:
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at]})
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        return
    for kind in ("mousePressed", "mouseReleased"):
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "button": "left", "clickCount": 1, **at})


def test_values_of_the_table_are_text(browser: Any, page: Path) -> None:
    show(browser, page)
    assert ask(browser, "return document.querySelectorAll('script').length") == 3
    assert FIELDS[0] in ask(browser, "return document.querySelector('#data table').textContent")
    labels = ask(browser, "return document.querySelector('#plot-importance .yaxislayer-above').textContent")
    assert "shape & size" in labels
    assert shorten(FIELDS[0], MAX_LABEL) in labels


def test_names_that_look_like_colours_are_names(browser: Any, page: Path, tmp_path: Path) -> None:
    report = read_report(Run.open(page.parent))
    assert report is not None and report.dependencies is not None and report.measured.importance is not None
    names = {name: f"@{colour}" for name, colour in zip(FIELDS, ("up", "none", "ink/0.5", ""), strict=True)}
    fields = tuple(replace(field, name=names[field.name]) for field in report.data.fields)
    ranked = tuple((names[name], mean, std) for name, mean, std in report.measured.importance.fields)
    measured = replace(report.measured, importance=replace(report.measured.importance, fields=ranked))
    changed = replace(
        report,
        data=replace(report.data, fields=fields),
        dependencies=replace(report.dependencies, fields=tuple(names.values())),
        measured=measured,
    )
    write_page(changed, tmp_path / "page.html")
    show(browser, tmp_path / "page.html")
    labels = "return [...document.querySelectorAll(arguments[0])].map(text => text.textContent)"
    assert set(ask(browser, labels, "#plot-importance .ytick text")) == set(names.values())
    assert ask(browser, labels, "#plot-dependencies .xtick text") == list(names.values())
    assert ask(browser, "return document.getElementById('plot-learning').data[1].line.color").startswith("#")


def test_a_resized_window_is_drawn_anew(browser: Any, page: Path) -> None:
    show(browser, page, width=1440)
    drawn = "return document.querySelector('#plot-learning svg.main-svg').clientWidth"
    assert ask(browser, drawn) > 500
    screen = {"width": 375, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    assert _wait(browser, f"const width = (() => {{ {drawn} }})(); return width <= 375 ? String(width) : ''")


def test_paper_is_light_and_unfolded(browser: Any, page: Path) -> None:
    show(browser, page, scheme="dark")
    state = (
        "return {ground: getComputedStyle(document.body).backgroundColor,"
        " folded: document.querySelectorAll('section > details:not([open])').length,"
        " steps: document.querySelectorAll('.steps:not([open])').length,"
        " wide: Math.max(...[...document.querySelectorAll('.plot svg.main-svg')].map(svg => svg.clientWidth))}"
    )
    before = ask(browser, state)
    assert before["folded"] == 1
    assert before["steps"] >= 3
    ask(browser, "window.dispatchEvent(new Event('beforeprint'))")
    paper = ask(browser, state)
    assert contrast(paper["ground"], "rgb(255, 255, 255)") < 1.1
    assert paper["folded"] == paper["steps"] == 0
    assert paper["wide"] <= 680
    ask(browser, "window.dispatchEvent(new Event('afterprint'))")
    assert ask(browser, state) == before


def test_paper_shows_the_last_step(browser: Any, page: Path) -> None:
    show(browser, page)
    unfold_steps(browser)
    browser.find_element("css selector", ".steps input").send_keys(Keys.HOME)
    title = "return document.querySelector('.steps output').textContent.slice(0, 4)"
    assert ask(browser, title) == "W(0)"
    ask(browser, "window.dispatchEvent(new Event('beforeprint'))")
    assert ask(browser, title) == "W(4)"
    ask(browser, "window.dispatchEvent(new Event('afterprint'))")
    assert ask(browser, title) == "W(0)"


def test_the_page_can_be_printed(browser: Any, page: Path) -> None:
    show(browser, page)
    browser.get_log("browser")
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 20
    assert browser.get_log("browser") == []
    assert page.name == REPORT


def _wait(browser: Any, script: str, before: Callable[[], None] = lambda: None) -> str:
    """What a script gives once it gives something; something else may be done before each look."""
    from selenium.webdriver.support.ui import WebDriverWait

    def look(driver: Any) -> Any:
        before()
        return driver.execute_script(script)

    return str(WebDriverWait(browser, 20).until(look))
