"""Wide & Deep, DeepFM, xDeepFM and IFM against row-by-row forms of their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.factorization import IFMConfig
from fielddep.config.networks import DeepFMConfig, WideDeepConfig, XDeepFMConfig
from fielddep.nn.baselines.deepfm import DeepFM
from fielddep.nn.baselines.ifm import IFM
from fielddep.nn.baselines.wide_deep import WideDeep
from fielddep.nn.baselines.xdeepfm import CompressedInteractions, XDeepFM
from tests.oracle.slow_forms import array, check_rows, looked_up, run_layers, shaken, softmax

pytestmark = pytest.mark.parametrize("n_outputs", [1, 3])
SIZES = {"d_embed": 3, "hidden": (7, 5), "embedding_init_scale": 0.5}


def test_wide_deep(layout, n_outputs):
    model = shaken(WideDeep(layout, n_outputs, WideDeepConfig(**SIZES, batch_norm="all")))

    def expected(batch, row):
        wide = sum(looked_up(model.first_order, layout, batch, row))
        e = looked_up(model.embedding, layout, batch, row)
        return array(model.bias) + wide + run_layers(model.mlp, np.concatenate(e))

    check_rows(model, expected)


def test_deepfm(layout, n_outputs):
    model = shaken(DeepFM(layout, n_outputs, DeepFMConfig(**SIZES)))

    def expected(batch, row):
        e = looked_up(model.embedding, layout, batch, row)
        weights = np.ones((1, 3)) if n_outputs == 1 else array(model.class_weights.weight)
        second = np.zeros(n_outputs)
        for c in range(n_outputs):
            for i in range(len(e)):
                for j in range(i + 1, len(e)):
                    second[c] += sum(weights[c, d] * e[i][d] * e[j][d] for d in range(3))
        first = sum(looked_up(model.first_order, layout, batch, row))
        return array(model.bias) + first + second + run_layers(model.mlp, np.concatenate(e))

    check_rows(model, expected)


@pytest.mark.parametrize("n_maps", [(4,), (4, 2), (3, 4, 2)])
def test_xdeepfm(layout, n_outputs, n_maps):
    model = shaken(XDeepFM(layout, n_outputs, XDeepFMConfig(**SIZES, n_maps=n_maps)))

    def expected(batch, row):
        e = looked_up(model.embedding, layout, batch, row)
        first = sum(looked_up(model.first_order, layout, batch, row))
        products = array(model.cin_output.weight) @ np.array(slow_cin(model.cin, e))
        return array(model.bias) + first + products + run_layers(model.mlp, np.concatenate(e))

    check_rows(model, expected)


def slow_cin(cin: CompressedInteractions, e: list[np.ndarray]) -> list[float]:
    """Sums of the feature maps of a row, entry by entry."""
    sums, maps = [], e
    for layer in cin.layers:
        weight = array(layer.weight).reshape(-1, len(maps), len(e))
        following = []
        for h in range(len(weight)):
            feature_map = np.zeros(len(e[0]))
            for i, before in enumerate(maps):
                for j, field in enumerate(e):
                    feature_map += weight[h, i, j] * before * field
            following.append(feature_map)
        maps = following
        sums += [float(feature_map.sum()) for feature_map in maps]
    return sums


def test_ifm(layout, n_outputs):
    model = shaken(IFM(layout, n_outputs, IFMConfig(**SIZES)))

    def expected(batch, row):
        e = looked_up(model.embedding, layout, batch, row)
        first = looked_up(model.first_order, layout, batch, row)
        factors = len(e) * softmax(run_layers(model.mlp, np.concatenate(e)))
        logits = array(model.bias) + sum(factor * w for factor, w in zip(factors, first, strict=True))
        for c in range(n_outputs):
            own = [factor * v[3 * c : 3 * c + 3] for factor, v in zip(factors, e, strict=True)]
            for i in range(len(e)):
                for j in range(i + 1, len(e)):
                    logits[c] += own[i] @ own[j]
        return logits

    check_rows(model, expected)


def test_factors_of_ifm_are_positive_and_one_on_average(layout, n_outputs):
    model = shaken(IFM(layout, n_outputs, IFMConfig(**SIZES)))
    factors_BF = model.factors(torch.randn(6, 4, 3 * n_outputs, dtype=torch.float64))
    assert (factors_BF > 0).all()
    torch.testing.assert_close(factors_BF.mean(dim=1), torch.ones(6, dtype=torch.float64))
    assert float(factors_BF.detach().std()) > 0.01
