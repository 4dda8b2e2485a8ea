"""Compiled optimiser steps against the plain ones, over several batches."""

from __future__ import annotations

import pytest
import torch

from fielddep import kernels
from fielddep.training.optim import Optimizer, rarity_scale
from tests.unit.kernels.agreement import Case, assert_agree, gradients

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
            optimizer.step(batch.ids_BF)
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
                optimizer.step(CASE.batch(seed).ids_BF)
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
        optimizer.step(batch.ids_BF)
    moved = (model.embedding.weight.detach() != before).any(dim=1)
    assert sorted(batch.ids_BF.unique().tolist()) == moved.nonzero().flatten().tolist()
