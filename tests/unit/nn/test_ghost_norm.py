"""Ghost BatchNorm: small parts in training, running statistics otherwise."""

from __future__ import annotations

import pytest
import torch

from fielddep.data.batch import Batch, FieldLayout
from fielddep.nn.ghost_norm import GhostBatchNorm
from fielddep.nn.model import FieldModel
from fielddep.nn.norm import BatchNorm
from fielddep.training.average import refresh_norm


def rows(n: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) * 4 + 2


@pytest.mark.parametrize(("n", "parts"), [(4, [4]), (9, [9]), (10, [5, 5]), (17, [6, 6, 5]), (20, [5, 5, 5, 5])])
def test_every_part_is_normalised_by_itself(n, parts):
    layer = GhostBatchNorm(3, virtual_batch=5)
    x_BD = rows(n)
    expected = [
        (part - part.mean(dim=0)) / (part.var(dim=0, unbiased=False) + layer.eps).sqrt() for part in x_BD.split(parts)
    ]
    torch.testing.assert_close(layer(x_BD), torch.cat(expected))


def test_running_statistics_are_the_mean_over_the_first_parts():
    layer = GhostBatchNorm(3, virtual_batch=5)
    x_BD = rows(20)
    layer(x_BD)
    parts = x_BD.view(4, 5, 3)
    torch.testing.assert_close(layer.running_mean, parts.mean(dim=(0, 1)))
    torch.testing.assert_close(layer.running_var, parts.var(dim=1).mean(dim=0))


def test_evaluation_is_that_of_batch_norm():
    layer, plain = GhostBatchNorm(3, virtual_batch=5), BatchNorm(3)
    layer(rows(20))
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer.eval()(rows(3, seed=1)), plain.eval()(rows(3, seed=1)), rtol=0, atol=0)


def test_averaging_takes_its_statistics_anew():
    class Model(FieldModel):
        def __init__(self) -> None:
            super().__init__(FieldLayout(names=("a",), n_ids=(2,)), 1)
            self.norm = GhostBatchNorm(1, virtual_batch=2)

        def forward(self, ids_BF: torch.Tensor, numbers_BN: torch.Tensor) -> torch.Tensor:
            return self.norm(numbers_BN)

    model = Model()
    model.norm(torch.tensor([[100.0], [900.0]]))
    numbers = torch.tensor([[0.0], [2.0], [4.0], [8.0]])
    refresh_norm(model, [Batch(ids_BF=torch.zeros(4, 1, dtype=torch.int64), numbers_BN=numbers)])
    assert model.norm.running_mean.tolist() == [3.5]
    assert model.norm.running_var.tolist() == [5.0]
