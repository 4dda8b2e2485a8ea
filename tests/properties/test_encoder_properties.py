import json

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.config.data import DataConfig
from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.values import as_number, canonical
from fielddep.encoding.vocabulary import RARE
from tests.oracle.encoder import fit_encoder

SCHEMA = Schema(
    fields=(
        Field(name="text", kind="categorical"),
        Field(name="whole", kind="categorical"),
        Field(name="scale", kind="numerical", numeric="scale"),
        Field(name="quantile", kind="numerical", numeric="quantile"),
        Field(name="log2", kind="numerical", numeric="log2"),
    )
)
TEXT = st.none() | st.sampled_from(["", "a", "b", "5.0", "True", "1", "0", "?"]) | st.text(max_size=4)
SAME = {"0": "false", "1": "true", "false": "0", "true": "1"}
WHOLE = st.none() | st.integers(0, 5) | st.integers(-(2**63), 2**63 - 1)
NUMBER = st.none() | st.floats(allow_infinity=False, width=32) | st.integers(-3, 3).map(float)
ROW = st.tuples(TEXT, WHOLE, NUMBER, NUMBER, NUMBER)
DTYPES = {
    "text": pl.String,
    "whole": pl.Int64,
    "scale": pl.Float64,
    "quantile": pl.Float64,
    "log2": pl.Float64,
}


def tables(min_size: int = 0) -> st.SearchStrategy[pl.DataFrame]:
    rows = st.lists(ROW, min_size=min_size, max_size=20)
    return rows.map(lambda found: pl.DataFrame(found, schema=DTYPES, orient="row"))


def data(min_count: int = 1) -> DataConfig:
    return Config().replace({"data.min_count": min_count}).data


