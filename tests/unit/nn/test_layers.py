"""Small layers: embedding table, normalisation, network, link and registry."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fielddep.data.target import Target
from fielddep.errors import ConfigError
from fielddep.model_config import MDLConfig
from fielddep.models import build_model
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.link import predictions
from fielddep.nn.mdl import MDL
from fielddep.nn.mlp import build_mlp
from fielddep.nn.model import FieldModel
from fielddep.nn.norm import BatchNorm


def test_table_gradient_holds_only_the_ids_of_the_batch(layout):
    table = EmbeddingTable(layout, 3)
    ids = torch.tensor([[2, 7, 16, 18], [2, 8, 16, 18]])
    table(ids, torch.tensor([[2.0], [3.0]])).sum().backward()
    gradient = table.weight.grad.coalesce()
    assert gradient.indices()[0].tolist() == [2, 7, 8, 16, 18]
    assert gradient.values()[:, 0].tolist() == [2.0, 1.0, 1.0, 5.0, 2.0]  # the number's row gets 2 + 3


@pytest.mark.parametrize("how", ["xavier", "normal"])
def test_start_of_a_table(layout, how):
    table = EmbeddingTable(layout, 400)
    torch.manual_seed(0)
    table.init_weights(how, 0.5)
    bound = (6 / (layout.n_ids_total + 400)) ** 0.5
    expected = bound / 3**0.5 if how == "xavier" else 0.5
    assert float(table.weight.std()) == pytest.approx(expected, rel=0.05)
    if how == "xavier":
        assert float(table.weight.abs().max()) <= bound


def test_norm_equals_torchs_in_training():
    ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
    x = torch.randn(50, 4)
    torch.testing.assert_close(ours(x), theirs(x))


def test_running_statistics_average_the_first_batches_evenly():
    layer = BatchNorm(2)
    batches = [torch.randn(30, 2) * 1e-3 + i for i in range(4)]
    for batch in batches:
        layer(batch)
    expected = torch.stack([b.mean(dim=0) for b in batches]).mean(dim=0)
    torch.testing.assert_close(layer.running_mean, expected)
    assert int(layer.num_batches_tracked) == 4


def test_evaluation_is_right_after_one_batch():
    layer = BatchNorm(1)
    x = torch.randn(1000, 1) * 1e-2
    trained = layer(x)
    torch.testing.assert_close(layer.eval()(x), trained, atol=5e-3, rtol=1e-2)


@pytest.mark.parametrize(("batch_norm", "n_norms"), [("all", 2), ("hidden", 1), ("none", 0)])
def test_where_the_network_normalises(batch_norm, n_norms):
    network = build_mlp(5, (4, 3), 2, batch_norm=batch_norm, dropout=0.1)
    norms = [i for i, layer in enumerate(network) if isinstance(layer, BatchNorm)]
    assert len(norms) == n_norms
    assert (0 in norms) == (batch_norm == "all")
    assert network(torch.randn(6, 5)).shape == (6, 2)


def test_no_hidden_layer_is_a_linear_model():
    assert [type(layer) for layer in build_mlp(5, (), 1)] == [nn.Linear]


def test_link():
    logits = torch.tensor([[0.0], [2.0]])
    binary = predictions(logits, Target(name="y", task="binary", classes=("no", "yes")))
    np.testing.assert_allclose(binary[:, 1], [0.5, 1 / (1 + np.exp(-2))], rtol=1e-6)
    np.testing.assert_allclose(binary.sum(dim=1), 1.0)
    value = predictions(logits, Target(name="y", task="regression", mean=10.0, scale=4.0))
    assert value.tolist() == [10.0, 18.0]
    three = predictions(torch.zeros(1, 3), Target(name="y", task="multiclass", classes=("a", "b", "c")))
    np.testing.assert_allclose(three, 1 / 3, rtol=1e-6)


def test_same_seed_same_weights_and_the_callers_random_state_is_left_alone(layout):
    before = torch.get_rng_state()
    models = [build_model(layout, 1, MDLConfig(d_embed=3), seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    weights = [model.embedding.weight for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_model_must_say_how_it_predicts(layout):
    with pytest.raises(TypeError, match="abstract"):
        FieldModel(layout, 1)


def test_undecided_size_is_refused(layout):
    with pytest.raises(ConfigError, match="d_embed is not decided"):
        MDL(layout, 1, MDLConfig())


def test_crosses_are_no_fields_of_the_dependencies():
    from fielddep.data.batch import FieldLayout

    layout = FieldLayout(names=("a", "b", "a x b"), n_ids=(4, 4, 9), crosses=((0, 1),))
    model = MDL(layout, 1, MDLConfig(d_embed=2))
    assert model.refinement.w0_FF.shape == (2, 2)
    assert model.interactions.n_pairs == 3
    assert model.n_parameters == sum(p.numel() for p in model.parameters())
