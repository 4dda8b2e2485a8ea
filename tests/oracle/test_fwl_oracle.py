"""FWL against its definition: a full matrix of linear models for every field, and the penalty on these matrices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from fielddep.config.factorization import FWLConfig
from fielddep.encoding.rows import Layout
from fielddep.nn.baselines.fwl import FWL, field_ranks
from tests.oracle.row_by_row import check, random_model, random_rows, values, weights


def formed(table: torch.Tensor, layout: Layout, ranks: tuple[int, ...], field: int, c: int) -> torch.Tensor:
    """The models of a field for one class, one column a value, one row an id; its own ids have no weights."""
    first = sum(ranks[:field])
    block = table.view(len(table), -1, sum(ranks))[:, c, first : first + ranks[field]]
    own = slice(layout.offsets[field], layout.offsets[field] + layout.n_ids[field])
    models = block @ block[own].T
    outside = torch.ones(len(table), 1, dtype=table.dtype)
    outside[own] = 0
    return models * outside


def penalty(table: torch.Tensor, layout: Layout, ranks: tuple[int, ...], n_outputs: int, mean: bool):
    """Half the squared norms that the step of the penalty descends."""
    total = torch.zeros((), dtype=table.dtype)
    for field in range(layout.n_columns):
        for c in range(n_outputs):
            models = formed(table, layout, ranks, field, c)
            average = models.mean(dim=1, keepdim=True)
            total = total + 0.5 * (models - average).square().sum()
            total = total + (0.5 * average.square().sum() if mean else 0)
    return total


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("config", [FWLConfig(d_embed=3), FWLConfig(d_embed=3, rank_base=2.5, first_order=False)])
def test_sum_of_the_models_of_a_rows_values(layout, n_outputs, config):
    model, batch = random_model(layout, config, n_outputs), random_rows(layout)
    table = model.embedding.weight.detach()
    matrices = [
        [formed(table, layout, model.ranks, f, c).numpy() for f in range(layout.n_columns)] for c in range(n_outputs)
    ]

    def logit(row, c):
        found = float(model.bias[c].detach())
        for field, (index, x) in enumerate(row):
            column = matrices[c][field][:, index - layout.offsets[field]]
            found += x * sum(column[other] * y for other, y in row)
            found += x * weights(model.first_order)[index, c] if config.first_order else 0.0
        return found

    check(model, batch, [[logit(row, c) for c in range(n_outputs)] for row in values(layout, batch)])


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("mean", [False, True])
def test_step_of_the_penalty_is_its_gradient(layout, n_outputs, mean):
    lr = 1e-4
    config = FWLConfig(d_embed=3, variance_lr=lr, variance_every=5, mean_penalty=mean)
    model = random_model(layout, config, n_outputs)
    before = model.embedding.weight.detach().clone().requires_grad_()
    penalty(before, layout, model.ranks, n_outputs, mean).backward()
    model.after_step(4)
    assert torch.equal(model.embedding.weight, before)
    model.after_step(5)
    torch.testing.assert_close(model.embedding.weight.detach(), (before - lr * before.grad).detach())


def test_a_step_size_far_too_large_still_lowers_the_penalty(layout):
    config = FWLConfig(d_embed=3, variance_lr=1e3, variance_every=1)
    model = random_model(layout, config)
    found = [float(penalty(model.embedding.weight.detach(), layout, model.ranks, 1, True))]
    for step in range(1, 6):
        model.after_step(step)
        found.append(float(penalty(model.embedding.weight.detach(), layout, model.ranks, 1, True)))
    assert all(late < early for early, late in pairwise(found))


def test_no_penalty_without_a_step_size(layout):
    model = random_model(layout, FWLConfig(d_embed=3, variance_lr=0.0, variance_every=1))
    before = model.embedding.weight.detach().clone()
    model.after_step(1)
    assert torch.equal(model.embedding.weight, before)


def test_ranks():
    layout = Layout(names=("a", "b", "c"), n_ids=(3, 100, 2000))
    assert field_ranks(layout, FWLConfig(d_embed=10)) == (3, 10, 10)
    assert field_ranks(layout, FWLConfig(d_embed=20, rank_base=1.6)) == (3, 10, 17)
    model = FWL(layout, 1, FWLConfig(d_embed=20, rank_base=1.6))
    assert model.embedding.weight.shape == (2103, 30)
    assert np.array_equal(model.owner_R.numpy(), [0] * 3 + [1] * 10 + [2] * 17)
