"""Decisions as numbers: thresholds of two classes, and how well each of several classes is recognised."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from fielddep.encoding.target import Target
from fielddep.explain.curves import ScoredRows
from fielddep.report.decisions import EVEN, MAX_CLASSES, MAX_POINTS, class_facts, threshold_facts
from fielddep.report.facts import Quality, ThresholdFacts, ThresholdPoint

BINARY = Target(name="y", task="binary", classes=("no", "yes"))


def binary(probabilities: np.ndarray, truth: np.ndarray, weights: np.ndarray | None = None) -> ScoredRows:
    logits = torch.logit(torch.from_numpy(probabilities)).unsqueeze(1)
    return ScoredRows(target=BINARY, logits_RC=logits, target_R=truth.astype(np.float32), weight_R=weights)


def several(likeliest: list[int], truth: list[int], n_classes: int, weights: np.ndarray | None = None) -> ScoredRows:
    target = Target(name="y", task="multiclass", classes=tuple(f"class {c}" for c in range(n_classes)))
    logits = torch.nn.functional.one_hot(torch.tensor(likeliest), n_classes).float()
    return ScoredRows(target=target, logits_RC=logits, target_R=np.array(truth), weight_R=weights)


def area(facts: ThresholdFacts) -> float:
    """Area under the ROC curve of the points."""
    caught = np.array([0.0, *(point.caught for point in facts.points[::-1])]) / facts.positive
    false = np.array([0.0, *(point.false for point in facts.points[::-1])]) / facts.negative
    return float((np.diff(false) * (caught[1:] + caught[:-1]) / 2).sum())


@pytest.mark.parametrize("rate", [0.5, 0.01])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_point_counts_the_rows_from_its_threshold(rate: float, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(20_000) < rate
    probabilities = 1 / (1 + np.exp(-rng.normal(np.log(rate / (1 - rate)) + truth, 1.0)))
    weights = rng.integers(0, 3, 20_000) if weighted else np.ones(20_000)
    scored = binary(probabilities, truth, weights)
    facts = threshold_facts(scored)
    assert facts is not None
    assert 100 < len(facts.points) <= MAX_POINTS
    thresholds = [point.threshold for point in facts.points]
    assert thresholds == sorted(set(thresholds)) and EVEN in thresholds
    for point in facts.points[::20]:
        picked = scored.predictions()[:, 1] >= point.threshold
        assert point.caught == pytest.approx(weights[picked & truth].sum())
        assert point.false == pytest.approx(weights[picked & ~truth].sum())
    assert (facts.positive, facts.negative) == (weights[truth].sum(), weights[~truth].sum())
    assert (facts.points[0].caught, facts.points[0].false) == (facts.positive, facts.negative)
    assert area(facts) == pytest.approx(roc_auc_score(truth, probabilities, sample_weight=weights), abs=2e-3)
    ways = [point.caught / facts.positive + point.false / facts.negative for point in facts.points]
    assert -np.diff(ways).min() < 0.04  # no long gap on the curve


def test_few_scores_are_all_kept() -> None:
    facts = threshold_facts(binary(np.array([0.2, 0.2, 0.6, 0.9]), np.array([0, 1, 0, 1])))
    assert facts is not None
    expected = [(0.2, 2, 2), (0.5, 1, 1), (0.6, 1, 1), (0.9, 1, 0)]
    assert [(round(p.threshold, 6), p.caught, p.false) for p in facts.points] == expected


def test_no_row_may_reach_one_half() -> None:
    facts = threshold_facts(binary(np.array([0.01, 0.02, 0.3]), np.array([0, 1, 1])))
    assert facts is not None
    assert facts.points[-1] == ThresholdPoint(threshold=EVEN, caught=0.0, false=0.0)
    assert facts.quality(facts.points[-1]) == Quality(precision=None, recall=0.0, f1=0.0)


@pytest.mark.parametrize("truth", [np.zeros(3), np.ones(3)])
def test_one_class_has_no_curve(truth: np.ndarray) -> None:
    assert threshold_facts(binary(np.array([0.1, 0.5, 0.9]), truth)) is None


def test_rows_without_weight_are_no_rows() -> None:
    scored = binary(np.array([0.1, 0.5, 0.9]), np.array([0, 0, 1]), np.array([1.0, 1.0, 0.0]))
    assert threshold_facts(scored) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_by_class_are_those_of_scikit_learn(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    truth, likeliest = rng.integers(0, 4, 500), rng.integers(0, 4, 500)
    weights = rng.random(500) if weighted else np.ones(500)
    facts = class_facts(several(likeliest.tolist(), truth.tolist(), 4, weights))
    found = {one.name: (one.quality.precision, one.quality.recall, one.quality.f1) for one in facts}
    expected = precision_recall_fscore_support(truth, likeliest, sample_weight=weights)[:3]
    for c in range(4):
        assert found[f"class {c}"] == pytest.approx([scores[c] for scores in expected])
    totals = [one.weight for one in facts]
    assert totals == sorted(totals, reverse=True) and sum(totals) == pytest.approx(weights.sum())


def test_classes_that_are_absent_or_never_predicted() -> None:
    found = {one.name: one for one in class_facts(several([0, 0, 1], [0, 2, 0], 4))}
    assert found["class 0"].quality == Quality(precision=0.5, recall=0.5, f1=0.5)
    assert found["class 1"].quality == Quality(precision=0.0, recall=None, f1=0.0)
    assert found["class 2"].quality == Quality(precision=None, recall=0.0, f1=0.0)
    assert found["class 3"].quality == Quality(precision=None, recall=None, f1=None)
    assert [found[f"class {c}"].weight for c in range(4)] == [2, 0, 1, 0]


def test_of_many_classes_the_most_frequent_are_kept() -> None:
    truth = [*range(100), 77, 77, 93]
    facts = class_facts(several(truth, truth, 100))
    assert len(facts) == MAX_CLASSES
    assert [one.name for one in facts[:3]] == ["class 77", "class 93", "class 0"]


def test_other_tasks_have_none() -> None:
    numbers = ScoredRows(
        target=Target(name="y", task="regression"), logits_RC=torch.zeros(2, 1), target_R=np.zeros(2, np.float32)
    )
    assert threshold_facts(numbers) is None and class_facts(numbers) == ()
    assert threshold_facts(several([0, 1, 2], [0, 1, 2], 3)) is None
    assert class_facts(binary(np.array([0.1, 0.9]), np.array([0, 1]))) == ()
