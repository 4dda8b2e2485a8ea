"""How numbers, durations, sizes and names become text, everywhere in the library."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence

_MOST_NAMES = 30
_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def amount(value: float, n_digits: int = 4) -> str:
    """A number rounded to `n_digits` digits, but never coarser than a whole number.

    Example:
        >>> [amount(v) for v in (0.76422, 3.5, 1234.567, 254321.7, 0.00001234)]
        ['0.7642', '3.5', '1,235', '254,322', '1.234e-05']
        >>> [amount(v, 2) for v in (3.21, 9.96, 12345.6)]
        ['3.2', '10', '12,346']
    """
    if not math.isfinite(value) or (value and not 1e-4 <= abs(value) < 1e15):
        return f"{value:.{n_digits}g}"
    return _trimmed(fixed(value, max(0, n_digits - 1 - exponent(value, n_digits))))


def fixed(value: float, n_decimals: int) -> str:
    """A number with thousands separators and fixed decimals, for columns.

    Example:
        >>> fixed(1234.5, 2)
        '1,234.50'
    """
    return f"{value:,.{n_decimals}f}"


def exponent(value: float, n_digits: int) -> int:
    """Power of ten of the first digit, after rounding to `n_digits` digits."""
    return int(f"{value:.{n_digits - 1}e}".partition("e")[2])


def compact(value: float) -> str:
    """A count in a few characters.

    Example:
        >>> [compact(n) for n in (412, 5_382, 90_445, 999_600, 4_412_345, 1_200_000_000)]
        ['412', '5.4k', '90k', '1M', '4.4M', '1.2B']
    """
    if round(value) < 1000:
        return f"{value:.0f}"
    units = (("k", 1e3), ("M", 1e6))
    unit, size = next(((unit, size) for unit, size in units if value < 999.5 * size), ("B", 1e9))
    return amount(value / size, 2) + unit


def count(number: int, noun: str) -> str:
    """A count with its noun.

    Example:
        >>> count(1, "row"), count(12345, "row"), count(2, "search")
        ('1 row', '12,345 rows', '2 searches')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("s", "ch", "sh", "x")) else "s"
    return f"{number:,} {noun}{ending}"


def percent(share: float) -> str:
    """A share, with two digits that tell it from 0 and 100 %.

    Example:
        >>> [percent(s) for s in (0.0, 0.00012, 0.0123, 0.25, 0.9996, 1.0)]
        ['0 %', '0.012 %', '1.2 %', '25 %', '99.96 %', '100 %']
    """
    distance = 100 * min(share, 1 - share)
    n_decimals = max(0, 1 - exponent(distance, 2)) if distance > 0 else 0
    return f"{_trimmed(fixed(100 * share, min(n_decimals, 6)))} %"


def duration(seconds: float) -> str:
    """Seconds, in one or two suitable units.

    Example:
        >>> [duration(s) for s in (0.0042, 0.31, 4.21, 59.6, 72, 5809, 110700)]
        ['4.2 ms', '310 ms', '4.2 s', '1 min 0 s', '1 min 12 s', '1 h 37 min', '30 h 45 min']
    """
    if round(seconds * 1000) < 1000:
        return f"{amount(seconds * 1000, 2)} ms"
    if round(seconds) < 60:
        return f"{amount(seconds, 2)} s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{} h {} min".format(*divmod(round(seconds / 60), 60))


def rough_duration(seconds: float) -> str:
    """Seconds in one unit, for an estimate.

    Example:
        >>> [rough_duration(s) for s in (0.2, 40, 100, 833, 5500, 200_000)]
        ['1 second', '40 seconds', '2 minutes', '14 minutes', '1.5 hours', '56 hours']
    """
    if seconds < 90:
        return count(max(1, round(seconds)), "second")
    if seconds < 5400:
        return count(round(seconds / 60), "minute")
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 10 else f"{hours:.0f} hours"


def format_bytes(n_bytes: float) -> str:
    """The size of a file or of memory.

    Example:
        >>> format_bytes(6_313_241), format_bytes(10_500_000_000), format_bytes(12)
        ('6.3 MB', '10.5 GB', '12 bytes')
    """
    for unit, size in _BYTES:
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


def shorten(text: str, n_characters: int) -> str:
    """A text on one line; a long one loses its middle, because names often differ at their end.

    Example:
        >>> shorten("departure airport", 9), shorten("hour", 9)
        ('depa…port', 'hour')
    """
    text = " ".join(text.split())
    if len(text) <= n_characters:
        return text
    end = (n_characters - 1) // 2
    return f"{text[: n_characters - 1 - end]}…{text[len(text) - end :]}"


def value_label(name: str, value: str, n_characters: int) -> str:
    """The label `field: value`, shortened so that both parts stay readable.

    Example:
        >>> value_label("departure airport", "EWR", 14), value_label("hour", "between seven and nine", 14)
        ('depa…port: EWR', 'hour: betw…ine')
    """
    room = n_characters - 2
    kept = shorten(value, max(room - len(name), room // 2))
    return f"{shorten(name, room - len(kept))}: {kept}"


def listing(names: Sequence[object], most: int = 10) -> str:
    """Quoted names; of many, only the first.

    Example:
        >>> listing(["a", "b", "c"], most=2)
        "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def did_you_mean(given: object, known: Iterable[str], *, what: str = "columns") -> str:
    """Advice on an unknown name: the nearest known one, or all known ones, called `what`.

    Example:
        >>> did_you_mean("Deep_FM", ["fm", "deep-fm"], what="models")
        "did you mean 'deep-fm'?"
        >>> did_you_mean("?", ["fm", "deep-fm"], what="models")
        "models are 'fm', 'deep-fm'"
    """
    known = list(known)
    near = nearest(given, known)
    return f"{what} are {listing(known, _MOST_NAMES)}" if near is None else f"did you mean {near!r}?"


def nearest(given: object, known: Sequence[str]) -> str | None:
    """The known name most similar to an unknown one, if any is similar.

    Example:
        >>> nearest("Deep_FM", ["fm", "deep-fm"]), nearest("?", ["fm", "deep-fm"])
        ('deep-fm', None)
    """
    by_key = {_key(name): name for name in reversed(known)}
    near = difflib.get_close_matches(_key(str(given)), by_key, n=1, cutoff=0.5)
    return by_key[near[0]] if near else None


def _key(name: str) -> str:
    return name.lower().replace("_", "-")


def _trimmed(text: str) -> str:
    """A decimal number without trailing zeros."""
    return text.rstrip("0").rstrip(".") if "." in text else text
