"""A few rows, as a service receives them, encoded value by value.

Columns are encoded by vectorised operations, each of which costs a tenth of a millisecond even for a single value. For
a few rows, plain Python is many times faster. It falls back to columns for values it cannot handle exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from fielddep.encoding.values import DATE_TIME, SHORTEST_DATE_TIME

FEW_ROWS = 16
"""Up to this many rows are faster to encode value by value."""

_INTEGRAL = re.compile(r"(-?\d+)\.0+")
_DATE_TIME = re.compile(DATE_TIME)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")
_BOOLEANS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_INT64_LIMIT = 2**63


class NeedsColumnsError(Exception):
    """A value that only the vectorised form can handle; never leaves this package."""


def is_plain(value: object) -> bool:
    """Whether a frame of this value alone would hold it as it is: None, text, a boolean or a 64-bit number.

    Subclasses are not: numpy's float64 is a float whose text is another.
    """
    if type(value) is int:
        return -_INT64_LIMIT <= value < _INT64_LIMIT
    return value is None or type(value) in (str, bool, float)


def normal_text(text: str) -> str:
    """One spelling for integral numbers, for date-times and for booleans, as in `values.canonical`.

    Example:
        >>> [normal_text(text) for text in ("5.0", "-0.00", "10.0.0", "TRUE", "x")]
        ['5', '0', '10.0.0', 'true', 'x']
        >>> [normal_text(text) for text in ("2024-01-31 05:00", "2024-01-31T05:00:00.500", "2024-01-31 00:00:00")]
        ['2024-01-31T05:00:00', '2024-01-31T05:00:00.5', '2024-01-31']
    """
    date_time = _DATE_TIME.fullmatch(text) if len(text) >= SHORTEST_DATE_TIME else None
    if date_time is not None:
        return _normal_date_time(*date_time.groups())
    integral = _INTEGRAL.fullmatch(text)
    if integral is not None:
        return "0" if integral[1] == "-0" else integral[1]
    return _BOOLEANS.get(text, text)


def _normal_date_time(date: str, minute: str, second: str | None, fraction: str | None, zone: str | None) -> str:
    seconds = (second or ":00") + (fraction or "").rstrip("0").rstrip(".")
    if zone is None and minute + seconds == "00:00:00":
        return date
    if zone is not None:
        seconds += "+00:00" if zone == "Z" else f"{zone[:3]}:{zone[-2:]}"
    return f"{date}T{minute}{seconds}"


def missing_texts(missing_values: Iterable[str]) -> frozenset[str]:
    """Texts that mean missing, in their normal spelling."""
    return frozenset(map(normal_text, ("", *missing_values)))


def canonical_values(values: Sequence[object], missing: frozenset[str]) -> list[str | None]:
    """`values.canonical` for Python values.

    Raises:
        NeedsColumnsError: for values that are not text, whole numbers, booleans or missing.

    Example:
        >>> canonical_values(["5.0", 7, True, None, "?"], missing_texts(["?"]))
        ['5', '7', 'true', None, None]
    """
    texts = [None if value is None else _text(value) for value in values]
    return [None if text in missing else text for text in texts]


def number_values(values: Sequence[object], missing: frozenset[str]) -> np.ndarray:
    """`values.as_number` for Python values, as float64 with NaN for missing.

    Raises:
        NeedsColumnsError: for values that are not plain finite numbers, their texts, or missing.
    """
    return np.array([_number(value, missing) for value in values], dtype=np.float64)


class TextIndex:
    """Positions of texts in a long list, without a second copy of the texts.

    It keeps sorted hashes, twelve bytes per text; a dict would take more than a hundred.
    """

    def __init__(self, texts: pl.Series) -> None:
        hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
        self._order = np.argsort(hashes, kind="stable").astype(np.int32)
        self._hashes = hashes[self._order]
        self._texts = texts

    def find(self, text: str) -> int | None:
        """Position of a text, or None."""
        wanted = hash(text)
        place = int(self._hashes.searchsorted(wanted))
        while place < len(self._hashes) and self._hashes[place] == wanted:
            position = int(self._order[place])
            if self._texts[position] == text:
                return position
            place += 1
        return None


def _text(value: object) -> str:
    if isinstance(value, str):
        return normal_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _INT64_LIMIT:
        return str(int(value))
    raise NeedsColumnsError


def _number(value: object, missing: frozenset[str]) -> float:
    if value is None:
        return np.nan
    if isinstance(value, str):
        text = value.strip()
        known = normal_text(text)
        if known not in missing and _NUMBER.fullmatch(text) is None:
            raise NeedsColumnsError
    elif isinstance(value, float) and not value.is_integer() and 1e-4 <= abs(value) < 1e15:
        text = known = repr(value)
    else:
        known = _text(value)
        text = known if not isinstance(value, bool) else str(int(value))
    # Listed texts such as "-999" mean missing for typed numbers too.
    number = np.nan if known in missing else float(text)
    if math.isinf(number):  # hundreds of digits
        raise NeedsColumnsError
    return number
