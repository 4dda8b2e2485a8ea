"""The refinement against a plain Python loop in float64, written from the equations and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fielddep.nn.refinement import Refinement


def project(v: list[float], total: float) -> list[float]:
    """Projection onto the simplex, by trying every possible support size."""
    best = None
    for size in range(1, len(v) + 1):
        top = sorted(v, reverse=True)[:size]
        shift = (sum(top) - total) / size
        point = [max(x - shift, 0.0) for x in v]
        distance = sum((x - p) ** 2 for x, p in zip(v, point, strict=True))
        if abs(sum(point) - total) < 1e-9 and (best is None or distance < best[0]):
            best = (distance, point)
    assert best is not None
    return best[1]


MEAN_NORM = 2.5
"""Norm of an average row's E^T E, for damped steps."""


def oracle(e, w0, steps, lr, sparsity, *, mu_start="share", mu_from="new", mean=False, inner_step="fixed"):
    """(W, mu) of one row after some steps: loops over scalars, W as lists."""
    m, k = len(e), len(e[0])
    if inner_step != "fixed":
        gram = [[sum(a * b for a, b in zip(e_i, e_j, strict=True)) for e_j in e] for e_i in e]
        norm = sum(x * x for row in gram for x in row) ** 0.5
        lr /= norm if inner_step == "scaled" else (norm + MEAN_NORM) / 2
    w = [[-1.0 if i == j else float(w0[i][j]) for j in range(m)] for i in range(m)]
    mu = [sparsity / m if mu_start == "share" else 1.0] * m

    def residuals(w):
        return [[sum(w[i][j] * e[i][d] for i in range(m)) for d in range(k)] for j in range(m)]

    for _ in range(steps):
        r = residuals(w)
        new = [row[:] for row in w]
        for i, j in itertools.product(range(m), range(m)):
            if i != j:
                gradient = mu[j] * sum(e[i][d] * r[j][d] for d in range(k)) / sparsity
                new[i][j] = w[i][j] - lr * gradient
        r_used = residuals(new) if mu_from == "new" else r
        norms = [sum(x * x for x in r_j) / (k if mean else 1) for r_j in r_used]
        mu = project([mu[j] - lr / 2 * norms[j] for j in range(m)], sparsity)
        w = new
    return w, mu


@pytest.mark.parametrize(("n_fields", "d_embed"), [(2, 1), (3, 5), (6, 2), (5, 8), (9, 3)])
@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("sparsity", [0.5, 10.0])
def test_equals_plain_loop(n_fields, d_embed, steps, sparsity):
    generator = torch.Generator().manual_seed(n_fields * 100 + d_embed)
    refinement = Refinement(n_fields, n_inner_steps=steps, inner_lr=0.3, sparsity=sparsity).double()
    with torch.no_grad():
        refinement.weight.copy_(torch.randn(n_fields, n_fields, generator=generator).double())
    e_BFD = torch.randn(4, n_fields, d_embed, generator=generator).double()
    found = refinement(e_BFD)
    for row in range(4):
        w, mu = oracle(e_BFD[row].tolist(), refinement.weight.tolist(), steps, 0.3, sparsity)
        assert np.abs(found.w_BFF[row].detach().numpy() - np.array(w)).max() < 1e-10
        assert np.abs(found.mu_BF[row].detach().numpy() - np.array(mu)).max() < 1e-10


@pytest.mark.parametrize("mu_start", ["share", "one"])
@pytest.mark.parametrize("mu_from", ["new", "old"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("inner_step", ["fixed", "scaled", "damped"])
def test_every_variant_equals_plain_loop(mu_start, mu_from, reduction, inner_step):
    refinement = Refinement(
        4, n_inner_steps=3, inner_lr=0.5, sparsity=2.0, mu_start=mu_start, mu_update_from=mu_from,
        residual_reduction=reduction, inner_step=inner_step,
    ).double()  # fmt: skip
    if inner_step == "damped":
        refinement.mean_norm.fill_(MEAN_NORM)
    e_BFD = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1)).double()
    found = refinement(e_BFD)
    for row in range(2):
        w, mu = oracle(
            e_BFD[row].tolist(), refinement.weight.tolist(), 3, 0.5, 2.0,
            mu_start=mu_start, mu_from=mu_from, mean=reduction == "mean",
            inner_step=inner_step,
        )  # fmt: skip
        assert np.abs(found.w_BFF[row].detach().numpy() - np.array(w)).max() < 1e-10
        assert np.abs(found.mu_BF[row].detach().numpy() - np.array(mu)).max() < 1e-10


def test_gradcheck_through_all_steps():
    refinement = Refinement(4, n_inner_steps=3, inner_lr=0.4, sparsity=3.0).double()
    generator = torch.Generator().manual_seed(0)
    e_BFD = (torch.randn(3, 4, 5, generator=generator).double() * 0.5).requires_grad_()
    w_FF = torch.randn(4, 4, generator=generator).double().requires_grad_()

    def outputs(e, w):
        refined = torch.func.functional_call(refinement, {"weight": w}, (e,))
        return refined.w_BFF, refined.mu_BF, refined.squared_residuals_BF

    assert torch.autograd.gradcheck(outputs, (e_BFD, w_FF))


def test_gradient_of_the_loss_is_the_step_direction():
    """The W step is the gradient of L(W, mu) by autograd, with the diagonal held."""
    e_BFD = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(2)).double()
    refinement = Refinement(4, n_inner_steps=1, inner_lr=0.7, sparsity=5.0).double()
    w_FF = refinement.w0_FF.detach().clone().requires_grad_()
    e_DF = e_BFD[0].T
    loss = (5.0 / 4) * (e_DF @ w_FF).square().sum() / (2 * 5.0)
    (gradient,) = torch.autograd.grad(loss, w_FF)
    expected = w_FF.detach() - 0.7 * gradient * (1 - torch.eye(4).double())
    torch.testing.assert_close(refinement(e_BFD).w_BFF[0].detach(), expected, atol=1e-12, rtol=0)
