"""FFM: the field-aware factorization machine (Juan 2016).

Shape legend: B rows, F fields, N numerical fields, C outputs, D embedding size, O other fields (F - 1).
"""

from __future__ import annotations

import torch

from fielddep.config.factorization import FFMConfig
from fielddep.encoding.rows import Inputs, Layout
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.model import FieldModel, require_size


class FFM(FieldModel):
    """A value has one embedding for every other field: y = b + sum_i w[c_i] + sum_{i<j} <e_j[c_i], e_i[c_j]>.

    With `normalize` the products are divided by |x|^2, where x is the row with a one for every value and the number
    of every numerical field; as libffm does by scaling rows to unit length. With several classes a value has one
    set of embeddings per class.
    """

    pairs_OO: torch.Tensor

    def __init__(self, layout: Layout, n_outputs: int, config: FFMConfig) -> None:
        super().__init__(layout, n_outputs)
        self.normalize = config.normalize
        # A field has no embedding for itself; with a single field the table still needs a width.
        n_others = max(layout.n_columns - 1, 1)
        self.sizes = (n_others, n_outputs, require_size(config.d_embed))
        self.first_order = EmbeddingTable(layout, n_outputs)
        self.embedding = EmbeddingTable(layout, n_others * n_outputs * self.sizes[-1], std=config.embedding_init_scale)
        pairs_OO = torch.ones(layout.n_columns - 1, layout.n_columns - 1).triu()
        self.register_buffer("pairs_OO", pairs_OO, persistent=False)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, C)."""
        first_BC: torch.Tensor = self.first_order(inputs).sum(dim=1)
        products_BC = self._products(self.embedding(inputs).unflatten(2, self.sizes))
        if self.normalize:
            n_categorical = self.layout.n_columns - len(self.layout.numerical)
            products_BC = products_BC / (n_categorical + inputs.numbers_BN.square().sum(dim=1, keepdim=True))
        return self.bias + first_BC + products_BC

    def _products(self, e_BFOCD: torch.Tensor) -> torch.Tensor:
        """Sum over all pairs of fields of the product of their embeddings for each other.

        Field i keeps its embedding for field j at place j - 1 where j > i and at place j where j < i. So with q = j - 1
        the pair (i, j) is entry (i, q) of the first F - 1 fields times entry (q, i) of the last F - 1, where i <= q.
        """
        left_BOOCD, right_BOOCD = e_BFOCD[:, :-1], e_BFOCD[:, 1:].transpose(1, 2)
        products_BOOC = (left_BOOCD * right_BOOCD).sum(dim=-1)
        return (products_BOOC * self.pairs_OO[..., None]).sum(dim=(1, 2))
