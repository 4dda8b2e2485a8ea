import csv
import datetime as dt
from decimal import Decimal

import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.encoding.one_row import canonical_values, missing_texts
from fielddep.encoding.values import as_number, as_whole_numbers, canonical, try_numbers
from fielddep.errors import SchemaError
from tests.helpers import raises


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pl.Series([5, None, -7]), ["5", None, "-7"]),
        (pl.Series([2**53 + 1, 2**63 - 1]), ["9007199254740993", "9223372036854775807"]),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), ["18446744073709551615"]),
        (pl.Series([5.0, None, float("nan"), -0.0, 0.1, 2.5]), ["5", None, None, "0", "0.1", "2.5"]),
        (pl.Series([0.1, 3.0], dtype=pl.Float32), ["0.1", "3"]),
        (pl.Series([1e20, float("inf")]), ["1e+20", "inf"]),
        (
            pl.Series(["5.0", "5.00", "-3.0", "-0.0", "10.0.0", "5.5", "x.0"]),
            ["5", "5", "-3", "0", "10.0.0", "5.5", "x.0"],
        ),
        (pl.Series(["", "a", None, " b", "007"]), [None, "a", None, " b", "007"]),
        (pl.Series([True, False, None]), ["true", "false", None]),
        (pl.Series(["True", "FALSE", "truth"]), ["true", "false", "truth"]),
        (pl.Series([dt.date(2024, 2, 29)]), ["2024-02-29"]),
        (pl.Series([dt.datetime(2024, 2, 29, 1, 2, 3)]), ["2024-02-29T01:02:03"]),
        (pl.Series([dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc)]), ["2024-02-29T00:00:00+00:00"]),
        (pl.Series([dt.datetime(2024, 2, 29, 1, 2, 3, 500_000)]), ["2024-02-29T01:02:03.5"]),
        (pl.Series([dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 1)]), ["2024-02-29", "2024-02-29T01:00:00"]),
        (
            pl.Series(["2024-02-29 01:02:03.100", "2024-02-29T01:02", "2024-02-29 00:00:00.000", "2024-02-29 1:02:03"]),
            ["2024-02-29T01:02:03.1", "2024-02-29T01:02:00", "2024-02-29", "2024-02-29 1:02:03"],
        ),
        (
            pl.Series(["2024-02-29 01:02:03+0200", "2024-02-29T00:00Z", None, "on 2024-02-29 01:02:03"]),
            ["2024-02-29T01:02:03+02:00", "2024-02-29T00:00:00+00:00", None, "on 2024-02-29 01:02:03"],
        ),
        (pl.Series([dt.time(1, 2, 3)]), ["01:02:03"]),
        (pl.Series([dt.timedelta(days=1)]), ["P1D"]),
        (pl.Series([Decimal("5.50"), Decimal("5.00"), Decimal("100.00")]), ["5.5", "5", "100"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series(["a", None], dtype=pl.Enum(["a", "b"])), ["a", None]),
        (pl.Series([None, None]), [None, None]),
        (pl.Series(["x" * 10_000]), ["x" * 10_000]),
        (pl.Series([], dtype=pl.String), []),
    ],
)
def test_canonical_text(column: pl.Series, texts: list[str | None]) -> None:
    result = canonical(column)
    assert result.dtype == pl.String
    assert result.to_list() == texts


