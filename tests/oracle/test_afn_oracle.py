"""AFN against a row-by-row form of its formula, and its BatchNorms against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fielddep.config.networks import AFNConfig
from fielddep.encoding.rows import Inputs
from fielddep.nn.baselines.afn import AFN, SMALLEST
from tests.conftest import double, random_table
from tests.oracle.slow_forms import array, check_rows, looked_up, normalised, run_layers, shaken

CONFIG = AFNConfig(d_embed=3, n_neurons=5, hidden=(6,), batch_norm="all", embedding_init_scale=0.5)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_logits_row_by_row(layout, n_outputs):
    model = shaken(AFN(layout, n_outputs, CONFIG))
    with torch.no_grad():
        model.embedding.weight[::2] -= 2.0  # negative embeddings: the sign does not count
        model.embedding.weight[0] = -1.0  # an embedding of zero, which has no logarithm

    def expected(batch, row):
        e = [1.0 + vector for vector in looked_up(model.embedding, layout, batch, row)]
        weight, bias = array(model.neurons.weight), array(model.neurons.bias)
        products = []
        for d in range(3):
            logs = np.array([math.log(max(abs(vector[d]), SMALLEST)) for vector in e])
            logs = normalised(model.log_norm, logs)
            z = np.array([math.exp(bias[h] + sum(weight[h, i] * logs[i] for i in range(4))) for h in range(5)])
            products += normalised(model.product_norm, z).tolist()
        return array(model.bias) + run_layers(model.mlp, np.array(products))

    check_rows(model, expected)


def test_neurons_are_products_of_powers(layout):
    model = AFN(layout, 1, CONFIG).double().eval()
    with torch.no_grad():
        model.neurons.weight.copy_(
            torch.tensor([[1, 1, 0, 0], [0, 2, 0, 0], [0, 0, 1, -1], [0, 0, 0, 0], [1, 1, 1, 1]])
        )
    e_BFD = 0.1 + torch.rand(2, 4, 3, dtype=torch.float64)
    logs_RF = e_BFD.log().transpose(1, 2).flatten(0, 1)
    z_BDH = model.neurons(logs_RF).exp().view(2, 3, 5)
    a, b, c, d = e_BFD.unbind(dim=1)
    expected = torch.stack([a * b, b * b, c / d, torch.ones_like(a), a * b * c * d], dim=2)
    torch.testing.assert_close(z_BDH, expected)


def test_statistics_are_taken_over_rows_and_dimensions(layout):
    model = AFN(layout, 1, CONFIG).double().train()
    batch = random_table(layout, 50).batch(slice(None))
    model(double(batch.inputs))
    e_BFD = 1.0 + model.embedding(double(batch.inputs))
    logs_BFD = e_BFD.abs().clamp(min=SMALLEST).log()
    torch.testing.assert_close(model.log_norm.running_mean, logs_BFD.mean(dim=(0, 2)))
    torch.testing.assert_close(model.log_norm.running_var, logs_BFD.var(dim=(0, 2)))


def test_an_embedding_of_one_changes_no_product(layout):
    model = AFN(layout, 1, CONFIG).double().eval()
    with torch.no_grad():
        model.embedding.weight[:6] = 0.0
    ids_BF = torch.tensor([[0, 7, 15, 17], [3, 7, 15, 17]])
    inputs = Inputs(ids_BF, torch.ones(2, 1, dtype=torch.float64))
    with torch.no_grad():
        model.neurons.weight[:, 0] = 5.0
        strong = model(inputs)
        model.neurons.weight[:, 0] = 0.0
        without = model(inputs)
    torch.testing.assert_close(strong, without)
