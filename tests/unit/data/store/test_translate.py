"""Rows of a store for a model of another encoder: translated where ids tell the values, refused where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.data.encoder import TableEncoder
from fielddep.data.schema import infer_schema
from fielddep.data.store.translate import same_ids, stored_rows
from fielddep.errors import SchemaError, UnknownValueError
from tests.conftest import quick_config, small_frame
from tests.stores import write_store

FRAME = small_frame(300).with_columns(
    colour=pl.when(pl.int_range(300) % 11 == 0).then(None).otherwise("colour"),
    age=(pl.int_range(300) * 7 % 40),
    w=pl.int_range(300) % 5 + 0.5,
)
BASE = {"data__kinds": {"age": "numerical", "size": "numerical"}, "data__crosses": "none"}


def store_of(folder, frame=FRAME, **settings):
    return write_store(folder / "store", frame, quick_config(**{**BASE, **settings}))


def encoder_of(frame, **settings) -> TableEncoder:
    config = quick_config(**{**BASE, **settings})
    return TableEncoder.fit(frame, infer_schema(frame, config), config.data)


def join(blocks):
    tables = [rows for rows, _ in blocks]
    report = blocks[0][1]
    for _, more in blocks[1:]:
        report = report.merge(more)
    names = ("ids_RF", "numbers_RN", "target_R", "weight_R")
    whole = {name: [getattr(t, name) for t in tables] for name in names}
    return {name: None if parts[0] is None else torch.cat(parts) for name, parts in whole.items()}, report


def check(store, encoder, frame=FRAME):
    """Translated rows must be those that the encoder gives the table itself."""
    found, report = join(list(stored_rows(store, encoder, with_target=True)))
    expected, plain = encoder.encode_with_report(frame, with_target=True, handle_unknown="rare")
    assert torch.equal(found["ids_RF"], expected.ids_RF)
    torch.testing.assert_close(found["numbers_RN"], expected.numbers_RN, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found["target_R"], expected.target_R)
    if expected.weight_R is None:
        assert found["weight_R"] is None
    else:
        assert torch.equal(found["weight_R"], expected.weight_R)
    return report, plain


def test_the_stores_own_encoder_reads_ids_as_they_are(tmp_path):
    store = store_of(tmp_path, data__crosses=[["colour", "shape"]], data__weight="w", data__numeric="scale")
    other = TableEncoder.from_parts(store.encoder.to_json(), store.encoder.vocabulary_frame())
    assert same_ids(store.encoder, other)
    report, plain = check(store, other)
    assert report == plain


def test_part_and_target(tmp_path):
    store = store_of(tmp_path)
    (rows, _), *_ = stored_rows(store, store.encoder)
    assert rows.target_R is None
    for part, n_rows in store.n_rows_of.items():
        assert sum(len(rows) for rows, _ in stored_rows(store, store.encoder, part=part)) == n_rows
    with pytest.raises(StopIteration):
        next(stored_rows(replace(store, n_rows=0, block_parts=store.block_parts[:0]), store.encoder))


@pytest.mark.parametrize(
    "change",
    [
        {"frame": FRAME.head(100)},
        {"settings": {"data__min_count": 80}},
        {"settings": {"data__crosses": [["colour", "shape"]]}},
        {"frame": FRAME.with_columns(colour=pl.col("colour").fill_null("red"))},
    ],
)
def test_encoders_that_differ(tmp_path, change):
    store = store_of(tmp_path)
    assert not same_ids(store.encoder, encoder_of(change.get("frame", FRAME), **change.get("settings", {})))


def test_categorical_fields_crosses_and_weights(tmp_path):
    store = store_of(tmp_path, data__numeric="scale", data__weight="w")
    model = encoder_of(
        FRAME.filter(pl.col("shape") != "ring").reverse(),
        data__numeric="scale", data__weight="w", data__crosses=[["colour", "shape"]],
    )  # fmt: skip
    report, plain = check(store, model)
    assert report.unknown == plain.unknown
    assert report.unknown["shape"] == (FRAME["shape"] == "ring").sum()
    assert report.missing == plain.missing
    assert report.missing["colour"] == FRAME["colour"].null_count()


def test_values_rare_in_the_store_are_unknown_to_the_model(tmp_path):
    rare = FRAME.with_columns(shape=pl.when(pl.int_range(300) == 7).then(pl.lit("star")).otherwise("shape"))
    store = store_of(tmp_path, rare, data__numeric="scale", data__min_count=2)
    model = encoder_of(pl.concat([rare, rare]), data__numeric="scale", data__min_count=2)
    found, report = join(list(stored_rows(store, model)))
    expected = model.encode(rare).ids_RF
    assert report.unknown["shape"] == 1
    assert found["ids_RF"][7, 1] == 1
    assert expected[7, 1] > 1
    others = torch.arange(300) != 7
    assert torch.equal(found["ids_RF"][others], expected[others])


def test_single_values_of_the_store_may_be_numbers_to_the_model(tmp_path):
    store = store_of(tmp_path, data__kinds={"age": "categorical", "size": "numerical"}, data__numeric="scale")
    for numeric in ("scale", "quantile", "log2"):
        check(store, encoder_of(FRAME.tail(200), data__numeric={"*": "scale", "age": numeric}))


def test_bins_of_counts_are_matched_by_name(tmp_path):
    settings = {"data__numeric": {"*": "scale", "age": "log2"}}
    check(store_of(tmp_path, **settings), encoder_of(FRAME.tail(150), **settings))


@pytest.mark.parametrize(("had", "wants"), [("quantile", "quantile"), ("quantile", "scale"), ("log2", "quantile"),
                                            ("scale", "quantile"), ("scale", "log2")])  # fmt: skip
def test_what_ids_do_not_tell_is_refused(tmp_path, had, wants):
    store = store_of(tmp_path, data__numeric={"*": "scale", "age": had})
    model = encoder_of(FRAME.tail(150), data__numeric={"*": "scale", "age": wants})
    with pytest.raises(SchemaError, match=r"field 'age' of the store holds .* cannot be told; give the table"):
        next(stored_rows(store, model))


@pytest.mark.parametrize("target", ["shape", "size"])
def test_targets_of_other_order_and_scale(tmp_path, target):
    store = store_of(tmp_path, data__target=target, data__numeric="scale")
    frame = FRAME.filter(pl.col("size") > -1)
    model = encoder_of(frame, data__target=target, data__numeric="scale")
    if target == "shape":
        known = model.schema.target
        assert known is not None
        flipped = replace(known, classes=tuple(reversed(known.classes)))
        model = replace(model, schema=replace(model.schema, target=flipped))
    check(store, model)


def test_a_class_that_the_model_does_not_know(tmp_path):
    store = store_of(tmp_path, data__target="shape", data__numeric="scale")
    frame = FRAME.filter(pl.col("shape") != "ring")
    with pytest.raises(SchemaError, match=r"target 'shape' has the classes .* given also 'ring'"):
        list(stored_rows(store, encoder_of(frame, data__target="shape", data__numeric="scale"), with_target=True))


def test_absent_columns_are_named(tmp_path):
    store = store_of(tmp_path, data__exclude=["colour"], data__numeric="scale")
    with pytest.raises(SchemaError, match="'colour', which are absent"):
        next(stored_rows(store, encoder_of(FRAME, data__numeric="scale")))
    weighted = encoder_of(FRAME, data__weight="w", data__exclude=["colour"], data__numeric="scale")
    with pytest.raises(SchemaError, match=r"weighs rows by 'w', which the store does not hold"):
        next(stored_rows(store, weighted, with_target=True))
    other = encoder_of(FRAME, data__target="shape", data__exclude=["colour", "good"], data__numeric="scale")
    with pytest.raises(SchemaError, match="'shape' \\(multiclass\\), the store holds 'good' \\(binary\\)"):
        next(stored_rows(store, replace(other, coders=()), with_target=True))


def test_unknown_values_are_an_error_where_the_model_says_so(tmp_path):
    store = store_of(tmp_path, data__numeric="scale")
    known = FRAME.filter(pl.col("shape") != "ring")
    model = encoder_of(known, data__numeric="scale", data__handle_unknown="error")
    with pytest.raises(UnknownValueError, match="field 'shape' must hold values seen in training"):
        list(stored_rows(store, model))


def test_numbers_of_another_scale(tmp_path):
    store = store_of(tmp_path, data__numeric="scale")
    check(store, encoder_of(FRAME.filter(pl.col("age") < 20), data__numeric="scale"))
    assert np.isclose(store.read(0, 5).numbers_RN.numpy(), 0).mean() < 0.5


def test_values_rare_in_the_model_are_known_to_it(tmp_path):
    """With `handle_unknown = "error"` a model knows its rare values; only what cannot be told is refused."""
    store = store_of(tmp_path, data__numeric="scale")
    frame = pl.concat([FRAME.filter(pl.col("shape") != "ring"), FRAME.filter(pl.col("shape") == "ring").head(2)])
    settings = {"data__numeric": "scale", "data__min_count": 5}
    report, plain = check(store, encoder_of(frame, **settings, data__handle_unknown="error"))
    assert report == plain
    assert set(report.unknown.values()) == {0}
    report, plain = check(store, encoder_of(frame, **settings))
    assert report == plain
    assert report.unknown["shape"] == (FRAME["shape"] == "ring").sum()


def test_bins_of_counts_that_are_rare_in_the_model_are_known_to_it(tmp_path):
    kinds = {"size": "numerical", "age": "categorical"}
    store = store_of(tmp_path, data__numeric="scale", data__kinds=kinds)
    settings = {"data__numeric": {"*": "scale", "age": "log2"}, "data__min_count": {"age": 20}}
    report, plain = check(store, encoder_of(FRAME, **settings, data__handle_unknown="error"))
    assert report == plain
    assert report.unknown["age"] == 0
    assert check(store, encoder_of(FRAME, **settings))[0].unknown["age"] > 0


def test_missing_cells_where_training_had_none_count_as_unknown(tmp_path):
    config = quick_config(**BASE, data__numeric="scale", split__method="column", split__column="part")
    frame = FRAME.with_columns(
        part=pl.when(pl.int_range(300) < 200).then(pl.lit("train")).otherwise(pl.lit("validation")),
        shape=pl.when(pl.int_range(300) == 250).then(None).otherwise("shape"),
    )
    store = write_store(tmp_path / "store", frame, config)
    for encoder in (store.encoder, encoder_of(frame, data__numeric="scale", data__exclude=["part"])):
        _, report = join(list(stored_rows(store, encoder)))
        assert (report.unknown["shape"], report.missing["shape"]) == (1, 0)
