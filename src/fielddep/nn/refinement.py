"""Refinement: the inner loop that fits the dependencies to one row, without its label.

There is no label argument anywhere in this file, and there must never be one.

Column j of W holds how field j is expressed by the others, w_jj = -1, so column j of E W is its residual.
With S = E^T E (Gram form) the gradient is S W with its columns scaled by mu, the squared residuals are the column
sums of W * (S W), and one product serves the mu update of a step and the W update of the next.

Shape legend: B rows, F fields (m), D embedding size (k).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from fielddep.nn import kernels
from fielddep.nn.kernels.refinement import refine
from fielddep.nn.simplex import project_to_simplex

NORM_MOMENTUM = 0.1
"""Weight of a batch in the moving average of the norm."""


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """Dependencies of a batch after some steps of refinement.

    Attributes:
        w_BFF: coefficients; column j expresses field j, the diagonal is -1.
        mu_BF: weights of the fields, summing to lambda once a step has been taken.
        squared_residuals_BF: |E w_j|^2.
    """

    w_BFF: torch.Tensor
    mu_BF: torch.Tensor
    squared_residuals_BF: torch.Tensor

    def loss_BF(self, sparsity: float) -> torch.Tensor:
        """Dependency loss of every field, mu_j |E w_j|^2 / (2 lambda); its sum over fields is L(W, mu)."""
        return self.mu_BF * self.squared_residuals_BF / (2 * sparsity)


class Refinement(nn.Module):
    """The inner loop with its learned start W(0).

    Args:
        n_fields: m.
        init: off-diagonal start of W(0), 1/(m-1) ("uniform") or 0 ("zeros").

    `MDLConfig` documents the other arguments. Damped steps use the moving average of `track_norm`.

    Shape:
        embeddings (B, F, D) -> `Dependencies`.
    """

    off_diagonal_FF: torch.Tensor
    mean_norm: torch.Tensor | None

    def __init__(
        self,
        n_fields: int,
        *,
        n_inner_steps: int = 4,
        inner_lr: float = 1.0,
        inner_step: Literal["fixed", "scaled", "damped"] = "fixed",
        sparsity: float = 10.0,
        mu_start: Literal["share", "one"] = "share",
        mu_update_from: Literal["new", "old"] = "new",
        residual_reduction: Literal["sum", "mean"] = "sum",
        init: Literal["uniform", "zeros"] = "uniform",
    ) -> None:
        super().__init__()
        self.n_inner_steps = n_inner_steps
        self.inner_lr = inner_lr
        self.scaled = inner_step != "fixed"
        self.register_buffer("mean_norm", torch.zeros(()) if inner_step == "damped" else None)
        self.sparsity = sparsity
        self.mu_update_from = mu_update_from
        self.residual_reduction = residual_reduction
        self.mu_start = sparsity / n_fields if mu_start == "share" else 1.0
        start = 1.0 / (n_fields - 1) if init == "uniform" else 0.0
        self.weight = nn.Parameter(torch.full((n_fields, n_fields), start))
        self.register_buffer("off_diagonal_FF", 1.0 - torch.eye(n_fields), persistent=False)

    @property
    def w0_FF(self) -> torch.Tensor:
        """W(0): the learned start with its diagonal at -1."""
        return self.weight * self.off_diagonal_FF - (1.0 - self.off_diagonal_FF)

    def forward(self, e_BFD: torch.Tensor) -> Dependencies:
        """Dependencies after the last step."""
        if kernels.usable(e_BFD, self.weight):
            w_BFF, mu_BF, squared_BF = refine(e_BFD, self.w0_FF, self.inner_loop(e_BFD.shape[2]))
            return Dependencies(w_BFF=w_BFF, mu_BF=mu_BF, squared_residuals_BF=squared_BF)
        *_, last = self.path(e_BFD)
        return last

    def inner_loop(self, d_embed: int, *, value_scale: float = 1.0, with_diagonal: bool = True) -> Any:
        """The steps as an object of the compiled module.

        Args:
            d_embed: k.
            value_scale: factor of mu * W in the network's input.
            with_diagonal: whether the network sees the diagonal.
        """
        n_fields = self.weight.shape[0]
        return kernels.compiled().Refinement(
            n_fields=n_fields,
            d_embed=d_embed,
            n_steps=self.n_inner_steps,
            w_rate=self.inner_lr / self.sparsity,
            mu_rate=self.inner_lr / 2 / (d_embed if self.residual_reduction == "mean" else 1),
            total=self.sparsity,
            mu_start=self.mu_start,
            value_scale=value_scale,
            gram_form=gram_is_cheaper(n_fields, d_embed, self.n_inner_steps),
            mu_from_old=self.mu_update_from == "old",
            with_diagonal=with_diagonal,
            unit_norm=self.scaled,
            mean_norm=0.0 if self.mean_norm is None else float(self.mean_norm),
        )

    def track_norm(self, e_BFD: torch.Tensor) -> None:
        """Update the moving average of the norm of S, for damped steps; the first rows start it."""
        if self.mean_norm is None:
            return
        norm = gram_norm(e_BFD).mean().to(self.mean_norm.dtype)
        followed = self.mean_norm + NORM_MOMENTUM * (norm - self.mean_norm)
        self.mean_norm.copy_(torch.where(self.mean_norm > 0, followed, norm))

    def _step_norm(self, e_BFD: torch.Tensor) -> torch.Tensor:
        """Divisor of the steps of every row (B, 1)."""
        norm_B1 = gram_norm(e_BFD)
        if self.mean_norm is None:
            return norm_B1
        damped_B1 = 0.5 * (norm_B1 + self.mean_norm.to(norm_B1.dtype))
        return torch.where(self.mean_norm > 0, damped_B1, norm_B1)

    def path(self, e_BFD: torch.Tensor, n_inner_steps: int | None = None) -> Iterator[Dependencies]:
        """Dependencies before the first and after every step: (W(t), mu(t)) for t = 0 ... T."""
        n_steps = self.n_inner_steps if n_inner_steps is None else n_inner_steps
        n_rows, n_fields, d_embed = e_BFD.shape
        norm_B1 = self._step_norm(e_BFD) if self.scaled else e_BFD.new_ones(n_rows, 1)
        product = ResidualProduct(e_BFD / norm_B1.sqrt().unsqueeze(2) if self.scaled else e_BFD, n_steps)
        per_residual = 1.0 / d_embed if self.residual_reduction == "mean" else 1.0

        w_BFF = self.w0_FF.to(e_BFD.dtype).expand(n_rows, n_fields, n_fields)
        mu_BF = e_BFD.new_full((n_rows, n_fields), self.mu_start)
        gradient_BFF, squared_BF = product(w_BFF)
        yield Dependencies(w_BFF=w_BFF, mu_BF=mu_BF, squared_residuals_BF=squared_BF * norm_B1)
        for _ in range(n_steps):
            step_BFF = gradient_BFF * mu_BF.unsqueeze(1) * self.off_diagonal_FF
            w_BFF = w_BFF - (self.inner_lr / self.sparsity) * step_BFF
            squared_old_BF = squared_BF
            gradient_BFF, squared_BF = product(w_BFF)
            used_BF = squared_BF if self.mu_update_from == "new" else squared_old_BF
            mu_BF = project_to_simplex(mu_BF - (self.inner_lr / 2 * per_residual) * used_BF, self.sparsity)
            yield Dependencies(w_BFF=w_BFF, mu_BF=mu_BF, squared_residuals_BF=squared_BF * norm_B1)


def gram_norm(e_BFD: torch.Tensor) -> torch.Tensor:
    """Frobenius norm of every row's S = E^T E (B, 1), without gradient.

    It is at least the largest eigenvalue of S, which bounds the steps that do not overshoot, and at most sqrt(m) times
    as large. Being constant per row, it changes the size of the steps, not their limit.

    Example:
        >>> gram_norm(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])).tolist()
        [[25.0]]
    """
    with torch.no_grad():
        s_BFF = e_BFD @ e_BFD.transpose(1, 2)
        norm_B1: torch.Tensor = torch.linalg.vector_norm(s_BFF.flatten(1), dim=1, keepdim=True)
        return norm_B1.clamp(min=1e-12)


def gram_is_cheaper(n_fields: int, d_embed: int, n_inner_steps: int) -> bool:
    """Whether S = E^T E pays off: it costs D F^2 once and F^3 per product, the direct form 2 D F^2 per product.

    Example:
        >>> gram_is_cheaper(22, 40, 4), gram_is_cheaper(60, 8, 4)
        (True, False)
    """
    n_products = n_inner_steps + 1
    return d_embed + n_products * n_fields <= 2 * n_products * d_embed


class ResidualProduct:
    """W -> (E^T E W, squared column norms of E W), by the cheaper of two equal forms."""

    def __init__(self, e_BFD: torch.Tensor, n_inner_steps: int) -> None:
        _, n_fields, d_embed = e_BFD.shape
        self.e_BFD = e_BFD
        in_gram_form = gram_is_cheaper(n_fields, d_embed, n_inner_steps)
        self.s_BFF = e_BFD @ e_BFD.transpose(1, 2) if in_gram_form else None

    def __call__(self, w_BFF: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """E^T E W (B, F, F) and the squared residuals (B, F)."""
        if self.s_BFF is not None:
            g_BFF = self.s_BFF @ w_BFF
            return g_BFF, (w_BFF * g_BFF).sum(dim=1)
        r_BDF = self.e_BFD.transpose(1, 2) @ w_BFF
        return self.e_BFD @ r_BDF, r_BDF.square().sum(dim=1)
