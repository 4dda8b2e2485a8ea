"""Values: one text for one value, whatever file it came from, and columns read as numbers.

A CSV file gives "5", Parquet gives 5, pandas gives 5.0 when another cell of the column is empty: all three are
the same category, so all three get the text "5" before a vocabulary sees them.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from fielddep.errors import SchemaError

NUMBER_MISSING = ("NA", "N/A", "NaN", "nan", "null", "None", "?")
"""Texts that mean missing where a number is expected; in a categorical field they are values like any other."""

_INTEGRAL_TEXT = r"^-?\d+\.0+$"
DATE_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
"""Date, hour and minute, second, fraction and zone, as pandas, Polars and ISO 8601 write them."""
SHORTEST_DATE_TIME = 16
_INT64_LIMIT = 2.0**63


def canonical(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series:
    """The text of every value; null where the value is missing.

    Integers keep every digit. Integral floats lose their ".0", and so does text such as "5.0". Other floats are
    written as short as they can be read back. Booleans are "true" and "false"; the texts True, TRUE, False and
    FALSE are taken for booleans, as pandas and R write them so. Dates and times are ISO 8601; the fraction of a second
    has no zeros at its end, and midnight without a time zone is the date alone, as pandas writes such a column.

    Args:
        column: values of one column, of any plain dtype.
        missing_values: texts that mean missing; null, NaN and the empty text always do.

    Raises:
        SchemaError: for a column of lists, structs or bytes.
    """
    text = _normal_text(_as_text(column))
    missing = _normal_text(pl.Series(values=["", *missing_values], dtype=pl.String)).unique()
    return _null_where(text, text.is_in(missing.implode())).alias(column.name)


def distinct_values(column: pl.Series, target: pl.Series | None = None) -> pl.DataFrame:
    """Each different raw value once: columns value and n (rows), and low and high, the range of `target` in them.

    Judging a column by its different values is many times faster than by its rows.
    """
    _as_text(column.clear())  # refuses dtypes that cannot be grouped
    table = pl.DataFrame({"value": column})
    measures = [pl.len().cast(pl.Int64).alias("n")]
    if target is not None:
        table = table.with_columns(target.alias("target"))
        measures += [pl.col("target").min().alias("low"), pl.col("target").max().alias("high")]
    return table.group_by("value").agg(measures)


def try_numbers(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series | None:
    """The column as Float64 with null for missing; None when a text in it is no number."""
    if column.dtype.is_temporal():
        return None
    if not _is_text(column):
        known = _without_missing(column, missing_values)
        numbers = known.cast(pl.Float64)
        return _null_where(numbers, numbers.is_nan()).alias(column.name)
    text = _number_text(column, missing_values)
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() > text.null_count():
        return None
    # A NaN spelled in a way that is not listed ("NAN", "-nan") is missing as well.
    return _null_where(numbers, numbers.is_nan()).alias(column.name)


def as_number(column: pl.Series, missing_values: Iterable[str] = ("",), *, first_row: int = 0) -> pl.Series:
    """The column as Float64 with null for missing.

    Args:
        column: numbers, booleans or text.
        missing_values: texts that mean missing, beside null, NaN, "" and `NUMBER_MISSING`.
        first_row: number of the column's first row in the whole table, for error messages.

    Raises:
        SchemaError: names the first text that is no number, or the first infinite number.
    """
    numbers = try_numbers(column, missing_values)
    if numbers is None:
        raise SchemaError(_not_a_number(column, missing_values, first_row))
    infinite = numbers.is_infinite().fill_null(False)
    if infinite.any():
        row = int(infinite.arg_true()[0])
        raise SchemaError(
            f"column {column.name!r} must hold finite numbers; row {first_row + row} (counted from 0) holds "
            f"{numbers[row]}; replace it, empty the cell, or list it in data.missing_values"
        )
    return numbers


def first_not_a_number(column: pl.Series, missing_values: Iterable[str] = ("",)) -> int | None:
    """Position of the first value that `as_number` refuses; None where it refuses none."""
    numbers = try_numbers(column, missing_values)
    if numbers is None:
        return 0 if column.dtype.is_temporal() else _first_bad(_number_text(column, missing_values))
    infinite = numbers.is_infinite().fill_null(False)
    return int(infinite.arg_true()[0]) if infinite.any() else None


def as_whole_numbers(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series | None:
    """The column as exact integers with null for missing; None when a value has a fraction or is no number.

    Numbers beyond 128 bits also give None: nobody measures with them.
    """
    if column.dtype.is_integer():
        return _without_missing(column, missing_values)
    numbers = try_numbers(column, missing_values)
    if numbers is None or not (numbers.drop_nulls() % 1 == 0).all():
        return None
    if not _is_text(column):
        return _all_or_none(numbers, numbers.cast(pl.Int128, strict=False))
    text = _number_text(column, missing_values).str.replace(r"\.0*$", "")
    return _all_or_none(text, text.cast(pl.Int128, strict=False))


def _all_or_none(before: pl.Series, after: pl.Series) -> pl.Series | None:
    return after if after.null_count() == before.null_count() else None


def _is_text(column: pl.Series) -> bool:
    return not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null))


def _null_where(column: pl.Series, mask: pl.Series) -> pl.Series:
    if not mask.any():
        return column
    return pl.select(pl.when(~mask.fill_null(True)).then(column)).to_series()


def _without_missing(column: pl.Series, missing_values: Iterable[str]) -> pl.Series:
    """A typed column with null where its text is listed as missing."""
    listed = [text for text in missing_values if text]
    return _null_where(column, canonical(column, listed).is_null()) if listed else column


def _number_text(column: pl.Series, missing_values: Iterable[str]) -> pl.Series:
    """Stripped text of a column that should hold numbers; null for missing."""
    text = _as_text(column).str.strip_chars()
    known = canonical(text, (*missing_values, *NUMBER_MISSING))
    return _null_where(text, known.is_null())


def _first_bad(text: pl.Series) -> int | None:
    """Row of the first text that is no number."""
    bad = text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()
    return int(bad.arg_true()[0]) if bad.any() else None


def _not_a_number(column: pl.Series, missing_values: Iterable[str], first_row: int) -> str:
    if column.dtype.is_temporal():
        return f"column {column.name!r} must hold numbers; given {column.dtype}; use it as a categorical field"
    text = _number_text(column, missing_values)
    row = _first_bad(text) or 0
    return (
        f"column {column.name!r} must hold numbers; row {first_row + row} (counted from 0) holds "
        f"{_shorten(text[row])!r}; use it as a categorical column, or list the text in data.missing_values"
    )


def _shorten(text: str, longest: int = 80) -> str:
    return text if len(text) <= longest else text[:longest] + "..."


def _normal_text(text: pl.Series) -> pl.Series:
    """One spelling for integral numbers, for date-times and for booleans."""
    text = _normal_date_times(text)
    integral = text.str.contains(_INTEGRAL_TEXT).fill_null(False)
    if integral.any():
        # Only the matching texts are rewritten: an address such as 10.0.0 must stay whole.
        stripped = text.str.replace(r"\.0+$", "").str.replace(r"^-0$", "0")
        text = pl.select(pl.when(integral).then(stripped).otherwise(text)).to_series()
    same: pl.Series = text.replace(["True", "TRUE", "False", "FALSE"], ["true", "true", "false", "false"])
    return same


def _normal_date_times(text: pl.Series) -> pl.Series:
    # Lengths are looked at first, as they cost next to nothing and most columns hold shorter texts only.
    long = (text.str.len_bytes() >= SHORTEST_DATE_TIME).any()
    if not long or not text.str.contains(f"^{DATE_TIME}$").any():
        return text
    names = ["date", "minute", "second", "fraction", "zone"]
    parts = text.str.extract_groups(f"^{DATE_TIME}$").struct.rename_fields(names).struct.unnest()
    whole = pl.concat_str("date", pl.lit("T"), "minute", pl.col("second").fill_null(":00"))
    if parts["fraction"].null_count() < len(text):
        whole += pl.col("fraction").fill_null("").str.strip_chars_end("0").str.strip_chars_end(".")
    if parts["zone"].null_count() < len(text):
        zone = pl.col("zone").fill_null("").str.replace("Z", "+00:00")
        whole += zone.str.replace(r"^(.{3})([0-9]{2})$", "${1}:${2}")
    return parts.select(pl.coalesce(whole.str.strip_suffix("T00:00:00"), text)).to_series()


def _as_text(column: pl.Series) -> pl.Series:
    dtype = column.dtype
    if dtype.is_float():
        return _float_text(column)
    if isinstance(dtype, pl.Datetime):
        return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.f" + ("%:z" if dtype.time_zone else ""))
    if dtype == pl.Time:
        return column.dt.strftime("%H:%M:%S%.f")
    if dtype == pl.Duration:
        return column.dt.to_string("iso")
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        raise SchemaError(
            f"column {column.name!r} must hold one plain value a row (text, number, boolean or date); given "
            f"{dtype}; turn it into text, split it into columns, or list it in data.exclude"
        )
    text: pl.Series = column.cast(pl.String)
    if dtype.is_decimal():
        text = text.str.replace(r"(\.\d*?)0+$", "${1}").str.replace(r"\.$", "")
    return text


def _float_text(column: pl.Series) -> pl.Series:
    """Shortest text of floats; null for NaN."""
    integral = (column % 1 == 0) & (column.abs() < _INT64_LIMIT)
    whole = column.cast(pl.Int64, strict=False).cast(pl.String)
    text = pl.when(integral).then(whole).when(column.is_not_nan()).then(column.cast(pl.String))
    return pl.select(text).to_series().alias(column.name)
