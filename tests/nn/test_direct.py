from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn import build_model
from fielddep.nn.direct import MAX_INTERVALS, SHARE_SIZE, DirectNetwork, NumberCodes
from fielddep.nn.mdl import MDL


def learned_codes(values: torch.Tensor, n_measured: int = 1) -> NumberCodes:
    codes = NumberCodes(n_measured)
    codes.learn(values)
    return codes


def inputs_of(n_rows: int, n_fields: int, n_measured: int, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 4, (n_rows, n_fields), generator=generator) + 4 * torch.arange(n_fields)
    return Inputs(ids, torch.empty(n_rows, 0), (), torch.randn(n_rows, n_measured, generator=generator))


def layout_of(n_fields: int, n_measured: int) -> Layout:
    names = tuple(f"f{i}" for i in range(n_fields))
    return Layout(names=names, n_ids=(4,) * n_fields, measured=tuple(range(n_measured)))


def test_shares_rise_from_interval_to_interval() -> None:
    codes = learned_codes(torch.linspace(0, 100, 1001).unsqueeze(1))
    found = codes(torch.tensor([[-5.0], [50.0], [200.0]]))[:, 0]
    shares = found[:, :MAX_INTERVALS] / SHARE_SIZE
    assert shares[0].sum() == 0
    assert shares[2].sum() == pytest.approx((codes.low_MG < 1e9).sum().item())
    assert (shares[1].diff() <= 1e-6).all()
    full = (shares[1] == 1).sum().item()
    assert full == pytest.approx(shares.shape[1] / 2, abs=1.5)


def test_the_score_is_normal_whatever_the_distribution() -> None:
    values = torch.from_numpy(np.random.default_rng(0).lognormal(sigma=2, size=(20_000, 1)))
    score = learned_codes(values)(values.float())[:, 0, MAX_INTERVALS]
    assert score.mean().abs() < 0.1
    assert score.std() == pytest.approx(1.0, abs=0.15)


def test_a_missing_number_has_a_flag_and_zeros() -> None:
    codes = learned_codes(torch.randn(500, 1).double())
    found = codes(torch.tensor([[math.nan]]))[0, 0]
    assert found[-1] == 1
    assert (found[:-1] == 0).all()
    assert codes(torch.zeros(1, 1))[0, 0, -1] == 0


def test_frequent_numbers_bound_intervals() -> None:
    values = torch.cat([torch.zeros(900), torch.linspace(1, 100, 100)]).unsqueeze(1)
    found = learned_codes(values)(torch.tensor([[0.0], [1.0], [100.0]]))[:, 0, :MAX_INTERVALS].sum(dim=1)
    assert found[0] == 0
    assert 0 < found[1] < found[2]


@pytest.mark.parametrize("constant", [0.0, 7.0, math.nan])
def test_a_column_without_a_spread_is_harmless(constant: float) -> None:
    codes = learned_codes(torch.full((50, 1), constant))
    assert torch.isfinite(codes(torch.tensor([[constant], [1e6], [math.nan]]))).all()


def test_many_numbers_have_few_codes_each() -> None:
    assert NumberCodes(20).width == MAX_INTERVALS + 3
    assert NumberCodes(100).width == 4 + 3
    assert NumberCodes(300).width == 3


def test_mixed_outputs_add_up_and_training_is_for_the_model_itself_alone() -> None:
    layout, inputs = layout_of(3, 2), inputs_of(50, 3, 2)
    model = build_model(layout, 1, MDLConfig(d_embed=4))
    assert model.mix_P is not None
    model.start_at(torch.tensor([0.7]))
    network = model.direct["numbers"]
    network.start_from(inputs)
    model.mix_P.copy_(torch.tensor([0.0, 1.0]))
    alone = model.eval()(inputs)
    model.mix_P.copy_(torch.tensor([0.25, 0.5]))
    torch.testing.assert_close(model(inputs), 0.25 * network(inputs) + 0.5 * alone)
    model.train().training_forward(inputs)[0].sum().backward()
    assert not network.training
    assert all(weight.grad is None for weight in network.parameters())
    assert model.bias.grad is not None


def test_a_table_without_numbers_has_no_direct_network() -> None:
    assert not build_model(layout_of(3, 0), 1, MDLConfig(d_embed=4)).direct
    assert not build_model(layout_of(3, 2), 1, MDLConfig(d_embed=4, direct="none")).direct


def test_numbers_do_not_enter_the_dependencies() -> None:
    layout, inputs = layout_of(3, 2), inputs_of(20, 3, 2)
    model = MDL(layout, 1, MDLConfig(d_embed=4)).eval()
    assert inputs.measures_BM is not None
    changed = inputs._replace(measures_BM=inputs.measures_BM + 1)
    first, second = (model.refinement(model.fields_of(model.embed(given))) for given in (inputs, changed))
    torch.testing.assert_close(first.w_BFF, second.w_BFF, rtol=0, atol=0)
    torch.testing.assert_close(first.mu_BF, second.mu_BF, rtol=0, atol=0)


def test_gates_of_useless_fields_close() -> None:
    n_fields = 120
    layout = layout_of(n_fields, n_fields)
    network = DirectNetwork(layout, 1, MDLConfig(d_embed=4))
    before = network.gate.detach().clone()
    for step in range(1, 2_000):
        network.after_step(step)
    assert (network.gate.detach() < before).all()
    assert (network.gate.detach() == 0).all()


@pytest.mark.parametrize("n_fields", [2, 30, 500])
def test_training_starts_near_the_base_rate_however_many_fields_there_are(n_fields: int) -> None:
    related = None if n_fields <= 64 else tuple(range(64))
    names = tuple(f"f{i}" for i in range(n_fields))
    layout = Layout(names=names, n_ids=(4,) * n_fields, measured=tuple(range(n_fields)), related=related)
    model = build_model(layout, 1, MDLConfig(d_embed=16))
    torch.manual_seed(0)
    inputs = inputs_of(1_000, n_fields, n_fields)
    network = model.direct["numbers"]
    network.start_from(inputs)
    target = (torch.rand(1_000) < 0.5).float()
    for part in (model, network):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(part(inputs)[:, 0], target)
        assert loss.item() == pytest.approx(math.log(2), abs=0.05)


def test_related_columns_alone_enter_products_and_dependencies() -> None:
    layout = Layout(names=("a", "b", "c", "d"), n_ids=(4,) * 4, related=(1, 3))
    model = MDL(layout, 1, MDLConfig(d_embed=4)).eval()
    inputs = Inputs(inputs_of(30, 4, 1).ids_BF, torch.empty(30, 0))
    assert model.related_names == ("b", "d")
    assert model.interactions.n_pairs == 1
    assert model.refinement.w0_FF.shape == (2, 2)
    before = model(inputs)
    others = inputs.ids_BF.clone()
    others[:, 0] = 0
    torch.testing.assert_close(model(Inputs(others, inputs.numbers_BN)), before)
    with torch.no_grad():
        assert model.first_order is not None
        model.first_order.weight[0] = 1.0
    torch.testing.assert_close(model(Inputs(others, inputs.numbers_BN)), before + 1.0)
