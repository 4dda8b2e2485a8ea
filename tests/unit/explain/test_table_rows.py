"""Chosen rows and samples of tables and stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.data.encoded import EncodedTable
from fielddep.errors import SchemaError, SplitError, TableError
from fielddep.explain import table_rows
from fielddep.explain.row_values import cell_texts
from fielddep.explain.table_rows import pick_store_rows, pick_table_rows
from fielddep.predictor import reading_for
from tests.conftest import quick_config, small_frame
from tests.stores import write_store
from tests.unit.explain.trained import bundle_of, mixed, mixed_frame

FRAME = mixed_frame(120, seed=7)
NUMBERS = (70, 3, 119)


def pick(source, numbers=NUMBERS, bundle=None, **options):
    bundle = bundle or mixed()
    return pick_table_rows(bundle, source, reading_for(bundle, bundle.config.data), numbers, **options)


def assert_rows(found: EncodedTable, frame: pl.DataFrame, bundle=None) -> None:
    expected = (bundle or mixed()).encoder.encode(frame, handle_unknown="rare")
    np.testing.assert_array_equal(found.ids_RF.numpy(), expected.ids_RF.numpy())
    np.testing.assert_array_equal(found.numbers_RN.numpy(), expected.numbers_RN.numpy())


@pytest.fixture(params=["frame", "csv", "parquet"])
def source(request, tmp_path: Path):
    if request.param == "frame":
        return FRAME
    path = tmp_path / f"table.{request.param}"
    FRAME.write_csv(path) if request.param == "csv" else FRAME.write_parquet(path)
    return str(path)


@pytest.mark.parametrize("chunk_rows", [11, 70, 1000])
def test_chosen_rows_and_all_others(source, chunk_rows, monkeypatch):
    monkeypatch.setattr(table_rows, "CHUNK_ROWS", chunk_rows)
    picked = pick(source)
    assert_rows(picked.chosen, FRAME[list(NUMBERS)])
    assert picked.values is not None
    assert picked.values.equals(cell_texts(mixed().encoder, FRAME[list(NUMBERS)]))
    assert picked.sample is not None
    assert_rows(picked.sample, FRAME)
    assert picked.sample.target_R.tolist() == FRAME["good"].to_list()
    assert (picked.n_rows, picked.part) == (120, "all")


def test_a_sample_is_drawn_by_chance_and_keeps_targets():
    picked = pick(FRAME, n_sample=30, seed=1)
    assert picked.sample is not None and len(picked.sample) == 30 and picked.n_rows == 120
    encoded = mixed().encoder.encode(FRAME, with_target=True)
    lines = [(*ids, t) for ids, t in zip(encoded.ids_RF.tolist(), encoded.target_R.tolist(), strict=True)]
    drawn = [(*ids, t) for ids, t in zip(picked.sample.ids_RF.tolist(), picked.sample.target_R.tolist(), strict=True)]
    assert set(map(tuple, drawn)) <= set(map(tuple, lines))
    assert torch.equal(pick(FRAME, n_sample=30, seed=1).sample.ids_RF, picked.sample.ids_RF)
    assert not torch.equal(pick(FRAME, n_sample=30, seed=2).sample.ids_RF, picked.sample.ids_RF)


def test_without_a_sample_the_table_is_read_no_further_than_needed(monkeypatch):
    monkeypatch.setattr(table_rows, "CHUNK_ROWS", 10)
    read = []
    encode = table_rows.TableEncoder.encode
    monkeypatch.setattr(
        table_rows.TableEncoder, "encode", lambda self, t, **o: read.append(len(t)) or encode(self, t, **o)
    )
    picked = pick(FRAME, (25, 4), n_sample=0)
    assert len(read) == 3
    monkeypatch.undo()
    assert_rows(picked.chosen, FRAME[[25, 4]])
    assert picked.sample is None and picked.n_rows == 0


def test_targets_are_taken_where_they_are():
    assert pick(FRAME.drop("good")).sample.target_R is None
    assert pick(FRAME, with_target=False).sample.target_R is None
    with pytest.raises(SchemaError, match="must have the columns 'good'"):
        pick(FRAME.drop("good"), with_target=True)
    weighted = mixed("good", weight="weight")
    assert pick(FRAME, bundle=weighted).sample.weight_R.tolist() == FRAME["weight"].to_list()
    assert pick(FRAME.drop("weight"), bundle=weighted).sample.target_R is None


def test_targets_that_cannot_be_used_say_how_to_do_without():
    broken = FRAME.with_columns(good=pl.when(pl.int_range(120) != 50).then(pl.col("good")))
    with pytest.raises(SchemaError, match=r"given 1 missing, the first in row 50 .*or do without .*--no-importance"):
        pick(broken)
    assert_rows(pick(broken, with_target=False).chosen, FRAME[list(NUMBERS)])


@pytest.mark.parametrize("n_sample", [0, 50])
def test_rows_that_are_not_there(n_sample):
    with pytest.raises(TableError, match="row 120 is asked for, but the table has 120 rows, 0 to 119"):
        pick(FRAME, (0, 120), n_sample=n_sample)
    with pytest.raises(SchemaError, match="'shape', which are absent"):
        pick(FRAME.drop("shape"))


def test_unknown_values_are_rare_even_where_predicting_refuses_them():
    strict = bundle_of(
        small_frame(), quick_config(train__max_epochs=1, data__handle_unknown="error", data__crosses="none")
    )
    odd = small_frame(10).with_columns(colour=pl.lit("mauve"))
    picked = pick(odd, (0,), bundle=strict)
    assert (picked.chosen.ids_RF[:, 0] == 1).all()
    assert picked.values["colour"].to_list() == ["mauve"]
    assert pick(odd, (), bundle=strict).values.is_empty()


# --- stores ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory):
    config = quick_config(train__max_epochs=1, data__crosses=[["colour", "shape"]])
    frame = small_frame(200)
    store = write_store(tmp_path_factory.mktemp("store") / "store", frame, config)
    return store, frame, bundle_of(frame, config)


def test_rows_of_a_store_are_counted_over_all_parts(stored):
    store, frame, bundle = stored
    picked = pick_store_rows(bundle, store, (150, 2))
    assert_rows(picked.chosen, frame[[150, 2]], bundle)
    assert picked.part == "test" and picked.values is None
    assert len(picked.sample) == picked.n_rows == store.n_rows_of["test"]
    everything = pick_store_rows(bundle, store, (), part="all")
    assert_rows(everything.sample, frame, bundle)
    assert everything.sample.target_R.tolist() == frame["good"].to_list()
    assert len(everything.chosen) == 0
    few = pick_store_rows(bundle, store, (0,), part="train", n_sample=10)
    assert (len(few.sample), few.n_rows, few.part) == (10, store.n_rows_of["train"], "train")
    assert pick_store_rows(bundle, store, (0,), n_sample=0).sample is None


def test_what_a_store_refuses(stored):
    store, _, bundle = stored
    with pytest.raises(TableError, match="row 200 is asked for, but the table has 200 rows"):
        pick_store_rows(bundle, store, (200,))
    with pytest.raises(SplitError, match="has no pest rows"):
        pick_store_rows(bundle, store, (0,), part="pest")


def test_a_store_in_other_ids_is_translated(stored, tmp_path: Path):
    _, frame, _ = stored
    without_size = quick_config(train__max_epochs=1, data__exclude=["size"], data__crosses="none")
    other = write_store(tmp_path / "other", frame.filter(pl.col("colour") != "red"), without_size)
    bundle = bundle_of(frame, without_size)
    picked = pick_store_rows(bundle, other, (3, 0), part="all")
    there = frame.filter(pl.col("colour") != "red")
    assert_rows(picked.chosen, there[[3, 0]], bundle)
    assert_rows(picked.sample, there, bundle)
    assert picked.sample.target_R.tolist() == there["good"].to_list()


def test_a_store_of_another_target_has_rows_but_no_targets(stored):
    store, frame, _ = stored
    other = bundle_of(
        frame.rename({"good": "fine"}),
        quick_config(train__max_epochs=1, data__crosses="none", data__target="fine", data__exclude=["size"]),
    )
    picked = pick_store_rows(other, store, (1,))
    assert picked.sample.target_R is None
    with pytest.raises(SchemaError, match="the model predicts 'fine'"):
        pick_store_rows(other, store, (1,), with_target=True)
