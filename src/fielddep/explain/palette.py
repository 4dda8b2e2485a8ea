"""The colours of all figures, named by what they mean: pictures are drawn in `LIGHT`, the report page in either."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Palette:
    """One theme, as hexadecimal colours.

    Attributes:
        page: background of the page.
        surface: background of cards and pictures.
        code: background of code.
        warning: background of warnings.
        ink: text.
        muted: secondary text, reference lines, and the training rows.
        line: grid lines, and lines too many to name.
        accent: what is measured of the model on held-out rows; links.
        up: pushes the prediction up; a dependency above 0.
        down: pushes the prediction down; a dependency below 0.
        zero: a dependency of 0.
        right: a prediction that came true.
        wrong: a prediction that did not.
        series: lines to tell apart, such as fields and classes. The first two suit a negative and a positive class.
    """

    page: str
    surface: str
    code: str
    warning: str
    ink: str
    muted: str
    line: str
    accent: str
    up: str
    down: str
    zero: str
    right: str
    wrong: str
    series: tuple[str, ...]

    def by_name(self) -> dict[str, str]:
        """Every colour under one name; `series0`, `series1`, ... for the series."""
        named: dict[str, str] = {name: value for name, value in asdict(self).items() if name != "series"}
        return named | {f"series{n}": colour for n, colour in enumerate(self.series)}


LIGHT = Palette(
    page="#fbfaf8",
    surface="#ffffff",
    code="#f4f2ee",
    warning="#fbf1e4",
    ink="#22262b",
    muted="#646b75",
    line="#e4e2dd",
    accent="#0e6f6b",
    up="#c4621b",
    down="#2868a8",
    zero="#f4f2ee",
    right="#2f7d3b",
    wrong="#b2434b",
    series=(
        *("#2868a8", "#c4621b", "#2f7d5b", "#7a5aa6", "#b2434b"),
        *("#a8860d", "#3f9fc9", "#c06a9e", "#80654a", "#6f7d2a"),
    ),
)
DARK = Palette(
    page="#14171b",
    surface="#1b1f25",
    code="#22272e",
    warning="#33291d",
    ink="#e4e7eb",
    muted="#a0a8b3",
    line="#313740",
    accent="#5cc8bd",
    up="#f0a062",
    down="#74b0ec",
    zero="#262b32",
    right="#7ecb8a",
    wrong="#e58a90",
    series=(
        *("#74b0ec", "#f0a062", "#79c6a0", "#b79ce0", "#e58a90"),
        *("#d9bd56", "#8fd6f2", "#e3a3c8", "#c2a585", "#b3c06a"),
    ),
)
N_SERIES = len(LIGHT.series)
"""Lines of a figure with a colour of their own; more are drawn as `Palette.line`."""
