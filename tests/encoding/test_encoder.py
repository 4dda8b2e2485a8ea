import json

import numpy as np
import polars as pl
import pytest

from fielddep.config.data import DataConfig
from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.target import Target
from fielddep.encoding.unknown import UnknownReport
from fielddep.errors import BundleError, SchemaError, UnknownValueError
from tests.helpers import raises
from tests.oracle.encoder import fit_encoder

SCHEMA = Schema(
    fields=(
        Field(name="colour", kind="categorical"),
        Field(name="size", kind="numerical", numeric="scale"),
        Field(name="price", kind="numerical", numeric="quantile"),
        Field(name="clicks", kind="numerical", numeric="log2"),
    ),
    target=Target(name="y", task="binary", classes=("no", "yes")),
    weight="w",
)
TRAIN = pl.DataFrame(
    {
        "colour": ["red", "red", "blue", None],
        "size": [1.0, 3.0, None, 2.0],
        "price": [1.0, 2.0, 3.0, 4.0],
        "clicks": [0, 3, 3, 100],
        "y": ["no", "yes", "yes", "no"],
        "w": [1.0, 2.0, 0.0, 1.0],
    }
)


def data(**settings: object) -> DataConfig:
    return Config().replace({"data.n_bins": 2, **{f"data.{key}": value for key, value in settings.items()}}).data


def fit(**settings: object) -> Encoder:
    return fit_encoder(TRAIN, SCHEMA, data(**settings))


def test_layout_and_counts() -> None:
    encoder = fit()
    assert encoder.layout.names == ("colour", "size", "price", "clicks")
    assert encoder.layout.n_ids == (4, 2, 4, 5)
    assert encoder.layout.numerical == (1,)
    assert [c.tolist() for c in encoder.counts] == [[1, 0, 2, 1], [1, 3], [0, 0, 2, 2], [0, 0, 2, 1, 1]]


def test_encoded_training_rows() -> None:
    encoded, _ = fit().encode(TRAIN, with_target=True)
    assert encoded.ids_RF.tolist() == [[2, 1, 2, 3], [2, 1, 2, 2], [3, 0, 3, 2], [0, 1, 3, 4]]
    assert encoded.ids_RF.dtype == np.int32
    spread = np.sqrt(1.5)
    assert encoded.numbers_RN.flatten().tolist() == pytest.approx([-spread, spread, 1.0, 0.0])
    assert encoded.numbers_RN.dtype == np.float32
    assert encoded.target_R is not None
    assert encoded.weight_R is not None
    assert encoded.target_R.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert encoded.weight_R.tolist() == [1.0, 2.0, 0.0, 1.0]


def test_new_rows_report_unknown_and_missing_values() -> None:
    rows = pl.DataFrame(
        {"colour": ["green", "", "blue"], "size": ["", "2", "1"], "price": [None, 99, -5], "clicks": ["7", "", "0"]}
    )
    encoded, report = fit().encode(rows)
    assert encoded.ids_RF.tolist() == [[1, 0, 1, 1], [0, 1, 3, 1], [3, 1, 2, 3]]
    assert report.unknown == {"colour": 1, "size": 0, "price": 0, "clicks": 1}
    assert report.missing == {"colour": 1, "size": 1, "price": 1, "clicks": 1}
    assert report.unknown_shares["colour"] == pytest.approx(1 / 3)
    assert encoded.target_R is None
    assert encoded.weight_R is None


def test_reports_of_chunks_add_up() -> None:
    one = UnknownReport(n_rows=2, unknown={"a": 1}, missing={"a": 0})
    both = one.merge(UnknownReport(n_rows=6, unknown={"a": 3}, missing={"a": 2}))
    assert both == UnknownReport(n_rows=8, unknown={"a": 4}, missing={"a": 2})
    assert both.unknown_shares == {"a": 0.5}
    assert both.missing_shares == {"a": 0.25}


