"""TabNet against a row-by-row form, and what its masks promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.networks import TabNetConfig
from fielddep.nn.baselines.tabnet import FeatureTransformer, TabNet
from tests.conftest import double, random_table
from tests.oracle.slow_forms import array, check_rows, looked_up, normalised, shaken, share

SIZES = {"d_embed": 2, "d_decision": 3, "d_attention": 4, "embedding_init_scale": 1.0}


def slow_transform(transformer: FeatureTransformer, shared: torch.nn.ModuleList, x: np.ndarray) -> np.ndarray:
    for number, layer in enumerate((*shared, *transformer.own)):
        value, gate = np.split(normalised(transformer.norms[number], array(layer.weight) @ x), 2)
        gated = value / (1 + np.exp(-gate))
        x = gated if number == 0 else (x + gated) * np.sqrt(0.5)
    return x


def slow_steps(model: TabNet, e: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits without the bias, and the masks, of one row."""
    config = model.config
    x = normalised(model.input_norm, np.concatenate(e))
    a = slow_transform(model.first, model.shared, x)[config.d_decision :]
    prior, total, masks = np.ones(len(e)), np.zeros(config.d_decision), []
    for (linear, norm), transformer in zip(model.choosers, model.transformers, strict=True):
        mask = share(normalised(norm, array(linear.weight) @ a) * prior, 1.0)
        prior = prior * (config.relaxation - mask)
        out = slow_transform(transformer, model.shared, x * np.repeat(mask, config.d_embed))
        total += np.maximum(out[: config.d_decision], 0)
        a = out[config.d_decision :]
        masks.append(mask)
    return array(model.output.weight) @ total, masks


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("n_steps", "relaxation"), [(1, 1.3), (3, 1.0), (4, 2.0)])
def test_row_by_row(layout, n_outputs, n_steps, relaxation):
    torch.manual_seed(0)
    model = shaken(TabNet(layout, n_outputs, TabNetConfig(**SIZES, n_steps=n_steps, relaxation=relaxation)))

    def expected(batch, row):
        return array(model.bias) + slow_steps(model, looked_up(model.embedding, layout, batch, row))[0]

    check_rows(model, expected)


def test_masks_sum_to_one_and_their_entropy_is_the_penalty(layout):
    torch.manual_seed(0)
    model = shaken(TabNet(layout, 1, TabNetConfig(**SIZES, n_steps=2, sparsity=0.5)))
    batch = random_table(layout, 7).batch(slice(None))
    inputs = double(batch.inputs)
    logits, masks = model.steps(inputs)
    entropy = []
    for row in range(7):
        slow = slow_steps(model, looked_up(model.embedding, layout, batch, row))[1]
        for step in range(2):
            mask = array(masks[step][row])
            np.testing.assert_allclose(mask, slow[step], atol=1e-10)
            assert mask.sum() == pytest.approx(1.0)
            entropy.append(-sum(p * np.log(p) for p in mask if p > 0))
    found, penalty = model.training_forward(inputs)
    assert torch.equal(found, logits)
    assert float(penalty.detach()) == pytest.approx(0.5 * np.mean(entropy))


def test_a_field_is_chosen_once_without_relaxation(layout):
    """With gamma = 1 a field that had a whole mask for itself has no prior left."""
    torch.manual_seed(0)
    model = TabNet(layout, 1, TabNetConfig(**SIZES, n_steps=2, relaxation=1.0)).eval()
    for linear, norm in model.choosers:
        torch.nn.init.zeros_(linear.weight)
        norm.bias.data = torch.tensor([9.0, 1.0, 1.0, 1.0])
    batch = random_table(layout, 3).batch(slice(None))
    _, (first, second) = model.steps(batch.inputs)
    assert first.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 3
    torch.testing.assert_close(second, torch.tensor([[0.0, 1 / 3, 1 / 3, 1 / 3]]).expand(3, -1))


def test_two_layers_of_all_steps_are_shared(layout):
    sizes = [
        sum(p.numel() for p in TabNet(layout, 1, TabNetConfig(**SIZES, n_steps=n)).parameters()) for n in (1, 2, 3)
    ]
    d_out, own = 7, 2
    a_step = own * d_out * 2 * d_out + 4 * 2 * (2 * d_out) + 4 * layout.n_columns + 2 * layout.n_columns
    assert [sizes[1] - sizes[0], sizes[2] - sizes[1]] == [a_step, a_step]
