"""Meta-Dependency Learning: embed, refine the dependencies of the row, interact, predict.

Shape legend: B rows, F fields (m), N numerical fields, D embedding size (k), C outputs, Q dependency inputs.
"""

from __future__ import annotations

import torch
from torch import nn

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import SchemaError
from fielddep.nn import kernels
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.interactions import BilinearInteractions
from fielddep.nn.kernels.network_input import look_up, network_input, sum_of_fields
from fielddep.nn.layers import build_mlp
from fielddep.nn.model import FieldModel, require_size
from fielddep.nn.refinement import Dependencies, Refinement

TRACKED_ROWS = 256
"""Rows of a training batch from which the average norm is estimated, for damped steps of refinement."""


class MDL(FieldModel):
    """The model of the paper. Every point in which paper and reference code differ is a setting of `MDLConfig`.

    Example:
        >>> layout = Layout(names=("user", "item", "hour"), n_ids=(5, 7, 26))
        >>> model = MDL(layout, 1, MDLConfig(d_embed=4))
        >>> model(Inputs(torch.tensor([[0, 5, 12], [3, 6, 20]]), torch.empty(2, 0))).shape
        torch.Size([2, 1])
    """

    dependency_inputs_Q: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: MDLConfig) -> None:
        super().__init__(layout, n_outputs)
        n_fields, n_columns = layout.n_fields, layout.n_columns
        if n_fields < 2:
            raise SchemaError(f"MDL relates fields to each other and needs at least 2; given {layout.names}")
        d_embed = require_size(config.d_embed)
        self.config = config
        self.embedding = EmbeddingTable(layout, d_embed)
        self.embedding.init_weights(config.embedding_init, config.embedding_init_scale)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.first_order = EmbeddingTable(layout, n_outputs) if config.first_order else None
        self.interactions = BilinearInteractions(n_columns, d_embed, init=config.interaction_init)
        refines = config.dependencies == "refined"
        self.refinement = Refinement(
            n_fields,
            n_inner_steps=config.n_inner_steps if refines else 0,
            inner_lr=config.inner_lr,
            inner_step=config.inner_step if refines else "fixed",  # without steps there is no norm to track
            sparsity=config.sparsity,
            mu_start=config.mu_start,
            mu_update_from=config.mu_update_from,
            residual_reduction=config.residual_reduction,
            init=config.dependency_init,
        )
        if config.dependencies == "none":
            self.refinement.requires_grad_(False)
        inputs = _dependency_inputs(n_fields, config)
        self.register_buffer("dependency_inputs_Q", inputs, persistent=False)
        self.mlp = build_mlp(
            self.interactions.n_pairs + len(inputs) + (n_columns * d_embed if config.embedding_input else 0),
            config.hidden,
            n_outputs,
            batch_norm=config.batch_norm,
            dropout=config.dropout,
        )

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C) after T steps of refinement."""
        return self._logits(inputs)[0]

    def training_forward(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits, and zeta times the dependency loss if `dependencies = "global"`."""
        if self.training and self.refinement.mean_norm is not None:
            self._track_norm(inputs.take(slice(TRACKED_ROWS)))
        logits_BC, dependencies = self._logits(inputs)
        if self.config.dependencies != "global" or dependencies is None:
            return logits_BC, None
        loss_BF = dependencies.loss_BF(self.config.sparsity)
        return logits_BC, self.config.global_penalty * loss_BF.sum(dim=1).mean()

    @torch.no_grad()
    def _track_norm(self, inputs: Inputs) -> None:
        self.refinement.track_norm(self.fields_of(self.embedding(inputs)))

    def embed(self, inputs: Inputs) -> torch.Tensor:
        """Embedded fields and crosses (B, F, D); the fields are the columns of E."""
        e_BFD: torch.Tensor = self.embedding_dropout(self.embedding(inputs))
        return e_BFD

    def fields_of(self, e_BFD: torch.Tensor) -> torch.Tensor:
        """Embedded fields without the crosses, which take no part in the dependencies."""
        return e_BFD[:, : self.layout.n_fields] if self.layout.crosses else e_BFD

    def _logits(self, inputs: Inputs) -> tuple[torch.Tensor, Dependencies | None]:
        if self._can_fuse(inputs):
            return self._fused_logits(inputs), None
        e_BFD = self.embed(inputs)
        seen = [self.interactions(e_BFD)]
        dependencies = None
        if self.config.dependencies != "none":
            dependencies = self.refinement(self.fields_of(e_BFD))
            seen.append(self._dependency_values(dependencies))
        if self.config.embedding_input:
            seen.append(e_BFD.flatten(1))
        logits_BC = self._network_logits(torch.cat(seen, dim=1))
        if self.first_order is not None:
            logits_BC = logits_BC + self.first_order(inputs).sum(dim=1)
        return logits_BC, dependencies

    def _network_logits(self, seen_BE: torch.Tensor) -> torch.Tensor:
        """Outputs of the network (B, C); the pair products are the first of its inputs."""
        logits_BC: torch.Tensor = self.mlp(seen_BE) + self.bias
        if self.config.product_output and self.n_outputs == 1:
            logits_BC = logits_BC + seen_BE[:, : self.interactions.n_pairs].sum(dim=1, keepdim=True)
        return logits_BC

    def _can_fuse(self, inputs: Inputs) -> bool:
        """Whether equal ids have equal embeddings, only logits are needed, and the kernels support the tensors."""
        dropping = self.training and self.config.embedding_dropout > 0
        needs_more = self.config.dependencies == "global" or inputs.numbers_BN.requires_grad
        weights = (self.embedding.weight, self.interactions.phi_PDD, self.refinement.weight)
        return not dropping and not needs_more and kernels.usable(inputs.ids_BF, *weights)

    def _fused_logits(self, inputs: Inputs) -> torch.Tensor:
        """The same numbers from the compiled kernels, which work once per distinct value.

        Only the weights of `embedding`, `interactions` and `refinement` are used; their `forward` is not called.
        """
        w0_FF = loop = None
        if self.config.dependencies == "refined":
            scale, diagonal = 1.0 / self._dependency_scale, self.config.dependency_diagonal
            d_embed = self.embedding.weight.shape[1]
            w0_FF = self.refinement.w0_FF
            loop = self.refinement.inner_loop(d_embed, value_scale=scale, with_diagonal=diagonal)
        numbers_BN = inputs.numbers_BN.to(self.embedding.weight.dtype)
        lookup = look_up(inputs.ids_BF, len(self.embedding.weight), numbers_BN, self.layout.numerical)
        seen_BE = network_input(
            lookup,
            self.embedding.weight,
            self.interactions.phi_PDD,
            w0_FF,
            loop,
            with_embeddings=self.config.embedding_input,
        )
        logits_BC = self._network_logits(seen_BE)
        if self.first_order is not None:
            logits_BC = logits_BC + sum_of_fields(lookup, self.first_order.weight)
        return logits_BC

    @property
    def _dependency_scale(self) -> float:
        return self.config.sparsity if self.config.dependency_scale == "normalized" else 1.0

    def dependency_values(self, inputs: Inputs) -> torch.Tensor:
        """Entries of mu/lambda * W after the last step (B, Q) that the network sees; see `dependency_inputs_Q`."""
        return self._dependency_values(self.refinement(self.fields_of(self.embed(inputs))))

    def _dependency_values(self, dependencies: Dependencies) -> torch.Tensor:
        """Entries of mu * W (B, Q) that the network sees."""
        weighted_BFF = dependencies.w_BFF * (dependencies.mu_BF / self._dependency_scale).unsqueeze(1)
        return weighted_BFF.flatten(1).index_select(1, self.dependency_inputs_Q)


def _dependency_inputs(n_fields: int, config: MDLConfig) -> torch.Tensor:
    """Flat positions in the m x m matrix that the network sees."""
    if config.dependencies == "none":
        return torch.empty(0, dtype=torch.int64)
    seen = [p for p in range(n_fields * n_fields) if config.dependency_diagonal or p % (n_fields + 1)]
    return torch.tensor(seen)
