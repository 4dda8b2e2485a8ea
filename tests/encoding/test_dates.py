"""Dates: parsing, formats, and the fields that a column of dates gives."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.config.settings import Config
from fielddep.encoding.coded import Sizes
from fielddep.encoding.dates import ISO, PARTS, choose_format, find_format, is_guess, read_times, typed_times
from fielddep.encoding.describe import describe
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.interning import code_table
from fielddep.encoding.kinds import infer_kind
from fielddep.encoding.one_date import read_time
from fielddep.encoding.one_row import NeedsColumnsError
from fielddep.encoding.schema import Field, plan_field
from fielddep.encoding.values import distinct_values
from fielddep.errors import SchemaError, SplitError
from fielddep.store.build import build_store
from tests.helpers import raises

UTC = dt.timezone.utc
TIMES = [
    dt.datetime(2024, 1, 31, 12, 5),
    dt.datetime(2023, 12, 1, 0, 0),
    None,
    dt.datetime(2024, 2, 29, 23, 59),
    dt.datetime(2024, 1, 13, 7, 30),
]
FORMATS = (
    *("%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%SZ"),
    *("%Y-%m-%d %H:%M:%S+02:00", "%Y-%m-%dT%H:%M-0330", "%Y/%m/%d %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M"),
    *("%m/%d/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d-%m-%Y %H:%M", "%d-%b-%Y %H:%M", "%b %d, %Y %H:%M:%S"),
    *("%d %B %Y %I:%M:%S %p",),
)
DAY_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y")


def texts(values: list[dt.datetime | None], time_format: str) -> pl.Series:
    return pl.Series("when", [None if v is None else v.strftime(time_format) for v in values], dtype=pl.String)


def expected(values: list[dt.datetime | None], part: str) -> list[object]:
    known = [v for v in values if v is not None]
    days = {"elapsed": lambda v: (v - min(known)).total_seconds() / 86_400, "weekday": lambda v: v.strftime("%a")}
    return [None if v is None else days.get(part, lambda v: getattr(v, part))(v) for v in values]


def check(column: pl.Series, values: list[dt.datetime | None]) -> None:
    assert infer_kind(column).kind == "date"
    found = find_format(column)
    assert found is not None
    times = read_times(column, found)
    for part in PARTS:
        shown = times.part(part, times.earliest()).to_list()
        assert shown == pytest.approx(expected(values, part)) if part == "elapsed" else shown == expected(values, part)


@pytest.mark.parametrize("time_format", FORMATS)
def test_text_of_every_format_gives_the_parts(time_format: str) -> None:
    check(texts(TIMES, time_format), TIMES)


@pytest.mark.parametrize("time_format", DAY_FORMATS)
def test_days_without_a_time(time_format: str) -> None:
    days = [None if t is None else t.replace(hour=0, minute=0) for t in TIMES]
    check(texts(days, time_format), days)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "Asia/Kolkata"])
def test_typed_columns_of_every_unit_and_zone(unit: str, zone: str | None) -> None:
    """Parts are those of the clock on the spot; days of winter and no change of clocks, so elapsed time agrees too."""
    column = pl.Series("when", TIMES).cast(pl.Datetime(unit)).dt.replace_time_zone(zone)  # type: ignore[arg-type]
    check(column, TIMES)
    pandas = pl.from_pandas(pd.DataFrame({"when": pd.Series(TIMES).dt.tz_localize(zone)}))["when"]
    check(pandas, TIMES)


def test_a_typed_day() -> None:
    days = [None if t is None else t.replace(hour=0, minute=0) for t in TIMES]
    check(pl.Series("when", days).cast(pl.Date), days)


def test_elapsed_time_goes_by_the_instant_and_the_hour_by_the_clock() -> None:
    text = pl.Series(["2024-03-31T01:30:00+01:00", "2024-03-31T03:30:00+02:00", "2024-03-31T00:30:00Z"])
    times = read_times(text, ISO)
    assert times.part("hour").to_list() == [1, 3, 0]
    assert (times.part("elapsed", times.earliest()) * 24).to_list() == pytest.approx([0, 1, 0])
    typed = pl.Series([dt.datetime(2024, 3, 31, h, 30, tzinfo=UTC) for h in (0, 1)]).dt.convert_time_zone(
        "Europe/Paris"
    )
    times = read_times(typed, ISO)
    assert times.part("hour").to_list() == [1, 3]
    assert (times.part("elapsed", times.earliest()) * 24).to_list() == pytest.approx([0, 1])


@pytest.mark.parametrize(
    "values",
    [
        ["12:30", "13:45"],
        ["20240131", "20240201"],
        ["1.2.3", "10.4.11"],
        ["2024-01-31", "31.01.2024"],
        ["2024-01-31", "2024-02-30"],
        ["2024-01-31 12:00", "2024-01-31T12:00Z"],
        ["31.01.24", "01.02.24"],
        ["2024-01-31", "soon"],
        ["10.0.0.1", "10.0.0.2"],
        ["", ""],
    ],
)
def test_what_is_no_date(values: list[str]) -> None:
    assert find_format(pl.Series(values)) is None
    assert infer_kind(pl.Series("when", values)).kind != "date"


def test_the_values_decide_whether_the_day_comes_first() -> None:
    day, month, open_ = (
        pl.Series(v) for v in (["01/02/2024", "13/02/2024"], ["01/02/2024", "02/13/2024"], ["01/02/2024"])
    )
    assert [find_format(v) for v in (day, month, open_)] == ["%d/%m/%Y", "%m/%d/%Y", "%d/%m/%Y"]
    assert [is_guess(v, "%d/%m/%Y") for v in (day, open_)] == [False, True]
    assert not is_guess(month, "%m/%d/%Y")


def test_missing_and_broken_cells() -> None:
    column = pl.Series("when", ["2024-01-31", "", None, "NA", "NaT", " 2024-02-01 ", "never"])
    assert find_format(column) is None
    assert find_format(column, ["never"]) == ISO
    assert read_times(column, ISO).part("month").to_list() == [1, None, None, None, None, 2, None]
    typed = pl.Series([dt.date(1900, 1, 1), dt.date(2024, 1, 1)])
    assert read_times(typed, ISO, ["1900-01-01"]).part("year").to_list() == [None, 2024]


def test_many_texts_are_read_like_few() -> None:
    few = texts(TIMES, "%d/%m/%Y %H:%M")
    many = pl.concat([few] * 400)
    for part in PARTS:
        assert (
            read_times(many, "%d/%m/%Y %H:%M")
            .part(part)
            .equals(pl.concat([read_times(few, "%d/%m/%Y %H:%M").part(part)] * 400))
        )


def test_given_formats() -> None:
    rows = pl.Series([1, 1])
    for values, named in (
        (pl.Series([20240131, 20240201]), "%Y%m%d"),
        (pl.Series(["31.01.24", "01.02.24"]), "%d.%m.%y"),
        (pl.Series(["31|01|2024 05:06:07.5", "01|02|2024 05:06:07.25"]), "%d|%m|%Y %H:%M:%S.%f"),
        (pl.Series(["2024-01-31 12:00", "2024-02-01 13:00"]), "%Y-%m-%d %H:%M"),
        (pl.Series(["31.01.2024 12:00 +0200", "01.02.2024 12:00 Z"]), "%d.%m.%Y %H:%M %z"),
    ):
        assert choose_format(values, rows, named) == named
        assert read_times(values, named).part("day").to_list() == [31, 1]


def test_a_few_cells_may_miss_a_given_format() -> None:
    column, rows = pl.Series("when", ["31.01.24", "soon", None]), pl.Series([97, 3, 50])
    assert choose_format(column, rows, "%d.%m.%y") == "%d.%m.%y"
    with raises(SchemaError, "when", "%d.%m.%y", "soon", "10%"):
        choose_format(column, pl.Series([90, 10, 50]), "%d.%m.%y")
    with raises(SchemaError, "%Y%m%d%H"):
        choose_format(pl.Series(["2024013112"]), pl.Series([1]), "%Y%m%d%H")
    with raises(SchemaError, "%z"):
        choose_format(pl.Series(["+0000 2024"]), pl.Series([1]), "%z %Y")


# --- fields ---------------------------------------------------------------------------------------------------


def orders(n_rows: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    start = dt.datetime(2023, 11, 1)
    when = [start + dt.timedelta(hours=int(h)) for h in rng.integers(0, 24 * 100, n_rows)]
    when[3] = None  # type: ignore[call-overload]
    return pl.DataFrame(
        {
            "when": pl.Series(when, dtype=pl.Datetime("us")),
            "shop": rng.choice(["a", "b", "c"], n_rows),
            "good": ["yes" if t is not None and t.weekday() < 3 else "no" for t in when],
        }
    )


def config(**chosen: object) -> Config:
    return Config().replace(
        {"data.target": "good", "data.crosses": "none", **{k.replace("__", "."): v for k, v in chosen.items()}}
    )


def encoder_of(table: pl.DataFrame, **chosen: object) -> Encoder:
    return build_store(table, config(**chosen)).encoder


def test_the_parts_that_vary_are_fields() -> None:
    encoder = encoder_of(orders())
    names = [f"when: {part}" for part in PARTS]
    assert encoder.schema.field_names == (*names, "shop")
    assert encoder.schema.columns == ("when", "shop")
    assert [field.kind for field in encoder.schema.fields] == ["categorical"] * 5 + ["numerical", "categorical"]
    days = orders().with_columns(pl.col("when").dt.truncate("1mo").dt.date())
    assert encoder_of(days).schema.field_names == (
        "when: year",
        "when: month",
        "when: weekday",
        "when: elapsed",
        "shop",
    )


def test_a_constant_date_is_skipped_and_a_lasting_one_is_kept() -> None:
    same = orders().with_columns(when=pl.lit(dt.date(2024, 1, 1)), other=pl.col("shop"))
    assert dict(encoder_of(same).schema.skipped)["when"] == "it is constant"
    some = same.with_columns(when=pl.when(pl.col("shop") == "a").then(pl.col("when")))
    assert encoder_of(some).schema.field_names[0] == "when: elapsed"


def test_kinds_overrule() -> None:
    table = orders().with_columns(pl.col("when").dt.date(), other=pl.col("shop"))
    assert encoder_of(table, data__kinds={"when": "categorical"}).schema.field_names[0] == "when"
    text = table.with_columns(when=pl.col("when").dt.strftime("%d.%m.%Y"))
    broken = text.with_columns(when=pl.when(pl.int_range(400) % 50 == 7).then(pl.lit("?!")).otherwise(pl.col("when")))
    assert encoder_of(broken).schema.field_names[0] == "when"
    forced = encoder_of(broken, data__kinds={"when": "date"})
    assert forced.schema.field_names[:2] == ("when: year", "when: month")
    with raises(SchemaError, "shop", "100%"):
        encoder_of(table, data__kinds={"shop": "date"})


def test_digits_are_dates_by_a_given_format_only() -> None:
    table = orders().with_columns(when=pl.col("when").dt.strftime("%Y%m%d").cast(pl.Int64))
    assert encoder_of(table).schema.field_names[0] == "when"
    encoder = encoder_of(table, data__date_formats={"when": "%Y%m%d"})
    assert encoder.schema.field_names[0] == "when: year"
    assert encoder.schema.fields[0].format == "%Y%m%d"
    with raises(SchemaError, "data.date_formats", "wen"):
        encoder_of(table, data__date_formats={"wen": "%Y%m%d"})
    with raises(SchemaError, "%d.%m.%Y", "100%"):
        encoder_of(table, data__date_formats={"when": "%d.%m.%Y"})


def test_all_rows_decide_the_order_of_day_and_month() -> None:
    trained = distinct_values(pl.Series(["01/02/2024", "02/02/2024"]))
    fields = plan_field("when", trained, Config().data, pl.Series(["01/02/2024", "02/02/2024", "01/31/2024"]))
    assert isinstance(fields, tuple) and fields[0].format == "%m/%d/%Y"


def test_names_of_parts_do_not_clash() -> None:
    table = orders().with_columns(pl.col("shop").alias("when: month"))
    names = encoder_of(table).schema.field_names
    assert len(set(names)) == len(names) and {"when: month", "when: month_"} <= set(names)


def test_a_new_day_has_the_right_parts() -> None:
    encoder = encoder_of(orders())
    new = pl.DataFrame({"when": [dt.datetime(2023, 12, 24, 5, 17, 9), dt.datetime(2031, 1, 6)], "shop": ["a", "z"]})
    rows, report = encoder.encode(new)
    shown = encoder.decode(rows)
    assert shown["when: month"].to_list() == ["12", "1"]
    assert shown["when: weekday"].to_list() == ["Sun", "Mon"]
    assert shown["when: hour"].to_list() == ["5", "0"]
    assert shown["when: year"].to_list() == ["2023", "<rare>"]
    assert report.unknown["when: year"] == 1 and report.missing["when: day"] == 0


@pytest.mark.parametrize("missing", [("",), ("0", "1", "Mon")])
def test_listed_texts_are_missing_in_the_column_not_in_its_parts(missing: tuple[str, ...]) -> None:
    encoder = encoder_of(orders(), data__missing_values=missing)
    rows, report = encoder.encode(orders().drop("good"))
    assert report.missing["when: hour"] == report.missing["when: weekday"] == report.missing["when: elapsed"] == 1
    assert set(encoder.values("when: hour")[2:]) == {str(hour) for hour in range(24)}
    assert len(rows) == 400


@pytest.mark.parametrize("numeric", ["quantile", "scale", "log2"])
@pytest.mark.parametrize("time_format", ["%Y-%m-%dT%H:%M:%S", "%d/%m/%Y %H:%M"])
def test_one_row_equals_columns(time_format: str, numeric: str) -> None:
    table = orders().with_columns(pl.col("when").dt.strftime(time_format))
    encoder = encoder_of(table, data__numeric=numeric)
    values = [*table["when"][:20], None, "", "soon", "2024-05-05", "01/01/2035 05:00", 7, dt.date(2024, 1, 1)]
    for value in values:
        row = {"when": value, "shop": "b"}
        by_columns = encoder.encode(pl.DataFrame({name: [cell] for name, cell in row.items()}))[0]
        by_values = encoder.encode_row(row)
        if by_values is None:
            assert isinstance(value, dt.date) or numeric == "log2"
            continue
        assert by_values.ids_RF.tolist() == by_columns.ids_RF.tolist()
        assert by_values.numbers_RN.tolist() == by_columns.numbers_RN.tolist()
    with raises(SchemaError, "when"):
        encoder.encode_row({"shop": "a"})


READ_ALONE = (*FORMATS, *DAY_FORMATS, "%Y%m%d", "%d|%m|%Y", "%d.%m.%y", "%H:%M %d/%m/%Y", "%d/%m/%Y %H:%M %z")
CELLS = st.one_of(
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
    st.sampled_from(["", " NA ", "NaT", "soon", "2024-02-30", "2024-01-31T12:00:60", "31/12/0000", "0000-01-01"]),
    st.from_regex(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}( [0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,12})?)?)?Z?"),
)


@given(cell=CELLS, time_format=st.sampled_from(READ_ALONE))
@settings(max_examples=400, deadline=None)
def test_one_text_is_read_like_a_column(cell: dt.datetime | str, time_format: str) -> None:
    text = cell if isinstance(cell, str) else cell.strftime(time_format)
    known = ISO if time_format.startswith("%Y-") else time_format
    try:
        moment = read_time(text, known, ("",))
    except NeedsColumnsError:
        return
    times = read_times(pl.Series([text]), known)
    for part in PARTS:
        alone = None if moment is None else moment.part(part, 12_345)
        assert alone == times.part(part, 12_345)[0]


@pytest.mark.parametrize("time_format", [*FORMATS, *DAY_FORMATS])
def test_formats_that_are_found_need_no_column(time_format: str) -> None:
    column = texts(TIMES, time_format)
    found = find_format(column)
    assert found is not None
    for text, time in zip(column, TIMES, strict=True):
        moment = read_time(text, found, ("",))
        assert moment is None if time is None else moment is not None and moment.wall.date() == time.date()


def test_an_encoder_is_saved_with_its_formats() -> None:
    encoder = encoder_of(orders().with_columns(pl.col("when").dt.strftime("%d-%b-%Y")))
    again = Encoder.from_parts(json.loads(json.dumps(encoder.to_json())), encoder.vocabulary_frame(), encoder.cells())
    assert again.schema == encoder.schema and again.digest == encoder.digest
    new = pl.DataFrame({"when": ["24-Dec-2023", "2023-12-24"], "shop": ["a", "a"]})
    assert again.decode(again.encode(new)[0])["when: month"][0] == "12"
    assert again.encode(new)[1].missing["when: month"] == 1


def test_other_fields_are_written_as_before() -> None:
    assert Field(name="shop", kind="categorical").to_json() == {"name": "shop", "kind": "categorical", "numeric": None}


def test_settings_of_the_column_are_those_of_its_parts() -> None:
    encoder = encoder_of(orders(), data__numeric={"when": "scale"}, data__min_count={"when": 10_000})
    assert encoder.schema.fields[5].numeric == "scale"
    assert encoder.layout.n_ids[:5] == (2,) * 5
    crossed = encoder_of(orders(), data__crosses=[["when: weekday", "when: hour"]])
    assert len(crossed.crosses) == 1


MANY = {
    "typed": pl.col("when"),
    "zoned": pl.col("when").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Paris"),
    "text": pl.col("when").dt.strftime("%d/%m/%Y %H:%M"),
    "digits": pl.col("when").dt.strftime("%Y%m%d%H%M").cast(pl.Int64),
}


@pytest.mark.parametrize("numeric", ["quantile", "scale", "log2"])
@pytest.mark.parametrize("name", MANY)
def test_very_many_dates_are_kept_as_numbers(name: str, numeric: str) -> None:
    table = orders().with_columns(MANY[name])
    chosen = config(data__date_formats={"when": "%Y%m%d%H%M"} if name == "digits" else {}, data__numeric=numeric)
    few = Sizes(chunk_rows=50, max_distinct=60, judged_rows=50)
    coded = code_table(table, chosen, few)
    assert coded.columns["when"].mode == "numbers"
    codes, numbers = build_store(table, chosen), build_store(table, chosen, sizes=few)
    assert numbers.encoder.schema == codes.encoder.schema
    expected, found = (store.read(0, 400) for store in (codes, numbers))
    assert found.ids_RF.tolist() == expected.ids_RF.tolist()
    np.testing.assert_allclose(found.numbers_RN, expected.numbers_RN, rtol=1e-5)


def test_times_with_offsets_stay_codes_and_unique_ones_are_not_skipped() -> None:
    zones = ("Z", "+01:00")
    when = [f"2024-01-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:{i // 60:02d}{zones[i % 2]}" for i in range(400)]
    table = orders().with_columns(when=pl.Series(when))
    assert table["when"].n_unique() == 400
    coded = code_table(table, config(), Sizes(chunk_rows=50, max_distinct=60, judged_rows=50))
    assert coded.columns["when"].mode == "codes"
    assert "when: hour" in encoder_of(table).schema.field_names


# --- split and describe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_format", ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M", "%Y|%m|%d %H:%M"])
def test_a_split_by_time_reads_the_same_formats(time_format: str) -> None:
    table = orders().drop_nulls().with_columns(other=pl.col("shop"))
    text = table.with_columns(pl.col("when").dt.strftime(time_format))
    by_time = {"split.method": "time", "split.column": "when"}
    expected = build_store(table, config(**by_time))
    if "|" in time_format:
        with raises(SplitError, "when", "data.date_formats"):
            build_store(text, config(**by_time))
        by_time["data.date_formats"] = {"when": time_format}  # type: ignore[assignment]
    found = build_store(text, config(**by_time))
    assert found.parts(0, len(table)).tolist() == expected.parts(0, len(table)).tolist()


def test_times_sort_by_the_instant() -> None:
    column = pl.Series("when", ["2024-01-31T12:00:00+05:00", "2024-01-31T09:00:00+01:00"])
    assert typed_times(column).arg_sort().to_list() == [0, 1]
    with raises(SplitError, "when", "soon", "row 11"):
        typed_times(pl.Series("when", ["2024-01-31", "soon"]), ISO, first_row=10)


def test_describe_names_the_parts() -> None:
    table = orders().with_columns(
        day=pl.col("when").dt.strftime("%d/%m/%Y"), open=pl.Series(["01/02/2024", "03/04/2024"] * 200)
    )
    found = {column.name: column for column in describe(table, config()).columns}
    assert found["when"].kind == "date: year, month, day, weekday, hour, elapsed"
    assert found["when"].missing_share == pytest.approx(1 / 400)
    assert found["day"].kind == "date: year, month, day, weekday, elapsed"
    assert not any("data.date_formats" in text for text in found["day"].warnings)
    assert any("data.date_formats" in text for text in found["open"].warnings)
    given = describe(table, config(data__date_formats={"open": "%d/%m/%Y"}))
    assert not {column.name: column for column in given.columns}["open"].warnings


def test_describe_counts_cells_that_are_no_dates_as_missing() -> None:
    day = pl.Series("when", ["31.01.24"] * 195 + ["01.02.24"] * 195 + ["soon"] * 10)
    table = orders().with_columns(day)
    (found, *_) = describe(table, config(data__date_formats={"when": "%d.%m.%y"})).columns
    assert found.kind == "date: month, day, weekday, elapsed"
    assert found.missing_share == pytest.approx(10 / 400)
