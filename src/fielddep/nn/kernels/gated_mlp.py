"""A ReLU network on gated inputs with a linear way past it, and codes of numbers, compiled: see `nn/direct.py`.

A training step of such a network is many small operations; called one by one, they take three times as long as the
arithmetic. Dropout draws from a generator of the kernel's own, whose seed comes from torch's random state.

Shape legend: B rows, V inputs, E inputs with a gradient, H hidden entries, C outputs, M measured fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fielddep.nn.kernels import call, compiled

MAX_LAYERS = 16
WIDTH_STEP = 8
"""Widths of hidden layers, and the inputs with a gradient, must be multiples of this."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of a network: those of every layer, of the linear way, and a gate for every input."""

    gate_V: torch.Tensor
    layers: Sequence[tuple[torch.Tensor, torch.Tensor]]
    linear_CV: torch.Tensor

    @property
    def fits(self) -> bool:
        """Whether the kernel can have these sizes."""
        hidden = [len(bias) for _, bias in self.layers[:-1]]
        return len(hidden) <= MAX_LAYERS and all(width % WIDTH_STEP == 0 for width in hidden)


def gated_mlp(known_BV: torch.Tensor, e_BE: torch.Tensor | None, weights: Weights, n_dropped: int) -> torch.Tensor:
    """Logits (B, C) of inputs without and with a gradient, in this order; the gates cover both.

    Args:
        known_BV: inputs without a gradient.
        e_BE: further inputs, with a gradient.
        weights: of the network.
        n_dropped: of 256, how many hidden entries are set to zero.
    """
    tensors = [tensor for layer in weights.layers for tensor in layer]
    logits_BC: torch.Tensor = _GatedMlp.apply(  # type: ignore[no-untyped-call]
        n_dropped, known_BV, e_BE, weights.gate_V, weights.linear_CV, *tensors
    )
    return logits_BC


class _GatedMlp(Function):
    @staticmethod
    def forward(
        ctx: Any,
        n_dropped: int,
        known_BV: torch.Tensor,
        e_BE: torch.Tensor | None,
        gate_V: torch.Tensor,
        linear_CV: torch.Tensor,
        *layers: torch.Tensor,
    ) -> torch.Tensor:
        inputs_BV = known_BV.contiguous() if e_BE is None else torch.cat([known_BV, e_BE], dim=1)
        weights, biases = [w.detach() for w in layers[::2]], [b.detach() for b in layers[1::2]]
        gate_V, linear_CV = gate_V.detach().contiguous(), linear_CV.detach()
        hidden_BH = inputs_BV.new_empty(len(inputs_BV), sum(len(bias) for bias in biases[:-1]))
        logits_BC = inputs_BV.new_empty(len(inputs_BV), len(linear_CV))
        seed = int(torch.empty((), dtype=torch.int64).random_()) if n_dropped else 0
        n_threads = torch.get_num_threads()
        given = (inputs_BV, gate_V, weights, biases, linear_CV, n_dropped)
        call(compiled().mlp_forward, *given, seed, n_threads, hidden_BH, logits_BC)
        ctx.given, ctx.hidden_BH, ctx.n_with_gradient = given, hidden_BH, 0 if e_BE is None else e_BE.shape[1]
        return logits_BC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logits_BC: torch.Tensor) -> Any:
        inputs_BV, gate_V, weights, biases, linear_CV, _ = ctx.given
        d_weights, d_biases = [torch.empty_like(w) for w in weights], [torch.empty_like(b) for b in biases]
        d_linear_CV, d_gate_V = torch.empty_like(linear_CV), torch.empty_like(gate_V)
        d_e_BE = inputs_BV.new_empty(len(inputs_BV), ctx.n_with_gradient)
        given = (*ctx.given, torch.get_num_threads(), ctx.hidden_BH, d_logits_BC.contiguous())
        call(compiled().mlp_backward, *given, d_weights, d_biases, d_linear_CV, d_gate_V, d_e_BE)
        of_layers = [tensor for layer in zip(d_weights, d_biases, strict=True) for tensor in layer]
        return None, None, d_e_BE if ctx.n_with_gradient else None, d_gate_V, d_linear_CV, *of_layers


def number_codes(
    measures_BM: torch.Tensor,
    intervals: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    *,
    with_shares: bool,
    share_size: float,
    soft_limit: float,
) -> torch.Tensor:
    """Codes (B, M, codes of a field); `intervals` are lows, widths and ranks (M, G), and first ranks (M,)."""
    n_rows, n_measured = measures_BM.shape
    n_codes = 3 + (intervals[0].shape[1] if with_shares else 0)
    codes_BMG = measures_BM.new_empty(n_rows, n_measured * n_codes)
    given = (with_shares, share_size, soft_limit, torch.get_num_threads())
    call(compiled().number_codes, measures_BM.contiguous(), *intervals, *given, codes_BMG)
    return codes_BMG.view(n_rows, n_measured, n_codes)
