"""FinalMLP (Mao 2023): two gated networks whose outputs meet in a bilinear form.

Shape legend: B rows (1 where all rows are alike), F fields, N numerical fields, C outputs, D embedding size, X fields
of a context, E inputs or outputs of a network, K heads, L and R widths of a head's left and right side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from fielddep.config.networks import FinalMLPConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import ConfigError
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import build_hidden, build_mlp
from fielddep.nn.model import FieldModel, require_size


class FieldGate(nn.Module):
    """Factors 2 * sigmoid(MLP(context)) of the embedded fields, between 0 and 2.

    The context is separate embeddings of the named fields, or one learned vector for all rows.

    Shape:
        inputs of B rows -> (B, F * D), or (1, F * D) without fields.
    """

    positions_X: torch.Tensor

    def __init__(self, layout: Layout, d_embed: int, context: Sequence[int], hidden: Sequence[int]) -> None:
        super().__init__()
        kept_I = np.zeros(layout.n_ids_total, dtype=np.bool_)
        for position in context:
            kept_I[layout.offsets[position] :][: layout.n_ids[position]] = True
        self.table = EmbeddingTable(layout, d_embed, kept_I=kept_I) if context else None
        self.vector_1D = None if context else nn.Parameter(torch.zeros(1, d_embed))
        self.register_buffer("positions_X", torch.tensor(context, dtype=torch.int64), persistent=False)
        d_context = max(len(context), 1) * d_embed
        self.mlp = build_mlp(d_context, hidden, layout.n_columns * d_embed, batch_norm="none")

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Factors of all inputs of a network."""
        context = self.vector_1D
        if self.table is not None:
            context = self.table(inputs).index_select(1, self.positions_X).flatten(1)
        return 2.0 * torch.sigmoid(self.mlp(context))


class BilinearFusion(nn.Module):
    """<w, x> + <v, y> + sum_k x_k^T W_k y_k, where x_k and y_k are equal slices of x and y, one per head.

    Shape:
        (B, K * L), (B, K * R) -> (B, C).
    """

    def __init__(self, d_left: int, d_right: int, n_heads: int, n_outputs: int) -> None:
        super().__init__()
        if d_left % n_heads or d_right % n_heads:
            raise ConfigError(
                f"model.n_heads must divide the last widths of both networks; given {n_heads} for {d_left} "
                f"(model.hidden) and {d_right} (model.hidden_2)"
            )
        self.n_heads, self.n_outputs = n_heads, n_outputs
        self.left = nn.Linear(d_left, n_outputs, bias=False)
        self.right = nn.Linear(d_right, n_outputs, bias=False)
        n_entries = d_left * d_right // n_heads
        self.weight_KLM = nn.Parameter(torch.empty(n_heads, d_left // n_heads, n_outputs * d_right // n_heads))
        nn.init.normal_(self.weight_KLM, std=math.sqrt(2.0 / (n_entries + n_outputs)))

    def forward(self, x_BE: torch.Tensor, y_BE: torch.Tensor) -> torch.Tensor:
        """Outputs for every class."""
        d_left, d_right = x_BE.shape[1] // self.n_heads, y_BE.shape[1] // self.n_heads
        x_KBL = x_BE.view(-1, self.n_heads, d_left).transpose(0, 1)
        y_KB1R = y_BE.view(-1, self.n_heads, d_right).transpose(0, 1).unsqueeze(2)
        mixed_KBCR = (x_KBL @ self.weight_KLM).view(self.n_heads, -1, self.n_outputs, d_right)
        products_BC = (mixed_KBCR * y_KB1R).sum(dim=(0, 3))
        linear_BC: torch.Tensor = self.left(x_BE) + self.right(y_BE)
        return linear_BC + products_BC


class FinalMLP(FieldModel):
    """h_s = MLP_s(gate_s * [e[c_1], ..., e[c_m]]) for s = 1, 2; y = b + the bilinear fusion of h_1 and h_2.

    There are no first-order weights. With several classes the fusion has as many outputs.
    """

    def __init__(self, layout: Layout, n_outputs: int, config: FinalMLPConfig) -> None:
        super().__init__(layout, n_outputs)
        d_embed = require_size(config.d_embed)
        d_in = layout.n_columns * d_embed
        self.embedding = EmbeddingTable(layout, d_embed, std=config.embedding_init_scale)
        contexts = [_positions(layout, path, getattr(config, path)) for path in ("context_1", "context_2")]
        gates = [FieldGate(layout, d_embed, context, config.gate_hidden) for context in contexts]
        for gate in gates:
            if gate.table is not None:
                gate.table.init_weights("normal", config.embedding_init_scale)
        self.gate_1, self.gate_2 = gates
        self.mlp_1, self.mlp_2 = (
            build_hidden(d_in, hidden, batch_norm=config.batch_norm, norm_last=True, dropout=config.dropout)
            for hidden in (config.hidden, config.hidden_2)
        )
        d_left, d_right = ((d_in, *hidden)[-1] for hidden in (config.hidden, config.hidden_2))
        self.fusion = BilinearFusion(d_left, d_right, config.n_heads, n_outputs)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        e_BE = self.embedding(inputs).flatten(1)
        h_1 = self.mlp_1(e_BE * self.gate_1(inputs))
        h_2 = self.mlp_2(e_BE * self.gate_2(inputs))
        fused_BC: torch.Tensor = self.fusion(h_1, h_2)
        return self.bias + fused_BC


def _positions(layout: Layout, key: str, names: Sequence[str]) -> list[int]:
    """Columns of ids of the fields of a context."""
    unknown = [name for name in names if name not in layout.names]
    if unknown:
        raise ConfigError(
            f"expected names of fields ({', '.join(layout.names)}) in model.{key}; given {unknown[0]!r}. Correct the "
            "name, or drop the setting for one learned vector"
        )
    return [layout.names.index(name) for name in names]
