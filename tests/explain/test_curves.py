"""Scored rows, learning curves, calibration and scores by class, against direct computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from fielddep.artifacts.predictor import Predictor
from fielddep.encoding.target import Target
from fielddep.errors import SchemaError, UserError
from fielddep.explain.curves import ScoredRows, calibration_curve, learning_curve, score_distribution, score_rows
from fielddep.training.checkpoint import Evaluation
from tests.explain.trained import metrics_of, mixed, mixed_frame, mixed_rows

BINARY = Target(name="y", task="binary", classes=("no", "yes"))
MANY = Target(name="y", task="multiclass", classes=("a", "b", "c"))
NUMBER = Target(name="y", task="regression", mean=100.0, scale=5.0)


def scored(target: Target, n_rows: int = 403, *, weighted: bool = False, seed: int = 0) -> ScoredRows:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_rows, target.n_outputs))
    if target.task == "multiclass":
        truth = rng.integers(0, 3, n_rows)
    elif target.task == "binary":
        truth = (rng.random(n_rows) < 0.4).astype(np.float32)
    else:
        truth = (logits[:, 0] + rng.normal(size=n_rows)).astype(np.float32)
    weight = rng.integers(0, 4, n_rows).astype(np.float32) if weighted else None
    return ScoredRows(target=target, logits_RC=torch.from_numpy(logits).float(), target_R=truth, weight_R=weight)


# --- scored rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "weight"), [("good", None), ("kind", None), ("cost", None), ("good", "weight")])
def test_scored_rows_are_predictions_and_metrics(target, weight):
    bundle = mixed(target, weight=weight)
    frame = mixed_frame(120, seed=7)
    found = score_rows(bundle, mixed_rows(bundle))
    predictor = Predictor(bundle)
    expected = predictor.predict(frame)
    if target == "cost":
        np.testing.assert_allclose(found.predictions(), expected["prediction"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.truth(), frame[target], rtol=1e-5)
    else:
        np.testing.assert_allclose(found.predictions(), expected[:, 1:].to_numpy(), rtol=1e-5, atol=1e-6)
        assert [found.target.classes[int(c)] for c in found.truth()] == frame[target].to_list()
    assert metrics_of(found) == pytest.approx(predictor.evaluate(frame), rel=1e-5, abs=1e-6)


def test_rows_without_targets():
    blind = score_rows(mixed(), mixed_rows(mixed(), with_target=False))
    assert blind.predictions().shape == (120, 2)
    for look in (blind.truth, lambda: calibration_curve(blind), lambda: score_distribution(blind)):
        with pytest.raises(SchemaError, match="'good'"):
            look()


# --- learning -------------------------------------------------------------------------------------------------


def evaluation(step: int, loss: float, *, best: bool) -> Evaluation:
    metrics = {"auc": 1 - loss, "calibration_error": 0.1, "logloss": loss, "loss": loss}
    return Evaluation(
        step=step, epoch=step / 4, lr=0.1, train_loss=loss / 2, validation=metrics, best=best, seconds=1.0 * step
    )


def test_learning_curve():
    curve = learning_curve(
        [evaluation(1, 0.5, best=True), evaluation(2, 0.4, best=True), evaluation(3, 0.6, best=False)]
    )
    assert curve.metrics == ("logloss", "auc", "calibration_error")
    assert curve.best is not None and curve.best.step == 2
    frame = curve.to_frame()
    assert frame.columns == [
        *("step", "epoch", "seconds", "lr", "train_loss"),
        *("validation_logloss", "validation_auc", "validation_calibration_error", "best"),
    ]
    assert frame["validation_logloss"].to_list() == [0.5, 0.4, 0.6]
    assert frame["train_loss"].to_list() == [0.25, 0.2, 0.3]
    assert frame["best"].to_list() == [False, True, False]
    assert learning_curve([]).metrics == () and learning_curve([]).best is None


# --- calibration ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target", [BINARY, MANY, NUMBER], ids=lambda t: t.task)
def test_calibration_equals_a_loop_over_bins(target, weighted):
    rows = scored(target, weighted=weighted)
    curve = calibration_curve(rows, n_bins=10)
    predicted, truth, weights = rows.predictions(), rows.truth(), rows.weights()
    if target.task == "binary":
        pairs = list(zip(predicted[:, 1], truth, weights, strict=True))
    elif target.task == "multiclass":
        pairs = [(p.max(), float(p.argmax() == t), w) for p, t, w in zip(predicted, truth, weights, strict=True)]
    else:
        pairs = list(zip(predicted, truth, weights, strict=True))
    pairs.sort(key=lambda pair: pair[0])
    start = 0
    for number in range(10):
        size = 403 // 10 + (number < 403 % 10)
        part = pairs[start : start + size]
        total = sum(w for _, _, w in part)
        assert curve.weight_N[number] == pytest.approx(total)
        assert curve.predicted_N[number] == pytest.approx(sum(p * w for p, _, w in part) / total)
        mean = sum(t * w for _, t, w in part) / total
        assert curve.observed_N[number] == pytest.approx(mean)
        if target.task == "regression":
            half = 1.96 * np.sqrt(sum((w * (t - mean)) ** 2 for _, t, w in part)) / total
            assert curve.high_N[number] - mean == pytest.approx(half, rel=1e-4)
            assert mean - curve.low_N[number] == pytest.approx(half, rel=1e-4)
        elif not weighted:
            interval = binomtest(round(mean * size), size).proportion_ci(0.95, method="wilson")
            assert (curve.low_N[number], curve.high_N[number]) == pytest.approx((interval.low, interval.high), abs=1e-9)
        start += size
    assert start == 403


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gap_is_the_calibration_error(weighted):
    rows = scored(BINARY, weighted=weighted)
    assert calibration_curve(rows, n_bins=20).gap == pytest.approx(metrics_of(rows)["calibration_error"], abs=1e-6)


def test_equal_predictions_are_one_bin():
    rows = scored(BINARY, 50)
    flat = ScoredRows(target=BINARY, logits_RC=torch.zeros(50, 1), target_R=rows.target_R)
    curve = calibration_curve(flat)
    assert curve.predicted_N.tolist() == [0.5]
    assert curve.observed_N[0] == pytest.approx(rows.truth().mean())
    assert curve.to_frame().columns == ["predicted", "observed", "low", "high", "weight"]


def test_the_order_of_equal_predictions_does_not_matter():
    logits = torch.tensor([-1.0, 1.0]).repeat_interleave(200).unsqueeze(1)
    rows = ScoredRows(target=BINARY, logits_RC=logits, target_R=np.sort(np.arange(400) % 4 == 0).astype(np.float32))
    curve = calibration_curve(rows)
    assert curve.weight_N.tolist() == [200, 200]
    assert curve.observed_N.tolist() == pytest.approx([0, 0.5])


def test_fewer_rows_than_bins_and_no_weight():
    assert calibration_curve(scored(BINARY, 3)).weight_N.tolist() == [1, 1, 1]
    rows = scored(BINARY, 30, weighted=True)
    rows.weight_R.fill(0)
    with pytest.raises(SchemaError, match="weight"):
        calibration_curve(rows)


# --- scores ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target", [BINARY, MANY], ids=lambda t: t.task)
def test_scores_by_class_equal_counting(target, weighted):
    rows = scored(target, weighted=weighted)
    spread = score_distribution(rows, n_bins=8)
    expected = np.zeros((len(target.classes), 8))
    for probabilities, c, w in zip(rows.predictions(), rows.truth().astype(int), rows.weights(), strict=True):
        score = probabilities[1] if target.task == "binary" else probabilities[c]
        expected[c, min(int(score * 8), 7)] += w
    np.testing.assert_allclose(spread.weight_CN, expected)
    np.testing.assert_allclose(spread.share_CN.sum(axis=1), 1.0)
    frame = spread.to_frame()
    assert frame.columns == ["class", "low", "high", "weight", "share"]
    assert frame["class"].to_list() == [str(label) for label in target.classes for _ in range(8)]
    assert frame["weight"].to_list() == expected.ravel().tolist()


def test_a_class_without_rows_and_a_regression():
    rows = scored(BINARY, 20)
    rows.target_R.fill(0)
    assert score_distribution(rows, n_bins=40).share_CN[1].tolist() == [0.0] * 40
    with pytest.raises(UserError, match="'y'"):
        score_distribution(scored(NUMBER))
