"""The inner loop, compiled: sixteen rows side by side in vector registers.

The backward pass runs the steps again in cache instead of storing them.

Shape legend: B rows, F fields (m), D embedding size (k).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fielddep.nn.kernels import call, native


@dataclass(frozen=True, kw_only=True)
class InnerLoop:
    """Settings of the steps, named as in `nn.refinement`.

    Attributes:
        mean_norm: |S| of an average row, for damped steps; zero for others.
        value_scale: factor of mu * W in the network's input.
        with_diagonal: whether the network sees the diagonal.
    """

    n_fields: int
    d_embed: int
    n_steps: int
    inner_lr: float
    sparsity: float
    mu_start: float
    mu_from_old: bool
    mean_residuals: bool
    gram_form: bool
    unit_norm: bool
    mean_norm: float = 0.0
    value_scale: float = 1.0
    with_diagonal: bool = True

    def compiled(self) -> Any:
        """The same as an object of the compiled module."""
        module = native()
        assert module is not None
        return module.Refinement(
            n_fields=self.n_fields,
            d_embed=self.d_embed,
            n_steps=self.n_steps,
            w_rate=self.inner_lr / self.sparsity,
            mu_rate=self.inner_lr / 2 / (self.d_embed if self.mean_residuals else 1),
            total=self.sparsity,
            mu_start=self.mu_start,
            value_scale=self.value_scale,
            gram_form=self.gram_form,
            mu_from_old=self.mu_from_old,
            with_diagonal=self.with_diagonal,
            unit_norm=self.unit_norm,
            mean_norm=self.mean_norm,
        )


def refine(
    e_BFD: torch.Tensor, w0_FF: torch.Tensor, loop: InnerLoop
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """W(T), mu(T) and the squared residuals of every row."""
    refined: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Refine.apply(e_BFD, w0_FF, loop)  # type: ignore[no-untyped-call]
    return refined


class _Refine(Function):
    @staticmethod
    def forward(ctx: Any, e_BFD: torch.Tensor, w0_FF: torch.Tensor, loop: InnerLoop) -> Any:
        module = native()
        assert module is not None
        e_BFD, w0_FF = e_BFD.detach().contiguous(), w0_FF.detach().contiguous()
        n_rows, n_fields, _ = e_BFD.shape
        w_BFF, mu_BF = e_BFD.new_empty(n_rows, n_fields, n_fields), e_BFD.new_empty(n_rows, n_fields)
        squared_BF = torch.empty_like(mu_BF)
        ctx.module, ctx.settings = module, loop.compiled()
        call(module.refine, ctx.settings, torch.get_num_threads(), e_BFD, w0_FF, w_BFF, mu_BF, squared_BF)
        ctx.save_for_backward(e_BFD, w0_FF)
        ctx.set_materialize_grads(False)
        return w_BFF, mu_BF, squared_BF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        e_BFD, w0_FF = ctx.saved_tensors
        outputs = [None if g is None else g.contiguous() for g in gradients]
        d_e_BFD, d_w0_FF = torch.empty_like(e_BFD), torch.empty_like(w0_FF)
        call(ctx.module.back_refine, ctx.settings, torch.get_num_threads(), e_BFD, w0_FF, *outputs, d_e_BFD, d_w0_FF)
        return d_e_BFD, d_w0_FF, None
