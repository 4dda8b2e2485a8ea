"""Which rows a report explains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.encoding.target import Target
from fielddep.explain.curves import ScoredRows
from fielddep.report.measured import RANDOM, RIGHT, UNSURE, WRONG, choose_rows

BINARY = Target(name="y", task="binary", classes=("no", "yes"))
MANY = Target(name="y", task="multiclass", classes=("a", "b", "c"))
NUMBER = Target(name="y", task="regression", mean=10.0, scale=2.0)


def scored(target: Target, logits: list[list[float]], truth: list[float]) -> ScoredRows:
    kind = np.int64 if target.task == "multiclass" else np.float32
    return ScoredRows(target=target, logits_RC=torch.tensor(logits), target_R=np.array(truth, dtype=kind))


def deliberate(rows: ScoredRows) -> list[tuple[str, int]]:
    return [choice for choice in choose_rows(rows) if choice[0] != RANDOM]


def test_best_and_worst_of_each_of_two_classes() -> None:
    rows = scored(BINARY, [[0.1], [-3.0], [-1.0], [-4.0], [0.2], [-2.0]], [1, 1, 0, 0, 0, 1])
    assert deliberate(rows) == [(RIGHT, 0), (RIGHT, 3), (WRONG, 1), (WRONG, 4)]


def test_of_a_rare_class_more_than_its_share_is_right() -> None:
    rows = scored(BINARY, [[-1.0], [-2.0], *[[-3.0 - 0.01 * n] for n in range(98)]], [1, 1, *[0] * 98])
    assert deliberate(rows) == [(RIGHT, 0), (RIGHT, 99), (WRONG, 2), (UNSURE, 1)]


def test_the_best_of_wrong_rows_is_not_right() -> None:
    rows = scored(BINARY, [[-3.0], [-2.0], [-1.0], [-4.0], [-0.5], [2.0]], [1, 1, 0, 0, 0, 0])
    assert deliberate(rows) == [(RIGHT, 3), (WRONG, 0), (WRONG, 5)]


@pytest.mark.parametrize(("logit", "expected"), [(-1.0, [(WRONG, 0)]), (3.0, [])])
def test_the_only_row_of_a_class_is_not_its_best(logit: float, expected: list[tuple[str, int]]) -> None:
    rows = scored(BINARY, [[logit], [-1.5], [0.5]], [1, 0, 0])
    assert deliberate(rows) == [(RIGHT, 1), *expected, (WRONG, 2)]


def test_surest_right_and_wrong_of_many_classes() -> None:
    logits = [[9.0, 0, 0], [8.0, 0, 0], [0, 5.0, 0], [7.0, 0, 0], [6.0, 0, 0], [0, 0, 4.0]]
    rows = scored(MANY, logits, [0, 0, 1, 1, 2, 0])
    assert deliberate(rows) == [(RIGHT, 0), (RIGHT, 2), (WRONG, 3), (WRONG, 5)]


def test_close_and_far_numbers() -> None:
    predicted = [-3.0, 0.0, 0.1, 3.0, 1.0, -1.0, 0.5, 0.2, 0.3, 0.4]
    truth = [-3.0, 0.9, 1.0, 3.0, -4.0, 5.0, 1.5, 1.2, 1.3, 1.4]
    rows = scored(NUMBER, [[value] for value in predicted], truth)
    assert deliberate(rows) == [(RIGHT, 3), (RIGHT, 0), (WRONG, 4), (WRONG, 5)]


def test_one_class_only() -> None:
    rows = scored(BINARY, [[0.0], [1.0], [2.0]], [1, 1, 1])
    assert choose_rows(rows) == [(RIGHT, 2), (UNSURE, 0), (RANDOM, 1)]


def test_a_row_is_told_once() -> None:
    assert choose_rows(scored(BINARY, [[0.0]], [1])) == [(RANDOM, 0)]
    assert choose_rows(scored(MANY, [[1.0, 0, 0], [2.0, 0, 0]], [0, 0])) == [(RIGHT, 1), (RANDOM, 0)]


def test_the_seed_draws_the_last_row() -> None:
    rng = np.random.default_rng(1)
    rows = scored(BINARY, rng.normal(size=(500, 1)).tolist(), (rng.random(500) < 0.5).astype(float).tolist())
    drawn = [choose_rows(rows, seed=seed)[-1] for seed in range(5)]
    assert all(why == RANDOM for why, _ in drawn)
    assert len(set(drawn)) == 5
    assert choose_rows(rows, seed=3) == choose_rows(rows, seed=3)
