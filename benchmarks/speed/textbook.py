"""The textbook form of Meta-Dependency Learning, for comparison only.

Written directly from the formulas, without regard to speed: E W and E^T (E W) in every inner step, all bilinear
products as one broadcast batched product, dense gradients of the embedding tables, and `torch.optim.Adagrad` over all
parameters. Given the same weights it computes the same function as `fielddep.nn.mdl.MDL`, which a test checks.

Shape legend: B rows, F fields (m), D embedding size (k), P pairs m(m-1)/2, Q dependency inputs m(m-1).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fielddep.nn.mdl import MDL


class TextbookMDL(nn.Module):
    """MDL with one output and no numerical fields.

    Args:
        n_ids: number of joint ids.
        n_fields: m.
        d_embed: k.
        n_inner_steps: T.
        inner_lr: eta.
        sparsity: lambda.
        hidden: width of the two hidden layers.
        init_scale: initial standard deviation of the embeddings.

    Shape:
        joint ids (B, F) -> logits (B,).
    """

    off_diagonal_FF: torch.Tensor
    left_P: torch.Tensor
    right_P: torch.Tensor

    def __init__(
        self,
        *,
        n_ids: int,
        n_fields: int,
        d_embed: int,
        n_inner_steps: int = 4,
        inner_lr: float = 1.0,
        sparsity: float = 10.0,
        hidden: int = 100,
        init_scale: float = 0.1,
    ) -> None:
        super().__init__()
        self.n_inner_steps, self.inner_lr, self.sparsity = n_inner_steps, inner_lr, sparsity
        left_P, right_P = torch.triu_indices(n_fields, n_fields, offset=1)
        n_pairs = len(left_P)
        self.embedding = nn.Embedding(n_ids, d_embed)
        self.first_order = nn.Embedding(n_ids, 1)
        self.phi_PDD = nn.Parameter(torch.eye(d_embed).repeat(n_pairs, 1, 1))
        self.w0_FF = nn.Parameter(torch.full((n_fields, n_fields), 1.0 / (n_fields - 1)))
        self.mlp = nn.Sequential(
            nn.Linear(n_pairs + n_fields * (n_fields - 1), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("off_diagonal_FF", ~torch.eye(n_fields, dtype=torch.bool))
        self.register_buffer("left_P", left_P)
        self.register_buffer("right_P", right_P)
        nn.init.normal_(self.embedding.weight, std=init_scale)
        nn.init.zeros_(self.first_order.weight)

    def forward(self, ids_BF: torch.Tensor) -> torch.Tensor:
        """Logits after T steps of refinement."""
        e_BFD = self.embedding(ids_BF)
        products_BP = self.products(e_BFD)
        w_BFF, mu_BF = self.refine(e_BFD.transpose(1, 2))
        dependencies_BQ = (w_BFF * (mu_BF / self.sparsity).unsqueeze(1))[:, self.off_diagonal_FF]
        deep_B1 = self.mlp(torch.cat([products_BP, dependencies_BQ], dim=1))
        first_order_B1 = self.first_order(ids_BF).sum(dim=1)
        logits_B1: torch.Tensor = deep_B1 + products_BP.sum(dim=1, keepdim=True) + first_order_B1 + self.bias
        return logits_B1.squeeze(1)

    def products(self, e_BFD: torch.Tensor) -> torch.Tensor:
        """e_i^T Phi_ij e_j of all pairs: (B, P, 1, D) x (P, D, D), times e_j, summed."""
        left_BP1D = e_BFD[:, self.left_P].unsqueeze(2)
        transformed_BPD = torch.matmul(left_BP1D, self.phi_PDD).squeeze(2)
        return (transformed_BPD * e_BFD[:, self.right_P]).sum(dim=-1)

    def refine(self, e_BDF: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """W(T) (B, F, F) and mu(T) (B, F)."""
        n_rows, _, n_fields = e_BDF.shape
        w_BFF = self.with_diagonal(self.w0_FF.expand(n_rows, -1, -1))
        mu_BF = e_BDF.new_full((n_rows, n_fields), self.sparsity / n_fields)
        residual_BDF = e_BDF @ w_BFF
        for _ in range(self.n_inner_steps):
            gradient_BFF = (e_BDF.transpose(1, 2) @ residual_BDF) * mu_BF.unsqueeze(1)
            w_BFF = self.with_diagonal(w_BFF - self.inner_lr / self.sparsity * gradient_BFF)
            residual_BDF = e_BDF @ w_BFF
            mu_BF = self.project(mu_BF - self.inner_lr / 2 * residual_BDF.square().sum(dim=1))
        return w_BFF, mu_BF

    def with_diagonal(self, w_BFF: torch.Tensor) -> torch.Tensor:
        """Pi_w: the matrix with -1 on its diagonal."""
        return torch.where(self.off_diagonal_FF, w_BFF, -1.0)

    def project(self, v_BF: torch.Tensor) -> torch.Tensor:
        """Pi_S: the nearest point of the simplex of sum lambda."""
        sorted_BF = v_BF.sort(dim=1, descending=True).values
        rank_F = torch.arange(1, v_BF.shape[1] + 1, device=v_BF.device)
        beta_BF = (sorted_BF.cumsum(dim=1) - self.sparsity) / rank_F
        n_support_B1 = (sorted_BF - beta_BF > 0).sum(dim=1, keepdim=True)
        return F.relu(v_BF - beta_BF.gather(1, n_support_B1 - 1))


class TextbookTrainer:
    """Textbook training: autograd through everything, a dense Adagrad step over all parameters."""

    def __init__(self, model: TextbookMDL, *, lr: float) -> None:
        self.model = model
        self.optimizer = torch.optim.Adagrad(model.parameters(), lr=lr)

    def train_step(self, ids_BF: torch.Tensor, target_B: torch.Tensor) -> float:
        """Train on one batch and return its loss."""
        self.model.train()
        self.optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(self.model(ids_BF), target_B)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())


@torch.no_grad()
def copy_weights(source: MDL, to: TextbookMDL) -> None:
    """Give the textbook model the weights of ours."""
    assert source.first_order is not None
    to.embedding.weight.copy_(source.embedding.weight)
    to.first_order.weight.copy_(source.first_order.weight)
    to.phi_PDD.copy_(source.interactions.phi_PDD.transpose(1, 2))  # ours keeps each Phi_ij transposed
    to.w0_FF.copy_(source.refinement.weight)
    to.mlp.load_state_dict(source.mlp.state_dict())
    to.bias.copy_(source.bias)
