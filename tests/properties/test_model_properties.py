"""What must hold for the model whatever its weights."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import SchemaError
from fielddep.nn import refinement as refinement_module
from fielddep.nn.mdl import MDL
from fielddep.nn.refinement import Refinement
from tests.conftest import random_table

VARIANTS = [
    MDLConfig(d_embed=4),
    MDLConfig(d_embed=4, dependencies="none"),
    MDLConfig(d_embed=4, dependencies="global"),
    MDLConfig(d_embed=2, dependency_diagonal=True, dependency_scale="raw", first_order=False, batch_norm="hidden"),
    MDLConfig(d_embed=4, embedding_input=True, interaction_init="identity", batch_norm="none", dropout=0.2),
]


@pytest.fixture(params=range(len(VARIANTS)))
def model(request, layout):
    torch.manual_seed(0)
    return MDL(layout, 1, VARIANTS[request.param]).eval()


def forward(model, batch):
    return model(batch.inputs)


def test_prediction_does_not_depend_on_the_batch(model, layout):
    table = random_table(layout, 40)
    whole = forward(model, table.batch(slice(None)))
    for row in (0, 7, 39):
        alone = forward(model, table.batch(slice(row, row + 1)))
        torch.testing.assert_close(alone[0], whole[row], atol=1e-5, rtol=1e-5)


def test_prediction_changes_no_state(model, layout):
    before = {k: v.clone() for k, v in model.state_dict().items()}
    batch = random_table(layout, 30).batch(slice(None))
    first, second = forward(model, batch), forward(model, batch)
    assert torch.equal(first, second)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_changing_one_field_leaves_other_embeddings(model, layout):
    table = random_table(layout, 8)
    batch = table.batch(slice(None))
    changed = batch.inputs.ids_BF.clone()
    changed[:, 1] = layout.offsets[1] + 3
    before, after = model.embed(batch.inputs), model.embed(batch.inputs._replace(ids_BF=changed))
    others = [0, 2, 3]
    assert torch.equal(before[:, others], after[:, others])
    assert not torch.equal(before[:, 1], after[:, 1])


def test_every_weight_gets_a_gradient(model, layout):
    model.train()
    batch = random_table(layout, 60).batch(slice(None))
    logits, penalty = model.training_forward(batch.inputs)
    (logits.square().mean() + (0 if penalty is None else penalty)).backward()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, name
            grad = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
            assert torch.isfinite(grad).all(), name


def test_only_the_global_variant_has_a_penalty(model, layout):
    batch = random_table(layout, 10).batch(slice(None))
    _, penalty = model.training_forward(batch.inputs)
    assert (penalty is not None) == (model.config.dependencies == "global")
    if penalty is not None:
        e_BFD = model.embed(batch.inputs)
        r = e_BFD.transpose(1, 2) @ model.refinement.w0_FF
        loss = r.square().sum(dim=(1, 2)) / 4 / 2  # mu/(2 lambda) = 1/(2 m)
        torch.testing.assert_close(penalty, model.config.global_penalty * loss.mean())


def test_no_label_can_reach_the_inner_loop():
    for function in (
        Refinement.forward,
        Refinement.path,
        Refinement.__init__,
        refinement_module.ResidualProduct.__call__,
    ):
        names = inspect.signature(function).parameters
        assert not any(word in name for name in names for word in ("target", "label", "y_", "loss"))


def test_zero_steps_give_the_start():
    refinement = Refinement(5, n_inner_steps=0)
    torch.nn.init.normal_(refinement.weight)
    refined = refinement(torch.randn(3, 5, 4))
    expected = refinement.weight.detach().clone().fill_diagonal_(-1)
    for w_FF in refined.w_BFF:
        torch.testing.assert_close(w_FF.detach(), expected)
    torch.testing.assert_close(refined.mu_BF, torch.full((3, 5), 2.0))


@pytest.mark.parametrize("d_embed", [2, 12])
def test_dependency_loss_does_not_rise_for_a_small_step(d_embed):
    refinement = Refinement(6, n_inner_steps=8, inner_lr=0.01, sparsity=3.0)
    torch.nn.init.normal_(refinement.weight)
    e_BFD = torch.randn(50, 6, d_embed)
    losses = [state.loss_BF(3.0).sum(dim=1) for state in refinement.path(e_BFD)]
    for before, after in itertools.pairwise(losses):
        assert (after <= before + 1e-6).all()
    assert (losses[-1] < losses[0]).all()


@pytest.mark.parametrize("inner_lr", [0.1, 1.0, 1.9])
def test_scaled_steps_do_not_overshoot_whatever_the_size_of_the_embeddings(inner_lr):
    refinement = Refinement(6, n_inner_steps=8, inner_lr=inner_lr, sparsity=3.0, inner_step="scaled")
    torch.nn.init.normal_(refinement.weight)
    e_BFD = torch.randn(50, 6, 5)
    w_BFF = refinement(e_BFD).w_BFF
    for size in (1e-3, 30.0):
        path = list(refinement.path(size * e_BFD))
        residuals = [state.squared_residuals_BF for state in path]
        for before, after in itertools.pairwise(residuals):
            assert (after <= before * (1 + 1e-5)).all()
        torch.testing.assert_close(path[-1].w_BFF, w_BFF, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(
            residuals[0], ((size * e_BFD).transpose(1, 2) @ refinement.w0_FF).square().sum(dim=1), rtol=1e-4, atol=0
        )


@pytest.mark.parametrize("inner_lr", [0.1, 0.95])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_damped_steps_do_not_overshoot_and_move_small_rows_less(inner_lr, size):
    refinement = Refinement(6, n_inner_steps=8, inner_lr=inner_lr, sparsity=3.0, inner_step="damped")
    torch.nn.init.normal_(refinement.weight)
    e_BFD = size * torch.randn(50, 6, 5)
    refinement.track_norm(e_BFD)
    path = list(refinement.path(e_BFD))
    for before, after in itertools.pairwise(state.squared_residuals_BF for state in path):
        assert (after <= before * (1 + 1e-5)).all()
    moved_B, moved_less_B = (
        (refinement(rows).w_BFF - refinement.w0_FF).square().sum(dim=(1, 2)) for rows in (e_BFD, 0.1 * e_BFD)
    )
    assert (moved_less_B < 0.05 * moved_B).all()


def test_damped_steps_are_scaled_ones_where_no_row_was_seen_and_for_average_rows():
    damped = Refinement(6, n_inner_steps=3, inner_step="damped")
    scaled = Refinement(6, n_inner_steps=3, inner_step="scaled")
    e_BFD = torch.randn(1, 6, 5)
    for _ in range(2):
        torch.testing.assert_close(damped(e_BFD).w_BFF, scaled(e_BFD).w_BFF)
        damped.track_norm(e_BFD)


def test_the_norm_of_an_average_row_is_followed_in_training_only():
    norm, n_rows = Refinement(2, inner_step="damped"), 7
    rows = torch.randn(n_rows, 2, 3)
    norms = [float(torch.linalg.matrix_norm(e_FD @ e_FD.T)) for e_FD in rows]
    norm.track_norm(rows)
    assert float(norm.mean_norm) == pytest.approx(sum(norms) / n_rows, rel=1e-5)
    norm.track_norm(torch.zeros(3, 2, 3))
    assert float(norm.mean_norm) == pytest.approx(0.9 * sum(norms) / n_rows, rel=1e-5)
    layout = Layout(names=("a", "b"), n_ids=(5, 7))
    model = MDL(layout, 1, MDLConfig(d_embed=4, inner_step="damped", hidden=()))
    inputs = Inputs(torch.tensor([[0, 5], [3, 6]]), torch.empty(2, 0))
    model.eval().training_forward(inputs)
    model(inputs)
    assert float(model.refinement.mean_norm) == 0
    model.train().training_forward(inputs)
    assert float(model.refinement.mean_norm) > 0
    assert "refinement.mean_norm" in model.state_dict()
    fixed = MDL(layout, 1, MDLConfig(d_embed=4, inner_step="fixed"))
    fixed.train().training_forward(inputs)
    assert "refinement.mean_norm" not in fixed.state_dict()


def test_constraints_hold_after_every_step():
    refinement = Refinement(6, n_inner_steps=5, inner_lr=2.0, sparsity=3.0)
    for t, state in enumerate(refinement.path(torch.randn(20, 6, 4) * 0.3)):
        assert (torch.diagonal(state.w_BFF, dim1=1, dim2=2) == -1).all()
        assert (state.mu_BF >= 0).all(), t
        torch.testing.assert_close(state.mu_BF.sum(dim=1), torch.full((20,), 3.0))


def test_small_lambda_gives_sparse_weights():
    e_BFD = torch.randn(100, 6, 4)
    dense = Refinement(6, n_inner_steps=4, inner_lr=0.1, sparsity=100.0)(e_BFD).mu_BF / 100
    sparse = Refinement(6, n_inner_steps=4, inner_lr=0.1, sparsity=0.1)(e_BFD).mu_BF / 0.1
    assert sparse.std(dim=1).mean() > 5 * dense.std(dim=1).mean()
    assert (sparse == 0).float().mean() > 0.3


def test_one_field_is_refused():
    with pytest.raises(SchemaError, match="at least 2"):
        MDL(Layout(names=("a",), n_ids=(3,)), 1, MDLConfig(d_embed=2))


def test_numerical_field_scales_its_vector(layout):
    model = MDL(layout, 1, MDLConfig(d_embed=3))
    ids = torch.tensor([[0, 6, 16, 17]])
    one, two = (model.embed(Inputs(ids, torch.tensor([[number]]))) for number in (1.0, 2.0))
    torch.testing.assert_close(two[:, 2], 2 * one[:, 2])
    assert torch.equal(one[:, [0, 1, 3]], two[:, [0, 1, 3]])
