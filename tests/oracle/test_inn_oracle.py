"""INN against a row-by-row form of its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.factorization import INNConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import SchemaError
from fielddep.nn.baselines.inn import INN
from tests.helpers import raises
from tests.oracle.slow_forms import array, check_rows, looked_up, run_layers, shaken, softmax

CONFIG = INNConfig(d_embed=3, d_attention=4, d_field=2, n_hidden=5, temperature=2.0, embedding_init_scale=0.8)
PAIRS = [(i, j) for i in range(4) for j in range(i + 1, 4)]


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_logits_row_by_row(layout, n_outputs):
    model = shaken(INN(layout, n_outputs, CONFIG))
    u, d = array(model.field_vectors_FG), array(model.prototype_GD)
    w, a, h = array(model.attention.weight), array(model.attention.bias), array(model.attention_output_A)

    def expected(batch, row):
        e = looked_up(model.embedding, layout, batch, row)
        products = [e[i] * e[j] for i, j in PAIRS]
        alpha = softmax(np.array([h @ np.maximum(w @ s / 2.0 + a, 0.0) for s in products]))
        z = []
        for p, (i, j) in enumerate(PAIRS):
            prototype = d.T @ (u[i] * u[j])
            z += (alpha[p] * products[p] * prototype).tolist()
        hidden = np.maximum(run_layers([model.hidden], np.array(z)), 0.0)
        first = sum(looked_up(model.first_order, layout, batch, row))
        return array(model.bias) + first + run_layers([model.output], hidden)

    check_rows(model, expected)


def test_attention_is_a_share_of_every_pair(layout):
    model = shaken(INN(layout, 1, CONFIG))
    alpha_BP = model.pair_weights(torch.randn(7, 6, 3, dtype=torch.float64))
    torch.testing.assert_close(alpha_BP.sum(dim=1), torch.ones(7, dtype=torch.float64))
    assert (alpha_BP > 0).all() and float(alpha_BP.detach().std()) > 0.01


def test_dropout_hits_pairs_when_training_only(layout):
    model = INN(layout, 1, INNConfig(d_embed=3, dropout=0.5))
    inputs = Inputs(torch.tensor([[0, 6, 15, 17]]), torch.ones(1, 1))
    torch.manual_seed(0)
    assert len({model.train()(inputs).item() for _ in range(5)}) > 1
    assert len({model.eval()(inputs).item() for _ in range(5)}) == 1


def test_one_field_is_refused():
    with raises(SchemaError, "at least 2", "'user'"):
        INN(Layout(names=("user",), n_ids=(5,)), 1, CONFIG)
