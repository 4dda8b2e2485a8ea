"""One date as text, as a service receives it, read by plain Python.

Columns are parsed by `dates.read_times`, which takes milliseconds even for a single text. What this file cannot read
with certainty to the same result, such as a leap second, is left to columns.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from fielddep.encoding.dates import ALSO_MISSING, ISO, US_PER_DAY, Part
from fielddep.encoding.one_row import NeedsColumnsError, missing_texts, normal_text

# fmt: off
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")
# fmt: on
_MONTH_NUMBERS = {name[:n]: i for i, name in enumerate(_MONTHS, start=1) for n in (3, None)}
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DIRECTIVE = re.compile(r"(%\.f|%.)")
_PATTERNS = {
    **{f"%{letter}": f"(?P<{letter}>[0-9]{{1,2}})" for letter in "mdHIMS"},
    "%Y": "(?P<Y>[0-9]{4})",
    "%b": "(?P<b>[A-Za-z]{3})",
    "%B": "(?P<b>[A-Za-z]{3,})",
    "%p": "(?P<p>[AaPp])[Mm]",
    "%.f": r"(?:\.(?P<f>[0-9]{1,9}))?",
}
_ISO = re.compile(
    r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
    r"(?:T(?P<H>[0-9]{2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})(?:\.(?P<f>[0-9]{1,9}))?"
    r"(?:(?P<sign>[+-])(?P<zh>[0-9]{2}):(?P<zm>[0-9]{2}))?)?"
)
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One time; see `dates.Times`. `instant` is in microseconds since 1970."""

    wall: dt.datetime
    instant: int

    def part(self, part: Part, origin: int) -> object:
        """What `Times.part` gives."""
        if part == "elapsed":
            return float(self.instant - origin) / float(US_PER_DAY)
        return _WEEKDAYS[self.wall.weekday()] if part == "weekday" else getattr(self.wall, part)


def read_time(value: object, time_format: str, missing_values: tuple[str, ...]) -> Moment | None:
    """The time of a text; None for missing.

    Raises:
        NeedsColumnsError: for what only `dates.read_times` can read, or find to be no date.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise NeedsColumnsError
    text = value.strip()
    normal = normal_text(text)
    if normal in _missing(missing_values):
        return None
    found = _ISO.fullmatch(normal) if time_format == ISO else _pattern(time_format).fullmatch(text)
    if found is None:
        raise NeedsColumnsError
    return _moment(found.groupdict())


def _moment(cells: Mapping[str, str | None]) -> Moment:
    hour = int(cells.get("H") or 0)
    if cells.get("p"):
        twelve = int(cells.get("I") or 0)
        if not 1 <= twelve <= 12:
            raise NeedsColumnsError
        hour = twelve % 12 + (12 if cells["p"] in ("p", "P") else 0)
    month = _MONTH_NUMBERS.get((cells.get("b") or "").lower()) or int(cells.get("m") or 0)
    fraction = int((cells.get("f") or "").ljust(6, "0")[:6])
    clock = (hour, int(cells.get("M") or 0), int(cells.get("S") or 0), fraction)
    try:
        wall = dt.datetime(int(cells["Y"] or 0), month, int(cells["d"] or 0), *clock)
    except ValueError:
        raise NeedsColumnsError from None
    offset = dt.timedelta(hours=int(cells.get("zh") or 0), minutes=int(cells.get("zm") or 0))
    instant = (wall - _EPOCH - (-offset if cells.get("sign") == "-" else offset)) // _MICROSECOND
    return Moment(wall=wall, instant=instant)


@lru_cache(maxsize=256)
def _pattern(time_format: str) -> re.Pattern[str]:
    """The texts of a format; `NeedsColumnsError` if it has directives that only Polars knows, or no complete date."""
    pieces = [piece for piece in _DIRECTIVE.split(time_format.replace(".%f", "%.f")) if piece]
    known = {piece for piece in pieces if piece.startswith("%")}
    complete = {"%Y", "%d"} <= known and known & {"%m", "%b", "%B"} and ("%I" in known) == ("%p" in known)
    repeated = len(known) < sum(piece.startswith("%") for piece in pieces)
    if not complete or repeated or not known <= _PATTERNS.keys() or not _is_separated(pieces):
        raise NeedsColumnsError
    return re.compile("".join(_PATTERNS.get(piece) or re.escape(piece) for piece in pieces))


def _is_separated(pieces: list[str]) -> bool:
    """Whether text stands between directives: where digits meet, two readers may cut them in different places."""
    return not any(a.startswith("%") and b.startswith("%") and b != "%.f" for a, b in pairwise(pieces))


@lru_cache(maxsize=16)
def _missing(missing_values: tuple[str, ...]) -> frozenset[str]:
    return missing_texts((*missing_values, *ALSO_MISSING))
