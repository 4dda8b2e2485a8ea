"""The benchmark of defaults: tables hold what is stated of them, and a small run goes from table to summary.

The figures themselves are not judged here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from fielddep.encoding.split import PART_NAMES
from fielddep.errors import UserError

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "tables"
sys.path.append(str(FOLDER))

import loaders  # noqa: E402  the benchmarks are scripts next to each other
import measure  # noqa: E402
import rivals  # noqa: E402


def script(name: str) -> ModuleType:
    """A script by its path: the folders of the benchmarks have files of the same names."""
    spec = importlib.util.spec_from_file_location(f"tables_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"tables_{name}"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def summary() -> ModuleType:
    return script("summary")


@pytest.mark.parametrize("name", loaders.SOURCES)
def test_a_table_holds_what_is_stated(name: str) -> None:
    source = loaders.SOURCES[name]
    try:
        table = loaders.load(name)
    except UserError as error:
        pytest.skip(str(error))
    assert (table.frame.height, len(table.fields)) == (source.rows, source.columns)
    target = table.frame[source.target]
    assert target.null_count() == 0
    assert (target.n_unique() == 2) == (source.task == "binary")
    for column in (*source.dates, *source.lists):
        assert table.frame.schema[column] == pl.String
    for column in source.lists:
        assert table.frame[column].str.contains(loaders.LIST_SEPARATOR, literal=True).any()


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIELDDEP_DATA", str(tmp_path))
    for name, archive in {"housing": "tables.zip", "diabetes130": "diabetes130.zip", "ml-1m": "ml-1m.zip"}.items():
        with pytest.raises(UserError, match=archive):
            loaders.load(name)


def small_table(group_R: np.ndarray | None = None) -> loaders.Table:
    """Sixty rows with a list, a timestamp, a category and a number."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "items": ["a|b", None, "b"] * 20,
            "time": ["2013-01-06T10:00:00Z", "2014-12-31T23:00:00Z"] * 30,
            "city": ["x", "y", None] * 20,
            "size": rng.normal(size=60),
            "late": ["no", "yes"] * 30,
        }
    )
    source = loaders.Source(
        read=lambda: frame, target="late", task="binary", kind="mixed", about="",
        rows=60, columns=4, dates=("time",), lists=("items",),
    )  # fmt: skip
    return loaders.Table(name="small", source=source, frame=frame, group_R=group_R)


def test_the_seed_decides_the_split() -> None:
    table = small_table()
    assert np.bincount(table.parts(0)).tolist() == [48, 6, 6]
    np.testing.assert_array_equal(table.parts(0), table.parts(0))
    assert (table.parts(0) != table.parts(1)).any()


def test_groups_stay_in_one_part() -> None:
    groups = np.repeat(np.arange(20), 3)
    parts = small_table(groups).parts(0).reshape(20, 3)
    assert (parts == parts[:, :1]).all()
    assert set(parts.ravel()) == set(range(len(PART_NAMES)))


def test_columns_of_the_trees() -> None:
    table = small_table()
    rows = rivals.TreeRows(table, np.array([0, 0, 0, 1, 1, 2] * 10, dtype=np.uint8))
    first = rows.columns.iloc[0].tolist()
    assert first == [1, 1, 2013, 1, 6, 7, 10, "x", table.frame["size"][0]]
    assert rows.columns.iloc[1, :2].tolist() == [0, 0]
    assert rows.text == ["x7"]
    assert rows.columns["x7"][2] is None
    assert rows.target.tolist() == [0, 1] * 30


def test_only_frequent_values_of_training_rows_get_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table()
    parts = np.array([2, 0, 0] * 20, dtype=np.uint8)
    assert len(rivals.expand(table, parts).columns) == 1 + 5 + 2
    monkeypatch.setattr(rivals, "MAX_LIST_VALUES", 1)
    flag = rivals.expand(table, np.zeros(60, dtype=np.uint8))["x0"]
    assert flag.to_list() == [1, 0, 1] * 20  # b, which is more frequent than a


@pytest.mark.parametrize("model", rivals.RIVALS)
def test_trees_take_unknown_and_missing_values(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "MAX_TREES", 5)
    table = small_table()
    parts = table.parts(0)
    frame = table.frame.with_columns(
        city=pl.when(pl.Series(parts == rivals.TEST)).then(pl.lit("new")).otherwise("city")
    )
    rows = rivals.TreeRows(
        loaders.Table(name="small", source=table.source, frame=frame, group_R=None),
        parts,
    )
    found = rivals.held_out_metrics(rows, rivals.RIVALS[model](rows, "binary", 0, 1), "binary")
    assert tuple(found) == measure.METRICS["binary"]
    assert 0 < found["logloss"] < 1


