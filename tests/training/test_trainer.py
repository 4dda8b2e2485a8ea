"""The loop: what it decides by."""

from __future__ import annotations

import typing
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.config.metrics import METRICS, Monitor, monitored_metrics
from fielddep.config.trees import LightGBMConfig
from fielddep.errors import ConfigError, TrainingError
from fielddep.observer import Observer
from fielddep.training.fit import Trained, fit
from fielddep.training.prepare import prepare
from tests.conftest import quick_config, small_frame
from tests.helpers import raises


def fit_in_unit(unit: float, **settings: object) -> Trained:
    """A regression on the same rows, its target in one unit or another."""
    frame = small_frame(200)
    noise = np.random.default_rng(1).normal(size=len(frame))
    priced = frame.with_columns(price=(frame["good"].to_numpy() * 3.0 + noise) * unit).drop("good")
    return fit(priced, quick_config(**{"data.target": "price", **settings}))


@pytest.mark.parametrize("exponent", [-500, -80, 80, 540])
def test_early_stopping_does_not_depend_on_the_unit_of_the_target(exponent):
    """Powers of two, so that standardised targets are equal to the last bit."""
    expected, found = (
        fit_in_unit(unit, **{"train.max_epochs": 6, "train.patience": 2}) for unit in (1.0, 2.0**exponent)
    )
    assert [e.best for e in found.history] == [e.best for e in expected.history]
    assert sum(e.best for e in found.history) > 1
    for name, weight in expected.model.state_dict().items():
        assert weight.equal(found.model.state_dict()[name])


def test_smallest_fall_is_in_the_unit_of_the_target():
    """A fall of a million is nothing to squared errors of numbers in millions, and is never reached in units."""
    small, large = (fit_in_unit(unit, **{"train.min_delta": 1e6}) for unit in (1.0, 1e6))
    assert sum(e.best for e in small.history) == 1
    assert sum(e.best for e in large.history) > 1


# --- the monitored metric -------------------------------------------------------------------------------------


def targets() -> dict[str, pl.DataFrame]:
    frame = small_frame(300)
    noise = np.random.default_rng(1).normal(size=len(frame))
    return {
        "binary": frame,
        "multiclass": frame.with_columns(good=pl.col("shape")).drop("shape"),
        "regression": frame.with_columns(good=frame["good"].to_numpy() * 30.0 + noise),
    }


def running_best(values: list[float], *, higher: bool) -> list[bool]:
    best, found = None, []
    for value in values:
        found.append(best is None or (value > best if higher else value < best))
        best = value if found[-1] else best
    return found


@pytest.mark.parametrize(
    ("task", "monitor"),
    [(task, name) for task in ("binary", "multiclass", "regression") for name in monitored_metrics(task)],
)
def test_the_monitored_metric_decides(task: str, monitor: str) -> None:
    config = quick_config(train__monitor=monitor, train__max_epochs=8, train__patience=2, train__lr=0.3)
    trained = fit(targets()[task], config)
    values = [evaluation.validation[monitor] for evaluation in trained.history]
    higher = monitor in METRICS and METRICS[monitor].higher_is_better
    best = [evaluation.best for evaluation in trained.history]
    assert best == running_best(values, higher=higher)
    assert trained.measured["validation"].metrics[monitor] == pytest.approx((max if higher else min)(values), rel=1e-5)
    assert len(best) == 8 or best[-3:] == [True, False, False]  # stopped by patience
    if monitor in METRICS:
        assert monitor in str(trained.history[-1])


def test_another_monitor_keeps_other_weights() -> None:
    settings = {"train__max_epochs": 12, "train__patience": 12, "train__lr": 0.5, "train__average_decay": 0.0}
    kept = set()
    for monitor in ("loss", "calibration_error", "auc", "average_precision"):
        trained = fit(targets()["binary"], quick_config(**settings, train__monitor=monitor))
        kept.add(max(evaluation.step for evaluation in trained.history if evaluation.best))
    assert len(kept) > 1


def test_every_metric_can_be_monitored() -> None:
    assert set(typing.get_args(Monitor)) == {"loss", *METRICS}


def test_a_metric_of_another_task_is_refused() -> None:
    with raises(ConfigError, "train.monitor", "logloss, auc", "average_precision", "binary", "'rmse'"):
        fit(targets()["binary"], quick_config(train__monitor="rmse"))
    with raises(ConfigError, "train.monitor", "'aux'"):
        quick_config(train__monitor="aux")


def test_a_metric_that_the_validation_rows_lack_is_refused() -> None:
    table = targets()["binary"].with_columns(part=pl.Series(["train", "train", "validation"] * 100))
    table = table.with_columns(good=pl.when(pl.col("part") == "validation").then(1).otherwise("good"))
    config = quick_config(train__monitor="auc", split__method="column", split__column="part")
    with raises(TrainingError, "auc", "train.monitor"):
        fit(table, config)


def test_trees_stop_by_the_loss_only() -> None:
    prepared = prepare(targets()["binary"], quick_config(train__monitor="auc"))
    trees = replace(prepared, config=replace(prepared.config, model=LightGBMConfig()))
    with raises(ConfigError, "lightgbm", "train.monitor", "'auc'"):
        fit(trees)


class StopAt(Observer):
    """Interrupts training at its n-th evaluation."""

    def __init__(self, n: int) -> None:
        self.left = n

    def on_evaluation(self, evaluation: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_monitored_training_resumes(tmp_path: Path) -> None:
    config = quick_config(train__monitor="auc", train__max_epochs=8, train__patience=3, train__lr=0.3)
    whole = fit(targets()["binary"], config)
    with pytest.raises(KeyboardInterrupt):
        fit(targets()["binary"], config, checkpoints=tmp_path, observer=StopAt(3))
    resumed = fit(targets()["binary"], config, checkpoints=tmp_path, resume=True)
    assert [(e.step, e.best, e.validation) for e in resumed.history] == [
        (e.step, e.best, e.validation) for e in whole.history
    ]
    for name, weight in whole.model.state_dict().items():
        assert weight.equal(resumed.model.state_dict()[name])
