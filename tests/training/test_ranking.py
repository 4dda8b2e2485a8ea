"""AUC and calibration from rows sorted in little memory, against the plain formulas on whole arrays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from fielddep.encoding.target import Target
from fielddep.errors import TrainingError
from fielddep.training import ranking as ranking_module
from fielddep.training.metrics import N_CALIBRATION_BINS, Metrics
from fielddep.training.ranking import Column, Ranking, area_under_curve, average_precision, binned_gap
from tests.helpers import raises

BINARY = Target(name="y", task="binary", classes=(0, 1))


def auc(scores, labels, weights=None):
    return area_under_curve(Ranking(scores, labels, weights))


def calibration_error(probabilities, labels, weights=None):
    ranking = Ranking(probabilities, labels, weights)
    return binned_gap(ranking, N_CALIBRATION_BINS, lambda scores: scores.astype(np.float64))


def plain_auc(scores, labels, weights=None):
    """The area by the textbook: all arrays at once, eight bytes an entry."""
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    weight = np.ones(len(scores)) if weights is None else weights[order].astype(np.float64)
    positive, negative = weight * labels, weight * ~labels
    if positive.sum() == 0 or negative.sum() == 0:
        return None
    starts = np.flatnonzero(np.r_[True, scores[1:] != scores[:-1]])
    positive_at, negative_at = np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)
    below = np.cumsum(negative_at) - negative_at
    return float((positive_at * (below + negative_at / 2)).sum() / (positive.sum() * negative.sum()))


def plain_calibration(probabilities, labels, weights=None, n_bins=20):
    order = np.argsort(probabilities, kind="stable")
    weight = np.ones(len(order)) if weights is None else weights.astype(np.float64)
    groups, start = [], 0
    for places in np.array_split(np.arange(len(order)), min(n_bins, len(order))):
        stop = places[-1] + 1
        while stop < len(order) and probabilities[order[stop]] == probabilities[order[stop - 1]]:
            stop += 1  # a tie is not divided
        if stop > start:
            groups.append(order[start:stop])
            start = stop
    gaps = [abs(float((weight[g] * (probabilities[g] - labels[g])).sum())) for g in groups]
    return float(sum(gaps) / weight.sum())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Portions of seven rows, so that ties and bins reach over several of them."""
    monkeypatch.setattr(ranking_module, "CHUNK_ROWS", 7)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 80), st.integers(0, 4), st.integers(0, 10_000), st.booleans())
def test_auc_equals_the_plain_formula(n_rows, decimals, seed, weighted):
    rng = np.random.default_rng(seed)
    scores = (rng.normal(size=n_rows) * 2).round(decimals).astype(np.float32)
    labels = rng.random(n_rows) < 0.4
    weights = (rng.random(n_rows) * (rng.random(n_rows) < 0.8)).astype(np.float32) if weighted else None
    expected, found = plain_auc(scores, labels, weights), auc(scores, labels, weights)
    if weighted and expected is not None:
        assert found == pytest.approx(expected, rel=1e-12)
    else:
        assert found == expected


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 80), st.integers(0, 4), st.integers(0, 10_000), st.booleans())
def test_average_precision_equals_scikit_learns(n_rows, decimals, seed, weighted):
    rng = np.random.default_rng(seed)
    scores = (rng.normal(size=n_rows) * 2).round(decimals).astype(np.float32)
    labels = rng.random(n_rows) < 0.4
    weights = (rng.random(n_rows) * (rng.random(n_rows) < 0.8)).astype(np.float32) if weighted else None
    found = average_precision(Ranking(scores, labels, weights))
    if plain_auc(scores, labels, weights) is None:
        assert found is None
    else:
        assert found == pytest.approx(average_precision_score(labels, scores, sample_weight=weights), rel=1e-6)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 80), st.integers(0, 4), st.integers(0, 10_000), st.booleans())
def test_calibration_equals_the_plain_formula(n_rows, decimals, seed, weighted):
    rng = np.random.default_rng(seed)
    probabilities = rng.random(n_rows).round(decimals).astype(np.float32).astype(np.float64)
    labels = rng.random(n_rows) < 0.4
    weights = (rng.random(n_rows) + 0.1).astype(np.float32) if weighted else None
    found = calibration_error(probabilities, labels, weights)
    assert found == pytest.approx(plain_calibration(probabilities, labels, weights), abs=1e-12)


