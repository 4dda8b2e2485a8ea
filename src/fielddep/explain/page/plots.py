"""The figures of one page: each has a place in the HTML, and all are handed to the script together."""

from __future__ import annotations

import json

from fielddep.explain.page.figure_base import Figure
from fielddep.explain.page.markup import Html, tag


class Plots:
    """Figures by name, in the order in which they were added."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def add(self, name: str, figure: Figure, label: str) -> Html:
        """Keep a figure and give its place on the page.

        Args:
            name: unique name.
            figure: data and layout for Plotly.
            label: what it shows, for those who cannot see it.
        """
        self.figures[name] = figure
        height = figure["layout"]["height"]
        return tag("div", class_="plot", id=f"plot-{name}", role="img", aria_label=label, style=f"height:{height}px")

    def script(self) -> Html:
        """All figures as JSON that the page's script reads."""
        # No "<" may stand in a script element, as a value could end it.
        text = json.dumps(self.figures, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        return Html(f'<script type="application/json" id="figures">{text}</script>')


def colour_scale() -> Html:
    """What the colours of a heat map mean."""
    return tag("p", "opposite", tag("i", class_="gradient"), "alike", class_="scale")
