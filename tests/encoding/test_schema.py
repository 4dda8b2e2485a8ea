import json
import logging

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.target import Target
from fielddep.errors import SchemaError, SplitError
from tests.helpers import raises, states
from tests.streamed import learned

N = 40


def table(**columns: list[object]) -> pl.DataFrame:
    base: dict[str, list[object]] = {
        "colour": ["red", "blue"] * (N // 2),
        "price": [v + 0.5 for v in range(N)],
        "late": [0, 1, 1, 0] * (N // 4),
    }
    return pl.DataFrame({**base, **columns})


def config(**settings: object) -> Config:
    return Config().replace({"data.target": "late", **{k.replace("__", "."): v for k, v in settings.items()}})


def schema_of(rows: pl.DataFrame, settings: Config) -> Schema:
    return learned(rows, settings).schema


def test_fields_and_kinds() -> None:
    schema = schema_of(table(), config())
    assert schema.fields == (
        Field(name="colour", kind="categorical"),
        Field(name="price", kind="numerical", numeric="quantile"),
    )
    assert schema.target == Target(name="late", task="binary", classes=(0, 1))
    assert schema.field_names == ("colour", "price")
    assert schema.skipped == ()


def test_settings_override_what_was_inferred() -> None:
    settings = config(
        data__fields=["price", "colour", "day"],
        data__kinds={"price": "categorical", "day": "numerical"},
        data__numeric={"day": "log2"},
        data__task="multiclass",
        split__method="time",
        split__column="day",
    )
    schema = schema_of(table(day=[1, 2] * 20), settings)
    assert schema.fields == (
        Field(name="price", kind="categorical"),
        Field(name="colour", kind="categorical"),
        Field(name="day", kind="numerical", numeric="log2"),
    )
    assert schema.target is not None
    assert schema.target.task == "multiclass"
    assert schema.target.n_outputs == 2


def test_weight_split_and_excluded_columns_are_no_fields() -> None:
    settings = config(data__weight="w", split__method="column", split__column="part", data__exclude=["junk"])
    schema = schema_of(table(w=[1.0, 2.0] * 20, part=["train", "test"] * 20, junk=["a", "b"] * 20), settings)
    assert schema.field_names == ("colour", "price")
    assert (schema.weight, schema.split_column) == ("w", "part")


@pytest.mark.parametrize("method", ["random", "stratified"])
def test_a_split_column_that_would_decide_nothing_is_refused(method: str) -> None:
    """It would be left out of the fields without a word."""
    with raises(SplitError, "split.method", method, "split.column", "'day'"):
        schema_of(table(day=[1, 2] * 20), config(split__method=method, split__column="day"))
    with raises(SplitError, "split.column", "'dya'", "'day'"):
        schema_of(table(day=[1, 2] * 20), config(split__method="time", split__column="dya"))


@pytest.mark.parametrize(
    "settings",
    [
        {"data__target": "lat"},
        {"data__weight": "colou"},
        {"data__fields": ["colour", "pricee"]},
        {"data__exclude": ["Price"]},
        {"data__kinds": {"colur": "categorical"}},
        {"data__numeric": {"*": "scale", "prise": "log2"}},
        {"data__min_count": {"*": 2, "kolour": 3}},
    ],
)
def test_unknown_names_are_refused_with_the_nearest(settings: dict[str, object]) -> None:
    with raises(SchemaError, *(name.replace("__", ".") for name in settings)) as caught:
        schema_of(table(), config(**settings))
    assert any(f"'{name}'" in str(caught.value) for name in ("late", "colour", "price"))


def test_target_is_required_and_no_field() -> None:
    with raises(SchemaError, "data.target", "colour", "price", "late"):
        schema_of(table(), Config())
    with raises(SchemaError, "data.fields", "'late'"):
        schema_of(table(), config(data__fields=["late", "price", "colour"]))


def test_useless_fields_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    useless = {"row_id": list(range(N)), "one": ["x"] * N, "empty": [""] * N, "some": ["x", None] * (N // 2)}
    with caplog.at_level(logging.WARNING):
        schema = schema_of(table(**useless), config())
    assert schema.field_names == ("colour", "price", "some")
    reasons = dict(schema.skipped)
    assert list(reasons) == ["row_id", "one", "empty"]
    assert states(reasons["row_id"], "one value per row")
    assert states(reasons["one"], "constant")
    assert states(reasons["empty"], "missing")
    assert states(caplog.text, "'row_id'", reasons["row_id"])
    kept = schema_of(table(**useless), config(data__kinds={"row_id": "categorical", "empty": "categorical"}))
    assert kept.field_names == ("colour", "price", "row_id", "empty", "some")
    listed = schema_of(table(**useless), config(data__fields=["row_id", "one"]))
    assert listed.field_names == ("row_id", "one")


def test_one_value_per_row_is_kept_in_a_small_table() -> None:
    small = pl.DataFrame({"name": list("abcdef"), "colour": ["r", "g"] * 3, "late": [0, 1] * 3})
    assert schema_of(small, config()).field_names == ("name", "colour")


def test_two_fields_are_needed() -> None:
    with raises(SchemaError, "two fields", "given 1", "colour", "'price'", "constant"):
        schema_of(table(price=[1.5] * N), config())
    with raises(SchemaError, "two fields", "none"):
        schema_of(table(), config(data__exclude=["colour", "price"]))


def test_nested_column_is_refused_unless_excluded() -> None:
    with raises(SchemaError, "'tags'"):
        schema_of(table(tags=[{"a": 1}] * N), config())
    schema = schema_of(table(tags=[{"a": 1}] * N), config(data__exclude=["tags"]))
    assert schema.field_names == ("colour", "price")


@pytest.mark.parametrize(
    "target",
    [
        None,
        Target(name="y", task="binary", classes=(False, True)),
        Target(name="y", task="multiclass", classes=(1.0, 2.0, 3.5)),
        Target(name="y", task="multiclass", classes=("1", "2", "é")),
        Target(name="y", task="regression", mean=0.1 + 0.2, scale=1 / 3),
    ],
)
def test_json_round_trip_is_exact(target: Target | None) -> None:
    schema = Schema(
        fields=(Field(name="a", kind="categorical"), Field(name="b", kind="numerical", numeric="scale")),
        target=target,
        weight="w",
        skipped=(("c", "it is constant"),),
    )
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    if target is not None and again.target is not None:
        assert [type(c) for c in again.target.classes] == [type(c) for c in target.classes]


def test_csv_and_typed_tables_have_the_same_fields() -> None:
    typed = table(hour=[float(v % 24) for v in range(N)], user_id=[v % 9 for v in range(N)])
    text = typed.select(pl.all().cast(pl.String))
    assert schema_of(text, config()).fields == schema_of(typed, config()).fields


def test_a_column_that_numbers_the_rows_is_left_out() -> None:
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(1000, 800, replace=False))  # training rows hold a part of the numbers
    table = pl.DataFrame(
        {
            "order": 10**17 + rows,
            "amount": rng.permutation(10**6)[:800],  # as many values as rows too, but from a wide range
            "colour": rng.choice(["red", "blue"], 800),
            "y": rng.integers(0, 2, 800),
        }
    )
    schema = schema_of(table, Config().replace({"data.target": "y"}))
    assert schema.field_names == ("amount", "colour")
    assert [name for name, _ in schema.skipped] == ["order"]
    kept = schema_of(table, Config().replace({"data.target": "y", "data.kinds": {"order": "numerical"}}))
    assert kept.field_names == ("order", "amount", "colour")
