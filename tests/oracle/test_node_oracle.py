"""NODE against a form that visits every leaf of every tree, and its start from rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fielddep.config.networks import NODEConfig
from fielddep.encoding.rows import Layout
from fielddep.nn.baselines.node import NODE, ObliviousTrees
from tests.conftest import random_table
from tests.oracle.slow_forms import array, check_rows, looked_up, shaken, share


def slow_trees(layer: ObliviousTrees, x: np.ndarray) -> list[np.ndarray]:
    """Outputs of every tree of a layer for one row."""
    n_trees, depth = layer.shape
    outputs = []
    for t in range(n_trees):
        right = []
        for level in range(depth):
            feature = share(array(layer.choice_TLI)[t, level], 2.0) @ x
            width = np.exp(array(layer.log_width_TL)[t, level])
            distance = (feature - array(layer.threshold_TL)[t, level]) / width
            right.append(share(np.array([distance, 0.0]), 2.0)[0])
        total = 0.0
        for leaf in itertools.product((0, 1), repeat=depth):
            weight = np.prod([g if side else 1 - g for g, side in zip(right, leaf, strict=True)])
            number = int("".join(map(str, leaf)), 2)
            upper, lower = divmod(number, 2 ** (depth - layer.n_upper))
            total = total + weight * array(layer.response_TUOV)[t, upper, :, lower]
        outputs.append(total)
    return outputs


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("n_layers", "depth", "d_tree"), [(1, 1, 3), (1, 4, 1), (2, 3, 4), (3, 2, 2)])
def test_leaf_by_leaf(layout, n_outputs, n_layers, depth, d_tree):
    config = NODEConfig(d_embed=2, n_layers=n_layers, n_trees=3, depth=depth, d_tree=d_tree, embedding_init_scale=1.0)
    torch.manual_seed(0)
    model = NODE(layout, n_outputs, config)
    model.start_from(random_table(layout, 50).batch(slice(None)).inputs)
    shaken(model)

    def expected(batch, row):
        x = np.concatenate(looked_up(model.embedding, layout, batch, row))
        seen = []
        for layer in model.layers:
            trees = slow_trees(layer, x)
            seen.append(sum(tree[:n_outputs] for tree in trees) / np.sqrt(3))
            x = np.concatenate([x, *trees])
        return array(model.bias) + np.mean(seen, axis=0)

    check_rows(model, expected)


def test_outputs_of_the_last_layer_are_logits_only(layout):
    model = NODE(layout, 2, NODEConfig(d_embed=2, n_layers=2, n_trees=5, depth=2, d_tree=3))
    first, last = model.layers
    assert (first.response_TUOV.shape[2], last.response_TUOV.shape[2]) == (3, 2)
    assert last.choice_TLI.shape == (5, 2, 4 * 2 + 5 * 3)


def test_thresholds_come_from_rows_and_no_row_is_beyond_a_split():
    torch.manual_seed(0)
    layer = ObliviousTrees(6, n_trees=40, depth=3, d_out=1).double()
    x_IB = torch.randn(6, 30, dtype=torch.float64) * 5 + 3
    layer.start_from(x_IB)
    f_TLB = layer.features(x_IB)
    distance_TLB = f_TLB - layer.threshold_TL.unsqueeze(-1)
    assert (distance_TLB == 0).any(dim=-1).all()
    scaled_TLB = distance_TLB / layer.log_width_TL.exp().unsqueeze(-1)
    torch.testing.assert_close(scaled_TLB.abs().amax(dim=-1), torch.ones(40, 3, dtype=torch.float64))
    chosen = (distance_TLB == 0).double().argmax(dim=-1).flatten()
    assert len(chosen.unique()) > 20  # of 30 rows


def test_start_from_equal_rows_stays_finite():
    layout = Layout(names=("a", "b"), n_ids=(3, 3))
    model = NODE(layout, 1, NODEConfig(d_embed=2, n_trees=4, depth=2, n_layers=2))
    rows = random_table(layout, 1).batch(slice(None))
    model.start_from(rows.inputs)
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    assert torch.isfinite(model(rows.inputs)).all()
