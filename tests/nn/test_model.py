"""What every model shares: how it is built, and how its outputs become predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Layout
from fielddep.encoding.target import Target
from fielddep.errors import ConfigError
from fielddep.nn import build_model
from fielddep.nn.mdl import MDL
from fielddep.nn.model import FieldModel, predictions
from tests.helpers import raises


def test_values_far_from_zero_keep_their_differences():
    seconds = Target(name="y", task="regression", mean=1.7e9, scale=10.0)
    logits_BC = torch.tensor([[-1.0], [0.0], [0.25], [1.0]])
    values_B = predictions(logits_BC, seconds)
    assert values_B.dtype == torch.float64
    assert values_B.tolist() == [1.7e9 - 10, 1.7e9, 1.7e9 + 2.5, 1.7e9 + 10]


def test_probabilities_of_two_classes_sum_to_one():
    target = Target(name="y", task="binary", classes=("no", "yes"))
    assert predictions(torch.tensor([[0.0], [2.0]]), target).sum(dim=1).tolist() == [1.0, 1.0]


def test_predictions_of_every_task():
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


def test_a_size_that_is_not_set_is_refused(layout):
    with raises(ConfigError, "model.d_embed"):
        MDL(layout, 1, MDLConfig())


def test_crosses_take_no_part_in_the_dependencies():
    layout = Layout(names=("a", "b", "a x b"), n_ids=(4, 4, 9), crosses=((0, 1),))
    model = MDL(layout, 1, MDLConfig(d_embed=2))
    assert model.refinement.w0_FF.shape == (2, 2)
    assert model.interactions.n_pairs == 3
    assert model.n_parameters == sum(p.numel() for p in model.parameters())
