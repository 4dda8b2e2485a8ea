"""Dropping rows without a target must give what a table without these rows gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.encoding.describe import describe
from fielddep.encoding.interning import code_table
from fielddep.encoding.split import PART_NAMES
from fielddep.encoding.target import has_target
from fielddep.encoding.with_target import coded_with_target
from fielddep.errors import SchemaError
from fielddep.store.build import build_store
from fielddep.store.store import Store
from fielddep.training.fit import fit
from fielddep.training.prepare import prepare
from tests.helpers import raises
from tests.streamed import SMALL_SIZES, mixed_frame, small_chunks

__all__ = ["small_chunks"]
pytestmark = pytest.mark.usefixtures("small_chunks")

SPLITS: dict[str, dict[str, object]] = {
    "random": {},
    "stratified": {"split.method": "stratified"},
    "group": {"split.method": "group", "split.column": "colour"},
    "time": {"split.method": "time", "split.column": "visits"},
}


def holed(target: str, n_rows: int = 900) -> pl.DataFrame:
    """A table with missing targets: some rows, and a long run that fills whole chunks."""
    missing = np.random.default_rng(1).random(n_rows) < 0.2
    missing[300:620] = True
    table = mixed_frame(n_rows)
    return table.with_columns(pl.when(pl.Series(~missing)).then(target).alias(target))


def dropping(target: str, **settings: object) -> Config:
    others = [name for name in ("good", "grade", "amount") if name != target]
    return Config().replace({"data.target": target, "data.exclude": others, "data.missing_target": "drop", **settings})


def same_rows(found: Store, expected: Store) -> None:
    assert found.encoder.digest == expected.encoder.digest
    assert found.n_rows == expected.n_rows
    assert np.array_equal(found.parts(0, found.n_rows), expected.parts(0, expected.n_rows))
    for name, array in expected.read(0, expected.n_rows).arrays.items():
        assert np.array_equal(found.read(0, found.n_rows).arrays[name], array, equal_nan=array.dtype.kind == "f"), name


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("target", ["good", "grade", "amount"])
def test_equals_a_table_without_these_rows(tmp_path: Path, target: str, split: str) -> None:
    config = dropping(target, **SPLITS[split])
    table = holed(target)
    table.write_parquet(tmp_path / "table.parquet")
    expected = build_store(table.drop_nulls(target), config)
    same_rows(build_store(table, config), expected)
    same_rows(build_store(tmp_path / "table.parquet", config, tmp_path / "store"), expected)


@pytest.mark.parametrize("kept_as", ["codes", "numbers"])
def test_a_target_kept_as_numbers(tmp_path: Path, kept_as: str) -> None:
    sizes = replace(SMALL_SIZES, max_distinct=100 if kept_as == "numbers" else 10_000)
    table = holed("amount").with_columns(pl.col("amount").cast(pl.String).fill_null("NA"))
    coded = coded_with_target(code_table(table, dropping("amount"), sizes), dropping("amount").data)
    assert coded.columns["amount"].mode == kept_as
    store = build_store(table, dropping("amount"), tmp_path / "store", sizes=sizes)
    assert store.n_rows == coded.n_rows == int((table["amount"] != "NA").sum())
    mean = table.filter(pl.Series(table["amount"] != "NA"))["amount"].cast(pl.Float64).mean()
    target = store.encoder.schema.target
    assert target is not None
    values = store.read(0, store.n_rows).arrays["target"] * target.scale + target.mean
    assert values.mean() == pytest.approx(mean, abs=1e-4)


def test_cells_of_kept_rows_are_those_of_the_table() -> None:
    table = holed("good")
    coded = coded_with_target(code_table(table, dropping("good"), SMALL_SIZES), dropping("good").data)
    kept = table.with_row_index("number").drop_nulls("good")
    for start, stop in [(0, coded.n_rows), (0, 1), (250, 333), (coded.n_rows - 3, coded.n_rows), (5, 5)]:
        rows = kept.slice(start, stop - start)
        assert coded.cells.row_numbers(start, stop).tolist() == rows["number"].to_list()
        found = coded.columns["word"].values.gather(coded.codes("word", start, stop))
        assert found.to_list() == rows["word"].to_list()


def test_given_parts_are_those_of_all_rows() -> None:
    table = holed("good")
    parts = (np.arange(len(table)) % 10 // 8).astype(np.uint8)
    store = build_store(table, dropping("good"), parts=parts)
    assert np.array_equal(store.parts(0, store.n_rows), parts[table["good"].is_not_null().to_numpy()])


def test_the_number_of_dropped_rows_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    table = holed("good")
    prepare(table, dropping("good"))
    dropped = [record for record in caplog.messages if f"{table['good'].null_count():,} of 900" in record]
    assert len(dropped) == 1
    caplog.clear()
    prepare(table.drop_nulls("good"), dropping("good"))
    assert not [record for record in caplog.messages if "dropped" in record]


def test_missing_targets_are_refused_by_default() -> None:
    config = dropping("good").replace({"data.missing_target": "error"})
    with raises(SchemaError, "data.missing_target", f"{holed('good')['good'].null_count()} missing"):
        prepare(holed("good"), config)
    with raises(SchemaError, "target 'good'", "900"):
        prepare(mixed_frame(900).with_columns(good=pl.lit(None, pl.Int64)), dropping("good"))


def test_errors_name_rows_of_the_table(tmp_path: Path) -> None:
    table = holed("good").with_columns(pl.col("weight"))
    table[700, "good"], table[700, "weight"] = 1, -1.0
    with raises(SchemaError, "weight", "row 700"):
        prepare(table, dropping("good", **{"data.weight": "weight"}))
    text = holed("good").with_columns(pl.col("height").cast(pl.String))
    text[400, "height"] = "tall"  # a row that is dropped
    with raises(SchemaError, "height", "row 400", "tall"):
        prepare(text, dropping("good", **{"data.kinds": {"height": "numerical"}}))


def test_evaluation_skips_the_same_rows(caplog: pytest.LogCaptureFixture) -> None:
    table = holed("amount")
    config = dropping("amount", **{"train.max_epochs": 1})
    predictor = Predictor(Bundle.of(fit(table, config)), chunk_rows=64)
    caplog.clear()
    assert predictor.evaluate(table) == pytest.approx(predictor.evaluate(table.drop_nulls("amount")))
    assert [f"{table['amount'].null_count():,} of 900" in text for text in caplog.messages] == [True]
    assert len(predictor.predict(table)) == len(table)
    refuses = replace(predictor.bundle.config.data, missing_target="error")
    with raises(SchemaError, "missing"):
        predictor.evaluate(table, config=refuses)


def test_a_word_for_missing_is_judged_by_the_classes() -> None:
    assert has_target(pl.Series(["1", "0", "NA"])).to_list() == [True, True, False]
    assert has_target(pl.Series(["a", "b", "NA"])).to_list() == [True, True, True]
    table = pl.DataFrame({"a": ["x", "y"] * 40, "b": ["u", "u", "v", "v"] * 20, "y": ["NA", "b"] * 40})
    target = prepare(table, Config().replace({"data.target": "y", "data.missing_target": "drop"})).target
    assert target.is_known(pl.Series(["NA", "NA", None])).to_list() == [True, True, False]


def test_describe_counts_rows_with_a_target() -> None:
    found = describe(holed("good"), dropping("good"))
    assert found.n_rows == len(holed("good").drop_nulls("good"))


def test_report_and_evaluation_of_a_run(tmp_path: Path) -> None:
    table, run = tmp_path / "table.csv", tmp_path / "run"
    holed("good").write_csv(table)
    options = ["data.missing_target=drop", "train.max_epochs=1", "data.exclude=['grade', 'amount']"]
    sets = [argument for option in options for argument in ("--set", option)]
    assert main(["fit", str(table), "--target", "good", "--out", str(run), *sets]) == 0
    assert main(["report", str(run), str(table)]) == 0
    report = json.loads((run / "report.json").read_text("utf-8"))
    metrics = json.loads((run / "metrics.json").read_text("utf-8"))
    assert report["measured"]["metrics"]["logloss"]["value"] == pytest.approx(
        metrics[PART_NAMES[2]]["logloss"], rel=1e-5
    )
