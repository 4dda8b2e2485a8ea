"""Averaged weights."""

from __future__ import annotations

import pytest
import torch

from fielddep.config.mdl import MDLConfig
from fielddep.errors import SchemaError
from fielddep.nn.mdl import MDL
from fielddep.training.average import WeightAverage, refresh_norm
from fielddep.training.fit import fit
from fielddep.training.prepare import prepare
from tests.conftest import quick_config, random_table, small_frame
from tests.helpers import raises


def build(layout, batch_norm="none"):
    torch.manual_seed(0)
    return MDL(layout, 1, MDLConfig(d_embed=3, hidden=(4,), batch_norm=batch_norm))


def set_all(model, value):
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(value)


def test_mean_by_hand(layout):
    model, average = build(layout), WeightAverage(0.6)
    means = []
    for value in (1.0, 3.0, 8.0, 0.0):
        set_all(model, value)
        average.update(model)
        means.append(float(average.state()["bias"]))
    # Points weigh alike until 1/n falls below 1 - decay = 0.4, that is for the first two.
    expected = [1.0, 2.0, 0.6 * 2.0 + 0.4 * 8.0]
    expected.append(0.6 * expected[-1])
    assert means == pytest.approx(expected)


def test_weights_come_back_after_the_block(layout):
    model, average = build(layout, "all"), WeightAverage(0.5)
    table = random_table(layout, 40)
    average.update(model)
    set_all(model, 0.25)
    average.update(model)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with average.applied(model, [table.batch(slice(0, 20)), table.batch(slice(20, 40))]):
        assert not torch.equal(model.embedding.weight, before["embedding.weight"])
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_norm_statistics_are_those_of_the_batches(layout):
    model = build(layout, "all")
    batch = random_table(layout, 200).batch(slice(None))
    seen = []
    model.mlp[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    refresh_norm(model, [batch])
    torch.testing.assert_close(model.mlp[0].running_mean, seen[0].mean(dim=0))
    torch.testing.assert_close(model.mlp[0].running_var, seen[0].var(dim=0))
    assert not any(module.training for module in model.modules())


def test_state_round_trip(layout):
    model, first = build(layout), WeightAverage(0.7)
    for value in (1.0, 2.0):
        set_all(model, value)
        first.update(model)
    second = WeightAverage(0.7)
    second.load_state({name: value.clone() for name, value in first.state().items()}, torch.device("cpu"))
    set_all(model, 5.0)
    first.update(model)
    second.update(model)
    assert all(torch.equal(v, second.state()[k]) for k, v in first.state().items())


@pytest.mark.parametrize("batch_norm", ["none", "all"])
def test_kept_weights_are_those_evaluated(batch_norm):
    config = quick_config(train__average_decay=0.8, model__batch_norm=batch_norm, train__max_epochs=3)
    prepared = prepare(small_frame(), config)
    trained = fit(prepared)
    assert trained.metrics["validation"]["loss"] == pytest.approx(trained.validation["loss"], abs=1e-6)


def test_a_part_whose_weights_are_all_zero_is_refused():
    table = small_frame().with_columns(w=0.0)
    with raises(SchemaError, "weight 0"):
        prepare(table, quick_config(data__weight="w"))
