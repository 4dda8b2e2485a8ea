import datetime as dt

import numpy as np
import polars as pl
import pytest

from fielddep.encoding.target import Target, infer_target
from fielddep.errors import SchemaError
from tests.helpers import raises
from tests.oracle.encoder import fit_scale


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["yes", "no", "yes"], ("no", "yes")),
        ([True, False, True], (False, True)),
        ([0, 1, 1], (0, 1)),
        ([1, -1], (-1, 1)),
        (["1", "-1"], ("-1", "1")),
        (["2", "1"], ("1", "2")),
        (["10", "9"], ("9", "10")),
        ([1.0, 0.0], (0.0, 1.0)),
        (["True", "False"], ("False", "True")),
        ([0.5, 1.5], (0.5, 1.5)),
        ([2**60, 2**60 + 1], (2**60, 2**60 + 1)),
    ],
)
def test_binary_labels_keep_their_type(values: list[object], classes: tuple[object, ...]) -> None:
    column = pl.Series("y", values)
    target = infer_target(column)
    assert (target.task, target.classes, target.n_outputs) == ("binary", classes, 1)
    assert [type(c) for c in target.classes] == [type(c) for c in classes]
    encoded = target.encode(column)
    assert encoded.dtype == np.float32
    assert encoded.tolist() == [float(value == classes[1]) for value in values]
    again = Target.from_json(target.to_json())
    assert again == target
    assert [type(c) for c in again.classes] == [type(c) for c in classes]


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b", "c"], "multiclass"),
        ([1, 2, 3], "multiclass"),
        (list(range(20)), "multiclass"),
        (list(range(21)), "regression"),
        ([str(v) for v in range(21)], "regression"),
        ([0.5, 1.0, 2.0], "regression"),
        ([dt.date(2024, 1, d) for d in (1, 2, 3)], "multiclass"),
    ],
)
def test_automatic_task(values: list[object], task: str) -> None:
    assert infer_target(pl.Series("y", values)).task == task


def test_multiclass_encoding() -> None:
    column = pl.Series("y", ["10", "9", "1", "9"])
    target = infer_target(column)
    assert (target.classes, target.n_outputs) == (("1", "9", "10"), 3)
    assert target.encode(column).tolist() == [2, 1, 0, 1]
    assert target.encode(column).dtype == np.int64
    assert target.encode(pl.Series("y", [9, 10])).tolist() == [1, 2]


def test_regression_is_standardised_with_training_rows() -> None:
    train = pl.Series("y", [1.5, 3.5])
    target = fit_scale(infer_target(train, "regression"), train)
    assert (target.mean, target.scale, target.n_outputs, target.classes) == (2.5, 1.0, 1, ())
    assert target.encode(pl.Series("y", ["4.5"])).tolist() == [2.0]
    assert fit_scale(target, pl.Series("y", [3.0, 3.0])).scale == 1.0


@pytest.mark.parametrize(
    ("values", "task", "facts"),
    [
        ([1, None, 0, None], "auto", ("2 missing", "row 1")),
        (["a", "b", ""], "auto", ("1 missing", "row 2")),
        (["1", "0", "NA"], "auto", ("1 missing", "row 2")),
        ([0.5, float("nan")], "auto", ("1 missing", "row 1")),
        ([0.5, float("inf"), 1.0], "auto", ("finite numbers", "row 1", "inf")),
        ([1, 1, 1], "auto", ("two different values", "3 rows", "'1'")),
        (["a", "b", "c"], "binary", ("two values", 3)),
        (["a", "b"], "regression", ("numbers", "row 0", "'a'")),
        ([f"t{v}" for v in range(1001)], "auto", (1000, 1001, "regression")),
    ],
)
def test_unusable_targets(values: list[object], task: str, facts: tuple[object, ...]) -> None:
    with raises(SchemaError, *facts):
        infer_target(pl.Series("y", values), task)  # type: ignore[arg-type]  # parametrised text


def test_unknown_labels_are_named() -> None:
    target = infer_target(pl.Series("y", ["a", "b"]))
    with raises(SchemaError, "'a'", "'b'", "'c'", "'d'"):
        target.encode(pl.Series("y", ["a", "d", "c"]))
    with raises(SchemaError, "row 6"):
        target.encode(pl.Series("y", ["a", None]), first_row=5)


@pytest.mark.parametrize(
    ("trained", "given"),
    [
        ([True, False], [1, 0]),
        (["True", "False"], ["1", "0"]),
        ([1, 0], [True, False]),
        (["1", "0"], ["true", "FALSE"]),
    ],
)
def test_booleans_are_the_labels_0_and_1(trained: list[object], given: list[object]) -> None:
    target = infer_target(pl.Series("y", trained))
    assert target.encode(pl.Series("y", given)).tolist() == target.encode(pl.Series("y", trained)).tolist() == [1, 0]


def test_numbers_are_no_label_next_to_a_third_one() -> None:
    target = infer_target(pl.Series("y", ["true", "false", "unknown"]))
    with raises(SchemaError, "'1'"):
        target.encode(pl.Series("y", ["true", "1"]))
