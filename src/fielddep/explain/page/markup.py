"""HTML from Python values. Plain text is escaped wherever it is put; only `Html` is taken as it is."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


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
    """An element; an underscore at the end of an attribute's name is left out, one inside is a hyphen.

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