def test_target_and_extra_columns_are_ignored() -> None:
    encoder = fit()
    rows = TRAIN.with_columns(pl.lit("nonsense").alias("y"), pl.lit("?").alias("w"), pl.lit(1).alias("extra"))
    assert np.array_equal(encoder.encode(rows)[0].ids_RF, encoder.encode(TRAIN)[0].ids_RF)


def test_missing_columns_are_all_named() -> None:
    with raises(SchemaError, "'colour'", "'clicks'", "'color'"):
        fit().encode(TRAIN.rename({"colour": "color"}).drop("clicks"))


def test_unknown_value_as_an_error() -> None:
    encoder = fit(handle_unknown="error", min_count={"colour": 2})
    assert encoder.encode(TRAIN)[0].ids_RF[:, 0].tolist() == [2, 2, 1, 0]  # blue is rare, but was seen
    rows = TRAIN.with_columns(pl.Series("colour", ["red", None, "green", "pink"]))
    with raises(UnknownValueError, "'colour'", "2 unknown", "'green'", "'pink'", "row 102"):
        encoder.encode(rows, first_row=100)
    assert encoder.encode(rows, handle_unknown="rare")[0].ids_RF[:, 0].tolist() == [2, 0, 1, 1]
    with raises(UnknownValueError, "'clicks'", "1 unknown", "'[8, 10)'", "row 3"):
        encoder.encode(TRAIN.with_columns(pl.Series("clicks", [0, 3, 3, 9])))


def test_decode() -> None:
    encoder = fit(min_count={"colour": 2})
    decoded = encoder.decode(encoder.encode(TRAIN)[0])
    assert decoded["colour"].to_list() == ["red", "red", "<rare>", None]
    assert decoded["size"].to_list() == pytest.approx([1.0, 3.0, None, 2.0])
    assert decoded["price"].to_list() == ["(-inf, 3)", "(-inf, 3)", "[3, inf)", "[3, inf)"]
    assert decoded["clicks"].to_list() == ["[0, 1)", "[3, 5)", "[3, 5)", "[98, 109)"]


def test_labels_of_ids() -> None:
    encoder = fit()
    assert encoder.values("colour").to_list() == ["<missing>", "<rare>", "red", "blue"]
    assert encoder.values("size").to_list() == ["<missing>", "<number>"]
    assert encoder.values("price").to_list() == ["<missing>", "<rare>", "(-inf, 3)", "[3, inf)"]
    assert encoder.values("clicks").to_list() == ["<missing>", "<rare>", "[3, 5)", "[0, 1)", "[98, 109)"]
    with raises(SchemaError, "'colour'"):
        encoder.values("color")


def test_counts_of_all_rows_on_demand() -> None:
    everything = pl.concat([TRAIN, TRAIN.with_columns(pl.lit("green").alias("colour"))])
    settings = data(counts_from="all", min_count=3)
    encoder = fit_encoder(TRAIN, SCHEMA, settings, count_table=everything)
    assert encoder.values("colour").to_list()[2:] == ["green"]
    assert encoder.counts[1].tolist() == [1, 3]  # scales come from training rows all the same
    ignored = fit_encoder(TRAIN, SCHEMA, data(min_count=3), count_table=everything)
    assert ignored.values("colour").to_list()[2:] == []


def test_regression_target_is_scaled_by_training_rows() -> None:
    schema = Schema(fields=SCHEMA.fields, target=Target(name="y", task="regression"))
    encoder = fit_encoder(TRAIN.with_columns(y=pl.Series([1.0, 3.0, 1.0, 3.0])), schema, data())
    assert encoder.schema.target == Target(name="y", task="regression", mean=2.0, scale=1.0)
    encoded, _ = encoder.encode(TRAIN.with_columns(y=pl.lit(5)), with_target=True)
    assert encoded.target_R is not None
    assert encoded.target_R.tolist() == [3.0] * 4
    assert encoded.weight_R is None


