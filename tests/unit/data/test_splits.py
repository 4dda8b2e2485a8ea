import datetime as dt

import numpy as np
import polars as pl
import pytest

from fielddep.config import Config, SplitConfig
from fielddep.data.splits import Split, split_rows
from fielddep.errors import SplitError

N = 1000


def settings(**values: object) -> SplitConfig:
    return Config().replace({f"split.{key}": value for key, value in values.items()}).split


def sizes(split: Split) -> tuple[int, int, int]:
    return len(split.train), len(split.validation), len(split.test)


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
    with pytest.raises(SplitError, match=r"training needs at least one row; .* left none of 2"):
        split_rows(table().head(2), settings(), None)
    with pytest.raises(SplitError, match="left none of 0"):
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
    assert split.warnings == ()


def test_stratified_of_numbers_takes_from_every_tenth() -> None:
    frame = pl.DataFrame({"y": np.arange(1000) / 7})
    split = split_rows(frame, settings(method="stratified"), "y")
    assert sizes(split) == (800, 100, 100)
    assert np.abs(np.bincount(split.test // 100, minlength=10) - 10).max() <= 1


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
    with pytest.raises(SplitError, match="left none"):
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
    with pytest.raises(SplitError, match=r"given 1 missing, the first in row 1"):
        split_rows(pl.DataFrame({"t": [1.0, float("nan")]}), settings(method="time", column="t"), None)
    with pytest.raises(SplitError, match=r"such as 'soon'"):
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
    with pytest.raises(SplitError, match=r"given also .*'oops'"):
        split_rows(frame, settings(method="column", column="part"), None)
    with pytest.raises(SplitError, match=r"'prt', which is no column; did you mean 'part'"):
        split_rows(frame, settings(method="group", column="prt"), None)
    with pytest.raises(SplitError, match=r"needs a column; set split.column"):
        split_rows(frame, settings(method="time"), None)
    with pytest.raises(SplitError, match=r"needs a column; set data.target"):
        split_rows(frame, settings(method="stratified"), None)


def test_a_part_without_a_class_is_a_warning_only() -> None:
    frame = pl.DataFrame({"t": range(10), "y": [0, 1] * 4 + [0, 0]})
    split = split_rows(frame, settings(method="time", column="t"), "y")
    assert split.warnings == (
        "the validation rows hold no row of class '1' of target 'y'",
        "the test rows hold no row of class '1' of target 'y'",
    )