@given(train=tables(1), new=tables(), min_count=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_decode_returns_what_was_encoded(train: pl.DataFrame, new: pl.DataFrame, min_count: int) -> None:
    encoder = fit_encoder(train, SCHEMA, data(min_count))
    encoded, report = encoder.encode(new)
    row_by_row, same_report = encoder.encode(new, row_by_row=True)
    assert np.array_equal(row_by_row.ids_RF, encoded.ids_RF)
    assert np.array_equal(row_by_row.numbers_RN, encoded.numbers_RN)
    assert same_report == report
    decoded = encoder.decode(encoded)
    for name in ("text", "whole"):
        seen = canonical(train[name])
        counts = {value: int((seen == value).sum()) for value in seen.drop_nulls()}
        kept = {value for value, count in counts.items() if count >= min_count}
        n_unknown = 0
        for value, back in zip(canonical(new[name]), decoded[name], strict=True):
            if value is None:
                assert back == (None if seen.has_nulls() else RARE)
            elif value in kept:
                assert back == value
            elif SAME.get(value) in kept and (kept <= {"true", "false"} or not kept & {"true", "false"}):
                assert back == SAME[value]
            else:
                assert back == RARE
                n_unknown += 1
        assert report.unknown[name] == n_unknown
        assert report.missing[name] == canonical(new[name]).null_count()


WORDS, DIGITS = ["true", "True", "FALSE"], ["0", "1", "1.0", "-0.0"]
FLAGS = st.sampled_from(
    [
        pl.Series([True, False, True]),
        pl.Series(WORDS),
        pl.Series([0, 1, 1]),
        pl.Series([0.0, 1.0, 1.0]),
        pl.Series(DIGITS),
        pl.Series([1, 2, 3]),
        pl.Series(["true", "unknown"]),
    ]
)
FLAG_SCHEMA = Schema(fields=(Field(name="flag", kind="categorical"), Field(name="other", kind="categorical")))


@given(train=FLAGS, strict=st.booleans(), given=st.lists(st.none() | st.booleans() | st.integers(0, 2), max_size=4))
@settings(max_examples=150, deadline=None)
def test_booleans_are_the_numbers_0_and_1(train: pl.Series, strict: bool, given: list[object]) -> None:
    config = Config().replace({"data.handle_unknown": "error" if strict else "rare"}).data
    encoder = fit_encoder(pl.DataFrame({"flag": train, "other": "x"}), FLAG_SCHEMA, config)
    known = set(canonical(train))
    translates = known <= {"true", "false"} or not known & {"true", "false"}
    ids = dict(zip(encoder.values("flag"), range(9), strict=False))
    for value in given:
        text = None if value is None else canonical(pl.Series([value]))[0]
        spellings = [value] if value is None else [value, text, float(value) if type(value) is int else value]
        same = SAME.get(text, text) if translates and text not in known else text
        expected = ids.get(same, 1)
        for spelling in spellings:
            frame = pl.DataFrame({"flag": [spelling], "other": ["x"]})
            by_columns, report = encoder.encode(frame, handle_unknown="rare")
            by_rows, same_report = encoder.encode(frame, handle_unknown="rare", row_by_row=True)
            assert by_columns.ids_RF[0, 0] == by_rows.ids_RF[0, 0] == expected
            assert report == same_report
            assert report.unknown["flag"] == int(text is not None and same not in ids)
            one = encoder.encode_row({"flag": spelling, "other": "x"})
            if one is None:
                assert strict and report.unknown["flag"]
            else:
                assert one.ids_RF[0, 0] == expected


@given(train=tables(1), new=tables())
@settings(max_examples=60, deadline=None)
def test_ids_are_in_range_and_missing_stays_missing(train: pl.DataFrame, new: pl.DataFrame) -> None:
    encoder = fit_encoder(train, SCHEMA, data())
    encoded, _ = encoder.encode(new)
    assert np.isfinite(encoded.numbers_RN).all()
    assert np.abs(encoded.numbers_RN).max() <= 8 if len(new) else True
    for f, field in enumerate(SCHEMA.fields):
        ids = encoded.ids_RF[:, f]
        assert ((ids >= 0) & (ids < encoder.layout.n_ids[f])).all()
        read = canonical if field.kind == "categorical" else as_number
        trained = read(train[field.name])
        missing = read(new[field.name]).is_null().to_numpy()
        if trained.has_nulls() and trained.null_count() < len(trained):
            np.testing.assert_array_equal(ids == 0, missing)
        elif not trained.has_nulls():
            assert (ids != 0).all()


@given(train=tables(1), new=tables(), cut=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_chunks_equal_the_whole(train: pl.DataFrame, new: pl.DataFrame, cut: int) -> None:
    encoder = fit_encoder(train, SCHEMA, data())
    whole, report = encoder.encode(new)
    first, report_first = encoder.encode(new.head(cut))
    rest, report_rest = encoder.encode(new.slice(cut))
    assert np.array_equal(np.concatenate([first.ids_RF, rest.ids_RF]), whole.ids_RF)
    assert np.array_equal(np.concatenate([first.numbers_RN, rest.numbers_RN]), whole.numbers_RN)
    assert report_first.merge(report_rest) == report


@given(train=tables(1), new=tables(), min_count=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_saved_parts_encode_equally(train: pl.DataFrame, new: pl.DataFrame, min_count: int) -> None:
    encoder = fit_encoder(train, SCHEMA, data(min_count))
    again = Encoder.from_parts(json.loads(json.dumps(encoder.to_json())), encoder.vocabulary_frame(), encoder.cells())
    before, after = encoder.encode(new)[0], again.encode(new)[0]
    assert np.array_equal(before.ids_RF, after.ids_RF)
    assert np.array_equal(before.numbers_RN, after.numbers_RN)
    assert after.layout == before.layout


@given(train=tables(1), other=tables())
@settings(max_examples=40, deadline=None)
def test_other_rows_never_change_the_encoder(train: pl.DataFrame, other: pl.DataFrame) -> None:
    alone = fit_encoder(train, SCHEMA, data())
    beside = fit_encoder(train, SCHEMA, data(), count_table=pl.concat([train, other]))
    assert alone.to_json() == beside.to_json()
    assert alone.vocabulary_frame().equals(beside.vocabulary_frame())
    before = beside.to_json()
    beside.encode(other)
    assert beside.to_json() == before


@given(train=tables(1))
@settings(max_examples=40, deadline=None)
def test_row_order_does_not_matter(train: pl.DataFrame) -> None:
    forward = fit_encoder(train, SCHEMA, data())
    backward = fit_encoder(train.reverse(), SCHEMA, data())
    assert forward.vocabulary_frame().equals(backward.vocabulary_frame())
