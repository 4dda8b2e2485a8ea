"""HTML from Python values. Plain text is escaped wherever it is put; only `Html` is taken as it is."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from fielddep.report.intervals import Interval
from fielddep.wording import amount, fixed, value_label

MAX_VALUE = 60
"""Characters of a value where there is space."""
MAX_ROW_NAME, MAX_ROW_LABEL = 32, 20
"""Characters of `field: value`, when hovering and next to a figure; both fit a phone."""


def row_names(fields: Sequence[str], values: Sequence[str]) -> list[str]:
    """What hovering calls the fields of a row: `field: value`."""
    return [value_label(field, value, MAX_ROW_NAME) for field, value in zip(fields, values, strict=True)]


def row_labels(fields: Sequence[str], values: Sequence[str]) -> list[str]:
    """What figures call the fields of a row."""
    return [value_label(field, value, MAX_ROW_LABEL) for field, value in zip(fields, values, strict=True)]


def metric_text(value: float) -> str:
    """A metric with four decimals, as most are between 0 and 1; others with the digits that matter.

    Example:
        >>> metric_text(0.5), metric_text(0.0008586), metric_text(1234.567)
        ('0.5000', '0.00086', '1,235')
    """
    if value == 0 or 1e-3 <= abs(value) <= 1:
        return fixed(value, 4)
    return amount(value, 2 if abs(value) < 1 else 4)


def interval_text(found: Interval) -> str:
    """The interval of a metric, or what chance alone gives.

    Example:
        >>> interval_text(Interval(value=0.5, low=0.4, high=0.6)), interval_text(Interval(value=0.02, by_chance=0.013))
        ('0.4000 to 0.6000', 'by chance up to 0.0130')
    """
    if found.by_chance is not None:
        return f"by chance up to {metric_text(found.by_chance)}"
    return "" if found.low is None or found.high is None else f"{metric_text(found.low)} to {metric_text(found.high)}"


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(content: str) -> Html:
    """HTML that shows a text, whatever it holds."""
    return content if isinstance(content, Html) else Html(html.escape(content))


def join(parts: Iterable[str], between: str = "") -> Html:
    """One piece of HTML after the other."""
    return Html(escaped(between).join(map(escaped, parts)))


def tag(name: str, *content: str, **attributes: str) -> Html:
    """An element; an underscore at the end of an attribute's name is dropped, one inside becomes a hyphen.

    Example:
        >>> tag("p", "a < b", tag("b", "!"), class_="note")
        '<p class="note">a &lt; b<b>!</b></p>'
    """
    return Html(f"{empty_tag(name, **attributes)}{join(content)}</{name}>")


def empty_tag(name: str, **attributes: str) -> Html:
    """An element that has no content, and so no end."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{said}>")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), name: str = "") -> Html:
    """A table that scrolls on its own where it is wider than the page.

    Args:
        header: column titles.
        rows: cells.
        numbers: positions of columns set flush right.
        name: class of the table.
    """

    def line(cells: Sequence[str], kind: str) -> Html:
        return tag("tr", *(tag(kind, c, class_="n") if at in numbers else tag(kind, c) for at, c in enumerate(cells)))

    body = tag("tbody", *(line(cells, "td") for cells in rows))
    return tag("div", tag("table", tag("thead", line(header, "th")), body, class_=name), class_="scroll")


def facts(entries: Iterable[tuple[str, str]]) -> Html:
    """Names and what they are, as a list."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in entries))


def bullets(entries: Iterable[str], *, name: str = "") -> Html:
    """A list of points."""
    return tag("ul", *(tag("li", entry) for entry in entries), class_=name)
