"""Values: one text per value, whatever file it came from; columns as numbers.

A CSV file gives "5", Parquet gives 5, and pandas gives 5.0 if another cell of the column is empty. All three are the
same category, so all three become the text "5" before a vocabulary sees them. A list becomes the texts of its values,
joined.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from fielddep.errors import SchemaError

NUMBER_MISSING = ("NA", "N/A", "NaN", "nan", "null", "None", "?")
"""Texts that mean missing if a number is expected; in a categorical field they are ordinary values."""

LIST_SEPARATOR = "\x1f"
"""Joins the values of a list to one text; no text holds this control character."""

_INTEGRAL_TEXT = r"^-?\d+\.0+$"
DATE_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
"""Date, hour and minute, second, fraction and zone, as pandas, Polars and ISO 8601 write them."""
SHORTEST_DATE_TIME = 16
_MAX_CHARACTERS = 80
_INT64_LIMIT = 2.0**63


def canonical(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series:
    """The text of every value; null where the value is missing.

    Integers keep every digit. Integral floats lose their ".0", and so does text such as "5.0". Other floats take the
    shortest form that reads back equal. Booleans are "true" and "false"; the texts True, TRUE, False and FALSE count as
    booleans, because pandas and R write them. Dates and times are ISO 8601 without trailing zeros of a second; midnight
    without a time zone is only the date, because pandas writes such a column that way. A list is the texts of its
    values that are not missing, joined by `LIST_SEPARATOR`.

    Args:
        column: values of one column, of any plain dtype, or lists of them.
        missing_values: texts that mean missing; null, NaN and the empty text always do.

    Raises:
        SchemaError: for a column of structs, bytes or lists of lists.
    """
    text = _normal_text(_as_text(column))
    missing = _normal_text(pl.Series(values=["", *missing_values], dtype=pl.String)).unique()
    return _null_where(text, text.is_in(missing.implode())).alias(column.name)


def boolean_synonyms(known: pl.Series) -> dict[str, str]:
    """Other texts of known values: 1 and true mean the same to a field or target that knows only one of them.

    So do 0 and false. True and false are also the numbers only if nothing else is known: next to "unknown", a 1 may
    well mean something else.

    Args:
        known: canonical texts, each once.

    Example:
        >>> boolean_synonyms(pl.Series(["false", "true"])), boolean_synonyms(pl.Series(["0", "1", "2"]))
        ({'0': 'false', '1': 'true'}, {'false': '0', 'true': '1'})
        >>> boolean_synonyms(pl.Series(["false", "true", "unknown"])), boolean_synonyms(pl.Series(["1", "true"]))
        ({}, {})
    """
    found = set(known.filter(known.is_in(["0", "1", "false", "true"])))
    words, digits = found & {"false", "true"}, found & {"0", "1"}
    if words and len(words) == len(known):
        return {other: text for other, text in (("0", "false"), ("1", "true")) if text in words}
    return {other: text for other, text in (("false", "0"), ("true", "1")) if text in digits and not words}


def distinct_values(column: pl.Series, target: pl.Series | None = None) -> pl.DataFrame:
    """Each different raw value once: columns value, n (rows) and, with a `target`, its range low and high.

    Work on different values is many times faster than on rows.
    """
    _as_text(column.clear())  # refuses dtypes that cannot be grouped
    table = pl.DataFrame({"value": column})
    measures = [pl.len().cast(pl.Int64).alias("n")]
    if target is not None:
        table = table.with_columns(target.alias("target"))
        measures += [pl.col("target").min().alias("low"), pl.col("target").max().alias("high")]
    return table.group_by("value").agg(measures)


def try_numbers(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series | None:
    """The column as Float64 with null for missing; None if it holds a text that is not a number."""
    if column.dtype.is_temporal():
        return None
    if not _is_text(column):
        numbers = without_missing(column, missing_values).cast(pl.Float64)
    else:
        text = plain_text(column, missing_values)
        numbers = text.cast(pl.Float64, strict=False)
        if numbers.null_count() > text.null_count():
            return None
    # Any spelling of NaN ("NAN", "-nan") is missing too.
    return _null_where(numbers, numbers.is_nan()).alias(column.name)


def as_number(column: pl.Series, missing_values: Iterable[str] = ("",), *, first_row: int = 0) -> pl.Series:
    """The column as Float64 with null for missing.

    Args:
        column: numbers, booleans or text.
        missing_values: texts that mean missing, in addition to null, NaN, "" and `NUMBER_MISSING`.
        first_row: number of the first row in a longer table, for error messages.

    Raises:
        SchemaError: names the first text that is not a number, or the first infinite number.
    """
    numbers = try_numbers(column, missing_values)
    row = _first_bad(column, numbers, missing_values)
    if numbers is not None and row is None:
        return numbers
    if column.dtype.is_temporal():
        raise SchemaError(f"column {column.name!r} must hold numbers; given {column.dtype}; make it categorical")
    position = row or 0
    place = f"row {first_row + position} (counted from 0)"
    if numbers is not None:
        raise SchemaError(
            f"column {column.name!r} must hold finite numbers; {place} holds {numbers[position]}; replace it, empty "
            "the cell, or list it in data.missing_values"
        )
    text = shorten(plain_text(column, missing_values)[position])
    raise SchemaError(
        f"column {column.name!r} must hold numbers; {place} holds {text!r}; make the column categorical, or list the "
        "text in data.missing_values"
    )


def first_not_a_number(column: pl.Series, missing_values: Iterable[str] = ("",)) -> int | None:
    """Position of the first value that `as_number` refuses; None if it refuses none."""
    return _first_bad(column, try_numbers(column, missing_values), missing_values)


def _first_bad(column: pl.Series, numbers: pl.Series | None, missing_values: Iterable[str]) -> int | None:
    """The same, given the result of `try_numbers`."""
    if column.dtype.is_temporal():
        return 0
    if numbers is None:
        text = plain_text(column, missing_values)
        bad = text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()
    else:
        bad = numbers.is_infinite().fill_null(False)
    return int(bad.arg_true()[0]) if bad.any() else None


def as_whole_numbers(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series | None:
    """The column as exact integers with null for missing; None if a value is not a whole number of at most 128 bits."""
    if column.dtype.is_integer():
        return without_missing(column, missing_values)
    numbers = try_numbers(column, missing_values)
    if numbers is None or not (numbers.drop_nulls() % 1 == 0).all():
        return None
    if not _is_text(column):
        return _all_or_none(numbers, numbers.cast(pl.Int128, strict=False))
    text = plain_text(column, missing_values).str.replace(r"\.0*$", "")
    return _all_or_none(text, text.cast(pl.Int128, strict=False))


def _all_or_none(before: pl.Series, after: pl.Series) -> pl.Series | None:
    return after if after.null_count() == before.null_count() else None


def _is_text(column: pl.Series) -> bool:
    return not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null))


def _null_where(column: pl.Series, mask: pl.Series) -> pl.Series:
    if not mask.any():
        return column
    return pl.select(pl.when(~mask.fill_null(True)).then(column)).to_series()


def without_missing(column: pl.Series, missing_values: Iterable[str]) -> pl.Series:
    """A typed column with null where its text is listed as missing."""
    listed = [text for text in missing_values if text]
    return _null_where(column, canonical(column, listed).is_null()) if listed else column


def plain_text(column: pl.Series, missing_values: Iterable[str]) -> pl.Series:
    """Stripped texts of a column that should hold numbers or dates; null for missing."""
    text = _as_text(column).str.strip_chars()
    known = canonical(text, (*missing_values, *NUMBER_MISSING))
    return _null_where(text, known.is_null())


def shorten(text: str) -> str:
    """The start of a text, for messages."""
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "..."


def _normal_text(text: pl.Series) -> pl.Series:
    """One spelling for integral numbers, for date-times and for booleans."""
    text = _normal_date_times(text)
    integral = text.str.contains(_INTEGRAL_TEXT).fill_null(False)
    if integral.any():
        # Only matching texts are rewritten: an address such as 10.0.0 must not change.
        stripped = text.str.replace(r"\.0+$", "").str.replace(r"^-0$", "0")
        text = pl.select(pl.when(integral).then(stripped).otherwise(text)).to_series()
    same: pl.Series = text.replace(["True", "TRUE", "False", "FALSE"], ["true", "true", "false", "false"])
    return same


def _normal_date_times(text: pl.Series) -> pl.Series:
    # Lengths are checked first, because that is cheap and the texts of most columns are shorter.
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
    if is_list(dtype):
        return _list_text(column)
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        raise SchemaError(
            f"column {column.name!r} must hold plain values (text, number, boolean or date) or lists of them; given "
            f"{dtype}; convert it to text, split it into columns, or list it in data.exclude"
        )
    text: pl.Series = column.cast(pl.String)
    if dtype.is_decimal():
        text = text.str.replace(r"(\.\d*?)0+$", "${1}").str.replace(r"\.$", "")
    return text


def is_list(dtype: pl.DataType) -> bool:
    """Whether a column of this type holds lists of plain values."""
    return isinstance(dtype, (pl.List, pl.Array)) and not dtype.inner.is_nested()


def _list_text(column: pl.Series) -> pl.Series:
    """The values of each list as one text; null for no list, and the empty text for an empty one."""
    lists = column.cast(pl.List(column.dtype.inner))  # type: ignore[attr-defined]  # it is a list
    filled = (lists.list.len() > 0).fill_null(False)
    rows = pl.Series(range(len(lists)), dtype=pl.UInt32).filter(filled)
    frame = pl.DataFrame({"row": rows, "value": lists.filter(filled)}).explode("value")
    texts = frame.with_columns(value=canonical(frame["value"].alias(column.name), ()))
    joined = texts.group_by("row").agg(pl.col("value").str.join(LIST_SEPARATOR))
    every = pl.DataFrame({"row": pl.Series(range(len(lists)), dtype=pl.UInt32), "known": lists.is_not_null()})
    known = pl.when("known").then(pl.col("value").fill_null(""))
    return every.join(joined, on="row", how="left", maintain_order="left").select(known.alias(column.name)).to_series()


def _float_text(column: pl.Series) -> pl.Series:
    """Shortest text of floats; null for NaN."""
    integral = (column % 1 == 0) & (column.abs() < _INT64_LIMIT)
    whole = column.cast(pl.Int64, strict=False).cast(pl.String)
    text = pl.when(integral).then(whole).when(column.is_not_nan()).then(column.cast(pl.String))
    return pl.select(text).to_series().alias(column.name)
