"""Bootstrap intervals: against a slow bootstrap, by how often they hold the truth, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.encoding.target import Target
from fielddep.errors import SchemaError
from fielddep.explain.curves import ScoredRows
from fielddep.report.intervals import GAIN, Interval, bootstrap_intervals
from tests.explain.trained import metrics_of

BINARY = Target(name="y", task="binary", classes=(0, 1))
MANY = Target(name="y", task="multiclass", classes=("a", "b", "c"))
NUMBER = Target(name="y", task="regression", mean=3.0, scale=2.0)
TASKS = {"binary": BINARY, "multiclass": MANY, "regression": NUMBER}


def scored(task: str, n_rows: int = 200, *, seed: int = 0, weighted: bool = False, ties: bool = False) -> ScoredRows:
    """Rows whose predictions are right on average."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(n_rows, 3 if task == "multiclass" else 1, generator=rng)
    if ties:
        logits = logits.round()
    if task == "binary":
        target = (torch.rand(n_rows, generator=rng) < torch.sigmoid(logits[:, 0])).float()
    elif task == "multiclass":
        target = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=rng)[:, 0]
    else:
        target = logits[:, 0] + torch.randn(n_rows, generator=rng)
    weight = (torch.rand(n_rows, generator=rng) * 3).numpy() if weighted else None
    return ScoredRows(target=TASKS[task], logits_RC=logits, target_R=target.numpy(), weight_R=weight)


def take(rows: ScoredRows, chosen: np.ndarray) -> ScoredRows:
    weight = None if rows.weight_R is None else rows.weight_R[chosen]
    assert rows.target_R is not None
    return ScoredRows(
        target=rows.target, logits_RC=rows.logits_RC[chosen], target_R=rows.target_R[chosen], weight_R=weight
    )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_values_are_those_of_the_metrics(task: str, weighted: bool, ties: bool) -> None:
    rows = scored(task, weighted=weighted, ties=ties)
    found = bootstrap_intervals(rows, n_resamples=5)
    unshown = ("loss", "average_precision")
    expected = {name: value for name, value in metrics_of(rows).items() if name not in unshown}
    assert {name: interval.value for name, interval in found.items()} == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("weighted", [False, True])
def test_ends_are_those_of_a_slow_bootstrap(task: str, weighted: bool) -> None:
    rows = scored(task, 60, weighted=weighted, ties=True)
    found = bootstrap_intervals(rows, n_resamples=40, seed=7)
    order = np.arange(60)
    if task == "binary":  # its rows are drawn by their rank
        order = np.argsort(rows.logits_RC[:, 0].numpy(), kind="stable")
    rng = np.random.default_rng(7)
    drawn = [metrics_of(take(rows, order[rng.integers(0, 60, 60)])) for _ in range(40)]
    for name in set(found) - {"calibration_error"}:
        values = np.array([metrics[name] for metrics in drawn])
        middle = found[name].value - values.mean()
        low, high = np.quantile(values, [0.025, 0.975]) + middle
        assert found[name].low == pytest.approx(max(low, 0.0), rel=1e-5)
        assert found[name].high == pytest.approx(min(high, 1.0) if name in ("auc", "accuracy") else high, rel=1e-5)


def test_calibration_error_by_chance_is_that_of_drawn_targets() -> None:
    rows = scored("binary", 100)
    found = bootstrap_intervals(rows, n_resamples=5, seed=3)["calibration_error"]
    probabilities = np.sort(rows.predictions()[:, 1])
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(200):
        gaps = probabilities - (rng.random(100) < probabilities)
        errors.append(sum(abs(gaps[b : b + 5].sum()) for b in range(0, 100, 5)) / 100)
    assert found.by_chance == pytest.approx(np.quantile(errors, 0.95))
    assert found.low is None
    assert found.high is None


def test_a_model_without_calibration_error_is_below_chance_nearly_always() -> None:
    found = [bootstrap_intervals(scored("binary", 400, seed=s), n_resamples=1) for s in range(100)]
    held = sum(f["calibration_error"].value <= f["calibration_error"].by_chance for f in found)
    assert 88 <= held < 100
    rows = scored("binary", 400)
    sure = ScoredRows(target=BINARY, logits_RC=3 * rows.logits_RC, target_R=rows.target_R)
    error = bootstrap_intervals(sure, n_resamples=1)["calibration_error"]
    assert error.value > error.by_chance


