"""Direct networks: see the numbers and the evidence of a row as they are.

Embeddings of bins lose what lies between two bins, products of embeddings are slow to learn a threshold, and neither
counts what joint values did before. So a model has up to two plain networks, which are trained first: they want another
optimizer and another number of passes than embeddings. The model itself is then trained on top of their frozen outputs.
Numbers enter MDL's dependencies and products only through the ids and embeddings of their fields, as in the paper, and
evidence does not enter them at all. The same holds for all other models, of which each stays what its paper says.

    numbers    sees numbers, and small embeddings of the other fields
    evidence   sees numbers and evidence. It has no weights per id: they would learn the total of a value, and total
               minus statement would give the row's own target away.

Shape legend: B rows, F columns of ids, M measured fields, G code intervals per measured field, K combinations, W inputs
per combination, E = K * W, V inputs, C outputs.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from fielddep.config.mdl import FieldModelConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn import kernels
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.kernels.gated_mlp import Weights, gated_mlp, number_codes
from fielddep.nn.layers import Dropout, build_mlp
from fielddep.nn.model import FieldModel
from fielddep.quantiles import quantile_edges

Floats = npt.NDArray[np.float64]
DirectKind = Literal["numbers", "evidence"]

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
"""Values of a field above which the direct network does not see its ids; the model itself does."""
GATE_RATE = 6.0
"""How much faster gates learn than other weights."""
GATE_SHRINK = 0.0036
"""What a step takes off every gate if there are `MANY_FIELDS`, and in proportion if there are fewer."""
INPUT_DROPOUT = 0.3
"""Dropout of the inputs with `MANY_FIELDS`; it falls to none at `FEW_FIELDS`, whose numbers must be exact."""
HIDDEN_DROPOUT = 0.1
N_DROPPED = Dropout(HIDDEN_DROPOUT).n_dropped
FEW_FIELDS, MANY_FIELDS = 20, 100
MIN_SPREAD, MAX_SPREADS = 1e-3, 10.0
"""Statements of smaller spread count as constant; larger ones are cut."""
MIN_COUNT_SPREAD = 0.5
"""The same for logarithms of rows; an unseen value would lie dozens of spreads away from equally frequent ones."""


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
        if kernels.usable(measures_BM, self.low_MG):
            return number_codes(
                measures_BM,
                (self.low_MG, self.width_MG, self.rank_MG, self.first_rank_M),
                with_shares=self.n_intervals > 0,
                share_size=SHARE_SIZE,
                soft_limit=SOFT_LIMIT,
            )
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
    """Ends of intervals of about equal mass, all of them among the numbers."""
    edges = np.unique(np.concatenate([distinct[[0, -1]], quantile_edges(distinct, counts, n_intervals)]))
    kept: Floats = edges[np.unique(np.linspace(0, len(edges) - 1, n_intervals + 1).round().astype(int))]
    return kept


class EvidenceCodes(nn.Module):
    """Statements of the evidence, standardised with the training rows.

    Shape:
        evidence (B, K * W) -> (B, K, W).
    """

    mean_E: torch.Tensor
    std_E: torch.Tensor

    def __init__(self, n_combinations: int, width: int) -> None:
        super().__init__()
        self.shape = (n_combinations, width)
        self.register_buffer("mean_E", torch.zeros(n_combinations * width))
        self.register_buffer("std_E", torch.ones(n_combinations * width))

    def learn(self, evidence_BE: torch.Tensor) -> None:
        """Learn mean and spread."""
        values_BE = evidence_BE.double()
        self.mean_E.copy_(values_BE.mean(dim=0))
        std_KW = values_BE.std(dim=0, correction=0).view(self.shape)
        std_KW[:, :-1].clamp_(min=MIN_SPREAD)
        std_KW[:, -1].clamp_(min=MIN_COUNT_SPREAD)
        self.std_E.copy_(std_KW.flatten())

    def forward(self, evidence_BE: torch.Tensor) -> torch.Tensor:
        """Statements of every combination."""
        standard_BE = (evidence_BE - self.mean_E) / self.std_E
        return standard_BE.clamp(-MAX_SPREADS, MAX_SPREADS).view(-1, *self.shape)


def _small_fields(layout: Layout) -> list[int]:
    """Positions of the fields whose ids the network sees; of a field with a number it sees that."""
    return [f for f in range(layout.n_fields) if f not in layout.measured and layout.n_ids[f] <= MAX_CATEGORIES]


class DirectNetwork(FieldModel):
    """A network on numbers, next to evidence or small embeddings of categories, with a linear way to the outputs.

    Every field and combination has a gate, and a step shrinks all gates a little: those that say nothing fall silent,
    which matters if there are hundreds.
    """

    gate_of_V: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: FieldModelConfig, kind: DirectKind = "numbers") -> None:
        super().__init__(layout, n_outputs)
        self.codes = NumberCodes(len(layout.measured))
        n_combinations = len(layout.evidence) if kind == "evidence" else 0
        self.evidence = EvidenceCodes(n_combinations, layout.evidence_width) if n_combinations else None
        fields = [] if kind == "evidence" else _small_fields(layout)
        kept_I = np.concatenate(layout.of_owners([np.full(n, f in fields) for f, n in enumerate(layout.n_ids)]))
        self.categories = fields
        self.embedding = EmbeddingTable(layout, D_CATEGORY, std=0.3, kept_I=kept_I) if fields else None
        n_gates = len(layout.measured) + n_combinations + len(fields)
        self.gate_shrink = GATE_SHRINK * min(n_gates / MANY_FIELDS, 1.0)
        self.gate = nn.Parameter(torch.full((n_gates,), 1.0 / GATE_RATE))
        # Combinations do not count: they were chosen, and dropping what they say costs accuracy.
        crowd = (layout.n_fields - FEW_FIELDS) / (MANY_FIELDS - FEW_FIELDS)
        self.dropout = Dropout(INPUT_DROPOUT * min(max(crowd, 0.0), 1.0))
        widths = [self.codes.width] * len(layout.measured) + [layout.evidence_width] * n_combinations
        widths += [D_CATEGORY] * len(fields)
        n_inputs = sum(widths)
        self.mlp = build_mlp(n_inputs, config.direct_hidden, n_outputs, batch_norm="none", dropout=HIDDEN_DROPOUT)
        self.linear = nn.Linear(n_inputs, n_outputs, bias=False)
        nn.init.zeros_(self.linear.weight)
        self.register_buffer("gate_of_V", torch.from_numpy(np.repeat(np.arange(n_gates), widths)), persistent=False)

    @property
    def _layers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(layer.weight, layer.bias) for layer in self.mlp if isinstance(layer, nn.Linear)]

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        known_BV, e_BE = self._seen(inputs)
        gate_V = GATE_RATE * self.gate.index_select(0, self.gate_of_V)
        weights = Weights(gate_V=gate_V, layers=self._layers, linear_CV=self.linear.weight)
        if weights.fits and kernels.usable(known_BV, gate_V):
            n_dropped = N_DROPPED if self.training else 0
            return gated_mlp(known_BV, e_BE, weights, n_dropped) + self.bias
        seen_BV = gate_V * (known_BV if e_BE is None else torch.cat([known_BV, e_BE], dim=1))
        logits_BC: torch.Tensor = self.mlp(seen_BV) + self.linear(seen_BV) + self.bias
        return logits_BC

    def _seen(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the network sees before the gates: numbers and evidence (B, V - E), and embeddings (B, E)."""
        known_BV = self.gate.new_empty(len(inputs.ids_BF), 0)
        if inputs.measures_BM is not None:
            known_BV = self.codes(inputs.measures_BM.to(self.gate.dtype)).flatten(1)
        if self.evidence is not None and inputs.evidence_BE is not None:
            evidence_BE = self.evidence(inputs.evidence_BE.to(self.gate.dtype)).flatten(1)
            known_BV = torch.cat([known_BV, evidence_BE], dim=1)
        e_BE = self.embedding(inputs)[:, self.categories].flatten(1) if self.embedding is not None else None
        return self.dropout(known_BV), None if e_BE is None else self.dropout(e_BE)

    def start_from(self, inputs: Inputs) -> None:
        """Learn the quantiles of the numbers and the spread of the evidence."""
        if inputs.measures_BM is not None:
            self.codes.learn(inputs.measures_BM)
        if self.evidence is not None and inputs.evidence_BE is not None:
            self.evidence.learn(inputs.evidence_BE)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Shrink the gates towards zero."""
        self.gate.copy_(F.softshrink(self.gate, self.gate_shrink / GATE_RATE))


def direct_networks(layout: Layout, n_outputs: int, config: FieldModelConfig) -> dict[str, DirectNetwork]:
    """The direct networks that settings and table call for, in the order of their training."""
    if config.direct == "none":
        return {}
    kinds: tuple[DirectKind, ...] = ("numbers",) if layout.measured else ()
    kinds = (*kinds, "evidence") if layout.evidence else kinds
    return {kind: DirectNetwork(layout, n_outputs, config, kind) for kind in kinds}
