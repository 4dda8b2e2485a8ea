"""Numbers and names as a reader wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fielddep.explain.intervals import Interval
from fielddep.explain.labels import value_label

MAX_VALUE = 60
"""Characters of a value where there is space."""
MAX_ROW_NAME, MAX_ROW_LABEL = 32, 20
"""Characters of `field: value`, hovered and beside a figure, both on the screen of a phone."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class MetricWords:
    """What a metric is called, which way is better, and how to read it."""

    title: str
    better: str
    meaning: str


METRICS = {
    "logloss": MetricWords(
        title="logloss",
        better="lower",
        meaning="how much probability was missing from what happened; sure and wrong costs most",
    ),
    "auc": MetricWords(
        title="AUC",
        better="higher",
        meaning="how often a row of the positive class scores above one of the other; 0.5 is guessing, 1 is perfect",
    ),
    "accuracy": MetricWords(title="accuracy", better="higher", meaning="share of rows whose likeliest class is right"),
    "calibration_error": MetricWords(
        title="calibration error",
        better="lower",
        meaning=(
            "how far predicted probabilities are from what happened, on average; 0.01 is one percentage point. Chance "
            "raises it, also where every probability is right, by up to what is said below it"
        ),
    ),
    "mse": MetricWords(
        title="mean squared error", better="lower", meaning="mean of squared errors; large errors count most"
    ),
    "mae": MetricWords(
        title="mean absolute error", better="lower", meaning="mean size of an error, in the unit of the target"
    ),
}
"""Metrics in the order they are shown."""


def in_order(metrics: Mapping[str, T]) -> list[tuple[str, T]]:
    """Metrics in the order they are shown; others, such as `loss`, are left out."""
    return [(name, metrics[name]) for name in METRICS if name in metrics]


def count(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> count(1, "row"), count(12345, "row")
        ('1 row', '12,345 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def share(value: float) -> str:
    r"""A share as percent; nothing at all is a dash.

    Example:
        >>> share(0.0), share(0.0004), share(0.0123), share(0.123)
        ('-', '<\xa00.1\xa0%', '1.2\xa0%', '12\xa0%')
    """
    if value == 0:
        return "-"
    if value < 0.001:
        return "<\u00a00.1\u00a0%"
    return f"{100 * value:.0f}\u00a0%" if value >= 0.0995 else f"{100 * value:.1f}\u00a0%"


def duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(0.42), duration(75), duration(7260)
        ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def number(value: float) -> str:
    """A metric with the digits that matter.

    Example:
        >>> number(0.76422), number(1.0), number(0.0008586), number(12.3456), number(1234.567)
        ('0.7642', '1.0000', '0.00086', '12.35', '1,235')
    """
    size = abs(value)
    if 0 < size < 1e-3:
        return f"{value:.2g}"
    digits = next((4 - at for at, bound in enumerate((1, 10, 100, 1000)) if size <= bound), 0)
    return f"{value:,.{digits}f}"


def shortened(text: str, longest: int) -> str:
    """A text that ends with an ellipsis where it is too long.

    Example:
        >>> shortened("a long name", 8), shortened("name", 8)
        ('a long …', 'name')
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def row_names(fields: Sequence[str], values: Sequence[str]) -> list[str]:
    """What hovering calls the fields of a row: `field: value`."""
    return [value_label(field, value, MAX_ROW_NAME) for field, value in zip(fields, values, strict=True)]


def row_labels(fields: Sequence[str], values: Sequence[str]) -> list[str]:
    """What figures call the fields of a row."""
    return [value_label(field, value, MAX_ROW_LABEL) for field, value in zip(fields, values, strict=True)]


def luck(found: Interval) -> str:
    """How much of a metric may be luck: its interval, or what is chance alone.

    Example:
        >>> luck(Interval(value=0.5, low=0.4, high=0.6)), luck(Interval(value=0.02, by_chance=0.013))
        ('0.4000 to 0.6000', 'by chance up to 0.0130')
    """
    if found.by_chance is not None:
        return f"by chance up to {number(found.by_chance)}"
    return "" if found.low is None or found.high is None else f"{number(found.low)} to {number(found.high)}"