def test_one_score_over_many_chunks_is_one_tie():
    scores, labels = np.zeros(1000, dtype=np.float32), np.arange(1000) % 3 == 0
    assert auc(scores, labels) == 0.5
    mixed = np.concatenate([scores, np.float32([-1, 2])])
    marks = np.concatenate([labels, [False, True]])
    assert auc(mixed, marks) == plain_auc(mixed, marks)


def test_order_of_every_kind_of_number():
    scores = np.float32([3e38, -0.0, 1e-45, 0.0, -1e-45, np.inf, -3e38, -np.inf, 1.5, -1.5])
    places = [p for chunk in Ranking(scores, np.ones(10, dtype=bool)).chunks() for p in chunk.scores.tolist()]
    assert places == sorted(scores.tolist())
    assert auc(np.float32([-0.0, 0.0]), np.array([True, False])) == 0.5


def test_equal_scores_stay_in_the_order_of_their_rows():
    labels = np.random.default_rng(0).random(50) < 0.5
    found = [m for chunk in Ranking(np.ones(50), labels).chunks() for m in chunk.labels.tolist()]
    assert found == labels.tolist()


def test_weights_belong_to_their_rows():
    (chunk,) = Ranking(np.float32([2, 0, 1]), np.array([True, False, True]), np.float32([20, 10, 5])).chunks()
    assert chunk.scores.tolist() == [0, 1, 2]
    assert chunk.labels.tolist() == [False, True, True]
    assert chunk.weights.tolist() == [10, 5, 20]


def test_a_column_grows_batch_by_batch(monkeypatch):
    monkeypatch.setattr(ranking_module, "GROWTH_ROWS", 5)
    column = Column(np.float32)
    rows = np.arange(40, dtype=np.float64)
    for start, stop in ((0, 3), (3, 3), (3, 17), (17, 40)):
        column.append(rows[start:stop])
        assert len(column) == stop
        assert column.values().tolist() == rows[:stop].tolist()
    assert column.values().dtype == np.float32


def test_scores_that_are_no_numbers_do_not_crash():
    ranking = Ranking(np.float32([np.nan, 1, -np.nan, 0]), np.array([True, False, True, False]))
    assert area_under_curve(ranking) is not None


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(ranking_module, "MAX_ROWS", 4)
    with raises(TrainingError, 4):
        Ranking(np.zeros(4), np.zeros(4, dtype=bool))


def test_bins_hold_equally_many_rows():
    seen: list[int] = []

    def probability(scores):
        seen.append(len(scores))
        return scores.astype(np.float64)

    binned_gap(Ranking(np.linspace(0, 1, 23), np.zeros(23, dtype=bool)), 5, probability)
    assert seen == [5, 5, 5, 4, 4]


def test_equal_scores_share_a_bin_whatever_their_order():
    rng = np.random.default_rng(0)
    probabilities = np.where(np.arange(1000) < 500, 0.3, 0.7)
    labels = np.concatenate([np.arange(500) < 150, np.arange(500) < 350])  # as predicted
    assert calibration_error(probabilities, labels) == pytest.approx(0, abs=1e-7)
    shuffled = rng.permutation(1000)
    assert calibration_error(probabilities[shuffled], labels[shuffled]) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(("weighted", "most"), [(False, 13.5), (True, 17.5)])
def test_memory_a_row(monkeypatch, weighted, most):
    monkeypatch.setattr(ranking_module, "CHUNK_ROWS", 1 << 12)
    rng = np.random.default_rng(0)
    n_batches, size = 256, 8192
    logits, labels = torch.from_numpy(rng.normal(size=(size, 1))).float(), torch.from_numpy(rng.random(size) < 0.3)
    weight = torch.from_numpy(rng.random(size)).float() if weighted else None
    tracemalloc.start()
    try:
        metrics = Metrics(BINARY)
        for _ in range(n_batches):
            metrics.update(logits, labels.float(), weight)
        found = metrics.result()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.45 < found["auc"] < 0.55
    assert peak / (n_batches * size) < most
