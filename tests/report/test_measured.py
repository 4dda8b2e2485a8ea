"""How a report measures a model: where its histogram of scores ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.encoding.target import Target
from fielddep.explain.curves import ScoredRows
from fielddep.report.measured import _histogram

BINARY = Target(name="y", task="binary", classes=("no", "yes"))


def scored(probabilities: np.ndarray, truth: np.ndarray) -> ScoredRows:
    logits = torch.logit(torch.from_numpy(probabilities)).unsqueeze(1)
    return ScoredRows(target=BINARY, logits_RC=logits, target_R=truth.astype(np.float32))


def test_the_scores_of_a_rare_class_are_shown() -> None:
    rng = np.random.default_rng(0)
    low, high = rng.uniform(0.0, 0.05, 20_000), rng.uniform(0.5, 0.8, 10)
    histogram = _histogram(scored(np.concatenate([low, high]), np.arange(20_010) >= 20_000))
    assert histogram is not None
    assert histogram.edges[-1] >= high.max()
    assert sum(dict(histogram.shares)["yes"]) == pytest.approx(1.0)


def test_where_all_probabilities_are_small_the_bins_are_too() -> None:
    rng = np.random.default_rng(0)
    small = rng.uniform(0.0, 0.01, 5000)
    histogram = _histogram(scored(small, rng.random(5000) < 0.01))
    assert histogram is not None
    assert 0.009 < histogram.edges[-1] < 0.02
    assert len(histogram.edges) > 20


def test_rows_of_one_class() -> None:
    histogram = _histogram(scored(np.full(50, 0.3), np.zeros(50)))
    assert histogram is not None
    assert [sum(shares) for _, shares in histogram.shares] == [pytest.approx(1.0), 0.0]
