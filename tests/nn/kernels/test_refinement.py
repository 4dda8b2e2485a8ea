"""The compiled inner loop against the plain one: W, mu, squared residuals, and the gradients of all three."""

from __future__ import annotations

import pytest
import torch

from fielddep.nn import kernels
from fielddep.nn.refinement import Refinement
from tests.nn.kernels.agreement import assert_agree

pytestmark = pytest.mark.skipif(kernels.native() is None, reason="no compiled kernels in this installation")


def outputs(module: Refinement, e_BFD: torch.Tensor, wanted: tuple[str, ...]) -> dict[str, torch.Tensor]:
    e_BFD = e_BFD.clone().requires_grad_()
    module.zero_grad()
    found = module(e_BFD)
    generator = torch.Generator().manual_seed(5)
    parts = [getattr(found, name) for name in wanted]
    sum((part * torch.randn(part.shape, generator=generator)).sum() for part in parts).backward()
    return {
        "w": found.w_BFF.detach(),
        "mu": found.mu_BF.detach(),
        "squared": found.squared_residuals_BF.detach(),
        "d_e": e_BFD.grad,
        "d_w0": module.weight.grad.clone(),
    }


@pytest.mark.parametrize(
    "wanted",
    [("w_BFF", "mu_BF", "squared_residuals_BF"), ("mu_BF",), ("squared_residuals_BF",)],
    ids=["all", "mu", "residuals"],
)
@pytest.mark.parametrize("shape", [(1, 2, 1), (16, 5, 3), (37, 22, 40), (20, 39, 4)], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mu_update_from": "old", "residual_reduction": "mean"},
        {"mu_start": "one"},
        {"inner_step": "scaled"},
        {"inner_step": "damped"},
    ],
)
def test_agrees_with_the_plain_form(shape, settings, wanted):
    torch.manual_seed(0)
    module = Refinement(shape[1], n_inner_steps=3, inner_lr=0.2, sparsity=2.0, **settings)
    with torch.no_grad():
        module.weight.add_(torch.randn_like(module.weight), alpha=0.2)
    e_BFD = torch.randn(shape) * shape[2] ** -0.5
    module.track_norm(2 * e_BFD)
    with kernels.forced("native"):
        found = outputs(module, e_BFD, wanted)
    with kernels.forced("plain"):
        expected = outputs(module, e_BFD, wanted)
    assert_agree(found, expected)


def test_the_projection_cuts_entries_off_in_both():
    """The comparison above would be blind to the projection's edge if mu never reached it."""
    torch.manual_seed(0)
    module = Refinement(6, n_inner_steps=4, inner_lr=0.5, sparsity=1.0)
    e_BFD = torch.randn(50, 6, 8)
    with kernels.forced("native"):
        compiled = module(e_BFD).mu_BF
    with kernels.forced("plain"):
        plain = module(e_BFD).mu_BF
    assert ((plain == 0) == (compiled == 0)).all()
    assert 0.1 < (plain == 0).float().mean() < 0.95
    torch.testing.assert_close(compiled.sum(dim=1), torch.ones(50))


def test_no_steps_give_the_start():
    module = Refinement(4, n_inner_steps=0)
    with kernels.forced("native"):
        found = module(torch.randn(3, 4, 5))
    assert torch.equal(found.w_BFF, module.w0_FF.expand(3, 4, 4))


@pytest.mark.parametrize("n_fields", [4, 6])
def test_another_number_of_fields_is_refused(n_fields):
    module = Refinement(5)
    with kernels.forced("native"), pytest.raises(ValueError, match="sizes of the refinement"):
        module(torch.randn(64, n_fields, 8))


def test_the_way_back_does_not_depend_on_what_is_forced_by_then():
    module, e_BFD = Refinement(4), torch.randn(20, 4, 3, requires_grad=True)
    with kernels.forced("native"):
        found = module(e_BFD)
    with kernels.forced("plain"):
        found.mu_BF.square().sum().backward()
    assert e_BFD.grad is not None and module.weight.grad is not None
