"""The registry of metrics: complete and ordered."""

from __future__ import annotations

import pytest
import torch

from fielddep.config.metrics import METRICS, KnownTask, in_order, loss_name, metric_title
from fielddep.encoding.target import Target
from fielddep.training.metrics import Metrics

TARGETS = {
    "binary": Target(name="y", task="binary", classes=(0, 1)),
    "multiclass": Target(name="y", task="multiclass", classes=("a", "b", "c")),
    "regression": Target(name="y", task="regression", mean=1.0, scale=3.0),
}


@pytest.mark.parametrize("task", list(TARGETS))
def test_every_measured_metric_is_registered_for_its_task(task: KnownTask) -> None:
    target = TARGETS[task]
    metrics = Metrics(target)
    values = torch.tensor([0, 1, 1]) if task == "multiclass" else torch.tensor([0.0, 1.0, 1.0])
    metrics.update(torch.zeros(3, target.n_outputs), values)
    found = metrics.result()
    loss = found.pop("loss")
    assert {name for name, metric in METRICS.items() if task in metric.tasks} == set(found)
    assert found[loss_name(task)] == loss
    assert next(iter(in_order(found))) == ("rmse" if task == "regression" else loss_name(task))


def test_brief_lists_leave_out_the_calibration_error() -> None:
    found = {"loss": 1, "calibration_error": 2, "auc": 3, "logloss": 4}
    assert list(in_order(found, brief=True)) == ["logloss", "auc"]
    assert list(in_order(found)) == ["logloss", "auc", "calibration_error"]


def test_readers_see_the_root_of_the_squared_error() -> None:
    found = {"loss": 4.0, "mse": 4.0, "r2": 0.5, "mae": 1.0, "rmse": 2.0}
    assert list(in_order(found)) == list(in_order(found, brief=True)) == ["rmse", "mae", "r2"]
    assert list(in_order({"mse": 4.0, "mae": 1.0}, brief=True)) == ["mse", "mae"]  # a file from before


def test_titles() -> None:
    assert metric_title("auc") == "AUC"
    assert metric_title("dependency_loss") == "dependency_loss"
