"""Sparse relatives of softmax against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.nn.simplex import entmax15, entmoid15, sparsemax
from tests.oracle.slow_forms import share

FUNCTIONS = [(sparsemax, 1.0), (entmax15, 2.0)]


@pytest.mark.parametrize(("function", "power"), FUNCTIONS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_equals_the_definition(function, power, n, scale):
    x = np.random.default_rng(n).normal(scale=scale, size=(8, n))
    found = function(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, np.stack([share(row, power) for row in x]), atol=1e-10)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(("function", "power"), FUNCTIONS)
def test_gradients(function, power):
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)).double().requires_grad_()
    assert torch.autograd.gradcheck(function, (x,))


def test_a_shift_of_all_scores_changes_nothing():
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(entmax15(x + 100.0), entmax15(x), atol=1e-4, rtol=0)


@pytest.mark.parametrize("function", [sparsemax, entmax15])
def test_equal_scores_share_evenly(function):
    x = torch.zeros(1, 4, requires_grad=True)
    found = function(x)
    torch.testing.assert_close(found, torch.full((1, 4), 0.25))
    found[0, 0].backward()
    assert torch.isfinite(x.grad).all()


def test_small_scores_get_nothing_at_all():
    assert entmax15(torch.tensor([3.0, 0.0, -1.0])).tolist() == [1.0, 0.0, 0.0]
    assert (entmax15(torch.tensor([0.5, 0.0, -0.5])) > 0).all()


def test_entmoid_is_entmax_of_two():
    x_K = torch.linspace(-4, 4, 81).double()
    pairs_K2 = torch.stack([x_K, torch.zeros_like(x_K)], dim=1)
    torch.testing.assert_close(entmoid15(x_K), entmax15(pairs_K2)[:, 0], atol=1e-12, rtol=0)


def test_entmoid_gradient():
    x = torch.tensor([-1.9, -0.4, 0.0, 0.7, 1.8]).double().requires_grad_()
    assert torch.autograd.gradcheck(entmoid15, (x,))
    far = torch.tensor([-2.5, 2.5], requires_grad=True)
    entmoid15(far).sum().backward()
    assert far.grad.tolist() == [0.0, 0.0]
