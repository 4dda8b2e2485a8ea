"""LLFM against its definition: the paper's greedy coding, the optimisation problem it solves, and rows written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fielddep.config.factorization import LLFMConfig
from fielddep.config.settings import Config
from fielddep.encoding.rows import Layout
from fielddep.nn.baselines.llfm import LLFM, adaptive_weights
from fielddep.observer import Observer
from fielddep.training.fit import fit
from fielddep.training.optim import Optimizer
from tests.conftest import random_table, small_frame
from tests.oracle.row_by_row import check, random_model, random_rows, values, weights

CONFIG = LLFMConfig(d_embed=3, n_anchors=4, locality=0.3, anchor_rate=0.7)


def greedy_coding(u: list[float]) -> list[float]:
    """Anchors are added from the nearest on, as long as the level lies above the next one."""
    ordered = sorted(u)
    level, k = ordered[0] + 1, 0
    while k < len(u) and level > ordered[k]:
        k += 1
        total, squares = sum(ordered[:k]), sum(x * x for x in ordered[:k])
        level = (total + math.sqrt(k + total**2 - k * squares)) / k
    shares = [max(level - x, 0.0) for x in u]
    return [share / sum(shares) for share in shares]


def random_distances(spread: float) -> np.ndarray:
    return np.random.default_rng(0).uniform(2.0, 2.0 + spread, (20, 6))


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 3.0, 50.0])
def test_coding_is_the_greedy_one(spread):
    u = random_distances(spread)
    found = adaptive_weights(torch.from_numpy(u)).numpy()
    np.testing.assert_allclose(found, [greedy_coding(list(row)) for row in u], atol=1e-12)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_coding_solves_its_problem(spread):
    for u in random_distances(spread)[:5]:
        gamma = adaptive_weights(torch.from_numpy(u[None]))[0].numpy()
        best = minimize(
            lambda g, u=u: np.linalg.norm(g) + g @ u,
            np.full(6, 1 / 6),
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda g: g.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        assert np.linalg.norm(gamma) + gamma @ u <= best.fun + 1e-9
        np.testing.assert_allclose(gamma, best.x, atol=1e-4)


def test_coding_is_blind_to_what_all_distances_share():
    u = torch.from_numpy(random_distances(2.0))
    torch.testing.assert_close(adaptive_weights(u), adaptive_weights(u + 37.0))


def test_gradient_of_the_coding_takes_the_level_as_given():
    u = torch.tensor([[0.1, 0.5, 9.0]], dtype=torch.float64, requires_grad=True)
    adaptive_weights(u)[0, 0].backward()
    shares = [greedy_coding(u[0].tolist())[k] for k in range(3)]
    gap = 0.5 - 0.1
    total = gap / (shares[0] - shares[1])  # shares are (level - u_k) / total
    expected = [-(1 - shares[0]) / total, shares[0] / total, 0.0]
    np.testing.assert_allclose(u.grad[0], expected, atol=1e-12)


def dense(layout: Layout, row: list[tuple[int, float]]) -> np.ndarray:
    x = np.zeros(layout.n_ids_total)
    for index, value in row:
        x[index] = value
    return x


def started(layout: Layout, n_outputs: int = 1) -> LLFM:
    model = random_model(layout, CONFIG, n_outputs)
    torch.manual_seed(0)
    model.start_from(random_rows(layout, 50).inputs)
    return model.eval()


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_machines_mixed_by_distances_in_the_space_of_ids(layout, n_outputs):
    model, batch = started(layout, n_outputs), random_rows(layout)
    anchors = model.start_IM.numpy() + CONFIG.anchor_rate * weights(model.shift)
    first = weights(model.first_order).reshape(-1, 4, n_outputs)
    table = weights(model.embedding).reshape(-1, 4, n_outputs, 3)
    bias = model.anchor_bias_MC.detach().numpy()
    expected = []
    for row in values(layout, batch):
        x = dense(layout, row)
        gamma = greedy_coding([0.3 * np.sum((x - anchors[:, k]) ** 2) for k in range(4)])
        logits = model.bias.detach().numpy().copy()
        for k in range(4):
            for c in range(n_outputs):
                fm = bias[k, c] + x @ first[:, k, c]
                for i, (left, x_left) in enumerate(row):
                    for right, x_right in row[i + 1 :]:
                        fm += x_left * x_right * (table[left, k, c] @ table[right, k, c])
                logits[c] += gamma[k] * fm
        expected.append(logits)
    check(model, batch, expected)


def test_gradient_of_the_anchors_is_that_of_the_distances(layout):
    """The kept sizes must not hide the part of the gradient that goes through |z|^2."""
    model, batch = started(layout).train(), random_rows(layout, 40)
    seen = torch.unique(batch.inputs.ids_BF)
    (0.1 * model._distances(batch.inputs).square()).sum().backward()
    found = model.shift.weight.grad.to_dense()[seen]
    shift = model.shift.weight.detach().clone().requires_grad_()
    x = torch.from_numpy(np.stack([dense(layout, row) for row in values(layout, batch)]))
    anchors = model.start_IM + CONFIG.anchor_rate * shift
    distances = anchors.square().sum(dim=0) - 2 * x @ anchors
    (0.1 * distances.square()).sum().backward()
    torch.testing.assert_close(found, shift.grad[seen])


def test_kept_sizes_follow_the_steps(layout):
    model = LLFM(layout, 1, LLFMConfig(d_embed=3, n_anchors=4))
    table = random_table(layout, 60)
    model.start_from(table.batch(slice(None)).inputs)
    model.train()
    steps = Optimizer(model, kind="adagrad", lr=0.5, l2={"shift": 0.1})
    for step in range(1, 8):
        batch = table.batch(slice(7 * step, 7 * step + 7))
        steps.zero_grad()
        model.training_forward(batch.inputs)[0].square().mean().backward()
        steps.step(batch.inputs)
        model.after_step(step)
    kept = model.size_M.clone()
    model.eval()
    assert not torch.equal(model.size_M, model.start_IM.square().sum(dim=0))
    torch.testing.assert_close(kept, model.size_M)


@pytest.mark.parametrize("training", [False, True])
def test_sizes_are_taken_anew_once_weights_are_loaded(layout, training):
    model, batch = started(layout), random_rows(layout)
    other = LLFM(layout, 1, CONFIG).double()
    other.load_state_dict(model.state_dict())
    found = other.train(training)(batch.inputs)
    torch.testing.assert_close(found, model(batch.inputs))


def test_a_killed_training_that_goes_on_ends_with_the_same_weights(tmp_path):
    class Killer(Observer):
        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            if step == 15:
                raise RuntimeError("killed")

    settings = {"model.name": "llfm", "model.d_embed": 3, "data.target": "good", "train.eval_every": 1}
    config = Config().replace({**settings, "train.max_epochs": 4, "train.batch_size": 64})
    whole = fit(small_frame(), config).model.state_dict()
    with pytest.raises(RuntimeError, match="killed"):
        fit(small_frame(), config, checkpoints=tmp_path, observer=Killer())
    resumed = fit(small_frame(), config, checkpoints=tmp_path, resume=True).model.state_dict()
    assert all(torch.equal(resumed[key], whole[key]) for key in whole)


def test_anchors_start_as_centres_of_the_first_rows(layout):
    config = LLFMConfig(d_embed=3, n_anchors=1, anchor_rows=5)
    model, batch = random_model(layout, config), random_rows(layout, 30)
    model.start_from(batch.inputs)
    centre = np.mean([dense(layout, row) for row in list(values(layout, batch))[:5]], axis=0)
    np.testing.assert_allclose(model.start_IM[:, 0].numpy(), centre, atol=1e-12)
