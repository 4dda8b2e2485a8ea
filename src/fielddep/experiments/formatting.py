"""Formatting: how numbers become text in every table. All rules stand here.

- A metric has as many decimals as show two digits of the usual spread over seeds, the same in a whole column.
- Counts are short (4.4M), durations are spoken (1 min 12 s), other amounts have thousand separators.
- Tests are printed as in the paper (-2.632E-03); a p value too small to mean anything is "<1E-16".
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from fielddep.experiments.summary import Summary

ABSENT = "-"
PLUS_MINUS = "±"
_SMALLEST_P = 1e-16
_DIGITS_OF_SPREAD = 2
_DIGITS_WITHOUT_SPREAD = 4
_MOST_DIGITS = 8


def decimals(summaries: Sequence[Summary]) -> int:
    """Decimals of a column: two digits of the median spread, four digits of the largest mean where there is none.

    Example:
        >>> decimals([Summary(mean=0.98, sd=0.0008, n=5), Summary(mean=0.97, sd=0.0009, n=5)])
        5
    """
    largest = max((abs(summary.mean) for summary in summaries), default=0.0)
    size = _exponent(largest, _DIGITS_WITHOUT_SPREAD)
    spreads = [summary.sd for summary in summaries if summary.sd > 0]
    if not spreads:
        return max(0, _DIGITS_WITHOUT_SPREAD - 1 - size)
    wanted = _DIGITS_OF_SPREAD - 1 - _exponent(statistics.median(spreads), _DIGITS_OF_SPREAD)
    return max(0, min(wanted, _MOST_DIGITS - 1 - size))


def with_spread(summary: Summary, text: Callable[[float], str], *, show_zero: bool = False) -> str:
    """Mean ± standard deviation, the latter only where there are several runs and, unless asked for, it is not 0.

    Example:
        >>> with_spread(Summary(mean=72, sd=3.1, n=5), duration)
        '1 min 12 s ± 3.1 s'
    """
    if summary.n < 2 or (summary.sd == 0 and not show_zero):
        return text(summary.mean)
    return f"{text(summary.mean)} {PLUS_MINUS} {text(summary.sd)}"


def fixed(value: float, n_decimals: int) -> str:
    """A number with thousand separators.

    Example:
        >>> fixed(1234.5678, 2)
        '1,234.57'
    """
    return f"{value:,.{n_decimals}f}"


def amount(value: float) -> str:
    """A quantity of which whole numbers are enough; one decimal below ten.

    Example:
        >>> amount(12345.6), amount(3.21)
        ('12,346', '3.2')
    """
    return fixed(value, 0 if round(value, 1) >= 10 else 1)


def count(value: float) -> str:
    """A number of things in two or three characters and a unit.

    Example:
        >>> [count(n) for n in (412, 5_382, 90_445, 999_600, 4_412_345, 1_200_000_000)]
        ['412', '5.4k', '90k', '1.0M', '4.4M', '1.2B']
    """
    if round(value) < 1000:
        return f"{value:.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("B", 1e9)):
        short = f"{value / size:.1f}" if round(value / size, 1) < 10 else f"{value / size:.0f}"
        if unit == "B" or float(short) < 1000:
            break
    return short + unit


def duration(seconds: float) -> str:
    """Seconds in the two units a reader would use.

    Example:
        >>> [duration(s) for s in (0.0042, 0.31, 4.21, 59.6, 72, 5809, 110700)]
        ['4.2 ms', '310 ms', '4.2 s', '1 min 0 s', '1 min 12 s', '1 h 37 min', '30 h 45 min']
    """
    if round(seconds * 1000) < 1000:
        return f"{_short(seconds * 1000)} ms"
    if round(seconds) < 60:
        return f"{_short(seconds)} s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def scientific(value: float | None) -> str:
    """Four digits and an exponent, as the paper prints its tests.

    Example:
        >>> scientific(-0.0026324), scientific(None)
        ('-2.632E-03', '-')
    """
    return ABSENT if value is None else f"{value:.3E}"


def p_value(p: float | None) -> str:
    """A p value; what lies below the precision of any such test is not spelled out.

    Example:
        >>> p_value(0.0375), p_value(1e-40)
        ('3.750E-02', '<1E-16')
    """
    return "<1E-16" if p is not None and p < _SMALLEST_P else scientific(p)


def _short(value: float) -> str:
    return f"{value:.1f}" if round(value, 1) < 10 else f"{value:.0f}"


def _exponent(value: float, n_digits: int) -> int:
    """Power of ten of a number's first digit once it is rounded to so many digits."""
    return int(f"{value:.{n_digits - 1}e}".partition("e")[2])
