"""The page of a report in a real browser: drawn without errors, readable, and fitting any screen and paper."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fielddep.explain.page import write_page
from fielddep.explain.page.dependencies import VERDICTS
from fielddep.run import REPORT, Run
from fielddep.run_report import read_report, report_training
from tests.reports import FIELDS, make_run

webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed; pip install 'fielddep[dev]'")
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
    run, data = make_run(tmp_path_factory.mktemp("browser") / "run", model__d_embed=4)
    return report_training(run, data)


def show(browser: Any, page: Path, *, width: int = 1440, scheme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(page.as_uri())


def ask(browser: Any, script: str, *values: object) -> Any:
    return browser.execute_script(script, *values)


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
    assert browser.get_log("browser") == []
    assert ask(browser, "return document.documentElement.scrollWidth") <= width
    plots = ask(
        browser,
        "return [...document.querySelectorAll('.plot')].map(place => ({id: place.id, room: place.clientWidth,"
        " drawn: place.querySelector('svg.main-svg').clientWidth,"
        " marks: place.querySelectorAll('.trace path, .barlayer path, .heatmaplayer image').length}))",
    )
    names = [plot["id"] for plot in plots]
    assert names[:5] == [f"plot-{n}" for n in ("learning", "calibration", "scores", "dependencies", "importance")]
    assert len([name for name in names if name.startswith("plot-row-")]) >= 3
    assert all(plot["marks"] > 0 for plot in plots)
    assert all(0 < plot["drawn"] <= plot["room"] for plot in plots)


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
    x, y = ask(
        browser,
        "const place = document.getElementById('plot-dependencies');"
        "place.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const box = place.getBoundingClientRect(), {xaxis, yaxis} = place._fullLayout;"
        "return [box.left + xaxis._offset + xaxis.l2p(arguments[0]),"
        " box.top + yaxis._offset + yaxis.l2p(arguments[1])]",
        dependent,
        source,
    )
    for step in (3, 0):
        mouse = {"type": "mouseMoved", "x": x + step, "y": y + step}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    shown = "return document.querySelector('#plot-dependencies .hoverlayer').textContent"
    text = _wait(browser, shown)
    value = ask(
        browser, "return document.getElementById('plot-dependencies').data[0].z[arguments[0]][arguments[1]]", 1, 2
    )
    assert text.startswith(f"{FIELDS[source]} → {FIELDS[dependent]}: {'+' if value >= 0 else '-'}")
    assert float(text.rsplit(": ", 1)[1]) * value > 0


def test_values_of_the_table_are_text(browser: Any, page: Path) -> None:
    show(browser, page)
    assert ask(browser, "return document.querySelectorAll('script').length") == 3
    assert FIELDS[0] in ask(browser, "return document.querySelector('#data table').textContent")
    labels = ask(browser, "return document.querySelector('#plot-importance .yaxislayer-above').textContent")
    assert "shape & size" in labels
    assert "<script>alert(1)<…" in labels


def test_names_that_look_like_colours_are_names(browser: Any, page: Path, tmp_path: Path) -> None:
    report = read_report(Run.open(page.parent))
    assert report is not None and report.dependencies is not None and report.measured.importance is not None
    names = {name: f"@{colour}" for name, colour in zip(FIELDS, ("blue", "none", "ink/0.5", ""), strict=True)}
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
        " wide: Math.max(...[...document.querySelectorAll('.plot svg.main-svg')].map(svg => svg.clientWidth))}"
    )
    before = ask(browser, state)
    assert before["folded"] == 1
    ask(browser, "window.dispatchEvent(new Event('beforeprint'))")
    paper = ask(browser, state)
    assert contrast(paper["ground"], "rgb(255, 255, 255)") < 1.1
    assert paper["folded"] == 0
    assert paper["wide"] <= 680
    ask(browser, "window.dispatchEvent(new Event('afterprint'))")
    assert ask(browser, state) == before


def test_the_page_can_be_printed(browser: Any, page: Path) -> None:
    show(browser, page)
    browser.get_log("browser")
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 20
    assert browser.get_log("browser") == []
    assert page.name == REPORT


def _wait(browser: Any, script: str) -> str:
    """What a script gives once it gives something."""
    from selenium.webdriver.support.ui import WebDriverWait

    return str(WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(script)))