@pytest.mark.parametrize("bad", [[-1.0, 1, 1, 1], [None, 1, 1, 1], [float("nan"), 1, 1, 1], [float("inf"), 1, 1, 1]])
def test_bad_weights(bad: list[float]) -> None:
    with raises(SchemaError, "'w'"):
        fit().encode(TRAIN.with_columns(pl.Series("w", bad, dtype=pl.Float64)), with_target=True)


def test_target_column_must_be_there_when_asked_for() -> None:
    with raises(SchemaError, "'y'"):
        fit().encode(TRAIN.drop("y"), with_target=True)
    without = fit_encoder(TRAIN, Schema(fields=SCHEMA.fields), data())
    with raises(SchemaError, "schema", "none"):
        without.encode(TRAIN, with_target=True)


def test_infinite_number_is_refused_with_its_row() -> None:
    with raises(SchemaError, "'size'", "row 51", "inf"):
        fit().encode(TRAIN.with_columns(size=pl.Series([1.0, float("inf"), 1.0, 1.0])), first_row=50)


def test_saved_parts_encode_equally() -> None:
    for handle in ("rare", "error"):
        encoder = fit(handle_unknown=handle, min_count={"colour": 2}, missing_values=["", "none"])
        again = Encoder.from_parts(
            json.loads(json.dumps(encoder.to_json())), encoder.vocabulary_frame(), encoder.cells()
        )
        assert again.schema == encoder.schema
        assert again.layout == encoder.layout
        assert again.handle_unknown == handle
        rows = TRAIN.with_columns(colour=pl.Series(["none", "blue", "red", "red"]))
        assert np.array_equal(again.encode(rows)[0].ids_RF, encoder.encode(rows)[0].ids_RF)
        assert np.array_equal(again.encode(rows)[0].numbers_RN, encoder.encode(rows)[0].numbers_RN)
        for counts, expected in zip(again.counts, encoder.counts, strict=True):
            assert counts.tolist() == expected.tolist()
            assert counts.dtype == np.int64


def test_parts_that_do_not_fit_are_refused() -> None:
    encoder = fit()
    frame = encoder.vocabulary_frame()
    assert frame.columns == ["field", "value", "id", "count"]
    with raises(BundleError, "vocabulary", "field 'clicks'"):
        Encoder.from_parts(encoder.to_json(), frame.filter(pl.col("field") != "clicks"))
    state = {**encoder.to_json(), "numeric": {}}
    with raises(BundleError, "state", "field 'size'"):
        Encoder.from_parts(state, frame)


def test_only_numerical_fields_have_an_empty_vocabulary_frame() -> None:
    schema = Schema(fields=SCHEMA.fields[1:3])
    encoder = fit_encoder(TRAIN, schema, data())
    again = Encoder.from_parts(encoder.to_json(), encoder.vocabulary_frame(), encoder.cells())
    assert np.array_equal(again.encode(TRAIN)[0].ids_RF, encoder.encode(TRAIN)[0].ids_RF)


def test_no_rows() -> None:
    encoded, report = fit().encode(TRAIN.head(0), with_target=True)
    assert encoded.ids_RF.shape == (0, 4)
    assert encoded.numbers_RN.shape == (0, 1)
    assert report.unknown_shares == {"colour": 0.0, "size": 0.0, "price": 0.0, "clicks": 0.0}


def test_large_integers_and_long_texts_stay_distinct() -> None:
    schema = Schema(fields=(Field(name="a", kind="categorical"), Field(name="b", kind="categorical")))
    table = pl.DataFrame({"a": [2**53, 2**53 + 1], "b": ["x" * 10_000, "x" * 9_999]})
    encoder = fit_encoder(table, schema, data())
    assert encoder.encode(table)[0].ids_RF.tolist() == [[2, 3], [3, 2]]
    assert encoder.decode(encoder.encode(table)[0])["a"].to_list() == [str(2**53), str(2**53 + 1)]
