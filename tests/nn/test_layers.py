"""Layers that several models share: normalisation and networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fielddep.encoding.rows import Batch, Inputs, Layout
from fielddep.nn.layers import BatchNorm, Dropout, GhostBatchNorm, build_mlp
from fielddep.nn.model import FieldModel
from fielddep.training.average import refresh_norm


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


# --- ghost batches ---


def some_rows(n: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) * 4 + 2


@pytest.mark.parametrize(("n", "parts"), [(4, [4]), (9, [9]), (10, [5, 5]), (17, [6, 6, 5]), (20, [5, 5, 5, 5])])
def test_every_part_is_normalised_by_itself(n, parts):
    layer = GhostBatchNorm(3, virtual_batch=5)
    x_BD = some_rows(n)
    expected = [
        (part - part.mean(dim=0)) / (part.var(dim=0, unbiased=False) + layer.eps).sqrt() for part in x_BD.split(parts)
    ]
    torch.testing.assert_close(layer(x_BD), torch.cat(expected))


def test_running_statistics_are_the_mean_over_the_first_parts():
    layer = GhostBatchNorm(3, virtual_batch=5)
    x_BD = some_rows(20)
    layer(x_BD)
    parts = x_BD.view(4, 5, 3)
    torch.testing.assert_close(layer.running_mean, parts.mean(dim=(0, 1)))
    torch.testing.assert_close(layer.running_var, parts.var(dim=1).mean(dim=0))


def test_evaluation_is_that_of_batch_norm():
    layer, plain = GhostBatchNorm(3, virtual_batch=5), BatchNorm(3)
    layer(some_rows(20))
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer.eval()(some_rows(3, seed=1)), plain.eval()(some_rows(3, seed=1)), rtol=0, atol=0)


def test_averaging_computes_its_statistics_again():
    class Model(FieldModel):
        def __init__(self) -> None:
            super().__init__(Layout(names=("a",), n_ids=(2,)), 1)
            self.norm = GhostBatchNorm(1, virtual_batch=2)

        def own_logits(self, inputs: Inputs) -> torch.Tensor:
            return self.norm(inputs.numbers_BN)

    model = Model()
    model.norm(torch.tensor([[100.0], [900.0]]))
    numbers = torch.tensor([[0.0], [2.0], [4.0], [8.0]])
    refresh_norm(model, [Batch(inputs=Inputs(torch.zeros(4, 1, dtype=torch.int64), numbers))])
    assert model.norm.running_mean.tolist() == [3.5]
    assert model.norm.running_var.tolist() == [5.0]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    torch.manual_seed(0)
    layer, x = Dropout(rate), torch.ones(1000, 333, requires_grad=True)
    dropped = layer(x)
    share = layer.n_dropped / 256
    assert share == pytest.approx(rate, abs=1 / 512)
    # Bytes of a random number are alike: in no column is the share another one.
    assert float((dropped == 0).float().mean()) == pytest.approx(share, abs=0.002)
    assert (dropped.reshape(-1)[: 333_000 // 8 * 8].view(-1, 8) == 0).float().mean(dim=0).tolist() == pytest.approx(
        [share] * 8, abs=0.01
    )
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.005)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, dropped.detach())


def test_dropout_follows_the_seed_and_rests_in_evaluation():
    layer, x = Dropout(0.25), torch.randn(7, 5, dtype=torch.float64)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first) and not torch.equal(layer(x), first)
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert bool(torch.isfinite(Dropout(0.9999)(x)).all())
