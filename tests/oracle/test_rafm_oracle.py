"""RaFM against its definition pair by pair, and which loss trains which embedding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fielddep.config.factorization import RaFMConfig
from fielddep.encoding.rows import Layout
from fielddep.errors import ConfigError
from fielddep.nn.baselines.rafm import RaFM, levels_of_ids
from tests.helpers import raises
from tests.oracle.row_by_row import check, random_model, random_rows, values, weights

SIZES, THRESHOLDS = (2, 3, 5), (10, 40)
CONFIG = RaFMConfig(d_embed=2, d_levels=(3, 5), thresholds=THRESHOLDS)
COUNTS = (
    np.array([0, 10, 11, 40, 41, 500]),
    np.array([0, 3, 90, 12, 12, 60, 1, 41, 20]),
    np.array([5, 300]),
    np.array([0, 11, 45, 2, 80]),
)


@pytest.fixture
def counted(layout) -> Layout:
    return Layout(names=layout.names, n_ids=layout.n_ids, numerical=layout.numerical, counts=COUNTS)


def level_of(index: int) -> int:
    return 1 + sum(threshold < np.concatenate(COUNTS)[index] for threshold in THRESHOLDS)


def embedding(model: RaFM, level: int, index: int, c: int) -> np.ndarray:
    """Embedding of an id at a level that it has."""
    having = [i for i in range(22) if level_of(i) >= level]
    table = weights(model.levels[level - 1])
    row = index if level == 1 else 1 + having.index(index)
    d = SIZES[level - 1]
    return table[row, c * d : (c + 1) * d]


def logit(model: RaFM, row: list[tuple[int, float]], c: int, *, last: int = 3) -> float:
    """The model cut off after level `last`."""
    found = float(model.bias[c].detach()) + sum(x * weights(model.first_order)[i, c] for i, x in row)
    for n, (i, x) in enumerate(row):
        for j, y in row[n + 1 :]:
            level = min(level_of(i), level_of(j), last)
            found += x * y * (embedding(model, level, i, c) @ embedding(model, level, j, c))
    return found


def test_levels_come_from_counts(counted):
    assert levels_of_ids(counted, THRESHOLDS).tolist() == [level_of(i) for i in range(22)]
    assert levels_of_ids(counted, THRESHOLDS).tolist()[:6] == [1, 1, 2, 2, 3, 3]


def test_every_value_is_frequent_where_counts_are_not_known(layout):
    model = random_model(layout, CONFIG)
    assert levels_of_ids(layout, THRESHOLDS).tolist() == [3] * 22
    assert [len(table.weight) for table in model.levels] == [22, 23, 23]


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_pair_takes_the_highest_level_that_both_have(counted, n_outputs):
    model, batch = random_model(counted, CONFIG, n_outputs), random_rows(counted, 20)
    rows = list(values(counted, batch))
    assert {min(level_of(a[0]), level_of(b[0])) for r in rows for a in r for b in r} == {1, 2, 3}
    check(model, batch, [[logit(model, row, c) for c in range(n_outputs)] for row in rows])


def soft_loss(student: np.ndarray, teacher: np.ndarray, task: str) -> float:
    """Mean loss of the student's logits (B, C) with the teacher's predictions as targets."""
    if task == "regression":
        return float(np.mean((student - teacher) ** 2))
    if task == "binary":
        p, q = 1 / (1 + np.exp(-teacher)), 1 / (1 + np.exp(-student))
        return float(-np.mean(p * np.log(q) + (1 - p) * np.log(1 - q)))
    p, q = (np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) for z in (teacher, student))
    return float(-np.mean((p * np.log(q)).sum(axis=1)))


@pytest.mark.parametrize(("task", "n_outputs"), [("binary", 1), ("regression", 1), ("multiclass", 3)])
def test_each_level_learns_to_predict_as_the_next(counted, task, n_outputs):
    model, batch = random_model(counted, CONFIG, n_outputs), random_rows(counted, 20)
    model.regression, model.distill = task == "regression", 0.7
    rows = list(values(counted, batch))
    cut = [np.array([[logit(model, row, c, last=k) for c in range(n_outputs)] for row in rows]) for k in (1, 2, 3)]
    expected = 0.7 * (soft_loss(cut[0], cut[1], task) + soft_loss(cut[1], cut[2], task))
    logits, penalty = model.training_forward(batch.inputs)
    np.testing.assert_allclose(logits.detach().numpy(), cut[2], atol=1e-10)
    assert float(penalty.detach()) == pytest.approx(expected, abs=1e-10)


def moved(model: RaFM, loss: torch.Tensor) -> list[set[int]]:
    """Ids whose embeddings a loss moves, level by level."""
    model.zero_grad()
    loss.backward(retain_graph=True)
    found = []
    for table in model.levels:
        rows = set()
        if table.weight.grad is not None:
            rows = set(torch.nonzero(table.weight.grad.to_dense().abs().sum(dim=1) > 1e-14).flatten().tolist())
        found.append({i for i in range(22) if int(table.rows_of(torch.tensor(i))) in rows})
    return found


def test_task_loss_trains_free_embeddings_and_distillation_the_dependent_ones(counted):
    model, batch = random_model(counted, CONFIG), random_rows(counted, 200)
    logits, penalty = model.training_forward(batch.inputs)
    for level, ids in enumerate(moved(model, logits.square().mean()), start=1):
        assert ids == {i for i in range(22) if level_of(i) == level}
    for level, ids in enumerate(moved(model, penalty), start=1):
        assert ids == {i for i in range(22) if level_of(i) > level}
    assert model.bias.grad is None or not model.bias.grad.any()
    assert model.first_order.weight.grad is None or not model.first_order.weight.grad.to_dense().any()


def test_joint_task_loss_reaches_dependent_embeddings_beside_free_ones(counted):
    model, batch = random_model(counted, replace(CONFIG, joint=True)), random_rows(counted, 200)
    logits, penalty = model.training_forward(batch.inputs)
    alone, _ = random_model(counted, CONFIG).training_forward(batch.inputs)
    assert torch.equal(logits, alone)
    for level, ids in enumerate(moved(model, logits.square().mean()), start=1):
        assert ids == {i for i in range(22) if level_of(i) >= level}
    for level, ids in enumerate(moved(model, penalty), start=1):
        assert ids == {i for i in range(22) if level_of(i) > level}


def test_gradients_are_those_of_the_formula(counted):
    """Free embeddings: the gradient of the model itself. Dependent ones: that of the students, teachers held still."""
    model, batch = random_model(counted, CONFIG), random_rows(counted, 30)
    rows = list(values(counted, batch))
    logits, penalty = model.training_forward(batch.inputs)
    model.zero_grad()
    (logits.sum() + penalty).backward()
    teachers = [np.array([[logit(model, row, 0, last=k)] for row in rows]) for k in (2, 3)]

    def free_objective() -> float:
        return sum(logit(model, row, 0) for row in rows)

    def dependent_objective() -> float:
        cut = [np.array([[logit(model, row, 0, last=k)] for row in rows]) for k in (1, 2)]
        return soft_loss(cut[0], teachers[0], "binary")

    free = next(i for i in range(22) if level_of(i) == 1 and i in batch.inputs.ids_BF)
    dependent = next(i for i in range(22) if level_of(i) == 2 and i in batch.inputs.ids_BF)
    table = model.levels[0]
    for index, objective in ((free, free_objective), (dependent, dependent_objective)):
        entry = weights(table)[index : index + 1, 1:]
        differences = []
        for step in (1e-6, -1e-6):
            entry += step
            differences.append(objective())
            entry -= step
        slope = (differences[0] - differences[1]) / 2e-6
        assert float(table.weight.grad.to_dense()[index, 1]) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"d_levels": (3, 5), "thresholds": (4,)}, ("model.thresholds has 1", "model.d_levels 2")),
        ({"d_levels": (3, 2), "thresholds": (4, 9)}, ("model.d_levels", "ascend", "(2, 3, 2)")),
        ({"d_levels": (3, 5), "thresholds": (9, 9)}, ("model.thresholds", "ascend", "(9, 9)")),
    ],
)
def test_levels_that_do_not_fit_are_refused(layout, settings, facts):
    with raises(ConfigError, *facts):
        RaFM(layout, 1, RaFMConfig(d_embed=2, **settings))
