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
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fielddep.encoding.ragged import ListInput as ListInput
from fielddep.encoding.ragged import Ragged

IDS, NUMBERS, MEASURES, EVIDENCE = "ids", "numbers", "measures", "evidence"
TARGET, WEIGHT = "target", "weight"
PARTS, FOLDS = "parts", "folds"
"""Part of every row and, for evidence, its fold; a store keeps them next to the arrays of `EncodedRows`."""

Array = npt.NDArray[Any]
RowArray: TypeAlias = Array | Ragged
"""One named array of rows: one entry or line per row, or a list per row."""
RowNumbers = npt.NDArray[np.int64]
T = TypeVar("T")


def list_name(position: int) -> str:
    """Name of the array that holds the lists of a field.

    Example:
        >>> list_name(3)
        'list3'
    """
    return f"list{position}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a model may know about the columns of ids.

    Ids of all fields share one joint range: field f owns `n_ids[f]` consecutive ids from `offsets[f]` on. Within a
    field, local id 0 means *missing* and local id 1 *rare or unknown*; a numerical field given as `value x vector` has
    the two local ids 0 (*missing*) and 1 (*a number*). A field that shares the ids of another has the same block.
    """

    names: tuple[str, ...]
    n_ids: tuple[int, ...]
    numerical: tuple[int, ...] = ()
    """Positions of the fields given as `value x vector`, ascending."""
    crosses: tuple[tuple[int, int], ...] = ()
    """Positions of the two fields of each cross; crosses are the last columns of ids."""
    measured: tuple[int, ...] = ()
    """Positions of the fields whose numbers a model may see directly, ascending."""
    related: tuple[int, ...] | None = None
    """Positions of the fields that MDL relates to each other, ascending; None means all."""
    evidence: tuple[tuple[int, ...], ...] = ()
    """Positions of the fields of each combination whose evidence a model may see; see `encoding/evidence.py`."""
    evidence_width: int = 0
    """Inputs per combination: a statement for each output, and the logarithm of the rows behind it."""
    counts: tuple[np.ndarray, ...] | None = field(default=None, compare=False, repr=False)
    """Training rows of every local id, per column, if known."""
    lists: tuple[int, ...] = ()
    """Positions of the fields with several values per row, ascending; their embedding is the mean of the values'."""
    shares: tuple[tuple[int, int], ...] = ()
    """Positions of each field that shares the ids of another, and of the other, which shares none."""

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
        return sum(self.of_owners(self.n_ids))

    @property
    def offsets(self) -> tuple[int, ...]:
        """First joint id of every column."""
        return tuple(self.offsets_F.tolist())

    @cached_property
    def offsets_F(self) -> npt.NDArray[np.int64]:
        """The same as an array, cached because every batch needs it. Do not modify it."""
        sharing = dict(self.shares)
        owned = [0 if f in sharing else n for f, n in enumerate(self.n_ids)]
        offsets_F = np.cumsum((0, *owned[:-1]), dtype=np.int64)[: self.n_columns]
        for position, owner in self.shares:
            offsets_F[position] = offsets_F[owner]
        return offsets_F

    @property
    def n_statements(self) -> int:
        """Inputs of all combinations (E)."""
        return len(self.evidence) * self.evidence_width

    @property
    def is_plain(self) -> bool:
        """Whether each column looks up one id of its own block: there are no lists, and nothing is shared."""
        return not self.lists and not self.shares

    def of_owners(self, per_column: Sequence[T]) -> list[T]:
        """The entries of the columns that own their block of ids, so that no id occurs twice."""
        sharing = dict(self.shares)
        return [entry for position, entry in enumerate(per_column) if position not in sharing]


