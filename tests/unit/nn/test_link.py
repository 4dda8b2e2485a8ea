"""From outputs to predictions: values keep the digits of the target's own unit."""

from __future__ import annotations

import torch

from fielddep.data.target import Target
from fielddep.nn.link import predictions


def test_values_far_from_zero_keep_their_differences():
    seconds = Target(name="y", task="regression", mean=1.7e9, scale=10.0)
    logits_BC = torch.tensor([[-1.0], [0.0], [0.25], [1.0]])
    values_B = predictions(logits_BC, seconds)
    assert values_B.dtype == torch.float64
    assert values_B.tolist() == [1.7e9 - 10, 1.7e9, 1.7e9 + 2.5, 1.7e9 + 10]


def test_probabilities_of_two_classes_sum_to_one():
    target = Target(name="y", task="binary", classes=("no", "yes"))
    assert predictions(torch.tensor([[0.0], [2.0]]), target).sum(dim=1).tolist() == [1.0, 1.0]
