"""The direct network: sees the numbers of a row as they are, next to its frequent categories.

Embeddings of bins lose what lies between two bins, and products of embeddings are slow to learn a threshold. So MDL has
a second, plain network for tables with numbers. The two are trained apart, because they want different optimizers and
numbers of passes, and their outputs are added with weights from validation rows (`MDL.mix`). Numbers enter MDL's
dependencies and products only through the ids and embeddings of their fields, as in the paper.

Shape legend: B rows, F columns of ids, M measured fields, G code intervals per measured field, V inputs, C outputs.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel

Floats = npt.NDArray[np.float64]

MAX_INTERVALS = 24
MAX_CODES = 480
"""Intervals of one field, and of all fields together: with many fields, the codes of each must be few."""
MIN_INTERVALS = 4
"""With fewer intervals than these the shares say little, and the smooth codes alone do better."""
UNREACHED = 1e30
"""Start of an interval that does not exist; finite, because weights and buffers are averaged."""
SHARE_SIZE = 0.3
"""Size of the shares next to the two smooth codes, which come first in learning."""
SOFT_LIMIT = 3.0
"""A measure of this many units is squashed to about 0.7 of itself."""
D_CATEGORY = 8
MAX_CATEGORIES = 1000
"""Values of a field above which the direct network does not see its ids; the embeddings of MDL do."""
GATE_RATE = 6.0
"""How much faster gates learn than other weights."""
GATE_SHRINK = 0.0036
"""What a step takes off every gate if there are `MANY_FIELDS`, and in proportion if there are fewer."""
INPUT_DROPOUT = 0.3
"""Dropout of the inputs with `MANY_FIELDS`; it falls to none at `FEW_FIELDS`, whose numbers must be exact."""
FEW_FIELDS, MANY_FIELDS = 20, 100


class NumberCodes(nn.Module):
    """Codes of numbers: shares of intervals that lie below, the normal score of the rank, a squashed value, a flag.

    Quantiles of the training rows bound the intervals, so the shares are a piecewise-linear code. A missing number has
    zeros and the flag.

    Shape:
        measures (B, M) -> (B, M, G + 3).
    """

    low_MG: torch.Tensor
    width_MG: torch.Tensor
    rank_MG: torch.Tensor
    first_rank_M: torch.Tensor

    def __init__(self, n_measured: int) -> None:
        super().__init__()
        n_intervals = min(MAX_INTERVALS, MAX_CODES // max(n_measured, 1))
        self.n_intervals = n_intervals if n_intervals >= MIN_INTERVALS else 0
        # Ranks need some intervals even where the shares are no input.
        shape = (n_measured, self.n_intervals or MAX_INTERVALS)
        self.register_buffer("low_MG", torch.full(shape, UNREACHED))
        self.register_buffer("width_MG", torch.ones(shape))
        self.register_buffer("rank_MG", torch.zeros(shape))
        self.register_buffer("first_rank_M", torch.zeros(n_measured))

    @property
    def width(self) -> int:
        """Codes of a field."""
        return self.n_intervals + 3

    def learn(self, measures_BM: torch.Tensor) -> None:
        """Learn the quantiles of training rows."""
        for m, values in enumerate(measures_BM.double().cpu().numpy().T):
            distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
            if len(distinct) < 2:
                continue
            edges = _edges(distinct, counts, self.low_MG.shape[1])
            n = len(edges) - 1
            ends = np.cumsum(counts)
            ranks = ((ends - counts / 2) / ends[-1])[np.searchsorted(distinct, edges)]
            self.low_MG[m, :n] = torch.from_numpy(edges[:-1])
            self.width_MG[m, :n] = torch.from_numpy(np.diff(edges))
            self.rank_MG[m, :n] = torch.from_numpy(np.diff(ranks))
            self.first_rank_M[m] = float(ranks[0])

    def forward(self, measures_BM: torch.Tensor) -> torch.Tensor:
        """Codes of every field."""
        missing_BM = torch.isnan(measures_BM)
        known_BM = torch.nan_to_num(measures_BM)
        share_BMG = ((known_BM.unsqueeze(2) - self.low_MG) / self.width_MG).clamp(0.0, 1.0)
        rank_BM = (self.first_rank_M + (share_BMG * self.rank_MG).sum(dim=2)).clamp(1e-3, 1 - 1e-3)
        score_BM = math.sqrt(2.0) * torch.erfinv(2.0 * rank_BM - 1.0)
        squashed_BM = known_BM / torch.sqrt(1.0 + (known_BM / SOFT_LIMIT).square())
        codes = [score_BM.unsqueeze(2), squashed_BM.unsqueeze(2)]
        if self.n_intervals:
            codes.insert(0, SHARE_SIZE * share_BMG)
        known_codes = torch.cat(codes, dim=2).masked_fill(missing_BM.unsqueeze(2), 0.0)
        return torch.cat([known_codes, missing_BM.unsqueeze(2).to(known_codes.dtype)], dim=2)


def _edges(distinct: Floats, counts: npt.NDArray[np.int64], n_intervals: int) -> Floats:
    """Ends of intervals of about equal mass, all of them among the numbers; frequent numbers are ends."""
    heavy = counts * n_intervals >= counts.sum()
    light, ends = distinct[~heavy], np.cumsum(counts[~heavy])
    n_light = max(n_intervals - 1 - int(heavy.sum()), 1)
    if len(light):
        light = light[np.searchsorted(ends, np.arange(1, n_light) * int(ends[-1]) // n_light, side="right")]
    edges = np.unique(np.concatenate([distinct[heavy], light, distinct[[0, -1]]]))
    kept: Floats = edges[np.unique(np.linspace(0, len(edges) - 1, n_intervals + 1).round().astype(int))]
    return kept


class DirectNetwork(FieldModel):
    """A network on codes of numbers and small embeddings of categories, with a linear way to the outputs.

    Every field has a gate, and a step shrinks all gates a little: fields that say nothing fall silent, which matters
    if there are hundreds.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: MDLConfig) -> None:
        super().__init__(layout, n_outputs)
        self.codes = NumberCodes(len(layout.measured))
        fields = [f for f in range(layout.n_fields) if f not in layout.binned and layout.n_ids[f] <= MAX_CATEGORIES]
        kept_I = np.concatenate(layout.of_owners([np.full(n, f in fields) for f, n in enumerate(layout.n_ids)]))
        self.categories = fields
        self.embedding = EmbeddingTable(layout, D_CATEGORY, std=0.3, kept_I=kept_I) if fields else None
        n_fields = len(layout.measured) + len(fields)
        self.gate_shrink = GATE_SHRINK * min(n_fields / MANY_FIELDS, 1.0)
        self.gate = nn.Parameter(torch.full((n_fields,), 1.0 / GATE_RATE))
        crowd = (n_fields - FEW_FIELDS) / (MANY_FIELDS - FEW_FIELDS)
        self.dropout = nn.Dropout(INPUT_DROPOUT * min(max(crowd, 0.0), 1.0))
        n_inputs = len(layout.measured) * self.codes.width + len(fields) * D_CATEGORY
        self.mlp = build_mlp(n_inputs, config.direct_hidden, n_outputs, batch_norm="none", dropout=0.1)
        self.linear = nn.Linear(n_inputs, n_outputs, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        seen_BV = self.dropout(self._seen(inputs))
        logits_BC: torch.Tensor = self.mlp(seen_BV) + self.linear(seen_BV) + self.bias
        return logits_BC

    def _seen(self, inputs: Inputs) -> torch.Tensor:
        """What the network sees (B, V), each field times its gate."""
        gate_N = GATE_RATE * self.gate
        n_measured = len(self.layout.measured)
        seen = []
        if inputs.measures_BM is not None:
            codes_BMG = self.codes(inputs.measures_BM.to(gate_N.dtype))
            seen.append((codes_BMG * gate_N[:n_measured].unsqueeze(1)).flatten(1))
        if self.embedding is not None:
            e_BFD = self.embedding(inputs)[:, self.categories]
            seen.append((e_BFD * gate_N[n_measured:].unsqueeze(1)).flatten(1))
        return torch.cat(seen, dim=1)

    def start_from(self, inputs: Inputs) -> None:
        """Learn the quantiles of the numbers."""
        if inputs.measures_BM is not None:
            self.codes.learn(inputs.measures_BM)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Shrink the gates towards zero."""
        self.gate.copy_(F.softshrink(self.gate, self.gate_shrink / GATE_RATE))