class Inputs(NamedTuple):
    """The part of a batch that a model sees.

    Attributes:
        ids_BF: joint ids, int64.
        numbers_BN: standardised numbers of the numerical fields, float32; 1 if missing.
        measures_BM: numbers of the measured fields, float32; NaN if missing. None without such fields.
        lists: the fields with several values per row, by rising column. `ids_BF` has a stand-in for them, see
            `EncodedRows`, which is not looked up.
        evidence_BE: statements of all combinations, float16; None without evidence.
    """

    ids_BF: torch.Tensor
    numbers_BN: torch.Tensor
    lists: tuple[ListInput, ...] = ()
    measures_BM: torch.Tensor | None = None
    evidence_BE: torch.Tensor | None = None

    def take(self, rows: slice | torch.Tensor) -> Inputs:
        """Some of the rows."""
        return self._map(lambda tensor: tensor[rows], lambda one: one.take(rows))

    def to(self, device: torch.device) -> Inputs:
        """The same rows on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True), lambda one: one.to(device))

    def _map(
        self, change: Callable[[torch.Tensor], torch.Tensor], change_list: Callable[[ListInput], ListInput]
    ) -> Inputs:
        optional = (None if tensor is None else change(tensor) for tensor in (self.measures_BM, self.evidence_BE))
        return Inputs(change(self.ids_BF), change(self.numbers_BN), tuple(map(change_list, self.lists)), *optional)

    @staticmethod
    def concat(parts: Sequence[Inputs]) -> Inputs:
        """The rows of several batches."""
        measures = [part.measures_BM for part in parts if part.measures_BM is not None]
        evidence = [part.evidence_BE for part in parts if part.evidence_BE is not None]
        return Inputs(
            torch.cat([part.ids_BF for part in parts]),
            torch.cat([part.numbers_BN for part in parts]),
            tuple(map(ListInput.concat, zip(*(part.lists for part in parts), strict=True))),
            torch.cat(measures) if measures else None,
            torch.cat(evidence) if evidence else None,
        )

    @property
    def plain_columns(self) -> list[int]:
        """Columns that look up one id per row: all but lists."""
        of_lists = {one.column for one in self.lists}
        return [column for column in range(self.ids_BF.shape[1]) if column not in of_lists]

    def looked_up(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All ids that the rows look up, and the squared weight of each: that in the mean of its list, or 1."""
        plain = self.ids_BF[:, self.plain_columns].flatten() if self.lists else self.ids_BF.flatten()
        ones = torch.ones(len(plain), device=plain.device)
        ids = torch.cat([plain, *(one.ids_V for one in self.lists)])
        return ids, torch.cat([ones, *(one.weight_V().square() for one in self.lists)])


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
            `measures` (R, M): numbers of the measured fields, float32, NaN if missing; `evidence` (R, E): statements of
            all combinations, float16; `target` (R): float32, or class index, int64; `weight` (R): sample weights,
            float32. For a field with several values per row also
            `list_name(f)`: the local ids of every row, at least one. Its column of `ids` holds the id of the only value
            (the missing id for an empty cell) and the rare id where there are several.

    Example:
        >>> layout = Layout(names=("colour", "size"), n_ids=(4, 3))
        >>> rows = EncodedRows(layout=layout, arrays={"ids": np.array([[2, 0], [3, 1]], dtype=np.int32)})
        >>> rows.batch(slice(1, 2)).inputs.ids_BF
        tensor([[3, 5]])
    """

    layout: Layout
    arrays: Mapping[str, RowArray]

    def __len__(self) -> int:
        return len(self.arrays[IDS])

    @classmethod
    def empty(cls, layout: Layout) -> EncodedRows:
        """No rows, without targets."""
        arrays: dict[str, RowArray] = {IDS: np.empty((0, layout.n_columns), dtype=np.int32)}
        if layout.numerical:
            arrays[NUMBERS] = np.empty((0, len(layout.numerical)), dtype=np.float32)
        if layout.measured:
            arrays[MEASURES] = np.empty((0, len(layout.measured)), dtype=np.float32)
        if layout.evidence:
            arrays[EVIDENCE] = np.empty((0, layout.n_statements), dtype=np.float16)
        arrays |= {list_name(f): Ragged.of([]) for f in layout.lists}
        return cls(layout=layout, arrays=arrays)

    @property
    def ids_RF(self) -> npt.NDArray[np.int32]:
        """Local ids."""
        ids_RF = self._array(IDS)
        assert ids_RF is not None
        return ids_RF

    @property
    def numbers_RN(self) -> npt.NDArray[np.float32]:
        """Standardised numbers."""
        found = self._array(NUMBERS)
        return np.empty((len(self), 0), dtype=np.float32) if found is None else found

    @property
    def measures_RM(self) -> npt.NDArray[np.float32] | None:
        """Numbers of the measured fields; None without such fields."""
        return self._array(MEASURES)

    @property
    def evidence_RE(self) -> npt.NDArray[np.float16] | None:
        """Statements of all combinations; None without evidence."""
        return self._array(EVIDENCE)

    @property
    def target_R(self) -> Array | None:
        """Targets; None when unknown."""
        return self._array(TARGET)

    @property
    def weight_R(self) -> npt.NDArray[np.float32] | None:
        """Sample weights; None means one each."""
        return self._array(WEIGHT)

    def lists_R(self, position: int) -> Ragged:
        """Local ids of a field with several values per row."""
        found = self.arrays[list_name(position)]
        assert isinstance(found, Ragged)
        return found

    def _array(self, name: str) -> Array | None:
        found = self.arrays.get(name)
        assert not isinstance(found, Ragged)
        return found

    def with_arrays(self, **arrays: RowArray | None) -> EncodedRows:
        """The same rows with some arrays replaced or added; None removes one."""
        changed = {**self.arrays, **arrays}
        return replace(self, arrays={name: values for name, values in changed.items() if values is not None})

    def take(self, rows: RowNumbers | slice) -> EncodedRows:
        """Some of the rows: a copy for row numbers, a view for a slice."""
        if isinstance(rows, slice):
            return replace(self, arrays={name: values[rows] for name, values in self.arrays.items()})
        return replace(self, arrays={name: _take(values, rows) for name, values in self.arrays.items()})

    def batch(self, rows: RowNumbers | slice = slice(None)) -> Batch:
        """Some of the rows as a batch, with joint ids."""
        taken = self.take(rows)
        offsets_F = self.layout.offsets_F
        ids_BF = np.add(taken.ids_RF, offsets_F, dtype=np.int64)
        lists = tuple(ListInput.of(f, taken.lists_R(f), int(offsets_F[f])) for f in self.layout.lists)
        optional = (
            None if array is None else torch.from_numpy(array) for array in (taken.measures_RM, taken.evidence_RE)
        )
        return Batch(
            inputs=Inputs(torch.from_numpy(ids_BF), torch.from_numpy(taken.numbers_RN), lists, *optional),
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
        arrays = {name: concat_arrays([chunk.arrays[name] for chunk in chunks]) for name in shared}
        return replace(first, arrays=arrays)


def concat_arrays(parts: Sequence[RowArray]) -> RowArray:
    """The rows of several arrays of one kind."""
    lists = [part for part in parts if isinstance(part, Ragged)]
    return Ragged.concat(lists) if lists else np.concatenate([part for part in parts if not isinstance(part, Ragged)])


def _take(values: RowArray, rows: RowNumbers) -> RowArray:
    return values.take(rows) if isinstance(values, Ragged) else np.take(values, rows, axis=0)


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
