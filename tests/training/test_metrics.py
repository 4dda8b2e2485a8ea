"""Metrics against scikit-learn, batch by batch and at the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error, r2_score, roc_auc_score

from fielddep.encoding.target import Target
from fielddep.errors import TrainingError
from fielddep.training.metrics import Metrics
from tests.helpers import raises
from tests.training.test_ranking import auc, calibration_error

BINARY = Target(name="y", task="binary", classes=(0, 1))


def feed(metrics, logits, target, weight=None, size=7):
    for start in range(0, len(target), size):
        part = slice(start, start + size)
        metrics.update(logits[part], target[part], None if weight is None else weight[part])
    return metrics.result()


@pytest.mark.parametrize("weighted", [False, True])
def test_binary_equals_scikit_learn(weighted):
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(500, 1)).round(1)).float()  # rounded, so that ties occur
    labels = torch.from_numpy(rng.random(500) < 0.3).float()
    weight = torch.from_numpy(rng.random(500)).float() if weighted else None
    found = feed(Metrics(BINARY), logits, labels, weight)
    p, w = torch.sigmoid(logits[:, 0]).double().numpy(), None if weight is None else weight.numpy()
    assert found["logloss"] == pytest.approx(log_loss(labels, p, sample_weight=w), abs=1e-6)
    assert found["auc"] == pytest.approx(roc_auc_score(labels, p, sample_weight=w), abs=1e-9)
    assert found["loss"] == found["logloss"]


def test_auc_is_that_of_the_whole_set_not_a_mean_over_batches():
    logits = torch.tensor([[3.0], [2.0], [1.0], [0.0]])
    labels = torch.tensor([1.0, 1.0, 0.0, 0.0])  # batches of two hold one class each
    assert feed(Metrics(BINARY), logits, labels, size=2)["auc"] == 1.0


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_has_no_auc_and_does_not_crash(label):
    found = feed(Metrics(BINARY), torch.zeros(9, 1), torch.full((9,), label))
    assert "auc" not in found
    assert found["logloss"] == pytest.approx(np.log(2))
    assert found["calibration_error"] == pytest.approx(0.5)


def test_nothing_added_gives_nothing():
    assert Metrics(BINARY).result() == {}


def test_multiclass_equals_scikit_learn():
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.normal(size=(200, 3))).float()
    labels = torch.from_numpy(rng.integers(0, 3, 200))
    found = feed(Metrics(Target(name="y", task="multiclass", classes=("a", "b", "c"))), logits, labels)
    p = torch.softmax(logits.double(), dim=1).numpy()
    assert found["logloss"] == pytest.approx(log_loss(labels, p), abs=1e-6)
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, p.argmax(axis=1)))


def test_regression_is_told_in_the_targets_own_unit():
    rng = np.random.default_rng(2)
    y, prediction = rng.normal(50, 10, 300), rng.normal(50, 10, 300)
    target = Target(name="y", task="regression", mean=50.0, scale=10.0)
    standard = torch.from_numpy((y - 50) / 10).float()
    found = feed(Metrics(target), torch.from_numpy((prediction - 50) / 10).float().unsqueeze(1), standard)
    assert found["mse"] == pytest.approx(mean_squared_error(y, prediction), rel=1e-5)
    assert found["mae"] == pytest.approx(mean_absolute_error(y, prediction), rel=1e-5)
    assert found["rmse"] == pytest.approx(mean_squared_error(y, prediction) ** 0.5, rel=1e-5)
    assert found["r2"] == pytest.approx(r2_score(y, prediction), rel=1e-5)
    assert found["loss"] == found["mse"]


@pytest.mark.parametrize("centre", [0.0, 1e4])
def test_r2_is_weighted_and_against_the_mean_of_the_measured_rows(centre):
    rng = np.random.default_rng(3)
    y = (centre + rng.normal(size=400)).astype(np.float32)
    prediction, weights = y + rng.normal(size=400).astype(np.float32) / 2, rng.random(400).astype(np.float32)
    metrics = Metrics(Target(name="y", task="regression", mean=7.0, scale=3.0))
    for rows in (slice(0, 1), slice(1, 300), slice(300, 300), slice(300, 400)):
        metrics.update(*(torch.from_numpy(values[rows]) for values in (prediction[:, None], y, weights)))
    expected = r2_score(y.astype(float), prediction.astype(float), sample_weight=weights)
    assert metrics.result()["r2"] == pytest.approx(expected, rel=1e-7)


def test_one_target_has_no_r2():
    found = feed(Metrics(Target(name="y", task="regression")), torch.zeros(3, 1), torch.ones(3))
    assert "r2" not in found
    assert found["rmse"] == 1.0


@pytest.mark.parametrize("scale", [1e-150, 1e-25, 1e20, 1e150])
def test_no_unit_is_too_large_or_too_small_for_sums(scale):
    logits, targets = torch.tensor([[0.5], [1.0]]), torch.tensor([0.0, 0.0])
    metrics = Metrics(Target(name="y", task="regression", scale=scale))
    found = feed(metrics, logits, targets)
    assert found["mse"] == pytest.approx(0.625 * scale * scale, rel=1e-12)
    assert found["mae"] == pytest.approx(0.75 * scale, rel=1e-12)
    assert found["rmse"] == pytest.approx(0.625**0.5 * scale, rel=1e-12)
    assert metrics.standard_loss() == 0.625


def test_squares_beyond_float64_are_infinite_and_no_error():
    metrics = Metrics(Target(name="y", task="regression", scale=1e160))
    found = feed(metrics, torch.ones(2, 1), torch.zeros(2))
    assert (found["mse"], found["mae"], metrics.standard_loss()) == (np.inf, 1e160, 1.0)


def test_calibration_error_by_hand():
    p = np.array([0.1] * 10 + [0.8] * 10)
    labels = np.array([True] + [False] * 9 + [True] * 5 + [False] * 5)
    weights = np.ones(20)
    # 20 bins of one row each would measure noise; with many rows the bins fill up.
    found = calibration_error(np.repeat(p, 100), np.repeat(labels, 100), np.repeat(weights, 100))
    assert found <= 0.15 + 0.5
    assert calibration_error(np.full(100, 0.25), np.arange(100) < 25) == pytest.approx(0.0)


def test_calibrated_scores_have_a_small_error():
    rng = np.random.default_rng(3)
    p = rng.random(200_000)
    labels = rng.random(200_000) < p
    assert calibration_error(p, labels) < 0.01
    assert calibration_error(np.clip(p + 0.1, 0, 1), labels) > 0.05


def test_auc_ties_count_half():
    assert auc(np.zeros(10), np.arange(10) < 5) == 0.5


def test_too_many_rows_are_refused_when_they_come(monkeypatch):
    """And not after hours, when the result is asked for."""
    monkeypatch.setattr("fielddep.training.ranking.MAX_ROWS", 20)
    metrics = Metrics(BINARY)
    metrics.update(torch.zeros(10, 1), torch.zeros(10))
    with raises(TrainingError, 20):
        metrics.update(torch.zeros(10, 1), torch.zeros(10))
