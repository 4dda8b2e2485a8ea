"""Encoded rows: named arrays for data, batches of tensors for models.

Only `EncodedRows.take`, `.batch` and `.concat` go over all arrays, so a new input of the models is added here, in the
encoder and nowhere else.

Shape legend: R rows, B rows of a batch, F fields and crosses, N numerical fields given as `value x vector`, M measured
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

IDS, NUMBERS, MEASURES, TARGET, WEIGHT = "ids", "numbers", "measures", "target", "weight"

Array = npt.NDArray[Any]
RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a model may know about the columns of ids.

    Ids of all fields share one joint range: field f owns `n_ids[f]` consecutive ids from `offsets[f]` on. Within a
    field, local id 0 means *missing* and local id 1 *rare or unknown*; a numerical field given as `value x vector` has
    the two local ids 0 (*missing*) and 1 (*a number*).
    """

    names: tuple[str, ...]
    n_ids: tuple[int, ...]
    numerical: tuple[int, ...] = ()
    """Positions of the fields given as `value x vector`, ascending."""
    crosses: tuple[tuple[int, int], ...] = ()
    """Positions of the two fields of each cross; crosses are the last columns of ids."""
    measured: tuple[int, ...] = ()
    """Positions of the fields whose numbers a model may see directly, ascending."""
    binned: tuple[int, ...] = ()
    """Positions of the fields whose ids are bins or signs of numbers rather than values."""
    related: tuple[int, ...] | None = None
    """Positions of the fields that MDL relates to each other, ascending; None means all."""
    counts: tuple[np.ndarray, ...] | None = field(default=None, compare=False, repr=False)
    """Training rows of every local id, per column, if known."""

    @property
    def n_columns(self) -> int:
        """Number of columns of ids: fields and crosses."""
        return len(self.n_ids)

    @property
    def n_fields(self) -> int:
        """Number of fields (m), crosses not counted."""
        return len(self.n_ids) - len(self.crosses)

    @property
    def n_ids_total(self) -> int:
        """Number of joint ids, the height of an embedding table."""
        return sum(self.n_ids)

    @property
    def offsets(self) -> tuple[int, ...]:
        """First joint id of every column."""
        return tuple(self.offsets_F.tolist())

    @cached_property
    def offsets_F(self) -> npt.NDArray[np.int64]:
        """The same as an array, cached because every batch needs it. Do not modify it."""
        return np.cumsum((0, *self.n_ids[:-1]), dtype=np.int64)[: self.n_columns]


