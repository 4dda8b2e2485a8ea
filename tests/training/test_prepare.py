"""Rows ready for training from a table or a store: whose settings hold, and what is refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.predictor import Predictor
from fielddep.config.settings import Config
from fielddep.errors import ConfigError, SchemaError, SplitError
from fielddep.training.fit import fit, train
from fielddep.training.prepare import prepare, with_store_settings
from tests.conftest import quick_config, small_frame
from tests.helpers import raises
from tests.stores import numbered_store, write_store

FRAME = small_frame(300)
CONFIG = quick_config(data__min_count=2, split__seed=5)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("prepared") / "store", FRAME, CONFIG)


def test_a_store_gives_what_its_table_gives(store):
    stored, table = prepare(store, CONFIG), prepare(FRAME, CONFIG)
    assert stored.config == table.config
    assert stored.target == table.target
    assert {name: len(rows) for name, rows in stored.parts.items()} == {n: len(r) for n, r in table.parts.items()}
    torch.testing.assert_close(stored.base_C, table.base_C, rtol=1e-6, atol=0)
    for name, part in table.parts.items():
        found = np.concatenate([block.ids_RF for block in stored.parts[name].chunks()])
        assert np.array_equal(found, part.rows().ids_RF)


def test_data_and_split_settings_are_those_of_the_store(store):
    config = prepare(store, Config().replace({"train.lr": 0.5})).config
    assert (config.data, config.split) == (CONFIG.data, CONFIG.split)
    assert config.train.lr == 0.5
    assert with_store_settings(CONFIG, store) == CONFIG


@pytest.mark.parametrize(
    ("path", "value", "made"),
    [("data.target", "size", "'good'"), ("split.test", 0.2, "0.1"), ("data.exclude", ["size"], "[]")],
)
def test_other_data_settings_are_refused(store, path, value, made):
    with raises(ConfigError, path, made):
        prepare(store, Config().replace({path: value}))


def test_a_store_is_split_already(store):
    with raises(SplitError, "store", "split"):
        fit(store, CONFIG, parts=prepare(FRAME, CONFIG).store.parts(0, len(FRAME)))


def test_parts_that_training_needs(tmp_path):
    untested = numbered_store(tmp_path / "a", np.array([0] * 40 + [1] * 10))
    assert set(prepare(untested, Config()).parts) == {"train", "validation"}
    with raises(SplitError, "validation", "split.validation"):
        prepare(numbered_store(tmp_path / "b", np.array([0] * 40 + [2] * 10)), Config())
    with raises(SplitError, "training"):
        prepare(numbered_store(tmp_path / "c", np.array([1] * 40)), Config())


def test_weights_of_zero_in_a_whole_part(tmp_path):
    frame = FRAME.with_columns(w=pl.when(pl.int_range(300) < 150).then(1.0).otherwise(0.0), part=pl.lit("train"))
    frame = frame.with_columns(part=pl.when(pl.int_range(300) < 200).then(pl.lit("train")).otherwise(pl.lit("valid")))
    config = quick_config(data__weight="w", split__method="column", split__column="part", split__test=0.0)
    with raises(SchemaError, "validation rows", "weight 0"):
        prepare(frame, config)
    store = write_store(tmp_path / "store", frame.with_columns(w=1.0), config)
    for shard in sorted((tmp_path / "store").glob("*.weight")):
        weights = np.fromfile(shard, dtype="<f4")
        start = 128 * int(shard.name[6:11])
        weights[np.arange(start, start + len(weights)) >= 150] = 0
        weights.tofile(shard)
    with raises(SchemaError, "validation rows", "weight 0"):
        prepare(store, config)


@pytest.mark.parametrize("row", [37, 171, 299])
@pytest.mark.parametrize(
    ("column", "value", "fact"),
    [
        ("weight", "-1", "0 or more"),
        ("size", "large", "'large'"),
    ],
)
def test_a_refused_cell_is_named_by_its_row_in_the_table(column, value, fact, row):
    """And not by its row in the part of the table that is encoded."""
    texts = FRAME.with_columns(weight=pl.lit("1"), size=pl.col("size").cast(pl.String))
    table = texts.with_columns(pl.when(pl.int_range(300) == row).then(pl.lit(value)).otherwise(column).alias(column))
    config = quick_config(data__weight="weight", data__kinds={"size": "numerical"})
    with raises(SchemaError, f"'{column}'", f"row {row}", fact):
        prepare(table, config)


def test_training_on_a_store_learns(store):
    fitted = fit(store, quick_config(train__max_epochs=20))
    assert set(fitted.metrics) == {"validation", "validation_base_rate", "test", "test_base_rate"}
    assert fitted.metrics["test"]["auc"] > 0.85
    assert fitted.metrics["validation"] == pytest.approx(fitted.validation, abs=1e-9)
    assert fitted.history[0].rows_per_s > 0
    assert fitted.prepared.config.data == CONFIG.data


def test_a_seed_decides_everything(store):
    weights = [train(prepare(store, quick_config(train__seed=s))).model.state_dict() for s in (4, 4, 5)]
    assert all(torch.equal(weights[1][name], weight) for name, weight in weights[0].items())
    assert not torch.equal(weights[2]["embedding.weight"], weights[0]["embedding.weight"])


def test_metrics_are_those_of_the_table(store):
    fitted = fit(store, CONFIG)
    row_parts = prepare(FRAME, CONFIG).store.parts(0, len(FRAME))
    from fielddep.artifacts.bundle import Bundle

    predictor = Predictor(Bundle.of(fitted))
    for part, rows in (("validation", np.flatnonzero(row_parts == 1)), ("test", np.flatnonzero(row_parts == 2))):
        expected = predictor.evaluate(FRAME[rows])
        assert fitted.metrics[part] == pytest.approx(expected, abs=1e-6)
        assert predictor.evaluate(store, part=part) == pytest.approx(expected, abs=1e-6)
