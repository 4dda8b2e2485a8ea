"""The inner loop, compiled: sixteen rows side by side in vector registers.

The backward pass runs the steps again in cache instead of storing them.

Shape legend: B rows, F fields (m), D embedding size (k).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fielddep.nn.kernels import call, compiled


def refine(e_BFD: torch.Tensor, w0_FF: torch.Tensor, loop: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """W(T), mu(T) and the squared residuals of every row; `loop` is a `Refinement` of the compiled module."""
    refined: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Refine.apply(e_BFD, w0_FF, loop)  # type: ignore[no-untyped-call]
    return refined


class _Refine(Function):
    @staticmethod
    def forward(ctx: Any, e_BFD: torch.Tensor, w0_FF: torch.Tensor, loop: Any) -> Any:
        e_BFD, w0_FF = e_BFD.detach().contiguous(), w0_FF.detach().contiguous()
        n_rows, n_fields, _ = e_BFD.shape
        w_BFF, mu_BF = e_BFD.new_empty(n_rows, n_fields, n_fields), e_BFD.new_empty(n_rows, n_fields)
        squared_BF = torch.empty_like(mu_BF)
        ctx.module, ctx.loop = compiled(), loop
        call(ctx.module.refine, loop, torch.get_num_threads(), e_BFD, w0_FF, w_BFF, mu_BF, squared_BF)
        ctx.save_for_backward(e_BFD, w0_FF)
        ctx.set_materialize_grads(False)
        return w_BFF, mu_BF, squared_BF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        e_BFD, w0_FF = ctx.saved_tensors
        outputs = [None if g is None else g.contiguous() for g in gradients]
        d_e_BFD, d_w0_FF = torch.empty_like(e_BFD), torch.empty_like(w0_FF)
        call(ctx.module.back_refine, ctx.loop, torch.get_num_threads(), e_BFD, w0_FF, *outputs, d_e_BFD, d_w0_FF)
        return d_e_BFD, d_w0_FF, None
