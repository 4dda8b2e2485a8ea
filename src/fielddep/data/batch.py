"""Batch: the one thing that travels from the data side to a model.

Shape legend: B rows of the batch, F fields and crosses, N numerical fields given as `value x vector`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch


@dataclass(frozen=True, kw_only=True)
class FieldLayout:
    """What a model must know of the columns of ids; all that it may know.

    Ids of all fields live in one joint range: field f owns `n_ids[f]` consecutive ids from `offsets[f]` on.
    Within a field, local id 0 means *missing* and local id 1 means *rare or unknown*; a numerical field that is
    given as `value x vector` has the two local ids 0 (*missing*) and 1 (*a number*).
    """

    names: tuple[str, ...]
    n_ids: tuple[int, ...]
    numerical: tuple[int, ...] = ()
    """Positions of the fields given as `value x vector`, ascending."""
    crosses: tuple[tuple[int, int], ...] = ()
    """Positions of the two fields of each cross; crosses are the last columns of ids."""
    counts: tuple[np.ndarray, ...] | None = field(default=None, compare=False, repr=False)
    """Training rows of every local id, per column, where they are known."""

    @property
    def n_columns(self) -> int:
        """Columns of ids: fields and crosses."""
        return len(self.n_ids)

    @property
    def n_fields(self) -> int:
        """Number of fields (m), crosses not counted."""
        return len(self.n_ids) - len(self.crosses)

    @property
    def offsets(self) -> tuple[int, ...]:
        """First joint id of every field."""
        starts = [0]
        for size in self.n_ids[:-1]:
            starts.append(starts[-1] + size)
        return tuple(starts)

    @cached_property
    def offsets_F(self) -> torch.Tensor:
        """The same as a tensor, int64; made once, as every batch needs it. Not to be changed."""
        return torch.tensor(self.offsets, dtype=torch.int64)

    @property
    def n_ids_total(self) -> int:
        """Number of joint ids, the height of an embedding table."""
        return sum(self.n_ids)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Encoded rows on their way to a model.

    Attributes:
        ids_BF: joint ids, int64.
        numbers_BN: standardised numbers of the numerical fields, float32; 1 where the number is missing.
        target_B: class index or regression target; None when unknown.
        weight_B: sample weights; None means one each.
    """

    ids_BF: torch.Tensor
    numbers_BN: torch.Tensor
    target_B: torch.Tensor | None = None
    weight_B: torch.Tensor | None = None

    def __len__(self) -> int:
        return int(self.ids_BF.shape[0])

    def to(self, device: torch.device) -> Batch:
        """The same rows on another device."""
        if self.ids_BF.device == device:
            return self
        move = [
            t if t is None else t.to(device, non_blocking=True)
            for t in (self.ids_BF, self.numbers_BN, self.target_B, self.weight_B)
        ]
        assert move[0] is not None and move[1] is not None
        return Batch(ids_BF=move[0], numbers_BN=move[1], target_B=move[2], weight_B=move[3])


def join_batches(pieces: Sequence[Batch]) -> Batch:
    """One batch of the rows of several on the CPU, in their order; all must have, or lack, target and weights."""
    if len(pieces) == 1:
        return pieces[0]
    return Batch(
        ids_BF=_join([piece.ids_BF for piece in pieces]),
        numbers_BN=_join([piece.numbers_BN for piece in pieces]),
        target_B=_join_known([piece.target_B for piece in pieces]),
        weight_B=_join_known([piece.weight_B for piece in pieces]),
    )


def _join_known(tensors: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    known = [tensor for tensor in tensors if tensor is not None]
    return _join(known) if known else None


def _join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    # By numpy, as a thread that prepares batches must not start worker threads of torch.
    return torch.from_numpy(np.concatenate([tensor.numpy() for tensor in tensors]))
