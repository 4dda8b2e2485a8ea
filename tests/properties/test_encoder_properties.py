import json

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.config.settings import Config, DataConfig
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
TEXT = st.none() | st.sampled_from(["", "a", "b", "5.0", "True", "?"]) | st.text(max_size=4)
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
        n_unknown = 0
        for value, back in zip(canonical(new[name]), decoded[name], strict=True):
            if value is None:
                assert back == (None if seen.has_nulls() else RARE)
            elif counts.get(value, 0) >= min_count:
                assert back == value
            else:
                assert back == RARE
                n_unknown += 1
        assert report.unknown[name] == n_unknown
        assert report.missing[name] == canonical(new[name]).null_count()


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
    again = Encoder.from_parts(json.loads(json.dumps(encoder.to_json())), encoder.vocabulary_frame())
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