times = st.one_of(
    st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2200, 1, 1)),
    st.dates(dt.date(1970, 1, 2), dt.date(2200, 1, 1)).map(lambda day: dt.datetime(day.year, day.month, day.day)),
    st.integers(0, 2 * 10**9).map(lambda seconds: dt.datetime(1970, 1, 2) + dt.timedelta(seconds=seconds)),
)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), times), min_size=1, max_size=5), st.sampled_from([None, "UTC", "Asia/Kolkata"]))
def test_a_time_has_one_text_whoever_wrote_the_file(values: list[dt.datetime | None], zone: str | None) -> None:
    typed = pl.Series("at", values, dtype=pl.Datetime("us"))
    pandas = pd.Series(values, name="at", dtype="datetime64[us]")
    if zone is not None:
        typed, pandas = typed.dt.replace_time_zone("UTC").dt.convert_time_zone(zone), pandas.dt.tz_localize("UTC")
        pandas = pandas.dt.tz_convert(zone)
    expected = canonical(typed).to_list()
    for text in (typed.to_frame().write_csv(), pandas.to_csv(index=False)):
        cells = list(csv.reader(text.splitlines()))[1:]
        written = pl.Series([cell[0] if cell else None for cell in cells], dtype=pl.String)
        assert canonical(written).to_list() == expected
        assert canonical_values(written.to_list(), missing_texts(())) == expected


def test_listed_texts_are_missing_in_every_type() -> None:
    missing = ("-999.0", "NA")
    assert canonical(pl.Series(["NA", "-999", "1"]), missing).to_list() == [None, None, "1"]
    assert canonical(pl.Series([-999, 1]), missing).to_list() == [None, "1"]
    assert canonical(pl.Series([-999.0, 1.5]), missing).to_list() == [None, "1.5"]
    assert as_number(pl.Series([-999, 1]), missing).to_list() == [None, 1.0]


def test_canonical_keeps_the_name() -> None:
    assert canonical(pl.Series("age", [1.5, 2.0])).name == "age"
    assert canonical(pl.Series("age", ["", "2.0"])).name == "age"


@pytest.mark.parametrize("values", [[[[1, 2]]], [{"a": 1}], [b"x"]])
def test_nested_columns_are_refused(values: list[object]) -> None:
    column = pl.Series("tags", values)
    with raises(SchemaError, "'tags'") as error:
        canonical(column)
    assert str(column.dtype) in str(error.value)


def test_numbers_of_text() -> None:
    column = pl.Series("x", ["1", " 2.5", "", "NA", "N/A", "NaN", "nan", "null", "None", "?", None, "1e3", "-.5"])
    assert as_number(column).to_list() == [1.0, 2.5, *[None] * 9, 1000.0, -0.5]
    assert as_number(column).name == "x"


def test_numbers_of_typed_columns() -> None:
    assert as_number(pl.Series([1.5, float("nan"), None])).to_list() == [1.5, None, None]
    assert as_number(pl.Series([True, False, None])).to_list() == [1.0, 0.0, None]
    assert as_number(pl.Series([None, None])).to_list() == [None, None]


def test_first_text_that_is_no_number_is_named() -> None:
    column = pl.Series("age", ["1", "", "old", "young"])
    assert try_numbers(column) is None
    with raises(SchemaError, "'age'", "numbers", "row 12", "'old'"):
        as_number(column, first_row=10)


@pytest.mark.parametrize("column", [pl.Series("x", [1.0, float("-inf")]), pl.Series("x", ["1", "-inf"])])
def test_infinite_numbers_are_refused(column: pl.Series) -> None:
    with raises(SchemaError, "'x'", "finite numbers", "row 1", "-inf"):
        as_number(column)


def test_dates_are_no_numbers() -> None:
    with raises(SchemaError, "'day'", "numbers", "Date"):
        as_number(pl.Series("day", [dt.date(2024, 1, 1)]))


def test_whole_numbers_are_exact() -> None:
    big = 2**53 + 1
    for column in (pl.Series([big, None]), pl.Series([str(big), "NA"])):
        whole = as_whole_numbers(column)
        assert whole is not None
        assert whole.to_list() == [big, None]
    floats = as_whole_numbers(pl.Series([3.0, float("nan")]))
    assert floats is not None
    assert floats.to_list() == [3, None]
    assert as_whole_numbers(pl.Series(["1", "2.5"])) is None
    assert as_whole_numbers(pl.Series(["1", "x"])) is None
    assert as_whole_numbers(pl.Series(["9" * 50])) is None
