"""Runs as JSON and as a tidy frame."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest

from fielddep.errors import TableError, UserError
from fielddep.experiments.results import RunResult, from_frame, to_frame

FULL = RunResult(
    dataset="frappe",
    model="wide_deep",
    seed=3,
    settings="tuned",
    metrics={"validation": {"logloss": 0.15}, "test": {"logloss": 0.16, "auc": 0.98}},
    n_parameters=4_412_345,
    train_seconds=72.5,
    rows_per_s=12345.6,
    peak_mb=812.0,
    predict_seconds=0.31,
    predict_rows_per_s=93000.0,
    threads=2,
    device="cpu",
    commit="ebd5917",
)
FAILED = RunResult(dataset="frappe", model="saint", seed=0, error="out of memory,\nin the first epoch")


@pytest.mark.parametrize("run", [FULL, FAILED], ids=["finished", "failed"])
def test_json_and_back(run: RunResult) -> None:
    text = run.to_json()
    assert "\n" not in text
    assert RunResult.from_json(text) == run


def test_what_is_not_finite_is_null() -> None:
    run = RunResult(dataset="d", model="m", seed=0, metrics={"test": {"auc": math.nan}}, rows_per_s=math.inf)
    values = json.loads(run.to_json())
    assert (values["metrics"], values["rows_per_s"]) == ({"test": {"auc": None}}, None)
    again = RunResult.from_json(run.to_json())
    assert math.isnan(again.metrics["test"]["auc"])
    assert again.rows_per_s is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"dataset": "d", "mod', r"JSON.*'\{\"dataset\": \"d\", \"mod'"),
        ("[1]", r"JSON.*'\[1\]'"),
        ('{"dataset": "d", "model": "m"}', "seed"),
        ('{"dataset": "d", "model": "m", "seed": 0, "speed": 1}', "speed"),
        ('{"dataset": "d", "model": "m", "seed": "0"}', "seed.*'0'"),
        ('{"dataset": "d", "model": "m", "seed": 0, "n_parameters": 1.5}', r"n_parameters.*1\.5"),
        (
            '{"dataset": "d", "model": "m", "seed": 0, "metrics": {"test": {"auc": "high"}}}',
            r"metrics.*test.*auc",
        ),
        ('{"dataset": "d", "model": "m", "seed": 0, "metrics": {"auc": 0.5}}', r"metrics.*auc"),
    ],
)
def test_damaged_json_is_the_users_to_mend(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RunResult.from_json(text)


def test_frame_has_a_row_a_figure_and_keeps_failures() -> None:
    frame = to_frame([FULL, FAILED])
    assert frame.columns[:7] == ["dataset", "model", "variant", "seed", "split", "metric", "value"]
    assert frame.select("variant", "split", "metric", "value").rows() == [
        ("tuned", "validation", "logloss", 0.15),
        ("tuned", "test", "logloss", 0.16),
        ("tuned", "test", "auc", 0.98),
        ("default", None, None, None),
    ]
    assert frame["error"].to_list() == [None, None, None, FAILED.error]
    assert from_frame(frame) == [FULL, FAILED]


def test_frame_through_a_csv_file(tmp_path: Path) -> None:
    to_frame([FULL, FAILED]).write_csv(tmp_path / "results.csv")
    assert from_frame(pl.read_csv(tmp_path / "results.csv")) == [FULL, FAILED]


def test_no_runs() -> None:
    assert from_frame(to_frame([])) == []


def test_columns_that_may_be_absent_and_columns_that_are_ignored() -> None:
    columns = {"dataset": ["d"], "model": [7], "seed": [1.0], "metric": ["auc"], "value": ["0.5"], "mood": ["good"]}
    assert from_frame(pl.DataFrame(columns)) == [
        RunResult(dataset="d", model="7", seed=1, metrics={"test": {"auc": 0.5}})
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": None}, "value"),
        ({"value": ["high"]}, "high"),
        ({"seed": [None]}, "seed"),
    ],
)
def test_frames_that_are_no_results(change: dict[str, list[object] | None], message: str) -> None:
    columns = {"dataset": ["d"], "model": ["m"], "seed": [1], "metric": ["auc"], "value": [0.5]} | change
    with pytest.raises(TableError, match=message):
        from_frame(pl.DataFrame({name: cells for name, cells in columns.items() if cells is not None}))


@pytest.mark.parametrize("cell", [None, math.nan])
def test_an_empty_figure_is_no_number(cell: float | None) -> None:
    columns = {"dataset": ["d"], "model": ["m"], "seed": [1], "metric": ["auc"], "value": [cell]}
    [run] = from_frame(pl.DataFrame(columns))
    assert math.isnan(run.metrics["test"]["auc"])
