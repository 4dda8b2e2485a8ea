from __future__ import annotations

import pytest
import torch

from fielddep.training.metrics import mean_loss
from fielddep.training.mixing import best_weights


def weights_of(
    first: torch.Tensor, second: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, task: str
) -> torch.Tensor:
    """The best weights of two outputs."""
    return best_weights(torch.stack([first, second]), torch.full((2,), 0.5).double(), target, weight, task)


def outputs(seed: int, n_rows: int = 4_000) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two noisy views of the log-odds, and targets drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(n_rows, 1, generator=generator, dtype=torch.float64)
    first, second = (truth + torch.randn(n_rows, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    target = (torch.rand(n_rows, generator=generator, dtype=torch.float64) < torch.sigmoid(truth[:, 0])).double()
    return first, second, target


def test_the_mix_is_better_than_either_part() -> None:
    first, second, target = outputs(0)
    weights = weights_of(first, second, target, None, "binary")
    mixed = mean_loss(weights[0] * first + weights[1] * second, target, None, "binary")
    assert (weights > 0.1).all()
    for alone in (first, second):
        assert mixed < mean_loss(alone, target, None, "binary")


def test_a_useless_part_has_no_weight_and_none_is_negative() -> None:
    first, _, target = outputs(1)
    noise = torch.randn_like(first)
    weights = weights_of(first, noise - first, target, None, "binary")
    assert weights[0] > 0.3
    assert 0 <= weights[1] < 0.1


def test_overconfident_outputs_are_scaled_down() -> None:
    first, second, target = outputs(2)
    weights = weights_of(5 * first, 5 * second, target, None, "binary")
    assert weights.sum() < 0.5


def test_regression_weights_are_those_of_least_squares() -> None:
    generator = torch.Generator().manual_seed(3)
    parts = torch.randn(5_000, 2, generator=generator, dtype=torch.float64)
    target = 0.3 * parts[:, 0] + 0.6 * parts[:, 1]
    weights = weights_of(parts[:, :1], parts[:, 1:], target, None, "regression")
    assert weights.tolist() == pytest.approx([0.3, 0.6], abs=0.01)


def test_weights_of_rows_count() -> None:
    first, second, target = outputs(4)
    wrong = 1.0 - target
    row_weights = torch.cat([torch.ones(len(target)), torch.zeros(len(target))]).double()
    doubled = weights_of(
        torch.cat([first, first]), torch.cat([second, second]), torch.cat([target, wrong]), row_weights, "binary"
    )
    assert doubled.tolist() == pytest.approx(weights_of(first, second, target, None, "binary").tolist(), abs=0.02)


def test_several_classes_share_the_weights() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(3_000, 4, generator=generator, dtype=torch.float64) * 2
    target = torch.distributions.Categorical(logits=logits).sample()
    weights = weights_of(logits, torch.zeros_like(logits), target, None, "multiclass")
    assert weights[0].item() == pytest.approx(1.0, abs=0.15)
