"""NODE: layers of soft oblivious decision trees (Popov 2019).

Shape legend: B rows, F fields, N numerical fields, D embedding size, I inputs of a layer, T trees, L levels of a tree,
O outputs of a tree, U and V branches of the upper and the lower levels (U V = 2^L leaves), C outputs.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from fielddep.config.networks import NODEConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.model import FieldModel, require_size
from fielddep.nn.simplex import entmax15, entmoid15

THRESHOLD_ROWS = 2_048
"""Training rows that the thresholds start from."""
SMALLEST_WIDTH = 1e-3


class ObliviousTrees(nn.Module):
    """Trees whose splits of one level are the same in all branches.

    Level l of a tree looks at f = <entmax15(choice), x> and goes right by g = entmoid15((f - threshold) / width). The
    output is the sum over leaves of (product of the leaf's g or 1 - g) times the leaf's response.

    Shape:
        (I, B) -> (T, O, B).
    """

    def __init__(self, d_in: int, *, n_trees: int, depth: int, d_out: int) -> None:
        super().__init__()
        self.shape = (n_trees, depth)
        self.n_upper = depth // 2
        self.choice_TLI = nn.Parameter(torch.rand(n_trees, depth, d_in))
        self.threshold_TL = nn.Parameter(torch.zeros(n_trees, depth))
        self.log_width_TL = nn.Parameter(torch.zeros(n_trees, depth))
        self.response_TUOV = nn.Parameter(torch.randn(n_trees, 2**self.n_upper, d_out, 2 ** (depth - self.n_upper)))

    def forward(self, x_IB: torch.Tensor) -> torch.Tensor:
        """Outputs of every tree."""
        distance_TLB = self.features(x_IB) - self.threshold_TL.unsqueeze(-1)
        right_TLB = entmoid15(distance_TLB * torch.exp(-self.log_width_TL).unsqueeze(-1))
        # Leaves meet their responses in two halves: the (T, 2^L, B) weights of all leaves are never formed.
        upper_TUB, lower_TVB = _branches(right_TLB[:, : self.n_upper]), _branches(right_TLB[:, self.n_upper :])
        below_TUOB = (self.response_TUOV.flatten(1, 2) @ lower_TVB).view(*self.response_TUOV.shape[:3], -1)
        return (below_TUOB * upper_TUB.unsqueeze(2)).sum(dim=1)

    def features(self, x_IB: torch.Tensor) -> torch.Tensor:
        """What every level looks at (T, L, B)."""
        return (entmax15(self.choice_TLI).flatten(0, 1) @ x_IB).view(*self.shape, -1)

    @torch.no_grad()
    def start_from(self, x_IB: torch.Tensor) -> None:
        """Thresholds at the features of random rows, widths such that every row lies within the slope of its split."""
        f_TLB = self.features(x_IB)
        rows_TL1 = torch.randint(f_TLB.shape[-1], (*self.shape, 1), device=f_TLB.device)
        self.threshold_TL.copy_(f_TLB.gather(-1, rows_TL1).squeeze(-1))
        width_TL = (f_TLB - self.threshold_TL.unsqueeze(-1)).abs().amax(dim=-1)
        self.log_width_TL.copy_(width_TL.clamp(min=SMALLEST_WIDTH).log())


def _branches(right_TLB: torch.Tensor) -> torch.Tensor:
    """Weight of every branch of some levels (T, 2^L, B); the first level is the highest bit of a branch's number."""
    weight_TUB = right_TLB.new_ones((right_TLB.shape[0], 1, right_TLB.shape[2]))
    for right_TB in right_TLB.unbind(dim=1):
        sides_T2B = torch.stack([1 - right_TB, right_TB], dim=1)
        weight_TUB = (weight_TUB.unsqueeze(2) * sides_T2B.unsqueeze(1)).flatten(1, 2)
    return weight_TUB


class NODE(FieldModel):
    """Trees on the embeddings' numbers; every layer sees the outputs of those before it.

    y = b + the mean over layers of (sum of a layer's T trees) / sqrt(T). The authors use the mean of the trees: the
    same functions, but Adam, whose steps have the same size for all weights, would need sqrt(T) times as many to move
    the output. With several classes a tree has an output for each; `d_tree` - C further outputs go to later layers
    only, so the last layer has none. The trees need numbers: the authors encode a value by the targets of its rows,
    this model learns its embedding.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: NODEConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = require_size(config.d_embed)
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        d_in, layers = layout.n_columns * d_embed, []
        for number in range(1, config.n_layers + 1):
            d_out = n_outputs if number == config.n_layers else max(config.d_tree, n_outputs)
            layers.append(ObliviousTrees(d_in, n_trees=config.n_trees, depth=config.depth, d_out=d_out))
            d_in += config.n_trees * d_out
        self.layers = nn.ModuleList(layers)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        x_IB = self._embedded(inputs)
        outputs = []
        for layer in self.layers:
            y_TOB = layer(x_IB)
            outputs.append(y_TOB[:, : self.n_outputs].sum(dim=0) / math.sqrt(len(y_TOB)))
            x_IB = torch.cat([x_IB, y_TOB.flatten(0, 1)])
        return self.bias + torch.stack(outputs).mean(dim=0).T

    def _embedded(self, inputs: Inputs) -> torch.Tensor:
        e_BFD: torch.Tensor = self.embedding(inputs)
        return e_BFD.flatten(1).T

    @torch.no_grad()
    def start_from(self, inputs: Inputs) -> None:
        """Spread the thresholds of every layer over its inputs for some training rows."""
        x_IB = self._embedded(inputs.take(slice(THRESHOLD_ROWS)))
        for layer in self.layers:
            assert isinstance(layer, ObliviousTrees)
            layer.start_from(x_IB)
            x_IB = torch.cat([x_IB, layer(x_IB).flatten(0, 1)])
