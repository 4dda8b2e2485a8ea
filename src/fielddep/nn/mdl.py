"""Meta-Dependency Learning: embed, refine the dependencies of the row, interact, predict.

Shape legend: B rows, F fields (m), N numerical fields, D embedding size (k), C outputs, Q dependency inputs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.errors import SchemaError
from fielddep.nn import kernels
from fielddep.nn.embedding import BatchRows, EmbeddingTable
from fielddep.nn.interactions import BilinearInteractions
from fielddep.nn.kernels.network_input import Lookup, look_up, network_input, sum_of_fields
from fielddep.nn.layers import Dropout, build_mlp
from fielddep.nn.model import FieldModel, require_size
from fielddep.nn.refinement import Dependencies, Refinement

MANY_COLUMNS = 10
"""Columns from which on the embeddings start smaller, so that training starts at the base rate."""
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
        self.related = RelatedColumns(layout)
        n_fields, n_columns = self.related.n_fields, len(self.related.names)
        if n_fields < 2:
            raise SchemaError(f"MDL relates fields to each other and needs at least 2; given {layout.names}")
        d_embed = require_size(config.d_embed)
        self.config = config
        self.embedding = EmbeddingTable(replace(layout, numerical=self.related.numerical), d_embed)
        # The sum of all products grows with the number of columns and the square of the embeddings.
        narrow = math.sqrt(min(1.0, MANY_COLUMNS / n_columns))
        self.embedding.init_weights(config.embedding_init, config.embedding_init_scale * narrow)
        self.embedding_dropout = Dropout(config.embedding_dropout)
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

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C) after T steps of refinement."""
        return self._logits(inputs)[0]

    def training_forward(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits, and zeta times the dependency loss if `dependencies = "global"`."""
        if self.training and self.refinement.mean_norm is not None:
            self._track_norm(inputs.take(slice(TRACKED_ROWS)))
        logits_BC, dependencies = self._logits(inputs)
        logits_BC = self._mixed(logits_BC, inputs)
        if self.config.dependencies != "global" or dependencies is None:
            return logits_BC, None
        loss_BF = dependencies.loss_BF(self.config.sparsity)
        return logits_BC, self.config.global_penalty * loss_BF.sum(dim=1).mean()

    @torch.no_grad()
    def _track_norm(self, inputs: Inputs) -> None:
        self.refinement.track_norm(self.fields_of(self.embedding(self.related.of(inputs))))

    @property
    def related_names(self) -> tuple[str, ...]:
        """Names of the fields that are related to each other: the columns of E and of W."""
        return self.related.names[: self.related.n_fields]

    def embed(self, inputs: Inputs) -> torch.Tensor:
        """Embedded related fields and crosses (B, F, D); the fields are the columns of E."""
        e_BFD: torch.Tensor = self.embedding_dropout(self.embedding(self.related.of(inputs)))
        return e_BFD

    def fields_of(self, e_BFD: torch.Tensor) -> torch.Tensor:
        """Embedded fields without the crosses, which take no part in the dependencies."""
        return e_BFD[:, : self.related.n_fields] if self.layout.crosses else e_BFD

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
        seen = self.related.of(inputs)
        rows = None if self.layout.is_plain else BatchRows.of(seen, self.related.offsets)
        embedding = self.embedding.weight if rows is None else rows.table(self.embedding.weight)
        lookup = self._look_up(seen, rows, len(embedding), self.related.numerical)
        seen_BE = network_input(
            lookup,
            embedding,
            self.interactions.phi_PDD,
            w0_FF,
            loop,
            with_embeddings=self.config.embedding_input,
        )
        logits_BC = self._network_logits(seen_BE)
        if self.first_order is not None:
            logits_BC = logits_BC + self._first_order(inputs, lookup, rows)
        return logits_BC

    def _first_order(self, inputs: Inputs, lookup: Lookup, rows: BatchRows | None) -> torch.Tensor:
        """Weights of all values of a row summed up; `lookup` and `rows` are those of the related columns."""
        assert self.first_order is not None
        if self.related.chosen:
            rows = None if self.layout.is_plain else BatchRows.of(inputs, self.layout.offsets)
        weight = self.first_order.weight if rows is None else rows.table(self.first_order.weight)
        if self.related.chosen:
            lookup = self._look_up(inputs, rows, len(weight), self.layout.numerical)
        return sum_of_fields(lookup, weight)

    def _look_up(self, inputs: Inputs, rows: BatchRows | None, n_ids: int, numerical: tuple[int, ...]) -> Lookup:
        ids_BF = inputs.ids_BF if rows is None else rows.place_BF
        return look_up(ids_BF, n_ids, inputs.numbers_BN.to(self.embedding.weight.dtype), numerical)

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


class RelatedColumns:
    """The columns of ids that MDL relates to each other: chosen fields, and all crosses.

    All others have a first-order weight and are seen by the direct networks.

    Attributes:
        chosen: whether some columns are left out.
        names: names of the columns.
        offsets: first joint id of each.
        numerical: positions of those given as `value x vector`.
        n_fields: how many are fields; crosses follow.
    """

    def __init__(self, layout: Layout) -> None:
        self.chosen = layout.related is not None
        fields = range(layout.n_fields) if layout.related is None else layout.related
        self._columns = [*fields, *range(layout.n_fields, layout.n_columns)]
        self._numbers = [n for n, f in enumerate(layout.numerical) if f in fields]
        self.names = tuple(layout.names[column] for column in self._columns)
        self.offsets = tuple(layout.offsets[column] for column in self._columns)
        self.numerical = tuple(self._columns.index(layout.numerical[n]) for n in self._numbers)
        self.n_fields = len(fields)

    def of(self, inputs: Inputs) -> Inputs:
        """The chosen columns of a batch."""
        if not self.chosen:
            return inputs
        ids_BF, numbers_BN = inputs.ids_BF[:, self._columns], inputs.numbers_BN[:, self._numbers]
        lists = (one for one in inputs.lists if one.column in self._columns)
        return Inputs(ids_BF, numbers_BN, tuple(one._replace(column=self._columns.index(one.column)) for one in lists))


def _dependency_inputs(n_fields: int, config: MDLConfig) -> torch.Tensor:
    """Flat positions in the m x m matrix that the network sees."""
    if config.dependencies == "none":
        return torch.empty(0, dtype=torch.int64)
    seen = [p for p in range(n_fields * n_fields) if config.dependency_diagonal or p % (n_fields + 1)]
    return torch.tensor(seen)
