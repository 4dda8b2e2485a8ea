"""SAINT: attention between the fields of a row, then between rows (Somepalli 2021).

Shape legend: B rows, F fields, N numerical fields, S = F + 1 tokens of a row, D size of a token, R reference rows,
C outputs.
"""

from __future__ import annotations

import torch
from torch import nn

from fielddep.config.networks import SAINTConfig
from fielddep.encoding.rows import Inputs, Layout, ListInput
from fielddep.nn.attention import AttentionLayer, RowAttentionLayer
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size


class SAINT(FieldModel):
    """y = b + MLP(first token after blocks of attention between tokens and between rows).

    A row is a learned first token and one token per field; with several classes the network has C outputs. In training
    the rows of a group of `n_reference` attend to each other. In prediction a row attends to itself and to
    `n_reference` training rows, kept with the weights, which attend to each other only. So a prediction does not depend
    on the other rows of its batch.
    """

    reference_ids_RF: torch.Tensor
    reference_numbers_RN: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: SAINTConfig) -> None:
        super().__init__(layout, n_outputs)
        d_token, n_tokens = require_size(config.d_embed), layout.n_columns + 1
        self.embedding = EmbeddingTable(layout, d_token, std=config.embedding_init_scale)
        self.column_SD = nn.Parameter(torch.randn(n_tokens, d_token) * config.embedding_init_scale)
        blocks = range(config.n_layers)
        self.between_fields = nn.ModuleList(
            AttentionLayer(d_token, config.n_heads, dropout=config.dropout) for _ in blocks
        )
        self.between_rows = nn.ModuleList(
            RowAttentionLayer(
                n_tokens * d_token,
                config.n_heads,
                d_head=config.d_row_head,
                n_group=config.n_reference,
                dropout=config.row_dropout,
            )
            for _ in (blocks if config.attention == "both" else ())
        )
        self.norm = nn.LayerNorm(d_token)
        self.mlp = build_mlp(d_token, config.hidden, n_outputs, batch_norm="none")
        # Until `start_from`, all values of the reference rows are missing.
        self.register_buffer("reference_ids_RF", torch.tensor(layout.offsets).repeat(config.n_reference, 1))
        self.register_buffer("reference_numbers_RN", torch.ones(config.n_reference, len(layout.numerical)))

    @torch.no_grad()
    def start_from(self, inputs: Inputs) -> None:
        """Keep the first training rows as reference rows, repeated where there are too few."""
        pick_R = torch.arange(len(self.reference_ids_RF), device=inputs.ids_BF.device) % len(inputs.ids_BF)
        self.reference_ids_RF.copy_(inputs.ids_BF[pick_R])
        for one in inputs.lists:  # of a list, a reference row keeps the first value
            self.reference_ids_RF[:, one.column] = one.ids_V[one.starts[pick_R]]
        self.reference_numbers_RN.copy_(inputs.numbers_BN[pick_R])

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        x_BSD = self._tokens(inputs)
        x_BSD = self._trained(x_BSD) if self.training or not self.between_rows else self._predicted(x_BSD)
        logits_BC: torch.Tensor = self.mlp(self.norm(x_BSD[:, 0]))
        return self.bias + logits_BC

    def _tokens(self, inputs: Inputs) -> torch.Tensor:
        e_BFD = self.embedding(inputs)
        return torch.cat([torch.zeros_like(e_BFD[:, :1]), e_BFD], dim=1) + self.column_SD

    def _trained(self, x_BSD: torch.Tensor) -> torch.Tensor:
        """Tokens after all blocks, where the rows of a group see each other."""
        for number, between_fields in enumerate(self.between_fields):
            x_BSD = between_fields(x_BSD)
            if self.between_rows:
                x_BSD = self.between_rows[number](x_BSD.flatten(1)).view_as(x_BSD)
        return x_BSD

    def _predicted(self, x_BSD: torch.Tensor) -> torch.Tensor:
        """Tokens after all blocks, where every row sees the reference rows."""
        reference_RSD = self._tokens(self._reference())
        for between_fields, between_rows in zip(self.between_fields, self.between_rows, strict=True):
            assert isinstance(between_rows, RowAttentionLayer)
            x_BSD, reference_RSD = between_fields(x_BSD), between_fields(reference_RSD)
            x_BSD = between_rows.towards(x_BSD.flatten(1), reference_RSD.flatten(1)).view_as(x_BSD)
            reference_RSD = between_rows(reference_RSD.flatten(1)).view_as(reference_RSD)
        return x_BSD

    def _reference(self) -> Inputs:
        lists = tuple(ListInput.single(f, self.reference_ids_RF[:, f]) for f in self.layout.lists)
        return Inputs(self.reference_ids_RF, self.reference_numbers_RN, lists)