def test_from_a_table_to_the_summary(
    summary: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, results = script("run"), tmp_path / "results.csv"
    chosen = ["--tables", "tips", "--seeds", "0", "--models", "fielddep", "lightgbm", "--results", str(results)]
    monkeypatch.setattr(sys, "argv", ["run.py", *chosen])
    for name in run.THREAD_SETTINGS:
        monkeypatch.setenv(name, "1")  # restored afterwards
    run.main()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in printed] == [["tips", model, "0"] for model in ("fielddep", "lightgbm")]
    run.main()
    assert capsys.readouterr().out == ""
    found = summary.read(results)
    assert found.group_by("model").agg(pl.col("metric").sort()).sort("model").rows() == [
        ("fielddep", ["mae", "r2", "rmse"]),
        ("lightgbm", ["mae", "r2", "rmse"]),
    ]
    assert found.null_count().sum_horizontal()[0] == 0
    assert (found["rows"].unique().to_list(), found["columns"].unique().to_list()) == ([244], [6])
    verdict = summary.verdicts(found)["tips"]
    losses = {row["model"]: row["value"] for row in found.filter(metric="rmse").to_dicts()}
    assert verdict.percent == pytest.approx(100 * (losses["fielddep"] / losses["lightgbm"] - 1))
    assert "| tips | small | rmse |" in summary.text(found)
    stale = results.read_text("utf-8").replace(",244,", ",200,")
    (tmp_path / "stale.csv").write_text(stale, "utf-8")
    assert summary.read(tmp_path / "stale.csv").is_empty()
    assert run.finished_runs(tmp_path / "stale.csv") == set()
    run.forget(results, "fielddep")
    assert run.finished_runs(results) == {("tips", "lightgbm", 0)}


def figures(table: str, losses: Mapping[str, list[float]]) -> pl.DataFrame:
    facts = {"metric": "logloss", "seconds": 2.0, "cpu_seconds": 4.0, "peak_mb": 300.0, "threads": 2}
    return pl.DataFrame(
        [
            {"table": table, "model": model, "seed": seed, "value": value, "library": "l 1", "commit": "c", **facts}
            for model, values in losses.items()
            for seed, value in enumerate(values)
        ]
    )


def test_verdicts(summary: ModuleType) -> None:
    trees = {"lightgbm": [0.5, 0.7], "catboost": [0.4, 0.6]}
    tables = {
        "adult": {"fielddep": [0.3, 0.5], **trees},
        "magic04": {"fielddep": [0.5, 0.51], **trees},
        "wine": {"fielddep": [0.6, 0.8], **trees},
        "tips": trees,
    }
    results = pl.concat([figures(table, losses) for table, losses in tables.items()])
    found = summary.verdicts(results)
    assert {name: verdict.word for name, verdict in found.items()} == {
        "adult": "first",
        "magic04": "equal",
        "wine": "behind",
    }
    assert [found[name].rival for name in found] == ["catboost"] * 3
    assert [round(found[name].percent) for name in found] == [-20, 1, 40]
    counted = summary.counts(results)
    assert "3 tables" in counted
    assert "first or equal on 2" in counted
    assert "wine (+40.0 %)" in counted
    assert summary.cost_table(results).count("| 0.50 |") == 3


def test_fewer_seeds_are_named(summary: ModuleType) -> None:
    results = pl.concat(
        [
            figures("adult", {"fielddep": [0.3, 0.5], "lightgbm": [0.5, 0.5], "catboost": [0.4]}),
            figures("wine", {"fielddep": [0.3, 0.5]}),
        ]
    )
    told = summary.note(results)
    assert "catboost on adult (1)" in told
    assert "fielddep on wine" not in told
    assert "lightgbm on wine (none" in told
    assert "1 tables" in summary.counts(results)
    assert summary.verdicts(results)["adult"].percent == pytest.approx(-25)  # of the seed that all have


def test_wide_tables_stand_next_to_lightgbm(summary: ModuleType) -> None:
    found = figures("wide-numeric", {"fielddep": [0.9, 0.8], "lightgbm": [0.7], "catboost": [0.6]})
    assert summary.wide_notes(found) == ""
    is_own = pl.col("model") == "fielddep"
    costs = pl.when(is_own).then(6 * pl.col("cpu_seconds")).otherwise("cpu_seconds")
    told = summary.wide_notes(found.with_columns(metric=pl.lit("auc"), cpu_seconds=costs)).splitlines()[-1]
    assert "missed by processor seconds" in told
    assert "(+0.2000), 1.0 times the seconds, 6.0 times the processor seconds" in told  # of the seed that both have
    assert "reached" in summary.wide_notes(found.with_columns(metric=pl.lit("auc")))


def test_the_page_quotes_the_results(summary: ModuleType) -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    results = summary.read(FOLDER / "results.csv")
    assert summary.insert(page, summary.text(results), summary.MARKS) == page
    assert results.select("table", "model", "seed", "metric").is_duplicated().sum() == 0
