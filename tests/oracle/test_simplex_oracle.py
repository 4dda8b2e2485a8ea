"""The closed-form projection against a general quadratic-programming solver."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fielddep.nn.simplex import project_to_simplex


@pytest.mark.parametrize("n", [2, 3, 5, 11])
@pytest.mark.parametrize("total", [0.3, 1.0, 25.0])
def test_equals_quadratic_program(n, total):
    rng = np.random.default_rng(n)
    for scale in (0.1, 1.0, 30.0):
        v = rng.normal(scale=scale, size=n)
        solved = minimize(
            lambda x, v=v: 0.5 * ((x - v) ** 2).sum(),
            np.full(n, total / n),
            jac=lambda x, v=v: x - v,
            bounds=[(0, None)] * n,
            constraints={"type": "eq", "fun": lambda x: x.sum() - total, "jac": lambda x: np.ones(n)},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        found = project_to_simplex(torch.from_numpy(v)[None], total)[0].numpy()
        assert np.abs(found - solved.x).max() < 1e-5 * max(1.0, scale)


def test_optimality_conditions():
    """All entries on the support are shifted by the same amount, all others lie below that shift."""
    v_BF = torch.randn(500, 7, generator=torch.Generator().manual_seed(0)).double() * 3
    mu_BF = project_to_simplex(v_BF, 2.0)
    torch.testing.assert_close(mu_BF.sum(dim=1), torch.full((500,), 2.0).double())
    assert (mu_BF >= 0).all()
    for v, mu in zip(v_BF, mu_BF, strict=True):
        shifts = (v - mu)[mu > 0]
        assert (shifts - shifts[0]).abs().max() < 1e-12
        assert (v[mu == 0] <= shifts[0] + 1e-12).all()


def test_gradcheck():
    v_BF = torch.randn(6, 5, generator=torch.Generator().manual_seed(3)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: project_to_simplex(v, 1.5), (v_BF,))


def test_equal_entries_share_evenly():
    torch.testing.assert_close(project_to_simplex(torch.zeros(1, 4), 2.0), torch.full((1, 4), 0.5))
