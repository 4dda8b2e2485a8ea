"""From ids to the network's input: the compiled form against the plain one, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fielddep.encoding.rows import Inputs
from fielddep.nn import kernels
from fielddep.nn.interactions import BilinearInteractions
from fielddep.nn.kernels.network_input import look_up, network_input, pair_products
from tests.helpers import raises
from tests.nn.kernels.agreement import Case, assert_agree, gradients

pytestmark = pytest.mark.skipif(kernels.native() is None, reason="no compiled kernels in this installation")

FRAPPE = (957, 4082, 7, 7, 3, 4, 2, 9, 80, 231)
VARIANTS = [
    {},
    {"dependencies": "none"},
    {"dependencies": "global", "global_penalty": 0.3},
    {"n_inner_steps": 0},
    {"mu_update_from": "old", "residual_reduction": "mean"},
    {"inner_step": "scaled"},
    {"inner_step": "damped"},
    {"mu_start": "one", "dependency_scale": "raw", "dependency_diagonal": True},
    {"embedding_input": True, "product_output": False, "first_order": False},
    {"batch_norm": "all", "hidden": (8,)},
]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n_fields = draw(st.integers(2, 9))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 7, 40, 1000]), min_size=n_fields, max_size=n_fields))
    numerical = tuple(sorted(draw(st.sets(st.integers(0, n_fields - 1), max_size=2))))
    sizes = [2 if f in numerical else size for f, size in enumerate(sizes)]
    n_crosses = draw(st.integers(0, 2))
    lists = tuple(f for f in sorted(draw(st.sets(st.integers(0, n_fields - 1), max_size=2))) if f not in numerical)
    shares = ()
    if draw(st.booleans()) and not {0, 1} & set(numerical):
        shares, sizes[0] = ((0, 1),), sizes[1]
    return Case(
        n_ids=tuple(sizes + [11] * n_crosses),
        d_embed=draw(st.sampled_from([1, 3, 8, 13, 20, 40])),
        n_rows=draw(st.sampled_from([1, 2, 5, 16, 63, 64, 65, 200])),
        numerical=numerical,
        crosses=((0, 1),) * n_crosses,
        lists=lists,
        shares=shares,
        settings=draw(st.sampled_from(VARIANTS)),
        seed=draw(st.integers(0, 5)),
    )


@settings(max_examples=60, deadline=None)
@given(cases())
def test_agrees_with_the_plain_form(case):
    # Batch norm divides by the spread of a column: where that is nothing but rounding, rounding is all it gives.
    assume("batch_norm" not in case.settings or (case.n_rows >= 16 and min(case.n_ids) >= 2))
    model, batch = case.model(), case.batch()
    assert_agree(gradients(model, batch, "native"), gradients(model, batch, "plain"))


@pytest.mark.parametrize("n_rows", [1, 7, 8, 100])
def test_predictions_agree(n_rows):
    """Without gradients a few rows take a way of their own."""
    case = Case(n_ids=FRAPPE, d_embed=13, n_rows=n_rows, settings={"embedding_input": True})
    model, batch = case.model().eval(), case.batch()
    found = []
    for kind in ("native", "plain"):
        with kernels.forced(kind), torch.no_grad():
            found.append({"logits": model(batch.inputs)})
    assert_agree(*found)


def test_no_rows_give_no_logits():
    case = Case(n_ids=(4, 5), d_embed=3, n_rows=0, settings={})
    model, batch = case.model(), case.batch()
    with kernels.forced("native"):
        logits_BC = model(batch.inputs)
        logits_BC.sum().backward()
    assert logits_BC.shape == (0, 1)


def test_numbers_may_ask_for_their_gradient():
    case = Case(n_ids=(4, 2, 9), d_embed=3, n_rows=20, numerical=(1,), settings={})
    model, batch = case.model(), case.batch()
    numbers_BN = batch.inputs.numbers_BN.clone().requires_grad_()
    with kernels.forced("native"):
        model(Inputs(batch.inputs.ids_BF, numbers_BN)).sum().backward()
    assert numbers_BN.grad is not None and numbers_BN.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "case",
    [
        Case(n_ids=FRAPPE, d_embed=40, n_rows=2048, settings={"sparsity": 2.0}),
        Case(n_ids=(10,) * 39, d_embed=8, n_rows=300, settings={}),
        Case(n_ids=(5000,) * 6, d_embed=120, n_rows=257, settings={}),
    ],
    ids=["frappe", "direct form", "no value twice"],
)
def test_agrees_on_large_shapes(case):
    model, batch = case.model(), case.batch()
    assert_agree(gradients(model, batch, "native"), gradients(model, batch, "plain"))


def test_agrees_for_several_classes():
    case = Case(n_ids=(9, 30, 4), d_embed=6, n_rows=50, settings={})
    model, batch = case.model(n_outputs=3), case.batch()
    outputs = []
    for kind in ("native", "plain"):
        model.zero_grad()
        with kernels.forced(kind):
            logits_BC = model(batch.inputs)
        logits_BC.square().sum().backward()
        outputs.append({n: w.grad.to_dense() for n, w in model.named_parameters()} | {"logits": logits_BC.detach()})
    assert_agree(*outputs)


def test_agrees_while_embeddings_are_dropped():
    """With dropout equal ids have different embeddings; the same random state drops the same ones."""
    case = Case(n_ids=(40, 300, 5), d_embed=8, n_rows=100, settings={"embedding_dropout": 0.5})
    model, batch = case.model(), case.batch()
    found = []
    for kind in ("native", "plain"):
        torch.manual_seed(3)
        found.append(gradients(model, batch, kind))
    assert_agree(*found)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads_change_rounding_only(n_threads):
    case = Case(n_ids=FRAPPE, d_embed=12, n_rows=500, settings={})
    model, batch = case.model(), case.batch()
    expected = gradients(model, batch, "plain")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(n_threads)
        first, second = gradients(model, batch, "native"), gradients(model, batch, "native")
    finally:
        torch.set_num_threads(before)
    assert_agree(first, expected)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), f"{name} differs between two runs"


def test_gradients_of_two_batches_add_up():
    case = Case(n_ids=(40, 300, 5), d_embed=8, n_rows=100, settings={})
    model = case.model()
    totals = []
    for kind in ("native", "plain"):
        model.zero_grad()
        with kernels.forced(kind):
            for seed in (1, 2):
                batch = case.batch(seed)
                model(batch.inputs).square().sum().backward()
        totals.append({n: w.grad.to_dense() for n, w in model.named_parameters()})
    assert_agree(*totals)


@pytest.mark.parametrize("place", ["embedding", "phi", "w0"])
def test_not_a_number_stays_visible(place):
    case = Case(n_ids=(4, 5, 6), d_embed=4, n_rows=40, settings={})
    model, batch = case.model(), case.batch()
    weights = {
        "embedding": model.embedding.weight,
        "phi": model.interactions.phi_PDD,
        "w0": model.refinement.weight,
    }
    with torch.no_grad():
        weights[place].view(-1)[1] = float("nan")
    with kernels.forced("native"), torch.no_grad():
        assert model(batch.inputs).isnan().any()


def test_products_of_given_embeddings():
    torch.manual_seed(0)
    layer = BilinearInteractions(7, 10)
    e_BFD = torch.randn(70, 7, 10, requires_grad=True)
    weight_BP = torch.randn(70, 21)
    found = []
    for kind in ("native", "plain"):
        e_BFD.grad = layer.phi_PDD.grad = None
        with kernels.forced(kind):
            products_BP = layer(e_BFD)
        (products_BP * weight_BP).sum().backward()
        found.append({"products": products_BP.detach(), "e": e_BFD.grad.clone(), "phi": layer.phi_PDD.grad.clone()})
    assert_agree(*found)


def test_products_of_embeddings_that_are_not_contiguous():
    layer = BilinearInteractions(3, 4)
    e_BFD = torch.randn(3, 9, 4).transpose(0, 1)
    with kernels.forced("plain"):
        expected = layer(e_BFD)
    torch.testing.assert_close(pair_products(e_BFD, layer.phi_PDD), expected)


def test_distinct_ids_and_how_often():
    ids_BF = torch.tensor([[4, 9], [2, 9], [4, 7]])
    lookup = look_up(ids_BF, 10)
    assert lookup.ids_U.tolist() == [4, 2, 9, 7]
    assert lookup.counts_U.tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize("bad", [-1, 10])
def test_an_id_outside_of_the_table_is_refused(bad):
    with raises(IndexError, 9, bad):
        look_up(torch.tensor([[0, 5], [bad, 6]]), 10)


def test_the_distinct_ids_outlive_what_found_them():
    ids_U = look_up(torch.arange(4000).view(1000, 4), 4000).ids_U
    junk = [look_up(torch.zeros(1000, 4, dtype=torch.int64), 1) for _ in range(20)]
    assert ids_U.sort().values.tolist() == list(range(4000))
    assert len(junk) == 20


def test_a_table_of_another_height_is_refused():
    case = Case(n_ids=(4, 5), d_embed=3, n_rows=6, settings={})
    model, batch = case.model(), case.batch()
    lookup = look_up(batch.inputs.ids_BF, 9)
    with pytest.raises(ValueError, match="a row for every id"):
        network_input(lookup, model.embedding.weight[:5], model.interactions.phi_PDD, None, None)
