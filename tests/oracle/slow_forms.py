"""What the slow forms of the deep models share: a row's vectors and layers in float64, without torch's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import brentq
from torch import nn

from fielddep.encoding.rows import Batch, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import BatchNorm, Dropout
from fielddep.nn.model import FieldModel
from tests.conftest import double, random_table


def shaken(model: FieldModel, seed: int = 0) -> FieldModel:
    """The model in float64 and evaluation mode, with random numbers wherever weights and statistics start constant."""
    generator = torch.Generator().manual_seed(seed)
    model.double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if float(weight.std(correction=0)) == 0.0:
                weight.copy_(torch.randn(weight.shape, generator=generator))
        for norm in (module for module in model.modules() if isinstance(module, BatchNorm)):
            assert norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.copy_(torch.randn(norm.running_mean.shape, generator=generator))
            norm.running_var.copy_(0.5 + torch.rand(norm.running_var.shape, generator=generator))
    return model


def check_rows(model: FieldModel, expected: Callable[[Batch, int], np.ndarray], n_rows: int = 5) -> None:
    """Compare the logits of random rows, the first of them with no known value, with their slow form."""
    batch = random_table(model.layout, n_rows).batch(slice(None))
    batch.inputs.ids_BF[0] = torch.tensor(model.layout.offsets)
    batch.inputs.ids_BF[1] = torch.tensor(model.layout.offsets) + 1
    found = model(double(batch.inputs)).detach().numpy()
    for row in range(n_rows):
        np.testing.assert_allclose(found[row], expected(batch, row), rtol=1e-9, atol=1e-10)


def looked_up(table: EmbeddingTable, layout: Layout, batch: Batch, row: int) -> list[np.ndarray]:
    """The row's vector of every field in a table that has a row for every id."""
    vectors = []
    for field, index in enumerate(batch.inputs.ids_BF[row].tolist()):
        factor = 1.0
        if field in layout.numerical:
            factor = float(batch.inputs.numbers_BN[row, layout.numerical.index(field)])
        vectors.append(array(table.weight)[index] * factor)
    return vectors


def run_layers(layers: nn.Sequential, x: np.ndarray) -> np.ndarray:
    """A network in evaluation mode, layer by layer."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            x = array(layer.weight) @ x + array(layer.bias)
        elif isinstance(layer, BatchNorm):
            x = normalised(layer, x)
        elif isinstance(layer, nn.ReLU):
            x = np.maximum(x, 0.0)
        else:
            assert isinstance(layer, Dropout)
    return x


def normalised(norm: BatchNorm, x: np.ndarray) -> np.ndarray:
    """BatchNorm by its running statistics."""
    assert norm.running_mean is not None and norm.running_var is not None
    spread = np.sqrt(array(norm.running_var) + norm.eps)
    return (x - array(norm.running_mean)) / spread * array(norm.weight) + array(norm.bias)


def softmax(x: np.ndarray) -> np.ndarray:
    """Shares in proportion to exp(x)."""
    return np.exp(x) / np.exp(x).sum()


def share(x: np.ndarray, power: float) -> np.ndarray:
    """Entmax of order 1 + 1/power by its definition: p_k = max(x_k / power - tau, 0)^power, tau found by bisection."""
    scaled = x / power
    tau = brentq(lambda t: (np.maximum(scaled - t, 0) ** power).sum() - 1, scaled.max() - 2, scaled.max(), xtol=1e-15)
    return np.maximum(scaled - tau, 0) ** power


def array(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor."""
    return tensor.detach().numpy()