class Inputs(NamedTuple):
    """The part of a batch that a model sees.

    Attributes:
        ids_BF: joint ids, int64.
        numbers_BN: standardised numbers of the numerical fields, float32; 1 if missing.
        measures_BM: numbers of the measured fields, float32; NaN if missing. None without such fields.
    """

    ids_BF: torch.Tensor
    numbers_BN: torch.Tensor
    measures_BM: torch.Tensor | None = None

    def take(self, rows: slice | torch.Tensor) -> Inputs:
        """Some of the rows."""
        return self._map(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Inputs:
        """The same rows on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def _map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
        measures_BM = None if self.measures_BM is None else change(self.measures_BM)
        return Inputs(change(self.ids_BF), change(self.numbers_BN), measures_BM)

    @staticmethod
    def concat(parts: Sequence[Inputs]) -> Inputs:
        """The rows of several batches."""
        measures = [part.measures_BM for part in parts if part.measures_BM is not None]
        return Inputs(
            torch.cat([part.ids_BF for part in parts]),
            torch.cat([part.numbers_BN for part in parts]),
            torch.cat(measures) if measures else None,
        )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows on their way to a model.

    Attributes:
        inputs: what the model sees.
        target_B: class index or regression target; None when unknown.
        weight_B: sample weights; None means one each.
    """

    inputs: Inputs
    target_B: torch.Tensor | None = None
    weight_B: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs.ids_BF)

    def to(self, device: torch.device) -> Batch:
        """The same rows on another device."""
        if self.inputs.ids_BF.device == device:
            return self
        return Batch(
            inputs=self.inputs.to(device),
            target_B=None if self.target_B is None else self.target_B.to(device, non_blocking=True),
            weight_B=None if self.weight_B is None else self.weight_B.to(device, non_blocking=True),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedRows:
    """Rows after encoding.

    They are numpy arrays and not tensors, because numpy stays on the calling thread: torch would start workers for
    every thread that prepares batches, which would take the cores from training.

    Attributes:
        layout: what the ids mean.
        arrays: `ids` (R, F): local ids, int32. Optional: `numbers` (R, N): standardised numbers, float32, 1 if missing;
            `measures` (R, M): numbers of the measured fields, float32, NaN if missing; `target` (R): float32, or class
            index, int64; `weight` (R): sample weights, float32.

    Example:
        >>> layout = Layout(names=("colour", "size"), n_ids=(4, 3))
        >>> rows = EncodedRows(layout=layout, arrays={"ids": np.array([[2, 0], [3, 1]], dtype=np.int32)})
        >>> rows.batch(slice(1, 2)).inputs.ids_BF
        tensor([[3, 5]])
    """

    layout: Layout
    arrays: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.arrays[IDS])

    @classmethod
    def empty(cls, layout: Layout) -> EncodedRows:
        """No rows, without targets."""
        arrays: dict[str, Array] = {IDS: np.empty((0, layout.n_columns), dtype=np.int32)}
        if layout.numerical:
            arrays[NUMBERS] = np.empty((0, len(layout.numerical)), dtype=np.float32)
        if layout.measured:
            arrays[MEASURES] = np.empty((0, len(layout.measured)), dtype=np.float32)
        return cls(layout=layout, arrays=arrays)

    @property
    def ids_RF(self) -> npt.NDArray[np.int32]:
        """Local ids."""
        return self.arrays[IDS]

    @property
    def numbers_RN(self) -> npt.NDArray[np.float32]:
        """Standardised numbers."""
        found = self.arrays.get(NUMBERS)
        return np.empty((len(self), 0), dtype=np.float32) if found is None else found

    @property
    def measures_RM(self) -> npt.NDArray[np.float32] | None:
        """Numbers of the measured fields; None without such fields."""
        return self.arrays.get(MEASURES)

    @property
    def target_R(self) -> Array | None:
        """Targets; None when unknown."""
        return self.arrays.get(TARGET)

    @property
    def weight_R(self) -> npt.NDArray[np.float32] | None:
        """Sample weights; None means one each."""
        return self.arrays.get(WEIGHT)

    def with_arrays(self, **arrays: Array | None) -> EncodedRows:
        """The same rows with some arrays replaced or added; None removes one."""
        changed = {**self.arrays, **arrays}
        return replace(self, arrays={name: values for name, values in changed.items() if values is not None})

    def take(self, rows: RowNumbers | slice) -> EncodedRows:
        """Some of the rows: a copy for row numbers, a view for a slice."""
        if isinstance(rows, slice):
            return replace(self, arrays={name: values[rows] for name, values in self.arrays.items()})
        return replace(self, arrays={name: np.take(values, rows, axis=0) for name, values in self.arrays.items()})

    def batch(self, rows: RowNumbers | slice = slice(None)) -> Batch:
        """Some of the rows as a batch, with joint ids."""
        taken = self.take(rows)
        ids_BF = np.add(taken.ids_RF, self.layout.offsets_F, dtype=np.int64)
        measures_RM = taken.measures_RM
        return Batch(
            inputs=Inputs(
                torch.from_numpy(ids_BF),
                torch.from_numpy(taken.numbers_RN),
                None if measures_RM is None else torch.from_numpy(measures_RM),
            ),
            target_B=None if taken.target_R is None else torch.from_numpy(taken.target_R),
            weight_B=None if taken.weight_R is None else torch.from_numpy(taken.weight_R),
        )

    @staticmethod
    def concat(chunks: Sequence[EncodedRows]) -> EncodedRows:
        """The rows of one or more chunks of one layout, with the arrays that all of them have."""
        first = chunks[0]
        if len(chunks) == 1:
            return first
        shared = [name for name in first.arrays if all(name in chunk.arrays for chunk in chunks)]
        arrays = {name: np.concatenate([chunk.arrays[name] for chunk in chunks]) for name in shared}
        return replace(first, arrays=arrays)


class RowSample:
    """A fair sample of rows that arrive chunk by chunk, in bounded memory.

    Every row draws a random number, and the rows with the smallest numbers stay. So every row has the same chance, and
    the sample depends on the seed only.

    Attributes:
        table: the rows kept so far, in their order; None before the first chunk.
        numbers: their row numbers among all rows added, counted from 0.
        n_seen: rows added so far.
    """

    def __init__(self, n_rows: int, *, seed: int = 0) -> None:
        self.n_rows, self.n_seen = n_rows, 0
        self.table: EncodedRows | None = None
        self.numbers: RowNumbers = np.empty(0, dtype=np.int64)
        self._draws = np.empty(0)
        self._rng = np.random.default_rng(seed)

    def add(self, chunk: EncodedRows) -> None:
        """Let the rows of a chunk take part."""
        draws = self._rng.random(len(chunk))
        bound = self._draws.max() if len(self._draws) >= self.n_rows else np.inf
        chosen = np.flatnonzero(draws < bound)
        new = chunk.take(chosen)
        table = new if self.table is None else EncodedRows.concat([self.table, new])
        draws = np.concatenate([self._draws, draws[chosen]])
        numbers = np.concatenate([self.numbers, self.n_seen + chosen])
        self.n_seen += len(chunk)
        if len(draws) > self.n_rows:
            kept = np.sort(np.argpartition(draws, self.n_rows)[: self.n_rows])
            table, draws, numbers = table.take(kept), draws[kept], numbers[kept]
        self.table, self._draws, self.numbers = table, draws, numbers

    @property
    def rows(self) -> EncodedRows:
        """The rows kept, if there was a chunk."""
        assert self.table is not None
        return self.table


def sample_rows(chunks: Iterable[EncodedRows], n_rows: int, *, seed: int = 0) -> RowSample:
    """A sample of all rows of some chunks."""
    sample = RowSample(n_rows, seed=seed)
    for chunk in chunks:
        sample.add(chunk)
    return sample
