"""From ids to the network's input in one compiled step, and back to gradients that are summed per id.

Rows with equal ids have equal embeddings. So every pair matrix is applied once per distinct value of one of its
fields, and where both fields have few values, each product of two values is computed once.

Shape legend: B rows, F columns of ids (fields and crosses), m fields, N numerical fields, D embedding size (k),
P pairs, Q dependency inputs, U distinct ids of the batch, I joint ids, C outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.dlpack import from_dlpack

from fielddep.nn.kernels import call, compiled


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The distinct ids of a batch and where every row finds its own, with the numbers that scale some columns.

    Attributes:
        compiled: the look-up of the compiled module.
        numbers_BN: numbers of the numerical fields.
        numerical: their columns.
    """

    compiled: Any
    numbers_BN: torch.Tensor | None = None
    numerical: tuple[int, ...] = ()

    @property
    def ids_U(self) -> torch.Tensor:
        """Distinct ids, column after column, in the order of first appearance."""
        ids_U: torch.Tensor = from_dlpack(self.compiled.ids)
        return ids_U

    @property
    def counts_U(self) -> torch.Tensor:
        """Rows of each distinct id, float32."""
        counts_U: torch.Tensor = from_dlpack(self.compiled.counts)
        return counts_U

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The look-up as the compiled sums take it."""
        return self.compiled, self.numbers_BN, list(self.numerical), torch.get_num_threads()


def look_up(
    ids_BF: torch.Tensor, n_ids: int, numbers_BN: torch.Tensor | None = None, numerical: tuple[int, ...] = ()
) -> Lookup:
    """Find the distinct ids of a batch; a column's ids must not occur in another one.

    Raises:
        IndexError: for an id outside of 0 ... n_ids - 1.
    """
    found = call(compiled().Lookup, ids_BF.contiguous(), n_ids, torch.get_num_threads())
    numbers = numbers_BN.detach().contiguous() if numbers_BN is not None and numerical else None
    return Lookup(compiled=found, numbers_BN=numbers, numerical=numerical)


def network_input(
    lookup: Lookup,
    weight_ID: torch.Tensor,
    phi_PDD: torch.Tensor,
    w0_FF: torch.Tensor | None,
    loop: Any | None,
    *,
    with_embeddings: bool = False,
) -> torch.Tensor:
    """Pair products (P), weighted dependencies (Q) and, on request, embeddings (F * D) of every row, concatenated.

    The gradient of the table is sparse, with one entry per distinct id, in the order of `lookup.ids_U`. What the
    backward pass needs lives as long as the result, not only until `backward`: detach losses that you collect.
    """
    keep = torch.is_grad_enabled()
    inputs: torch.Tensor = _NetworkInput.apply(weight_ID, phi_PDD, w0_FF, lookup, loop, with_embeddings, keep)  # type: ignore[no-untyped-call]
    return inputs


def pair_products(e_BFD: torch.Tensor, phi_PDD: torch.Tensor) -> torch.Tensor:
    """Products (B, P) of all pairs of embeddings."""
    keep = torch.is_grad_enabled()
    products: torch.Tensor = _PairProducts.apply(e_BFD, phi_PDD, keep)  # type: ignore[no-untyped-call]
    return products


def sum_of_fields(lookup: Lookup, weight_IC: torch.Tensor) -> torch.Tensor:
    """Rows of a table summed over the columns of every row (B, C): the first-order term."""
    out_BC: torch.Tensor = _SumOfFields.apply(weight_IC, lookup)  # type: ignore[no-untyped-call]
    return out_BC


def dense_gradient(table_UD: torch.Tensor) -> torch.Tensor:
    """The same table; what computed it gets a dense gradient, where the functions above give a sparse one."""
    same: torch.Tensor = _DenseGradient.apply(table_UD)  # type: ignore[no-untyped-call]
    return same


class _DenseGradient(Function):
    @staticmethod
    def forward(ctx: Any, table_UD: torch.Tensor) -> torch.Tensor:
        return table_UD.view_as(table_UD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_table_UD: torch.Tensor) -> torch.Tensor:
        return d_table_UD.to_dense() if d_table_UD.is_sparse else d_table_UD


def _sparse(lookup: Lookup, d_values_UD: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    # Not marked as coalesced: the ids are distinct but not sorted, which adding two such gradients requires.
    return torch.sparse_coo_tensor(lookup.ids_U.unsqueeze(0), d_values_UD, shape, check_invariants=False)


class _NetworkInput(Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight_ID: torch.Tensor,
        phi_PDD: torch.Tensor,
        w0_FF: torch.Tensor | None,
        lookup: Lookup,
        loop: Any | None,
        with_embeddings: bool,
        keep: bool,
    ) -> torch.Tensor:
        table = weight_ID.detach().contiguous()
        phi = phi_PDD.detach().contiguous()
        w0 = None if w0_FF is None else w0_FF.detach().contiguous()
        batch = call(
            compiled().NetworkInput,
            lookup.compiled,
            table.shape[1],
            lookup.numbers_BN,
            list(lookup.numerical),
            loop,
            with_embeddings,
            keep,
            torch.get_num_threads(),
        )
        inputs = table.new_empty(lookup.compiled.n_rows, batch.width)
        call(batch.forward, table, phi, w0, inputs)
        if keep:
            ctx.batch, ctx.lookup, ctx.shape = batch, lookup, weight_ID.shape
            ctx.save_for_backward(phi, w0)
        return inputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_inputs: torch.Tensor) -> Any:
        phi, w0 = ctx.saved_tensors
        d_values_UD = phi.new_empty(len(ctx.lookup.ids_U), phi.shape[1])
        d_phi, d_w0 = torch.empty_like(phi), phi.new_empty(0, 0) if w0 is None else torch.empty_like(w0)
        call(ctx.batch.backward, w0, d_inputs.contiguous(), d_values_UD, d_phi, d_w0)
        d_table = _sparse(ctx.lookup, d_values_UD, ctx.shape)
        return d_table, d_phi, None if w0 is None else d_w0, None, None, None, None


class _PairProducts(Function):
    """The same machinery with a table that holds every embedding of the batch once."""

    @staticmethod
    def forward(ctx: Any, e_BFD: torch.Tensor, phi_PDD: torch.Tensor, keep: bool) -> torch.Tensor:
        n_rows, n_fields, d_embed = e_BFD.shape
        ids_BF = torch.arange(n_rows * n_fields, device=e_BFD.device).view(n_rows, n_fields)
        lookup = look_up(ids_BF, n_rows * n_fields)
        batch = compiled().NetworkInput(lookup.compiled, d_embed, None, [], None, False, keep, torch.get_num_threads())
        table, phi = e_BFD.detach().reshape(-1, d_embed).contiguous(), phi_PDD.detach().contiguous()
        products_BP = e_BFD.new_empty(n_rows, batch.width)
        call(batch.forward, table, phi, None, products_BP)
        if keep:
            ctx.batch, ctx.lookup, ctx.shape = batch, lookup, e_BFD.shape
            ctx.save_for_backward(phi)
        return products_BP

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_products_BP: torch.Tensor) -> Any:
        (phi,) = ctx.saved_tensors
        d_values_UD = phi.new_empty(len(ctx.lookup.ids_U), phi.shape[1])
        d_phi = torch.empty_like(phi)
        call(ctx.batch.backward, None, d_products_BP.contiguous(), d_values_UD, d_phi, phi.new_empty(0, 0))
        d_e = torch.empty_like(d_values_UD).index_copy_(0, ctx.lookup.ids_U, d_values_UD)
        return d_e.view(ctx.shape), d_phi, None


class _SumOfFields(Function):
    @staticmethod
    def forward(ctx: Any, weight_IC: torch.Tensor, lookup: Lookup) -> torch.Tensor:
        module = compiled()
        values_UC = weight_IC.detach()[lookup.ids_U]
        out_BC = values_UC.new_empty(lookup.compiled.n_rows, weight_IC.shape[1])
        call(module.sum_columns, *lookup.arguments, values_UC, out_BC)
        ctx.module, ctx.lookup, ctx.shape = module, lookup, weight_IC.shape
        return out_BC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out_BC: torch.Tensor) -> Any:
        lookup, d_out_BC = ctx.lookup, d_out_BC.contiguous()
        d_values_UC = d_out_BC.new_empty(len(lookup.ids_U), d_out_BC.shape[1])
        call(ctx.module.back_sum_columns, *lookup.arguments, d_out_BC, d_values_UC)
        return _sparse(lookup, d_values_UC, ctx.shape), None
