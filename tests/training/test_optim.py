"""Sparse steps: equal to dense torch optimisers where those are defined, and touching nothing else."""

from __future__ import annotations

import pytest
import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs
from fielddep.nn import kernels
from fielddep.nn.mdl import MDL
from fielddep.training.optim import LookedUp, Optimizer
from tests.conftest import random_table


def build(layout, **config):
    torch.manual_seed(1)
    return MDL(layout, 1, MDLConfig(d_embed=3, batch_norm="none", hidden=(4,), **config))


def backward(model, batch):
    loss = (model(batch.inputs)[:, 0] - batch.target_B).square().mean()
    loss.backward()
    return loss


def dense_twin(model):
    """The same model with dense table gradients."""
    for _, table in model.tables():
        table.forward = lambda inputs, t=table: _dense_lookup(t, inputs.ids_BF, inputs.numbers_BN)
    return model


def _dense_lookup(table, ids, numbers):
    e = table.weight[ids]
    scale = torch.ones(ids.shape).index_copy(1, table.numerical, numbers)
    return e * scale.unsqueeze(-1)


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_equals_torch_when_every_id_is_looked_up(layout, kind):
    table = random_table(layout, 300)
    sparse, dense = build(layout), dense_twin(build(layout))
    ours = Optimizer(sparse, kind=kind, lr=0.05, l2={})
    cls = torch.optim.Adagrad if kind == "adagrad" else torch.optim.Adam
    theirs = cls([p for p in dense.parameters() if p.requires_grad], lr=0.05)
    for start in range(0, 300, 100):
        batch = table.batch(slice(start, start + 100))
        assert len(batch.inputs.ids_BF.unique()) == layout.n_ids_total
        ours.zero_grad()
        backward(sparse, batch)
        ours.step(batch.inputs)
        theirs.zero_grad()
        with kernels.forced("plain"):
            backward(dense, batch)
        theirs.step()
    for (name, a), b in zip(sparse.named_parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_untouched_ids_do_not_move(layout, kind):
    model = build(layout)
    optimizer = Optimizer(model, kind=kind, lr=0.1, l2={"embedding": 0.5}, weight_decay=0.3)
    before = {n: t.weight.detach().clone() for n, t in model.tables()}
    batch = random_table(layout, 3).batch(slice(None))
    for _ in range(3):
        optimizer.zero_grad()
        backward(model, batch)
        optimizer.step(batch.inputs)
    touched = torch.zeros(layout.n_ids_total, dtype=torch.bool)
    touched[batch.inputs.ids_BF.flatten()] = True
    for name, table in model.tables():
        assert torch.equal(table.weight[~touched], before[name][~touched])
        assert not torch.equal(table.weight[touched], before[name][touched])
    for name, state in optimizer.state().items():
        if name.startswith("embedding/"):
            assert (state[~touched] == 0).all(), name


def test_l2_is_the_gradient_of_the_stated_penalty(layout):
    """Each row adds l2/2 |e|^2 for every embedding it looks up; the batch loss is the mean over rows."""
    batch = random_table(layout, 20).batch(slice(None))
    with_l2, explicit = build(layout), build(layout)
    a = Optimizer(with_l2, kind="adagrad", lr=0.1, l2={"embedding": 0.7, "first_order": 0.2})
    b = Optimizer(explicit, kind="adagrad", lr=0.1, l2={})
    backward(with_l2, batch)
    a.step(batch.inputs)
    loss = (explicit(batch.inputs)[:, 0] - batch.target_B).square().mean()
    for l2, table in ((0.7, explicit.embedding), (0.2, explicit.first_order)):
        rows = torch.nn.functional.embedding(batch.inputs.ids_BF, table.weight, sparse=True)
        loss = loss + l2 / 2 * rows.square().sum(dim=(1, 2)).mean()
    loss.backward()
    b.step(batch.inputs)
    for (name, p), q in zip(with_l2.named_parameters(), explicit.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=1e-5, msg=name)


def test_weight_decay_shrinks_by_the_stated_factor(layout):
    model = build(layout)
    optimizer = Optimizer(model, kind="adagrad", lr=0.1, l2={}, weight_decay=0.5)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    ids = torch.tensor([[2, 7, 16, 18]])
    (model(Inputs(ids, torch.ones(1, 1))) * 0).sum().backward()
    optimizer.step(Inputs(ids, torch.ones(1, 1)))
    for name, weight in model.named_parameters():
        if name.startswith(("embedding.", "first_order.")):
            expected = before[name].clone()
            expected[ids[0]] *= 1 - 0.1 * 0.5
        else:
            expected = before[name] * (1 - 0.1 * 0.5)
        torch.testing.assert_close(weight.detach(), expected, msg=name)


def test_clipping_bounds_the_joint_norm(layout):
    model = build(layout)
    batch = random_table(layout, 20).batch(slice(None))
    (model(batch.inputs).sum() * 1e4).backward()
    dense = {
        n: p.grad.to_dense() if p.grad.is_sparse else p.grad.clone()
        for n, p in model.named_parameters()
        if p.grad is not None
    }
    norm = torch.sqrt(sum(g.square().sum() for g in dense.values()))
    optimizer = Optimizer(model, kind="adagrad", lr=1.0, l2={}, clip_norm=0.5)
    optimizer.step(batch.inputs)
    assert norm > 0.5
    squares = sum(
        float(
            optimizer.state()[
                f"{n.removesuffix('.weight') if n.split('.')[0] in ('embedding', 'first_order') else n}/sum"
            ].sum()
        )
        for n in dense
    )
    assert squares == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_summed_per_id(compiled):
    if compiled and kernels.native() is None:
        pytest.skip("no compiled kernels here")
    ids_BF = torch.tensor([[3], [1], [3], [0], [3]])
    looked_up = LookedUp.of(ids_BF, 5, compiled=compiled)
    order = looked_up.ids_U.argsort()
    assert looked_up.ids_U[order].tolist() == [0, 1, 3]
    assert looked_up.counts_U[order].tolist() == [1, 1, 3]
    per_look_up = torch.sparse_coo_tensor(ids_BF.T, torch.arange(10.0).reshape(5, 2), (5, 2))
    summed_UD = looked_up.sum_per_id(per_look_up)
    assert summed_UD[order].tolist() == [[6, 7], [2, 3], [0 + 4 + 8, 1 + 5 + 9]]
    per_id = torch.sparse_coo_tensor(looked_up.ids_U.unsqueeze(0), summed_UD, (5, 2))
    assert torch.equal(looked_up.sum_per_id(per_id), summed_UD)


def test_state_round_trip(layout):
    table = random_table(layout, 60)
    first = build(layout)
    optimizer = Optimizer(first, kind="adam", lr=0.1, l2={})
    for _ in range(2):
        optimizer.zero_grad()
        backward(first, table.batch(slice(0, 30)))
        optimizer.step(table.batch(slice(0, 30)).inputs)
    second = build(layout)
    second.load_state_dict(first.state_dict())
    copy = Optimizer(second, kind="adam", lr=0.1, l2={})
    copy.load_state({k: v.clone() for k, v in optimizer.state().items()})
    for model, o in ((first, optimizer), (second, copy)):
        o.zero_grad()
        backward(model, table.batch(slice(30, 60)))
        o.step(table.batch(slice(30, 60)).inputs)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
