"""Dates: columns of dates and timestamps as times, and the parts of a time that become fields.

Typed columns are taken as they are; text is parsed by one format per column. Parts such as the hour are those of the
clock where the time was recorded. Elapsed time and order go by the instant, so there a zone or an offset counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, get_args

import polars as pl

from fielddep.encoding.values import (
    DATE_TIME,
    NUMBER_MISSING,
    canonical,
    plain_text,
    shorten,
    try_numbers,
    without_missing,
)
from fielddep.errors import SchemaError, SplitError

Part = Literal["year", "month", "day", "weekday", "hour", "elapsed"]
PARTS: tuple[Part, ...] = get_args(Part)

ISO = "iso"
"""Name of the format of all ISO forms: a date, with or without time, fraction and zone."""
MAX_UNFIT = 0.05
"""Share of cells that may miss a format named in the settings; they are missing."""

_DAY_FIRST = {"%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y"}
"""Dates whose values decide whether the day or the month comes first, each with the other order."""
_DATES = ("%Y/%m/%d", "%d.%m.%Y", *(order for pair in _DAY_FIRST.items() for order in pair))
_NAMED_MONTHS = ("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S%.f", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = (ISO, *("".join(pair) for pair in product((*_DATES, *_NAMED_MONTHS), _CLOCKS)))

_DIRECTIVE = re.compile(r"(%\.f|%.)")
_DIGITS = {
    **dict.fromkeys(("%m", "%d", "%H", "%I", "%M", "%S"), "[0-9]{1,2}"),
    "%Y": "[0-9]{4}",
    "%b": "[A-Za-z]{3}",
    "%B": "[A-Za-z]{3,}",
    "%p": "[AaPp][Mm]",
    "%.f": r"(?:\.[0-9]+)?",
}
"""What a directive may match: Polars alone would read the version 1.2.3 as a date of the year 3."""
_ISO_FORMAT = "%Y-%m-%dT%H:%M:%S%.f"
_ISO_TEXT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9:.]+)([+-][0-9]{2}:[0-9]{2})?)?$"
_ZONE = r"\s*(Z|[+-][0-9]{2}:?[0-9]{2})$"
_N_TRIED = 50
_MANY_TEXTS = 1_000


US_PER_DAY = 86_400_000_000
ALSO_MISSING = (*NUMBER_MISSING, "NaT")
"""Texts that mean missing if a date is expected; pandas may write NaT."""


def is_date_type(dtype: pl.DataType) -> bool:
    """Whether a column of this type holds dates."""
    return isinstance(dtype, (pl.Date, pl.Datetime))


@dataclass(frozen=True, kw_only=True, eq=False)
class Times:
    """Times of some cells, as `Datetime("us")`; null for missing.

    Attributes:
        wall: what the clock showed where the time was recorded.
        instant: the same in UTC, if the zone is known.
    """

    wall: pl.Series
    instant: pl.Series

    def part(self, part: Part, origin: int = 0) -> pl.Series:
        """One part of every time: whole numbers, the name of the weekday, or days since `origin` with fractions.

        `origin` is in microseconds since 1970.
        """
        found: pl.Series
        if part == "elapsed":
            since = (self.instant.to_physical() - origin).cast(pl.Float64).fill_null(float("nan"))
            # Polars would multiply by the inverse, and a whole number of days would not be whole.
            return pl.Series(since.to_numpy() / US_PER_DAY).fill_nan(None)
        found = self.wall.dt.strftime("%a") if part == "weekday" else getattr(self.wall.dt, part)()
        return found

    def varying_parts(self) -> list[Part]:
        """Parts with more than one value; the elapsed time if there are none."""
        return [part for part in PARTS if self.part(part).drop_nulls().n_unique() > 1] or ["elapsed"]

    def earliest(self) -> int:
        """The first instant, in microseconds since 1970; 0 without any."""
        first = self.instant.to_physical().min()
        return first if isinstance(first, int) else 0


def part_name(column: str, part: Part) -> str:
    """Name of the field for a part of the dates in a column."""
    return f"{column}: {part}"


def is_part_name(name: str, columns: Iterable[str]) -> bool:
    """Whether a field for a part of one of these columns could have the name."""
    return any(name.rstrip("_") == part_name(column, part) for column in columns for part in PARTS)


def read_times(column: pl.Series, time_format: str, missing_values: Iterable[str] = ("",)) -> Times:
    """The times of a column; null for missing cells and for text of another format.

    Args:
        column: dates, timestamps, text, or numbers whose digits are a date.
        time_format: `ISO` or a format of strptime, as Polars or Python write it.
        missing_values: texts that mean missing.

    Raises:
        SchemaError: for a format that cannot be used.
    """
    if is_date_type(column.dtype):
        return _typed(without_missing(column, missing_values))
    text = _texts(column, missing_values)
    if len(text) <= _MANY_TEXTS:
        return _parse(text, time_format)
    distinct = text.unique()
    found = _parse(distinct, time_format)
    known = pl.DataFrame({"text": distinct, "wall": found.wall, "instant": found.instant})
    cells = pl.DataFrame({"text": text}).join(known, on="text", how="left", nulls_equal=True, maintain_order="left")
    return Times(wall=cells["wall"], instant=cells["instant"])


def _texts(column: pl.Series, missing_values: Iterable[str]) -> pl.Series:
    """Stripped texts; null for missing."""
    return plain_text(column, (*missing_values, *ALSO_MISSING))


def time_text(origin: int, time_format: str) -> str:
    """A time, in microseconds since 1970, as a column of this format has it."""
    time = pl.Series([origin]).cast(pl.Datetime("us"))
    if time_format == ISO:
        return str(canonical(time)[0])
    return str(time.dt.strftime(_polars_format(time_format))[0])


def _typed(column: pl.Series) -> Times:
    wall = instant = column
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        wall = column.dt.replace_time_zone(None)
        instant = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    # Times beyond the range of microseconds, 290,000 years from now, are missing.
    unit = pl.Datetime("us")
    return Times(wall=wall.cast(unit, strict=False), instant=instant.cast(unit, strict=False))


# --- text -----------------------------------------------------------------------------------------------------


def _parse(text: pl.Series, time_format: str) -> Times:
    if time_format == ISO:
        names = ["day", "clock", "zone"]
        cells = canonical(text).str.extract_groups(_ISO_TEXT).struct.rename_fields(names).struct.unnest()
        body = cells.select(pl.concat_str("day", pl.lit("T"), pl.col("clock").fill_null("00:00:00"))).to_series()
        return _with_zone(_strptime(body, _ISO_FORMAT), cells["zone"])
    if time_format.endswith("%z"):
        # Polars would give the instant only, and lose what the clock showed.
        return _with_zone(_strptime(text.str.replace(_ZONE, ""), time_format[:-2].rstrip()), text.str.extract(_ZONE))
    wall = _strptime(text, time_format)
    return Times(wall=wall, instant=wall)


def _with_zone(wall: pl.Series, zone: pl.Series) -> Times:
    if zone.null_count() == len(zone):
        return Times(wall=wall, instant=wall)
    digits = zone.replace("Z", "+0000").str.replace(":", "", literal=True).cast(pl.Int64)
    sign = pl.when(digits < 0).then(-1).otherwise(1)
    minutes = sign * (digits.abs() // 100 * 60 + digits.abs() % 100)
    offset = pl.select(pl.duration(minutes=minutes.fill_null(0), time_unit="us")).to_series()
    return Times(wall=wall, instant=wall - offset)


def _strptime(text: pl.Series, time_format: str) -> pl.Series:
    wanted = _polars_format(time_format)
    guard = _guard(wanted)
    if guard is not None:
        text = pl.select(pl.when(text.str.contains(guard)).then(text)).to_series()
    if re.search("%[:#]*z", wanted):
        raise SchemaError(f"a format may have a zone at its end only, as %z; given {time_format!r}. Remove the zone")
    try:
        times: pl.Series = text.str.strptime(pl.Datetime("us"), wanted, strict=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise SchemaError(f"a format of dates must be one of strptime; given {time_format!r}: {reason}") from None
    return times


def _polars_format(time_format: str) -> str:
    """Python writes fractions of a second as .%f, Polars as %.f."""
    return time_format.replace(".%f", "%.f")


@lru_cache(maxsize=256)
def _guard(time_format: str) -> str | None:
    """A pattern of the texts of a format; None if it has directives that only Polars knows."""
    if time_format == ISO:
        return f"^(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|{DATE_TIME})$"
    pieces = _DIRECTIVE.split(time_format)
    if any(piece.startswith("%") and piece not in _DIGITS for piece in pieces):
        return None
    return f"^{''.join(_DIGITS.get(piece) or re.escape(piece) for piece in pieces)}$"


# --- formats --------------------------------------------------------------------------------------------------


def find_format(column: pl.Series, missing_values: Iterable[str] = ("",)) -> str | None:
    """The format by which every known value of a column is a date; None if there is none.

    Where the values leave open which of day and month comes first, the day does; see `is_guess`.
    """
    if is_date_type(column.dtype):
        return ISO
    if column.dtype != pl.String:
        return None
    known = _texts(column, missing_values).drop_nulls()
    if not len(known):
        return None
    possible = [name for name in _FORMATS if re.match(_guard(name) or "", known[0])]
    return next((name for name in possible if _fits(known.head(_N_TRIED), name) and _fits(known, name)), None)


def _fits(texts: pl.Series, time_format: str) -> bool:
    if _parse(texts, time_format).wall.has_nulls():
        return False
    return time_format != ISO or texts.str.contains(f"[0-9]{_ZONE}").n_unique() == 1


def is_guess(column: pl.Series, time_format: str, missing_values: Iterable[str] = ("",)) -> bool:
    """Whether the other order of day and month would fit all values of a text column too."""
    day, space, clock = time_format.partition(" ")
    if day not in _DAY_FIRST or column.dtype != pl.String:
        return False
    found, other = (read_times(column, f"{d}{space}{clock}", missing_values).wall for d in (day, _DAY_FIRST[day]))
    return not (found.is_not_null() & other.is_null()).any()


def choose_format(
    column: pl.Series,
    rows: pl.Series,
    given: str | None = None,
    missing_values: Iterable[str] = ("",),
    every: pl.Series | None = None,
) -> str:
    """The format of a column that must hold dates: the given one, or the one that most cells fit.

    Args:
        column: different values.
        rows: rows of each.
        given: format named in the settings.
        missing_values: texts that mean missing.
        every: values of more rows, which may show whether the day or the month comes first.

    Raises:
        SchemaError: quotes a cell if more than a few per cent do not fit.
    """
    if is_date_type(column.dtype):
        return given or ISO
    found = find_format(column if every is None else every, missing_values) if given is None else None
    if found is not None:
        return found
    known = _texts(column, missing_values)
    rows, known = rows.filter(known.is_not_null()), known.drop_nulls()
    unfit = {name: _parse(known, name).wall.is_null() for name in ([given] if given else _FORMATS)}
    best = min(unfit, key=lambda name: int(rows.filter(unfit[name]).sum()))
    share = rows.filter(unfit[best]).sum() / max(rows.sum(), 1)
    if share > MAX_UNFIT:
        text = shorten(known.filter(unfit[best])[0])
        wanted = f"dates of the format {given!r}" if given else "dates of one format"
        raise SchemaError(
            f"column {column.name!r} must hold {wanted}; {share:.0%} of its cells do not fit, such as {text!r}. "
            f"Correct data.date_formats.{column.name}, or list such texts in data.missing_values"
        )
    return best


# --- times of a split -----------------------------------------------------------------------------------------


def typed_times(
    column: pl.Series,
    time_format: str | None = None,
    missing_values: Iterable[str] = ("",),
    first_row: int | None = None,
) -> pl.Series:
    """Times in a type that sorts by time, or plain numbers; null for missing.

    Args:
        column: dates, timestamps, numbers or text.
        time_format: format of text, if it is known.
        missing_values: texts that mean missing.
        first_row: number of the first row in a longer table, for error messages; None if cells are no rows.

    Raises:
        SplitError: for text that is neither numbers nor dates of one format.
    """
    if column.dtype.is_temporal():
        return column
    if time_format is None:
        # Typed numbers keep their type, because Float64 would round large whole numbers.
        numbers = column if column.dtype.is_numeric() else try_numbers(column, missing_values)
        if numbers is not None:
            return numbers.fill_nan(None) if numbers.dtype.is_float() else numbers
    known = _texts(column, missing_values)
    time_format = time_format or find_format(known)
    times = None if time_format is None else _parse(known, time_format).instant
    if times is not None and times.null_count() == known.null_count():
        return times
    is_bad = known.is_not_null() if times is None else known.is_not_null() & times.is_null()
    at = int(is_bad.arg_true()[0])
    place = "" if first_row is None else f" in row {first_row + at} (counted from 0)"
    raise SplitError(
        f"split.column {column.name!r} must hold numbers, dates or ISO times of one format, such as 2024-01-31 or "
        f"2024-01-31T12:00:00; it holds values such as {shorten(known[at])!r}{place}. Convert them, or name their "
        "format in data.date_formats"
    )


def time_numbers(
    column: pl.Series,
    time_format: str | None = None,
    missing_values: Iterable[str] = ("",),
    first_row: int | None = None,
) -> tuple[pl.Series, bool]:
    """Times as Float64, null for missing, and whether they are clock times (in microseconds) or plain numbers."""
    typed = typed_times(column, time_format, missing_values, first_row)
    is_clock = typed.dtype.is_temporal()
    if typed.dtype in (pl.Date, pl.Datetime):
        typed = typed.cast(pl.Datetime("us"))
    numbers: pl.Series = typed.to_physical().cast(pl.Float64)
    return numbers, is_clock
