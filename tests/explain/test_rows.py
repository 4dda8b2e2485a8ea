"""What rows hold as text, and how they are picked from tables and stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import SchemaError, SplitError, StoreError, TableError
from fielddep.explain import rows as picking
from fielddep.explain.rows import cell_texts, pick_rows, value_texts
from fielddep.tables.row_stream import RowStream
from tests.conftest import quick_config, small_frame
from tests.explain.trained import bundle_of, mixed, mixed_frame
from tests.helpers import raises
from tests.stores import write_store
from tests.streamed import learned

FRAME = mixed_frame(120, seed=7)
NUMBERS = (70, 3, 119)


def pick(source, numbers=NUMBERS, bundle=None, **options):
    return pick_rows(bundle or mixed(), source, numbers, **options)


def assert_rows(found: EncodedRows, frame: pl.DataFrame, bundle=None) -> None:
    expected, _ = (bundle or mixed()).encoder.encode(frame, handle_unknown="rare")
    np.testing.assert_array_equal(found.ids_RF, expected.ids_RF)
    np.testing.assert_array_equal(found.numbers_RN, expected.numbers_RN)


@pytest.fixture(params=["frame", "csv", "parquet"])
def source(request, tmp_path: Path):
    if request.param == "frame":
        return FRAME
    path = tmp_path / f"table.{request.param}"
    FRAME.write_csv(path) if request.param == "csv" else FRAME.write_parquet(path)
    return str(path)


@pytest.mark.parametrize("chunk_rows", [11, 70, 1000])
def test_chosen_rows_and_all_others(source, chunk_rows, monkeypatch):
    monkeypatch.setattr(picking, "CHUNK_ROWS", chunk_rows)
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
    encoded, _ = mixed().encoder.encode(FRAME, with_target=True)
    lines = [(*ids, t) for ids, t in zip(encoded.ids_RF.tolist(), encoded.target_R.tolist(), strict=True)]
    drawn = [(*ids, t) for ids, t in zip(picked.sample.ids_RF.tolist(), picked.sample.target_R.tolist(), strict=True)]
    assert set(map(tuple, drawn)) <= set(map(tuple, lines))
    assert np.array_equal(pick(FRAME, n_sample=30, seed=1).sample.ids_RF, picked.sample.ids_RF)
    assert not np.array_equal(pick(FRAME, n_sample=30, seed=2).sample.ids_RF, picked.sample.ids_RF)


def test_without_a_sample_the_table_is_read_no_further_than_needed(monkeypatch):
    monkeypatch.setattr(picking, "CHUNK_ROWS", 10)
    read = []

    def rows(columns, place):
        for chunk in FRAME.select(columns).iter_slices(10):
            read.append(len(chunk))
            yield chunk, place

    picked = pick(RowStream(schema=FRAME.schema, sources=(), readers=(rows,)), (25, 4), n_sample=0)
    assert read == [10, 10, 10]
    assert_rows(picked.chosen, FRAME[[25, 4]])
    assert picked.sample is None and picked.n_rows == 0


def test_targets_are_taken_where_they_are():
    assert pick(FRAME.drop("good")).sample.target_R is None
    assert pick(FRAME, with_target=False).sample.target_R is None
    with pytest.raises(SchemaError, match="'good'"):
        pick(FRAME.drop("good"), with_target=True)
    weighted = mixed("good", weight="weight")
    assert pick(FRAME, bundle=weighted).sample.weight_R.tolist() == FRAME["weight"].to_list()
    assert pick(FRAME.drop("weight"), bundle=weighted).sample.target_R is None


def test_targets_that_cannot_be_used_say_how_to_do_without():
    broken = FRAME.with_columns(good=pl.when(pl.int_range(120) != 50).then(pl.col("good")))
    with pytest.raises(SchemaError, match=r"\b1 .*row 50\b.*--no-importance"):
        pick(broken)
    assert_rows(pick(broken, with_target=False).chosen, FRAME[list(NUMBERS)])


@pytest.mark.parametrize("n_sample", [0, 50])
def test_rows_that_are_not_there(n_sample):
    with pytest.raises(TableError, match=r"row 120\b.*120 rows.*119"):
        pick(FRAME, (0, 120), n_sample=n_sample)
    with pytest.raises(SchemaError, match="'shape'"):
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
    picked = pick_rows(bundle, store, (150, 2))
    assert_rows(picked.chosen, frame[[150, 2]], bundle)
    assert picked.part == "test" and picked.values is None
    assert len(picked.sample) == picked.n_rows == store.n_rows_of["test"]
    everything = pick_rows(bundle, store, (), part="all")
    assert_rows(everything.sample, frame, bundle)
    assert everything.sample.target_R.tolist() == frame["good"].to_list()
    assert len(everything.chosen) == 0
    few = pick_rows(bundle, store, (0,), part="train", n_sample=10)
    assert (len(few.sample), few.n_rows, few.part) == (10, store.n_rows_of["train"], "train")
    assert pick_rows(bundle, store, (0,), n_sample=0).sample is None


def test_what_a_store_refuses(stored):
    store, _, bundle = stored
    with pytest.raises(TableError, match=r"row 200\b.*200 rows"):
        pick_rows(bundle, store, (200,))
    with pytest.raises(SplitError, match="pest"):
        pick_rows(bundle, store, (0,), part="pest")


def test_a_store_with_other_ids_is_refused(stored, tmp_path: Path):
    _, frame, bundle = stored
    other = write_store(tmp_path / "other", frame.filter(pl.col("colour") != "red"), bundle.config)
    with raises(StoreError, other.folder, "table"):
        pick_rows(bundle, other, (3, 0))


# --- texts ----------------------------------------------------------------------------------------------------

NAMES = ("colour", "size", "price", "visits")
WHOLE = pl.DataFrame(
    {
        "colour": ["red", "blue"] * 50,
        "size": [float(n) for n in range(100)],
        "price": [float(n) for n in range(100)],
        "visits": list(range(100)),
        "y": [0, 1] * 50,
    }
)
GAPS = pl.concat(
    [WHOLE, pl.DataFrame({name: [None] * 20 for name in NAMES} | {"y": [0, 1] * 10})], how="vertical_relaxed"
)
ODD = pl.DataFrame(
    {
        "colour": ["red", "mauve", None, "5.0"],
        "size": ["1e9", "-1e9", "NA", "12.345678"],
        "price": ["12.345678", "-1e9", None, "3"],
        "visits": ["100", "21", "", "1e6"],
    }
)


def encoder_of(frame: pl.DataFrame) -> Encoder:
    config = Config().replace(
        {
            "data.target": "y",
            "data.crosses": "none",
            "data.kinds": dict.fromkeys(("size", "price", "visits"), "numerical"),
            "data.numeric": {"size": "scale", "price": "quantile", "visits": "log2"},
            "data.n_bins": 2,
        }
    )
    return learned(frame, config)


@pytest.mark.parametrize("frame", [WHOLE, GAPS], ids=["no missing values", "missing values"])
def test_cells_are_shown_as_they_are(frame: pl.DataFrame) -> None:
    found = cell_texts(encoder_of(frame), ODD)
    assert found.to_dict(as_series=False) == {
        "colour": ["red", "mauve", "<missing>", "5"],
        "size": ["1e9", "-1e9", "<missing>", "12.345678"],
        "price": ["12.345678", "-1e9", "<missing>", "3"],
        "visits": ["100", "21", "<missing>", "1e6"],
    }
    typed = cell_texts(encoder_of(frame), WHOLE[[7]])
    assert typed.rows() == [("blue", "7", "7", "7")]


def test_ids_show_what_they_can() -> None:
    encoder = encoder_of(GAPS)
    assert value_texts(encoder, encoder.encode(ODD)[0]).to_dict(as_series=False) == {
        "colour": ["red", "<rare>", "<missing>", "<rare>"],
        "size": ["280.429 or more", "-181.429 or less", "<missing>", "12.3457"],
        "price": ["(-inf, 50)", "(-inf, 50)", "<missing>", "(-inf, 50)"],
        "visits": ["[98, 109)", "[21, 24)", "<missing>", "<rare>"],
    }


def test_values_of_one_id_are_named_together() -> None:
    encoder = encoder_of(WHOLE)
    assert value_texts(encoder, encoder.encode(ODD)[0]).to_dict(as_series=False) == {
        "colour": ["red", "<rare> or <missing>", "<rare> or <missing>", "<rare> or <missing>"],
        "size": ["280.429 or more", "-181.429 or less", "49.5 or <missing>", "12.3457"],
        "price": ["(-inf, 50)", "(-inf, 50)", "<missing>", "(-inf, 50)"],
        "visits": ["[98, 109)", "[21, 24)", "<rare> or <missing>", "<rare> or <missing>"],
    }


def test_texts_of_no_rows() -> None:
    encoder = encoder_of(WHOLE)
    nothing = ODD.clear()
    assert value_texts(encoder, encoder.encode(nothing)[0]).columns == list(NAMES)
    assert cell_texts(encoder, nothing).rows() == []


def test_numbers_are_shown_without_the_noise_of_float32() -> None:
    encoder = encoder_of(WHOLE)
    rows = WHOLE.head(2).with_columns(size=pl.Series([0.1, -1.25]))
    assert value_texts(encoder, encoder.encode(rows)[0])["size"].to_list() == ["0.1", "-1.25"]
