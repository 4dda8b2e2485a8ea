"""The compiled network of the direct networks against its plain form, and its codes of numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn import kernels
from fielddep.nn.direct import DirectNetwork, NumberCodes
from fielddep.nn.kernels.gated_mlp import Weights, gated_mlp
from tests.nn.kernels.agreement import assert_agree

pytestmark = pytest.mark.skipif(kernels.native() is None, reason="no compiled kernels in this installation")

N_IDS = 6


def network(
    n_fields: int, n_measured: int, n_combinations: int, n_outputs: int, hidden: tuple[int, ...]
) -> DirectNetwork:
    """A network whose weights are all away from their start."""
    names = tuple(f"f{i}" for i in range(n_fields))
    evidence = tuple((k % n_fields,) for k in range(n_combinations))
    layout = Layout(
        names=names,
        n_ids=(N_IDS,) * n_fields,
        measured=tuple(range(n_measured)),
        evidence=evidence,
        evidence_width=n_outputs + 1,
    )
    torch.manual_seed(0)
    kind = "evidence" if n_combinations else "numbers"
    model = DirectNetwork(layout, n_outputs, MDLConfig(direct_hidden=hidden), kind)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model.start_from(inputs_of(model, 500))
    return model


def inputs_of(model: DirectNetwork, n_rows: int) -> Inputs:
    """Rows with some missing numbers and some that lie far outside."""
    generator = torch.Generator().manual_seed(n_rows)
    layout = model.layout
    ids_BF = torch.randint(0, N_IDS, (n_rows, layout.n_fields), generator=generator) + torch.tensor(layout.offsets)
    measures_BM = 3 * torch.randn(n_rows, len(layout.measured), generator=generator) ** 3
    measures_BM[torch.rand(measures_BM.shape, generator=generator) < 0.1] = torch.nan
    evidence_BE = torch.randn(n_rows, layout.n_statements, generator=generator).half()
    return Inputs(
        ids_BF,
        torch.empty(n_rows, 0),
        measures_BM=measures_BM if layout.measured else None,
        evidence_BE=evidence_BE if layout.evidence else None,
    )


def outputs_and_gradients(model: DirectNetwork, inputs: Inputs, kernel: kernels.Choice) -> dict[str, torch.Tensor]:
    model.zero_grad()
    with kernels.forced(kernel):
        logits_BC = model(inputs)
        (logits_BC * torch.linspace(0.5, 2.0, logits_BC.numel()).view_as(logits_BC)).sum().backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {"logits": logits_BC.detach(), **{n: g.to_dense() if g.is_sparse else g for n, g in found.items()}}


@settings(max_examples=25, deadline=None)
@given(
    n_rows=st.sampled_from((1, 2, 7, 64, 65, 200)),
    n_fields=st.integers(1, 5),
    n_measured=st.integers(0, 5),
    n_combinations=st.sampled_from((0, 1, 9)),
    n_outputs=st.sampled_from((1, 2, 9)),
    hidden=st.sampled_from(((), (8,), (40, 16), (128, 128, 128))),
)
def test_agrees_with_the_plain_form(n_rows, n_fields, n_measured, n_combinations, n_outputs, hidden):
    model = network(n_fields, min(n_measured, n_fields), n_combinations, n_outputs, hidden).eval()
    inputs = inputs_of(model, n_rows)
    found, expected = (outputs_and_gradients(model, inputs, kernel) for kernel in ("native", "plain"))
    assert_agree(found, expected, rounding=1e-4)


def test_sizes_that_the_kernel_cannot_have_take_the_plain_form():
    odd = network(3, 2, 0, 1, (7,)).eval()
    with kernels.forced("native"):
        assert odd(inputs_of(odd, 20)).shape == (20, 1)
    layers = [(torch.eye(8), torch.zeros(8)) for _ in range(18)]
    assert not Weights(gate_V=torch.ones(8), layers=layers, linear_CV=torch.zeros(1, 8)).fits


def test_a_row_has_the_same_bits_in_any_batch_and_with_any_number_of_threads():
    model = network(4, 3, 0, 1, (128, 64)).eval()
    inputs = inputs_of(model, 300)
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            torch.set_num_threads(1)
            together = model(inputs)
            torch.set_num_threads(2)
            assert torch.equal(model(inputs), together)
            for row in (0, 63, 64, 299):
                assert torch.equal(model(inputs.take(slice(row, row + 1))), together[row : row + 1])
    finally:
        torch.set_num_threads(before)


def test_dropout_keeps_the_mean_and_follows_the_random_state():
    """Some hidden entries are dropped, others scaled; the same random state drops the same ones."""
    known_BV = torch.ones(4000, 8)
    layers = [(torch.eye(8), torch.zeros(8)), (torch.full((1, 8), 0.125), torch.zeros(1))]
    weights = Weights(gate_V=torch.ones(8), layers=layers, linear_CV=torch.zeros(1, 8))
    torch.manual_seed(3)
    first = gated_mlp(known_BV, None, weights, 64)
    torch.manual_seed(3)
    assert torch.equal(gated_mlp(known_BV, None, weights, 64), first)
    assert not torch.equal(gated_mlp(known_BV, None, weights, 64), first)
    n_kept = first * 8 * 0.75
    assert torch.allclose(n_kept, n_kept.round(), atol=1e-5)
    assert float(first.mean()) == pytest.approx(1.0, abs=0.02)
    assert float(n_kept.mean()) == pytest.approx(6.0, abs=0.1)


def test_gradients_go_through_what_was_kept():
    """With dropout, the gradient of the inputs is that of the function that was drawn."""
    torch.manual_seed(0)
    e_BE = torch.rand(50, 8, requires_grad=True)
    layers = [(torch.eye(8), torch.zeros(8)), (torch.ones(1, 8), torch.zeros(1))]
    weights = Weights(gate_V=torch.ones(8), layers=layers, linear_CV=torch.zeros(1, 8))
    logits_BC = gated_mlp(torch.empty(50, 0), e_BE, weights, 128)
    logits_BC.sum().backward()
    assert torch.allclose((e_BE.grad * e_BE).sum(dim=1, keepdim=True), logits_BC, atol=1e-5)


def test_codes_agree_with_the_plain_form():
    torch.manual_seed(0)
    values = torch.cat([torch.randn(2000, 1) ** 3, torch.randint(0, 3, (2000, 1)).float()], dim=1)
    codes = NumberCodes(2)
    codes.learn(values)
    asked = torch.tensor([[-1e9, 0.0], [1e9, 1.0], [float("nan"), 2.0], [0.0, float("nan")], [0.37, 5.0]])
    with kernels.forced("native"):
        found = codes(asked)
    with kernels.forced("plain"):
        assert torch.allclose(found, codes(asked), rtol=1e-4, atol=1e-5)
