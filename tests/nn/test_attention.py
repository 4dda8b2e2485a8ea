"""Layers of attention between fields and between rows; `tests/oracle` has their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fielddep.errors import ConfigError
from fielddep.nn.attention import Attention, AttentionLayer, RowAttentionLayer, start_at_nothing
from tests.helpers import raises


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(layer: nn.Module) -> nn.Module:
    """The layer in float64 with random weights everywhere, as some start at zero."""
    torch.manual_seed(0)
    for weight in layer.double().parameters():
        nn.init.normal_(weight, std=0.5)
    return layer


def row_layer(n_group: int = 4, dropout: float = 0.0) -> RowAttentionLayer:
    return shaken(RowAttentionLayer(6, 2, d_head=3, n_group=n_group, dropout=dropout))


def test_a_block_that_starts_at_nothing_changes_nothing():
    fields, between_rows = AttentionLayer(8, 2, dropout=0.0), RowAttentionLayer(6, 2, d_head=3, n_group=2, dropout=0.0)
    x_BSD, x_BW = torch.randn(3, 5, 8), torch.randn(4, 6)
    assert not torch.equal(fields(x_BSD), x_BSD)
    start_at_nothing(fields.attention, fields.feed_forward)
    assert torch.equal(fields(x_BSD), x_BSD)
    assert torch.equal(between_rows(x_BW), x_BW)


def test_the_order_of_tokens_does_not_matter():
    layer = shaken(AttentionLayer(8, 2, dropout=0.0))
    x_BSD = rows(3, 5, 8)
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(layer(x_BSD[:, order]), layer(x_BSD)[:, order])


def test_equal_keys_give_the_mean_of_the_values():
    attention = Attention(4, 1).double()
    with torch.no_grad():
        attention.inputs.weight.copy_(torch.cat([torch.zeros(8, 4), torch.eye(4)]))
        attention.output.weight.copy_(torch.eye(4))
        attention.output.bias.zero_()
    x_BSD = rows(2, 3, 4)
    torch.testing.assert_close(attention(x_BSD), x_BSD.mean(dim=1, keepdim=True).expand(-1, 3, -1))


def test_heads_must_divide_a_token_unless_their_size_is_given():
    with raises(ConfigError, "model.n_heads", 3, 8):
        Attention(8, 3)
    assert Attention(8, 3, d_head=5)(torch.zeros(1, 2, 8)).shape == (1, 2, 8)


@pytest.mark.parametrize(("n", "groups"), [(3, [3]), (7, [7]), (8, [4, 4]), (13, [5, 4, 4])])
def test_rows_see_their_group_and_no_other(n, groups):
    layer = row_layer()
    x_BW = rows(n, 6)
    apart = torch.cat([layer(part) for part in x_BW.split(groups)])
    torch.testing.assert_close(layer(x_BW), apart)
    moved = x_BW.clone()
    moved[0, 0] += 1.0
    changed = ((layer(moved) - layer(x_BW)).abs() > 1e-9).any(dim=1)
    assert changed.tolist() == [row < groups[0] for row in range(n)]


def test_a_row_sees_the_reference_rows_as_if_it_were_one_of_their_group():
    layer = row_layer(n_group=9)
    x_BW, reference_RW = rows(5, 6), rows(8, 6, seed=1)
    found = layer.towards(x_BW, reference_RW)
    for row in range(5):
        together = layer(torch.cat([reference_RW, x_BW[row : row + 1]]))
        torch.testing.assert_close(found[row], together[-1])


def test_attention_weights_are_dropped_in_training_only():
    layer = row_layer(dropout=0.5)
    x_BW = rows(8, 6)
    assert not torch.equal(layer(x_BW), layer(x_BW))
    layer.eval()
    assert torch.equal(layer(x_BW), layer(x_BW))
