"""Splits: the rule in one argsort, exact shares, and what each method promises."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st

from fielddep.config.data import SplitConfig
from fielddep.config.settings import Config
from fielddep.encoding.coded import CodedTable, Sizes
from fielddep.encoding.describe import describe
from fielddep.encoding.interning import code_table
from fielddep.encoding.ordering import draw
from fielddep.encoding.parts import class_warnings, count_parts
from fielddep.encoding.split import Split, plan_split, split_column
from fielddep.encoding.target import Target
from fielddep.errors import SplitError
from fielddep.store.build import build_store
from tests.helpers import raises, states

N = 1000


def settings(**values: object) -> SplitConfig:
    return Config().replace({f"split.{key}": value for key, value in values.items()}).split


def coded_table(frame: pl.DataFrame) -> CodedTable:
    """Every column of a table as codes, in several chunks."""
    config = Config().replace({"data.target": frame.columns[0], "data.fields": frame.columns[1:]})
    return code_table(frame, config, Sizes(chunk_rows=70))


def planned(frame: pl.DataFrame, config: SplitConfig, target: str | None = None) -> tuple[Split, np.ndarray]:
    """A split, and the part of every row."""
    table = coded_table(frame)
    split = plan_split(table, config, target)
    return split, split.parts_of(table, 0, len(frame))


def split_rows(table: pl.DataFrame, config: SplitConfig, target: str | None) -> SimpleNamespace:
    """Row numbers of each part."""
    split, parts = planned(table, config, target)
    assert np.bincount(parts, minlength=3).tolist() == list(split.sizes)
    train, validation, test = (np.flatnonzero(parts == part) for part in range(3))
    return SimpleNamespace(train=train, validation=validation, test=test)


def sizes(split: SimpleNamespace) -> tuple[int, int, int]:
    return len(split.train), len(split.validation), len(split.test)


# --- the rule -------------------------------------------------------------------------------------------------


def oracle(strata: np.ndarray, validation: float, test: float, seed: int) -> np.ndarray:
    """Parts by sorting; rows of stratum -1 are not drawn."""
    drawn, n_strata = strata >= 0, strata.max() + 1
    n_rows, left = drawn.sum(), np.bincount(strata[drawn], minlength=n_strata)
    order, parts = np.argsort(draw(seed, 1 << 32, np.arange(n_strata))), np.zeros(len(strata), dtype=int)
    rows = np.argsort(draw(seed, 0, np.arange(len(strata))))
    for part, share in ((2, test), (1, validation)):
        n_wanted = min(max(1, round(share * n_rows)) if share else 0, left.sum())
        ends = np.floor(np.cumsum(left[order]) * (n_wanted / max(left.sum(), 1)) + 0.5).astype(int)
        for stratum, quota in zip(order, np.diff(ends, prepend=0), strict=True):
            free = rows[(strata[rows] == stratum) & (parts[rows] == 0)]
            parts[free[:quota]] = part
            left[stratum] -= quota
    return parts


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(
    n_rows=st.integers(30, 500),
    n_classes=st.integers(1, 30),
    validation=st.floats(0, 0.45),
    test=st.floats(0, 0.45),
    seed=st.integers(0, 2**32 - 1),
)
def test_drawn_parts_equal_the_oracle(n_rows: int, n_classes: int, validation: float, test: float, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, n_classes, n_rows)
    frame = pl.DataFrame({"y": [f"c{label:02}" for label in labels], "part": ["train"] * n_rows})
    shares = {"validation": validation, "test": test, "seed": seed}
    strata = np.unique(labels, return_inverse=True)[1] + 1  # 0 is the stratum of missing values
    for method, of_row in (("random", np.zeros(n_rows, dtype=int)), ("stratified", strata)):
        split, parts = planned(frame, settings(method=method, **shares), "y")
        assert parts.tolist() == oracle(of_row, validation, test, seed).tolist()
        for stratum in np.unique(of_row):
            of_stratum = parts[of_row == stratum]
            assert abs((of_stratum == 2).sum() - len(of_stratum) * split.sizes[2] / n_rows) <= 1
            assert abs((of_stratum == 1).sum() - len(of_stratum) * split.sizes[1] / n_rows) <= 2


def test_column_draws_from_training_rows() -> None:
    given = np.random.default_rng(0).choice(["train", "test"], 400)
    _, parts = planned(
        pl.DataFrame({"part": given}), settings(method="column", column="part", validation=0.2, seed=3), None
    )
    expected = oracle(np.where(given == "train", 0, -1), 0.2, 0, 3)
    assert parts.tolist() == np.where(given == "test", 2, expected).tolist()


def test_shares_of_a_large_table_are_exact() -> None:
    starts = range(0, 1_280_000, 160_000)
    table: Any = SimpleNamespace(n_rows=1_280_000, columns={}, chunks=lambda: ((i, i + 160_000) for i in starts))
    split = plan_split(table, settings(), None)
    parts = split.parts(0, 1_280_000)
    assert split.sizes == (1_024_000, 128_000, 128_000)
    assert np.bincount(parts).tolist() == [1_024_000, 128_000, 128_000]
    assert split.parts(777_777, 777_999).tolist() == parts[777_777:777_999].tolist()


@pytest.mark.parametrize("method", ["random", "stratified", "group"])
def test_every_row_is_equally_likely(method: str) -> None:
    n_seeds, rows = 500, np.arange(64)
    table = coded_table(pl.DataFrame({"y": [f"c{row % 4}" for row in rows], "group": rows // 2}))
    drawn = np.zeros(64)
    for seed in range(n_seeds):
        column = "group" if method == "group" else None
        config = SplitConfig(method=method, column=column, seed=seed, test=0.25)  # type: ignore[arg-type]
        drawn += plan_split(table, config, "y").parts_of(table, 0, 64) == 2
    assert np.abs(drawn - n_seeds / 4).max() < 5 * np.sqrt(n_seeds * 0.25 * 0.75)


# --- folds ----------------------------------------------------------------------------------------------------


def folds_of(frame: pl.DataFrame, n: int, draw: int, **values: object) -> tuple[Split, np.ndarray, np.ndarray]:
    coded = coded_table(frame)
    split = plan_split(coded, settings(**values), None)
    keys = None if split.column is None else coded.keys(split.column, 0, len(frame))
    return split, split.parts(0, len(frame), keys), split.folds(0, len(frame), keys, n=n, draw=draw)


def test_folds_of_rows() -> None:
    frame = pl.DataFrame({"x": range(4000)})
    _, parts, folds = folds_of(frame, 5, 0)
    for part in range(3):  # folds say nothing of parts
        assert np.abs(np.bincount(folds[parts == part]) / (parts == part).sum() - 0.2).max() < 0.08
    assert (folds != folds_of(frame, 5, 1)[2]).mean() > 0.7
    assert folds.tolist() == folds_of(frame, 5, 0)[2].tolist()


def test_folds_keep_groups_whole() -> None:
    frame = pl.DataFrame({"g": np.random.default_rng(0).integers(0, 200, 2000)})
    for draw_number in (0, 1):
        _, _, folds = folds_of(frame, 4, draw_number, method="group", column="g")
        per_group = frame.with_columns(fold=folds).group_by("g").agg(pl.col("fold").n_unique())
        assert per_group["fold"].to_list() == [1] * len(per_group)
        assert np.bincount(folds).min() > 200


def test_folds_keep_the_order_of_time() -> None:
    times = np.random.default_rng(0).integers(0, 500, 2000)
    _, parts, folds = folds_of(pl.DataFrame({"t": times}), 4, 0, method="time", column="t")
    train = parts == 0
    order = np.argsort(times[train], kind="stable")
    assert (np.diff(folds[train][order]) >= 0).all()
    assert np.abs(np.bincount(folds[train]) / train.sum() - 0.25).max() < 0.01
    order = np.argsort(times[parts < 2], kind="stable")
    assert (np.diff(folds[parts < 2][order]) >= 0).all()
    assert folds[train].max() == 3 and folds[parts == 1].min() == 4
    # A few training rows and many validation rows still have folds that fit into a byte.
    _, parts, folds = folds_of(pl.DataFrame({"t": times}), 10, 0, method="time", column="t", validation=0.98, test=0.01)
    assert folds[parts == 1].max() == 255


# --- methods --------------------------------------------------------------------------------------------------


def table() -> pl.DataFrame:
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "y": (rng.random(N) < 0.05).astype(int),
            "value": rng.normal(size=N),
            "user": rng.integers(0, 80, N),
            "time": rng.integers(0, 10_000, N),
        }
    )


@pytest.mark.parametrize(
    "values",
    [
        {"method": "random"},
        {"method": "stratified"},
        {"method": "group", "column": "user"},
        {"method": "time", "column": "time"},
    ],
)
def test_every_row_is_in_one_part_and_the_seed_decides(values: dict[str, object]) -> None:
    split = split_rows(table(), settings(**values), "y")
    rows = np.concatenate([split.train, split.validation, split.test])
    assert sorted(rows.tolist()) == list(range(N))
    assert all((np.diff(part) > 0).all() for part in (split.train, split.validation, split.test))
    again = split_rows(table(), settings(**values), "y")
    np.testing.assert_array_equal(split.train, again.train)
    np.testing.assert_array_equal(split.test, again.test)
    other = split_rows(table(), settings(**values, seed=1), "y")
    assert (other.test.tolist() == split.test.tolist()) is (values["method"] == "time")


def test_random_shares_are_exact() -> None:
    assert sizes(split_rows(table(), settings(), None)) == (800, 100, 100)
    assert sizes(split_rows(table(), settings(test=0), None)) == (900, 100, 0)
    assert sizes(split_rows(table(), settings(test=0, validation=0), None)) == (1000, 0, 0)
    assert sizes(split_rows(table().head(4), settings(), None)) == (2, 1, 1)


def test_no_row_left_for_training() -> None:
    with raises(SplitError, "training", "at least one row", 2):
        split_rows(table().head(2), settings(), None)
    with raises(SplitError, "training", "at least one row", 0):
        split_rows(table().head(0), settings(), None)


def test_stratified_keeps_the_share_of_each_class() -> None:
    frame = pl.DataFrame({"y": ["a"] * 70 + ["b"] * 20 + ["c"] * 10})
    split = split_rows(frame, settings(method="stratified"), "y")
    assert sizes(split) == (80, 10, 10)
    for part, n in ((split.train, 80), (split.validation, 10), (split.test, 10)):
        counts = dict(frame["y"].gather(part).value_counts().iter_rows())
        assert abs(counts["a"] - 0.7 * n) <= 1
        assert abs(counts["b"] - 0.2 * n) <= 1
        assert abs(counts["c"] - 0.1 * n) <= 1


def test_stratified_of_numbers_takes_from_every_tenth() -> None:
    frame = pl.DataFrame({"y": np.arange(1000) / 7})
    split = split_rows(frame, settings(method="stratified"), "y")
    assert sizes(split) == (800, 100, 100)
    assert np.abs(np.bincount(split.test // 100, minlength=10) - 10).max() <= 1
    few = pl.DataFrame({"y": np.repeat([0.5, 1.5, 2.5], [3, 90, 7])})
    assert sizes(split_rows(few, settings(method="stratified"), "y")) == (80, 10, 10)


def test_one_value_in_two_spellings_is_of_one_tenth() -> None:
    spelled = pl.DataFrame({"y": [f"{i / 8}" if i % 2 else f"{i / 8}0" for i in range(30)] * 20})
    plain = pl.DataFrame({"y": [i / 8 for i in range(30)] * 20})
    config = settings(method="stratified")
    found = [split_rows(frame, config, "y") for frame in (spelled, plain)]
    assert found[0].test.tolist() == found[1].test.tolist()


def test_groups_stay_together() -> None:
    frame = table()
    split = split_rows(frame, settings(method="group", column="user"), None)
    users = [set(frame["user"].gather(part)) for part in (split.train, split.validation, split.test)]
    assert not users[0] & users[1]
    assert not users[0] & users[2]
    assert not users[1] & users[2]
    assert abs(len(split.validation) - 100) <= 15
    assert abs(len(split.test) - 100) <= 15


def test_one_group_cannot_be_split() -> None:
    with raises(SplitError, "at least one row"):
        split_rows(pl.DataFrame({"user": ["a"] * 10}), settings(method="group", column="user"), None)


def test_big_groups_still_fill_every_part() -> None:
    frame = pl.DataFrame({"user": ["a"] * 50 + ["b"] * 40 + ["c"] * 30})
    split = split_rows(frame, settings(method="group", column="user"), None)
    assert sizes(split) == (50, 40, 30)


@pytest.mark.parametrize(
    "times",
    [
        pl.Series([9, 3, 1, 5, 7, 2, 8, 4, 10, 6]),
        pl.Series([f"{v}" for v in (9, 3, 1, 5, 7, 2, 8, 4, 10, 6)]),
        pl.Series([dt.date(2024, 1, v) for v in (9, 3, 1, 5, 7, 2, 8, 4, 10, 6)]),
        pl.Series([f"2024-01-{v:02}" for v in (9, 3, 1, 5, 7, 2, 8, 4, 10, 6)]),
        pl.Series([f"2024-01-{v:02}T10:00:00" for v in (9, 3, 1, 5, 7, 2, 8, 4, 10, 6)]),
        pl.Series([f"2024-01-{v:02} 10:00:00.5" for v in (9, 3, 1, 5, 7, 2, 8, 4, 10, 6)]),
        pl.Series([f"2024-01-{v:02}T10:00:00+02:00" for v in (9, 3, 1, 5, 7, 2, 8, 4, 10, 6)]),
    ],
)
def test_time_split_is_oldest_to_newest(times: pl.Series) -> None:
    split = split_rows(pl.DataFrame({"t": times}), settings(method="time", column="t"), None)
    assert split.test.tolist() == [8]
    assert split.validation.tolist() == [0]
    assert split.train.tolist() == [1, 2, 3, 4, 5, 6, 7, 9]


def test_rows_of_one_time_stay_together() -> None:
    frame = pl.DataFrame({"t": [1] * 75 + [2] * 14 + [3] * 11})
    split = split_rows(frame, settings(method="time", column="t"), None)
    assert sizes(split) == (75, 14, 11)
    one_time = split_rows(pl.DataFrame({"t": [1] * 10}), settings(method="time", column="t"), None)
    assert sizes(one_time) == (8, 1, 1)


def test_bad_times() -> None:
    with raises(SplitError, "1 missing", "row 1"):
        split_rows(pl.DataFrame({"t": [1.0, float("nan")]}), settings(method="time", column="t"), None)
    with raises(SplitError, "'soon'"):
        split_rows(pl.DataFrame({"t": ["soon", "2024-01-01"]}), settings(method="time", column="t"), None)


def test_column_says_the_part() -> None:
    parts = ["Train", "VAL", "test", "valid", "dev", "validation", " train", "TEST"]
    split = split_rows(pl.DataFrame({"part": parts}), settings(method="column", column="part"), None)
    assert split.train.tolist() == [0, 6]
    assert split.validation.tolist() == [1, 3, 4, 5]
    assert split.test.tolist() == [2, 7]


def test_column_without_validation_or_test() -> None:
    frame = pl.DataFrame({"part": ["train"] * 50 + ["test"] * 5})
    split = split_rows(frame, settings(method="column", column="part", validation=0.2), None)
    assert sizes(split) == (40, 10, 5)
    assert split.test.tolist() == [50, 51, 52, 53, 54]
    only = split_rows(frame.head(50), settings(method="column", column="part"), None)
    assert sizes(only) == (45, 5, 0)


def test_bad_split_columns() -> None:
    frame = pl.DataFrame({"part": ["train", "oops", None]})
    with raises(SplitError, "'oops'"):
        split_rows(frame, settings(method="column", column="part"), None)
    with raises(SplitError, "split.column", "'prt'", "'part'"):
        split_rows(frame, settings(method="group", column="prt"), None)
    with raises(SplitError, "split.column"):
        split_rows(frame, settings(method="time"), None)
    with raises(SplitError, "data.target"):
        split_rows(frame, settings(method="stratified"), None)


def test_a_part_without_a_class_is_a_warning_only() -> None:
    frame = pl.DataFrame({"t": range(10), "y": [0, 1] * 4 + [0, 0]})
    table = coded_table(frame)
    split = plan_split(table, settings(method="time", column="t"), "y")
    target = Target(name="y", task="binary", classes=(0, 1))
    found = class_warnings(table, target, lambda start, stop: split.parts_of(table, start, stop))
    for warning, part in zip(found, ("validation", "test"), strict=True):
        assert states(warning, part, "class '1'", "'y'")
    assert class_warnings(table, Target(name="y", task="regression"), split.parts) == ()


def test_rows_of_each_part_and_code() -> None:
    table = coded_table(pl.DataFrame({"x": ["a", "b", None, "a", "a"] * 40, "y": range(200)}))
    parts = np.array([0, 1, 0, 2, 0] * 40, dtype=np.uint8)
    counts = count_parts(table, "x", lambda start, stop: parts[start:stop])
    assert table.columns["x"].values.to_list() == [None, "a", "b"]
    assert counts.tolist() == [[40, 80, 0], [0, 0, 40], [0, 40, 0]]


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ({"method": "random"}, None),
        ({"method": "stratified"}, "y"),
        ({"method": "group", "column": "day"}, "day"),
        ({"method": "time", "column": "day"}, "day"),
    ],
)
def test_the_column_that_decides(values: dict[str, object], column: str | None) -> None:
    assert split_column(["day", "y"], settings(**values), "y") == column


def test_every_reader_refuses_the_same_column(tmp_path: Path) -> None:
    """Before a row is read, when a table is described, and when rows are divided."""
    frame = pl.DataFrame({"a": [1, 2] * 9, "b": [3, 4] * 9, "y": [0, 1] * 9})
    config = Config().replace({"data.target": "y", "split.method": "group"})
    for refuse in (
        lambda: build_store(frame, config, tmp_path / "store"),
        lambda: describe(frame, config),
        lambda: split_rows(frame, config.split, "y"),
    ):
        with raises(SplitError, "'group'", "split.column"):
            refuse()
    assert not (tmp_path / "store").exists()
