"""Ragged arrays: a list of ids for each row, as one long array and the place where each row begins.

There is no padding and no longest list: memory grows with the ids alone.

Shape legend: R rows, B rows of a batch, V values of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Lists of ids.

    Attributes:
        values: ids of all rows, int32, row after row.
        offsets: row r has the values from `offsets[r]` to `offsets[r + 1]`, int64; there is one more than rows.

    Example:
        >>> lists = Ragged.of([[3], [4, 5], [6]])
        >>> lists[1:].to_lists(), lists.take(np.array([2, 0])).to_lists()
        ([[4, 5], [6]], [[6], [3]])
    """

    values: npt.NDArray[np.int32]
    offsets: Offsets

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Ragged:
        """The same ids as `to_lists` returns."""
        values = np.array([value for row in lists for value in row], dtype=np.int32)
        return cls(values, starts_of([len(row) for row in lists]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice) -> Ragged:
        """Consecutive rows; the values are a view."""
        start, stop, _ = rows.indices(len(self))
        offsets = self.offsets[start : max(start, stop) + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    @property
    def lengths(self) -> Offsets:
        """Values of each row."""
        return np.diff(self.offsets)

    @property
    def row_V(self) -> Offsets:
        """The row of every value."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, rows: npt.NDArray[Any]) -> Ragged:
        """The rows with these numbers, copied."""
        lengths = self.lengths[rows]
        offsets = starts_of(lengths)
        place_V = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return Ragged(self.values[place_V], offsets)

    @staticmethod
    def concat(parts: Sequence[Ragged]) -> Ragged:
        """The rows of several arrays."""
        lengths = np.concatenate([part.lengths for part in parts])
        return Ragged(np.concatenate([part.values for part in parts]), starts_of(lengths))

    def to_lists(self) -> list[list[int]]:
        """The ids of every row."""
        return [ids.tolist() for ids in np.split(self.values, self.offsets[1:-1])] if len(self) else []


def starts_of(lengths: npt.ArrayLike) -> Offsets:
    """Offsets of lists with these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class ListInput(NamedTuple):
    """The lists of one field. No list is empty: an empty cell holds the missing id.

    Attributes:
        column: position of the field.
        ids_V: joint ids of all rows, int64, row after row.
        starts: row r has the ids from `starts[r]` to `starts[r + 1]`; there is one more than rows.
    """

    column: int
    ids_V: torch.Tensor
    starts: torch.Tensor

    @property
    def lengths_B(self) -> torch.Tensor:
        """Ids of each row."""
        return self.starts.diff()

    @property
    def row_V(self) -> torch.Tensor:
        """The row of every id."""
        lengths_B = self.lengths_B
        return torch.repeat_interleave(torch.arange(len(lengths_B), device=lengths_B.device), lengths_B)

    def weight_V(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Weight of every id in the mean of its list."""
        lengths_B = self.lengths_B
        return torch.repeat_interleave(1.0 / lengths_B.to(dtype), lengths_B)

    @classmethod
    def of(cls, column: int, lists: Ragged, offset: int) -> ListInput:
        """Lists of local ids of a field whose block begins at `offset`."""
        ids_V = np.add(lists.values, offset, dtype=np.int64)
        return cls(column, torch.from_numpy(ids_V), torch.from_numpy(lists.offsets))

    @classmethod
    def single(cls, column: int, ids_B: torch.Tensor) -> ListInput:
        """Lists of one id each."""
        return cls(column, ids_B, torch.arange(len(ids_B) + 1, device=ids_B.device))

    def take(self, rows: slice | torch.Tensor) -> ListInput:
        """Some of the rows."""
        lengths, first = self.lengths_B[rows], self.starts[:-1][rows]
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        place_V = torch.arange(int(starts[-1]), device=starts.device)
        place_V = place_V + torch.repeat_interleave(first - starts[:-1], lengths)
        return self._replace(ids_V=self.ids_V[place_V], starts=starts)

    @staticmethod
    def concat(parts: Sequence[ListInput]) -> ListInput:
        """The rows of several batches."""
        lengths = torch.cat([part.lengths_B for part in parts])
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return ListInput(parts[0].column, torch.cat([part.ids_V for part in parts]), starts)

    def to(self, device: torch.device) -> ListInput:
        """The same lists on another device."""
        moved = (tensor.to(device, non_blocking=True) for tensor in (self.ids_V, self.starts))
        return ListInput(self.column, *moved)
