"""Optimizers whose steps touch only the ids of the batch in embedding tables.

A table's sparse gradient is summed per id. Ridge, clipping, decay and the Adagrad or Adam rule then act on those rows
alone, so a step costs the same with twenty thousand ids and with twenty million.

What the settings mean under sparse steps:

- `embedding_l2`: each row of the batch adds l2/2 * |e|^2 to its loss for every embedding it looks up, and the loss is
  the mean over the batch. An id looked up c times in a batch of B rows gets the extra gradient l2 * c/B * e; over an
  epoch, this is a ridge in proportion to the id's count. What a row looks up of a
  value in a list of n is e/n, so such a value counts 1/n^2. A full count would keep values of long lists, whose
  gradients are n times smaller, from learning at all.
- `l2_rarity` (p): that gradient is further multiplied by s = a * count^-p, with a such that s is 1 on average over
  the rows of each field. With p = 0, the ridge is the same per look-up. With p = 1, it is the same per id over an
  epoch, which keeps rare ids, that few rows can correct, closest to zero.
- `weight_decay`: decoupled. Dense weights shrink by 1 - lr * weight_decay in every step, the row of an id only in the
  steps that look it up.
- Adam's moments of an id change only in steps that look it up; its bias correction counts those steps.

Shape legend: I joint ids, U distinct ids of the batch, D size of a table's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from fielddep.encoding.rows import Inputs
from fielddep.nn import kernels
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.kernels.network_input import look_up
from fielddep.nn.kernels.steps import Rule, advance, advance_dense
from fielddep.nn.model import FieldModel

ADAM_BETAS = (0.9, 0.999)
EPSILON = {"adagrad": 1e-10, "adam": 1e-8}


@dataclass(frozen=True, kw_only=True)
class LookedUp:
    """The distinct ids of a batch in the order of their gradients, and how often each was looked up."""

    ids_U: torch.Tensor
    counts_U: torch.Tensor

    @classmethod
    def of(cls, ids: torch.Tensor, n_ids: int, *, weights: torch.Tensor | None = None, compiled: bool) -> LookedUp:
        """Count the ids of a batch (B, F), or any ids with weights."""
        if weights is not None:
            ids_U, place = torch.unique(ids, return_inverse=True)
            return cls(ids_U=ids_U, counts_U=weights.new_zeros(len(ids_U)).index_add_(0, place, weights))
        if compiled:
            lookup = look_up(ids, n_ids)
            return cls(ids_U=lookup.ids_U, counts_U=lookup.counts_U)
        ids_U, counts_U = torch.unique(ids, return_counts=True)
        return cls(ids_U=ids_U, counts_U=counts_U)

    def sum_per_id(self, sparse_gradient: torch.Tensor) -> torch.Tensor:
        """Gradient (U, D) per id; `sparse_gradient` has one entry per look-up, or already one per id."""
        indices, values = sparse_gradient._indices()[0], sparse_gradient._values()
        if torch.equal(indices, self.ids_U):
            return values
        sorted_U, order_U = self.ids_U.sort()
        place = order_U[torch.searchsorted(sorted_U, indices)]
        gradient_UD = torch.zeros(len(self.ids_U), values.shape[1], dtype=values.dtype, device=values.device)
        return gradient_UD.index_add_(0, place, values)


class Optimizer:
    """Adagrad or Adam over a model's dense weights and its tables.

    Args:
        model: its tables get sparse steps, all other trained weights dense ones.
        kind: the rule.
        lr: learning rate; can be changed between steps.
        l2: ridge of every table, by name.
        l2_scale_I: factor of the ridge per id, see `rarity_scale`; None means 1.
        weight_decay: decoupled decay.
        clip_norm: largest joint norm of all gradients; None means no clipping.
    """

    def __init__(
        self,
        model: FieldModel,
        *,
        kind: Literal["adagrad", "adam"],
        lr: float,
        l2: Mapping[str, float],
        l2_scale_I: torch.Tensor | None = None,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
    ) -> None:
        self.kind = kind
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self._is_plain = model.layout.is_plain
        self._modules = dict(model.tables())
        self._tables = {name: table.weight for name, table in self._modules.items()}
        self._l2_scales = {name: _scale_of_rows(table, l2_scale_I) for name, table in self._modules.items()}
        self._l2 = {name: l2.get(name, 0.0) for name in self._tables}
        of_tables = {id(weight) for weight in self._tables.values()}
        self._dense = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in of_tables}
        self._slots = ("sum",) if kind == "adagrad" else ("mean", "square", "steps")
        self._state = self._initial_state()

    def _initial_state(self) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = {}
        for name, weight in {**self._dense, **self._tables}.items():
            state.update({f"{name}/{slot}": torch.zeros_like(weight.detach()) for slot in self._slots})
            if self.kind == "adam":
                rows = len(weight) if name in self._tables else 1
                state[f"{name}/steps"] = torch.zeros(rows, 1, device=weight.device)
        return state

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a resume needs, by name."""
        return self._state

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a `state`."""
        for name, tensor in self._state.items():
            tensor.copy_(state[name])

    def zero_grad(self) -> None:
        """Drop the gradients of the last batch."""
        for weight in (*self._dense.values(), *self._tables.values()):
            weight.grad = None

    @torch.no_grad()
    def step(self, inputs: Inputs) -> None:
        """Apply the gradients of a batch."""
        ids_BF = inputs.ids_BF
        compiled = kernels.usable(ids_BF, *self._tables.values(), *self._dense.values())
        tables = {name: weight for name, weight in self._tables.items() if weight.grad is not None}
        if not tables:
            return self._step_dense(compiled)
        looked_up = self._looked_up(inputs, list(tables), compiled=compiled)
        gradients = {name: looked_up[name].sum_per_id(w.grad) for name, w in tables.items() if w.grad is not None}
        if not compiled or self.clip_norm is not None:
            self._add_ridge(gradients, looked_up, len(ids_BF))
        if self.clip_norm is not None:
            self._clip(gradients.values())
        self._step_dense(compiled)
        for name, gradient_UD in gradients.items():
            ids_U = looked_up[name].ids_U
            if compiled:
                ridge = 0.0 if self.clip_norm is not None else self._l2[name] / max(len(ids_BF), 1)
                counts_U = self._ridge_weight(name, looked_up[name]) if ridge > 0 else None
                slots = self._slots_of(name)
                advance(self._rule, tables[name], gradient_UD, slots, ids_U=ids_U, ridge=ridge, counts_U=counts_U)
            else:
                self._advance_rows(name, tables[name], gradient_UD, ids_U)
        return None

    def _looked_up(self, inputs: Inputs, names: Sequence[str], *, compiled: bool) -> dict[str, LookedUp]:
        """The ids that each table was asked for; tables with a row for every id share the result."""
        found: dict[str, LookedUp] = {}
        of_all = None
        ids, weights = (inputs.ids_BF, None) if self._is_plain else inputs.looked_up()
        for name in names:
            table = self._modules[name]
            if table.rows_I is not None:
                found[name] = LookedUp.of(table.rows_of(ids), len(table.weight), weights=weights, compiled=compiled)
            else:
                of_all = of_all or LookedUp.of(ids, len(table.weight), weights=weights, compiled=compiled)
                found[name] = of_all
        return found

    def _add_ridge(self, gradients: Mapping[str, torch.Tensor], looked_up: Mapping[str, LookedUp], n_rows: int) -> None:
        for name, gradient_UD in gradients.items():
            if self._l2[name] > 0:
                share_U = self._ridge_weight(name, looked_up[name]) / n_rows
                strength_U1 = (self._l2[name] * share_U).unsqueeze(1).to(gradient_UD.dtype)
                gradient_UD.addcmul_(strength_U1, self._tables[name][looked_up[name].ids_U])

    def _ridge_weight(self, name: str, looked_up: LookedUp) -> torch.Tensor:
        """Factor of the ridge per id: its look-ups, scaled by its rarity."""
        scale_R = self._l2_scales[name]
        return looked_up.counts_U if scale_R is None else looked_up.counts_U * scale_R[looked_up.ids_U]

    def _clip(self, of_tables: Iterable[torch.Tensor]) -> None:
        gradients = [p.grad for p in self._dense.values() if p.grad is not None]
        gradients += of_tables
        norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in gradients]))
        assert self.clip_norm is not None
        factor = torch.clamp(self.clip_norm / (norm + 1e-12), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)

    def _slots_of(self, name: str) -> dict[str, torch.Tensor]:
        return {slot: self._state[f"{name}/{slot}"] for slot in self._slots}

    def _step_dense(self, compiled: bool) -> None:
        moved = {name: weight for name, weight in self._dense.items() if weight.grad is not None}
        if compiled and self.kind == "adam" and all(weight.is_contiguous() for weight in moved.values()):
            gradients = [weight.grad for weight in moved.values() if weight.grad is not None]
            slots = {slot: [self._state[f"{name}/{slot}"] for name in moved] for slot in self._slots}
            return advance_dense(self._rule, list(moved.values()), gradients, slots)
        for name, weight in moved.items():
            assert weight.grad is not None
            if compiled and weight.is_contiguous():
                advance(self._rule, weight, weight.grad, self._slots_of(name))
            else:
                self._advance(weight, weight.grad, self._slots_of(name))
        return None

    def _advance_rows(self, name: str, weight: torch.Tensor, gradient_UD: torch.Tensor, ids_U: torch.Tensor) -> None:
        values_UD = weight[ids_U]
        slots = {slot: state[ids_U] for slot, state in self._slots_of(name).items()}
        self._advance(values_UD, gradient_UD, slots)
        weight.index_copy_(0, ids_U, values_UD)
        for slot, state in slots.items():
            self._state[f"{name}/{slot}"].index_copy_(0, ids_U, state)

    @property
    def _rule(self) -> Rule:
        shrink = 1.0 - self.lr * self.weight_decay
        return Rule(kind=self.kind, lr=self.lr, shrink=shrink, epsilon=EPSILON[self.kind], betas=ADAM_BETAS)

    def _advance(self, values: torch.Tensor, gradient: torch.Tensor, slots: dict[str, torch.Tensor]) -> None:
        """One step in place, on a dense weight or on rows of a table; it overwrites the gradient."""
        direction = _adagrad(slots, gradient) if self.kind == "adagrad" else _adam(slots, gradient)
        if self.weight_decay > 0:
            values.mul_(1.0 - self.lr * self.weight_decay)
        values.add_(direction, alpha=-self.lr)


def _scale_of_rows(table: EmbeddingTable, l2_scale_I: torch.Tensor | None) -> torch.Tensor | None:
    """Factor of the ridge per row of a table, from the factor per joint id."""
    if l2_scale_I is None or table.rows_I is None:
        return l2_scale_I
    scale_R = torch.zeros(len(table.weight), dtype=l2_scale_I.dtype, device=l2_scale_I.device)
    scale_R[table.rows_I] = l2_scale_I
    return scale_R


def rarity_scale(counts: Sequence[np.ndarray], rarity: float) -> torch.Tensor:
    """Factor of the ridge per joint id: count^-rarity, scaled to 1 on average over the look-ups of each field.

    Example:
        >>> rarity_scale([np.array([0, 0, 9, 1])], 1.0).tolist()
        [5.0, 5.0, 0.5555555820465088, 5.0]
    """
    scales = []
    for count in counts:
        scale = np.maximum(count, 1.0)
        np.power(scale, -rarity, out=scale)  # in place: a vocabulary may be millions of values long
        scale *= count.sum() / max(float(scale @ count), 1e-300)
        scales.append(scale.astype(np.float32))
    return torch.from_numpy(np.concatenate(scales))


def _adagrad(slots: dict[str, torch.Tensor], gradient: torch.Tensor) -> torch.Tensor:
    slots["sum"].addcmul_(gradient, gradient)
    return gradient.div_(slots["sum"].sqrt().add_(EPSILON["adagrad"]))


def _adam(slots: dict[str, torch.Tensor], gradient: torch.Tensor) -> torch.Tensor:
    beta_mean, beta_square = ADAM_BETAS
    slots["steps"] += 1
    slots["mean"].lerp_(gradient, 1 - beta_mean)
    slots["square"].lerp_(gradient * gradient, 1 - beta_square)
    shape = (-1,) + (1,) * (gradient.dim() - 1)
    steps = slots["steps"].reshape(shape) if slots["steps"].numel() > 1 else slots["steps"].reshape(())
    mean = slots["mean"] / (1 - beta_mean**steps)
    square = slots["square"] / (1 - beta_square**steps)
    return mean / square.sqrt().add_(EPSILON["adam"])
