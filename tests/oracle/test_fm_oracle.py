"""LR, FM and FFM against their formulas, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.factorization import FFMConfig, FMConfig, LRConfig
from fielddep.encoding.rows import Layout
from tests.oracle.row_by_row import check, random_model, random_rows, values, weights


@pytest.fixture(params=[1, 3])
def n_outputs(request) -> int:
    return request.param


def linear(model, row, c) -> float:
    """Bias plus weights of class c."""
    first = weights(model.first_order)
    return float(model.bias[c].detach()) + sum(x * first[i, c] for i, x in row)


def pairs(row):
    return [(i, j) for i in range(len(row)) for j in range(i + 1, len(row))]


def test_lr(layout, n_outputs):
    model, batch = random_model(layout, LRConfig(), n_outputs), random_rows(layout)
    check(model, batch, [[linear(model, row, c) for c in range(n_outputs)] for row in values(layout, batch)])


def test_fm(layout, n_outputs):
    model, batch = random_model(layout, FMConfig(d_embed=3), n_outputs), random_rows(layout)
    table = weights(model.embedding)

    def logit(row, c):
        e = [x * table[i, 3 * c : 3 * c + 3] for i, x in row]
        return linear(model, row, c) + sum(e[i] @ e[j] for i, j in pairs(row))

    check(model, batch, [[logit(row, c) for c in range(n_outputs)] for row in values(layout, batch)])


@pytest.mark.parametrize("normalize", [False, True])
def test_ffm(layout, n_outputs, normalize):
    config = FFMConfig(d_embed=2, normalize=normalize)
    model, batch = random_model(layout, config, n_outputs), random_rows(layout)
    table = weights(model.embedding).reshape(-1, layout.n_columns - 1, n_outputs, 2)

    def embedding(row, field, other, c):
        others = [f for f in range(len(row)) if f != field]
        index, x = row[field]
        return x * table[index, others.index(other), c]

    def logit(row, c):
        products = sum(embedding(row, i, j, c) @ embedding(row, j, i, c) for i, j in pairs(row))
        length = np.sqrt(sum(x * x for _, x in row))
        return linear(model, row, c) + (products / length**2 if normalize else products)

    check(model, batch, [[logit(row, c) for c in range(n_outputs)] for row in values(layout, batch)])


def test_ffm_uses_every_embedding_once_a_pair(layout):
    model, batch = random_model(layout, FFMConfig(d_embed=2)), random_rows(layout, 1)
    model(batch.inputs).sum().backward()
    gradient = model.embedding.weight.grad.to_dense()
    looked_up = torch.zeros(len(gradient), dtype=torch.bool)
    looked_up[batch.inputs.ids_BF] = True
    assert (gradient[looked_up] != 0).all()
    assert (gradient[~looked_up] == 0).all()


@pytest.mark.parametrize("config", [FMConfig(d_embed=3), FFMConfig(d_embed=3), FFMConfig(d_embed=3, normalize=True)])
def test_one_field_alone_has_no_pairs(config):
    layout = Layout(names=("user",), n_ids=(5,))
    model, batch = random_model(layout, config), random_rows(layout)
    check(model, batch, [[linear(model, row, 0)] for row in values(layout, batch)])
