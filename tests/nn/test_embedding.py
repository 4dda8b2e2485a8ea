"""The joint table of the embeddings."""

from __future__ import annotations

import pytest
import torch

from fielddep.encoding.rows import Inputs
from fielddep.nn.embedding import EmbeddingTable


def test_table_gradient_holds_only_the_ids_of_the_batch(layout):
    table = EmbeddingTable(layout, 3)
    ids = torch.tensor([[2, 7, 16, 18], [2, 8, 16, 18]])
    table(Inputs(ids, torch.tensor([[2.0], [3.0]]))).sum().backward()
    gradient = table.weight.grad.coalesce()
    assert gradient.indices()[0].tolist() == [2, 7, 8, 16, 18]
    assert gradient.values()[:, 0].tolist() == [2.0, 1.0, 1.0, 5.0, 2.0]  # the number's row gets 2 + 3


@pytest.mark.parametrize("how", ["xavier", "normal"])
def test_start_of_a_table(layout, how):
    table = EmbeddingTable(layout, 400)
    torch.manual_seed(0)
    table.init_weights(how, 0.5)
    bound = (6 / (layout.n_ids_total + 400)) ** 0.5
    expected = bound / 3**0.5 if how == "xavier" else 0.5
    assert float(table.weight.std()) == pytest.approx(expected, rel=0.05)
    if how == "xavier":
        assert float(table.weight.abs().max()) <= bound
