"""Compiled optimiser steps against the plain ones, over several batches."""

from __future__ import annotations

import pytest
import torch

from fielddep.nn import kernels
from fielddep.nn.kernels.steps import Rule, advance
from fielddep.training.optim import Optimizer, rarity_scale
from tests.nn.kernels.agreement import Case, assert_agree, gradients

pytestmark = pytest.mark.skipif(kernels.native() is None, reason="no compiled kernels in this installation")

CASE = Case(n_ids=(300, 20, 6, 2), d_embed=9, n_rows=64, numerical=(3,), settings={})


def weights_after(kernel: kernels.Choice, **settings: object) -> dict[str, torch.Tensor]:
    """All weights and the optimiser's state after three steps, gradients by the plain form in both."""
    model = CASE.model()
    optimizer = Optimizer(model, l2={"embedding": 0.3, "first_order": 0.1}, lr=0.05, **settings)
    for seed in range(3):
        batch = CASE.batch(seed)
        gradients(model, batch, "plain")
        with kernels.forced(kernel):
            optimizer.step(batch.inputs)
    return {**{n: w.detach() for n, w in model.named_parameters()}, **optimizer.state()}


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weight_decay": 0.1},
        {"clip_norm": 0.05},
        {"l2_scale_I": torch.linspace(0.1, 3.0, sum(CASE.n_ids))},
    ],
    ids=["ridge", "decay", "clipped", "rarity"],
)
def test_agrees_with_the_plain_step(kind, settings):
    found, expected = (weights_after(kernel, kind=kind, **settings) for kernel in ("native", "plain"))
    # Both rules divide by the gradient's own size, which blows up the rounding of small ones.
    assert_agree(found, expected, rounding=2e-4)


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_whole_steps_agree(kind):
    """Forward, backward and optimiser together, compiled and plain, from the same start."""
    counts = [torch.arange(1, n + 1).numpy() for n in CASE.n_ids]
    ends = []
    for kernel in ("native", "plain"):
        model = CASE.model()
        optimizer = Optimizer(model, kind=kind, lr=0.01, l2={"embedding": 0.3}, l2_scale_I=rarity_scale(counts, 0.5))
        for seed in range(5):
            optimizer.zero_grad()
            gradients(model, CASE.batch(seed), kernel)
            with kernels.forced(kernel):
                optimizer.step(CASE.batch(seed).inputs)
        ends.append({n: w.detach() for n, w in model.named_parameters()})
    for name, weight in ends[1].items():
        # Adam divides by the gradient's own size, so an entry whose gradient is rounding error may go either way.
        close = (ends[0][name] - weight).abs() <= 1e-4 * (1 + weight.abs())
        assert close.float().mean() > (0.999 if kind == "adagrad" else 0.97), name


def test_ids_that_were_not_looked_up_stay():
    model = CASE.model()
    before = model.embedding.weight.detach().clone()
    optimizer = Optimizer(model, kind="adagrad", lr=0.1, l2={"embedding": 1.0}, weight_decay=0.5)
    batch = CASE.batch()
    gradients(model, batch, "native")
    with kernels.forced("native"):
        optimizer.step(batch.inputs)
    moved = (model.embedding.weight.detach() != before).any(dim=1)
    assert sorted(batch.inputs.ids_BF.unique().tolist()) == moved.nonzero().flatten().tolist()


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_a_large_dense_weight_is_shared_out_to_threads(kind):
    """Portions of a dense weight give the bits of one pass."""
    slots = (
        {"sum": torch.zeros(9001)}
        if kind == "adagrad"
        else {"mean": torch.zeros(9001), "square": torch.zeros(9001), "steps": torch.zeros(1, 1)}
    )
    rule = Rule(kind=kind, lr=0.1, shrink=0.9, epsilon=1e-8, betas=(0.9, 0.999))
    weight, gradient = torch.randn(9001), torch.randn(9001)
    parts = []
    for part in (slice(0, 5), slice(4000, 4200), slice(8995, 9001)):
        own = {name: slot.clone() if name == "steps" else slot[part].clone() for name, slot in slots.items()}
        piece = weight[part].clone()
        advance(rule, piece, gradient[part], own)
        parts.append((part, piece))
    advance(rule, weight, gradient, slots)
    for part, piece in parts:
        assert torch.equal(weight[part], piece)


def test_a_weight_that_is_not_contiguous_still_moves():
    model = CASE.model()
    model.extra = torch.nn.Parameter(torch.randn(4, 5).t())
    before = model.extra.detach().clone()
    optimizer = Optimizer(model, kind="adagrad", lr=0.1, l2={})
    gradients(model, CASE.batch(), "native")
    model.extra.grad = torch.ones_like(model.extra)
    with kernels.forced("native"):
        optimizer.step(CASE.batch().inputs)
    assert (model.extra.detach() != before).all()


def test_what_was_stepped_counts_as_changed():
    model = CASE.model()
    optimizer = Optimizer(model, kind="adagrad", lr=0.1, l2={})
    gradients(model, CASE.batch(), "native")
    before = model.embedding.weight._version
    with kernels.forced("native"):
        optimizer.step(CASE.batch().inputs)
    assert model.embedding.weight._version > before


def test_ids_beyond_the_table_are_refused():
    rule = Rule(kind="adagrad", lr=0.1, shrink=1.0, epsilon=1e-8, betas=(0.9, 0.999))
    with pytest.raises(ValueError, match="a row for every id"):
        advance(rule, torch.zeros(3, 2), torch.zeros(1, 2), {"sum": torch.zeros(3, 2)}, ids_U=torch.tensor([3]))
