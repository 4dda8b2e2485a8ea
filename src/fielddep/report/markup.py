"""HTML from Python values. Plain text is escaped everywhere; only `Html` is taken as it is."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from fielddep.report.figures import Figure
from fielddep.report.intervals import Interval
from fielddep.wording import amount, fixed


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def escaped(content: str) -> Html:
    """Text as HTML."""
    return content if isinstance(content, Html) else Html(html.escape(content))


def join(parts: Iterable[str], between: str = "") -> Html:
    """Parts one after another as HTML."""
    return Html(escaped(between).join(map(escaped, parts)))


def tag(name: str, *content: str, **attributes: str) -> Html:
    """An element. In names of attributes, a trailing underscore is dropped and others become hyphens.

    Example:
        >>> tag("p", "a < b", tag("b", "!"), class_="note")
        '<p class="note">a &lt; b<b>!</b></p>'
    """
    return Html(f"{empty_tag(name, **attributes)}{join(content)}</{name}>")


def empty_tag(name: str, **attributes: str) -> Html:
    """An element without content and end tag."""
    text = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{text}>")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), name: str = "") -> Html:
    """A table of class `name` that scrolls if it is too wide; `numbers` are the positions of right-aligned columns.

    Numbers carry their header as a label, for tables that phones show without one.
    """

    def line(cells: Sequence[str], kind: str) -> Html:
        return tag("tr", *(cell(kind, at, text) for at, text in enumerate(cells)))

    def cell(kind: str, at: int, text: str) -> Html:
        labels = {"data_label": header[at]} if kind == "td" else {}
        return tag(kind, text, class_="n", **labels) if at in numbers else tag(kind, text)

    body = tag("tbody", *(line(cells, "td") for cells in rows))
    return tag("div", tag("table", tag("thead", line(header, "th")), body, class_=name), class_="scroll")


def bullets(entries: Iterable[str], *, name: str) -> Html:
    """A list of points of the given class."""
    return tag("ul", *(tag("li", entry) for entry in entries), class_=name)


def captioned(figure: Html, caption: str) -> Html:
    """A figure with a caption below."""
    return tag("figure", figure, tag("figcaption", caption))


def metric_text(value: float) -> str:
    """A metric with four decimals, because most are between 0 and 1; others with the digits that matter.

    Example:
        >>> metric_text(0.5), metric_text(0.0008586), metric_text(1234.567)
        ('0.5000', '0.00086', '1,235')
    """
    if value == 0 or 1e-3 <= abs(value) <= 1:
        return fixed(value, 4)
    return amount(value, 2 if abs(value) < 1 else 4)


def interval_text(found: Interval) -> str:
    """The interval of a metric, or how large it may be by chance.

    Example:
        >>> interval_text(Interval(value=0.5, low=0.4, high=0.6)), interval_text(Interval(value=0.02, by_chance=0.013))
        ('0.4000 to 0.6000', 'up to 0.0130 by chance')
    """
    if found.by_chance is not None:
        return f"up to {metric_text(found.by_chance)} by chance"
    return "" if found.low is None or found.high is None else f"{metric_text(found.low)} to {metric_text(found.high)}"


def effect_bar(effect: float, largest: float) -> Html:
    """A bar to the right for what raises the prediction, to the left for what lowers it, and the effect as text."""
    width = 50 * abs(effect) / largest
    side = f"left:50%;width:{width:.1f}%" if effect >= 0 else f"right:50%;width:{width:.1f}%"
    bar = tag("span", tag("i", class_="up" if effect >= 0 else "down", style=side), class_="bar")
    return join([bar, " ", tag("span", effect_text(effect), class_="amount")])


def effect_text(effect: float) -> str:
    """An effect with two decimals; a large one, in the unit of a target, without."""
    return f"{effect:+,.{2 if abs(effect) < 100 else 0}f}"


class Plots:
    """The figures of a page by name, in order."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def add(self, name: str, figure: Figure, label: str) -> Html:
        """Keep a figure and return its place on the page; screen readers read the label."""
        self.figures[name] = figure
        height = figure["layout"]["height"]
        return tag("div", class_="plot", id=f"plot-{name}", role="img", aria_label=label, style=f"height:{height}px")

    def script(self) -> Html:
        """All figures as JSON for the script of the page."""
        # Without "<", no value can end the script element.
        text = json.dumps(self.figures, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        return Html(f'<script type="application/json" id="figures">{text}</script>')


def colour_scale(heat_map: Figure) -> Html:
    """What the colours of a heat map mean, with the dependencies at both ends."""
    largest = f"{heat_map['data'][0]['zmax']:.2g}"
    return tag("p", f"opposite, -{largest}", tag("i", class_="gradient"), f"+{largest}, alike", class_="scale")
