"""What the slow forms of the models share: a model with random weights in float64, and rows as lists of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fielddep.config.mdl import ModelConfig
from fielddep.encoding.rows import Batch, Layout
from fielddep.nn import build_model
from fielddep.nn.model import FieldModel
from tests.conftest import double, random_table


def random_model(layout: Layout, config: ModelConfig, n_outputs: int = 1) -> Any:
    """A model in float64 and evaluation mode whose weights are all random, those that start at zero too."""
    model = build_model(layout, n_outputs, config).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        for _, table in model.tables():
            if table.rows_I is not None:
                table.weight[0] = 0.0
    return model.eval()


def random_rows(layout: Layout, n_rows: int = 6) -> Batch:
    """Random rows with numbers in float64."""
    batch = random_table(layout, n_rows).batch(slice(None))
    return Batch(inputs=double(batch.inputs))


def values(layout: Layout, batch: Batch) -> Iterator[list[tuple[int, float]]]:
    """Row by row: the id of every field with its factor, which is 1 or the row's number."""
    for ids, numbers in zip(batch.inputs.ids_BF.tolist(), batch.inputs.numbers_BN.tolist(), strict=True):
        factor = dict(zip(layout.numerical, numbers, strict=True))
        yield [(c, factor.get(field, 1.0)) for field, c in enumerate(ids)]


def weights(table: Any) -> np.ndarray:
    """The rows of a table."""
    return table.weight.detach().numpy()


def check(model: FieldModel, batch: Batch, expected: list[list[float]]) -> None:
    """The model's logits are these."""
    found = model(batch.inputs).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
