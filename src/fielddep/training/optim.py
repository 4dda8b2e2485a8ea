"""Optimisers whose embedding step touches only the ids of the batch.

A table's sparse gradient is summed per id once (`gather_rows`), then ridge, clipping, decay and the Adagrad or
Adam rule act on those rows alone: a step costs the same with twenty thousand ids and with twenty million.

What the settings mean under sparse steps:

- `embedding_l2`: each row of the batch adds l2/2 * |e|^2 for every embedding it looks up to its loss, and the loss
  is the mean over the batch. An id looked up c times in a batch of B rows gets the extra gradient l2 * c/B * e;
  summed over an epoch this is a ridge in proportion to the id's count.
- `l2_rarity` (p): that gradient is further multiplied by s = a * count^-p, with a such that s is 1 on average over
  the rows of each field. With p = 0 every look-up is held alike; with p = 1 every id is held alike over an epoch, so a
  rare id, which few rows can correct, is held closest to zero.
- `weight_decay`: decoupled. Dense weights shrink by 1 - lr * weight_decay every step; an id's row shrinks by the
  same factor in the steps that look it up and is not moved otherwise.
- Adam's moments of an id advance only in steps that look it up; its bias correction counts those steps.

Shape legend: I joint ids, U distinct ids of the batch, D size of a table's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from fielddep.nn.model import FieldModel

ADAM_BETAS = (0.9, 0.999)
EPSILON = {"adagrad": 1e-10, "adam": 1e-8}


@dataclass(kw_only=True)
class RowGradient:
    """Gradient of the rows of one table that a batch looked up."""

    ids_U: torch.Tensor
    counts_U: torch.Tensor
    gradient_UD: torch.Tensor


def gather_rows(sparse_gradient: torch.Tensor) -> RowGradient:
    """Sum a sparse gradient per id."""
    indices = sparse_gradient._indices()[0]
    values = sparse_gradient._values()
    ids_U, position, counts_U = torch.unique(indices, return_inverse=True, return_counts=True)
    gradient_UD = torch.zeros(len(ids_U), values.shape[1], dtype=values.dtype, device=values.device)
    gradient_UD.index_add_(0, position, values)
    return RowGradient(ids_U=ids_U, counts_U=counts_U, gradient_UD=gradient_UD)


class Optimizer:
    """Adagrad or Adam over a model's dense weights and its tables.

    Args:
        model: its tables get sparse steps, all other trained weights dense ones.
        kind: "adagrad" or "adam".
        lr: learning rate; `lr` may be set later.
        l2: ridge of every table, by name.
        l2_scale_I: factor of the ridge of every id, see `rarity_scale`; None means 1.
        weight_decay: decoupled decay.
        clip_norm: largest joint norm of all gradients, None for no clipping.
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
        self.l2_scale_I = l2_scale_I
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self._tables = {name: table.weight for name, table in model.tables()}
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
        """Everything a later run needs to go on, as tensors by name."""
        return self._state

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from a state given by `state`."""
        for name, tensor in self._state.items():
            tensor.copy_(state[name])

    def zero_grad(self) -> None:
        """Forget the gradients of the last batch."""
        for weight in (*self._dense.values(), *self._tables.values()):
            weight.grad = None

    @torch.no_grad()
    def step(self, n_rows: int) -> None:
        """Apply the gradients of a batch of `n_rows` rows."""
        rows = {name: gather_rows(w.grad) for name, w in self._tables.items() if w.grad is not None}
        values = {name: self._tables[name][row.ids_U] for name, row in rows.items()}
        for name, row in rows.items():
            if self._l2[name] > 0:
                share_U = row.counts_U / n_rows
                if self.l2_scale_I is not None:
                    share_U = share_U * self.l2_scale_I[row.ids_U]
                strength_U1 = (self._l2[name] * share_U).unsqueeze(1).to(row.gradient_UD.dtype)
                row.gradient_UD.addcmul_(strength_U1, values[name])
        if self.clip_norm is not None:
            self._clip(rows)
        for name, weight in self._dense.items():
            if weight.grad is not None:
                self._advance(weight, weight.grad, {slot: self._state[f"{name}/{slot}"] for slot in self._slots})
        for name, row in rows.items():
            slots = {slot: self._state[f"{name}/{slot}"][row.ids_U] for slot in self._slots}
            self._advance(values[name], row.gradient_UD, slots)
            self._tables[name].index_copy_(0, row.ids_U, values[name])
            for slot, state in slots.items():
                self._state[f"{name}/{slot}"].index_copy_(0, row.ids_U, state)

    def _clip(self, rows: Mapping[str, RowGradient]) -> None:
        gradients = [p.grad for p in self._dense.values() if p.grad is not None]
        gradients += [row.gradient_UD for row in rows.values()]
        norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in gradients]))
        assert self.clip_norm is not None
        factor = torch.clamp(self.clip_norm / (norm + 1e-12), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)

    def _advance(self, values: torch.Tensor, gradient: torch.Tensor, slots: dict[str, torch.Tensor]) -> None:
        """One step of the rule on a dense weight or on rows of a table, all in place; the gradient is used up."""
        direction = _adagrad(slots, gradient) if self.kind == "adagrad" else _adam(slots, gradient)
        if self.weight_decay > 0:
            values.mul_(1.0 - self.lr * self.weight_decay)
        values.add_(direction, alpha=-self.lr)


def rarity_scale(counts: Sequence[np.ndarray], rarity: float) -> torch.Tensor:
    """Factor of the ridge of every joint id: count^-rarity, one on average over the look-ups of each field.

    Example:
        >>> rarity_scale([np.array([0, 0, 9, 1])], 1.0).tolist()
        [5.0, 5.0, 0.5555555820465088, 5.0]
    """
    scales = []
    for count in counts:
        seen = np.maximum(count.astype(np.float64), 1.0)
        scale = seen**-rarity
        scales.append(scale * count.sum() / max((scale * count).sum(), 1e-300))
    return torch.from_numpy(np.concatenate(scales)).float()


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