@pytest.mark.parametrize("task", TASKS)
def test_the_gain_is_taken_row_by_row(task: str) -> None:
    rows, base = scored(task, 2000), torch.full((3 if task == "multiclass" else 1,), 0.2)
    found = bootstrap_intervals(rows, base_C=base, n_resamples=200)
    flat = ScoredRows(target=rows.target, logits_RC=base.expand(2000, -1), target_R=rows.target_R)
    loss = "mse" if task == "regression" else "logloss"
    assert found[GAIN].value == pytest.approx(metrics_of(flat)[loss] - metrics_of(rows)[loss], rel=1e-5)
    assert 0 < found[GAIN].low < found[GAIN].value < found[GAIN].high
    assert GAIN not in bootstrap_intervals(rows, n_resamples=1)


def test_a_model_that_is_worse_than_the_base_rate_has_a_gain_below_zero() -> None:
    rows = scored("binary", 500)
    wrong = ScoredRows(target=BINARY, logits_RC=-rows.logits_RC, target_R=rows.target_R)
    assert bootstrap_intervals(wrong, base_C=torch.zeros(1), n_resamples=50)[GAIN].high < 0


def test_the_true_value_lies_within_nearly_always() -> None:
    # E[-log p(y)] over standard normal logits, by numerical integration.
    z = np.linspace(-8, 8, 20_001)
    entropy = np.logaddexp(0, -z) / (1 + np.exp(-z)) + np.logaddexp(0, z) / (1 + np.exp(z))
    truth = float((entropy * np.exp(-(z**2) / 2)).sum() / np.exp(-(z**2) / 2).sum())
    intervals = [bootstrap_intervals(scored("binary", 300, seed=s), n_resamples=200)["logloss"] for s in range(80)]
    held = sum(interval.low <= truth <= interval.high for interval in intervals)
    assert 70 <= held < 80


def test_an_interval_surrounds_its_value() -> None:
    for seed in range(5):
        found = bootstrap_intervals(scored("binary", 2000, seed=seed), n_resamples=200)
        assert all(found[name].low < found[name].value < found[name].high for name in ("logloss", "auc"))


def test_a_sample_tells_of_all_rows() -> None:
    rows = scored("regression", 400)
    own = bootstrap_intervals(rows, n_resamples=50)["mae"]
    all_rows = bootstrap_intervals(rows, n_resamples=50, values={"mae": 5.0}, n_rows=40_000)["mae"]
    assert all_rows.value == 5.0
    assert 5.0 - all_rows.low == pytest.approx((own.value - own.low) / 10)
    assert all_rows.high - 5.0 == pytest.approx((own.high - own.value) / 10)


def test_the_seed_decides() -> None:
    rows = scored("binary")
    assert bootstrap_intervals(rows, n_resamples=20, seed=1) == bootstrap_intervals(rows, n_resamples=20, seed=1)
    assert bootstrap_intervals(rows, n_resamples=20, seed=1) != bootstrap_intervals(rows, n_resamples=20, seed=2)


def test_one_class_has_no_auc() -> None:
    rows = ScoredRows(target=BINARY, logits_RC=torch.randn(20, 1), target_R=np.ones(20, dtype=np.float32))
    assert set(bootstrap_intervals(rows, n_resamples=5)) == {"logloss", "calibration_error"}


def test_a_perfect_model_has_no_auc_above_one() -> None:
    truth = (np.arange(20) > 9).astype(np.float32)
    rows = ScoredRows(target=BINARY, logits_RC=torch.arange(20.0).unsqueeze(1), target_R=truth)
    assert bootstrap_intervals(rows, n_resamples=50)["auc"] == Interval(value=1.0, low=1.0, high=1.0)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_hardly_any_rows(n_rows: int) -> None:
    found = bootstrap_intervals(scored("regression", n_rows), n_resamples=5)
    assert all(interval.low == pytest.approx(interval.high) for interval in found.values())
    assert len(found) == 3 * n_rows


def test_rows_without_weight_have_no_metrics() -> None:
    ones, zeros = np.ones(3, dtype=np.float32), np.zeros(3, dtype=np.float32)
    rows = ScoredRows(target=BINARY, logits_RC=torch.zeros(3, 1), target_R=ones, weight_R=zeros)
    assert bootstrap_intervals(rows, n_resamples=5) == {}


def test_targets_must_be_known() -> None:
    with pytest.raises(SchemaError, match="'y'"):
        bootstrap_intervals(ScoredRows(target=BINARY, logits_RC=torch.zeros(3, 1)))
