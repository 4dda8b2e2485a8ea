"""Evidence: what training rows with the same values did, for single fields and for combinations of two to four.

A *combination* is a set of fields, a *cell* one joint value of it. Of every cell, the number of training rows and the
sums of their targets are kept. What they say about a row is a *statement*: how far the targets of its cell lie from the
base rate, shrunken towards it if the rows are few.

All sums are whole multiples of `UNIT` below 2^53, so they are exact in any order, and counts of two tables can be
merged without an error.

Shape legend: R rows, F fields, K combinations, J fields of a combination, G cells, C outputs of the model (one, or one
per class), E inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fielddep.encoding.ragged import Ragged
from fielddep.errors import BundleError
from fielddep.native import native

Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Statements = npt.NDArray[np.float16]
Task = Literal["binary", "multiclass", "regression"]

UNIT = 2.0**-16
"""Targets and weights are rounded to multiples of this."""
MAX_KEYS = 1 << 62
"""Joint values that a combination can have, at most."""
MAX_TABLE = 1 << 22
"""Joint values up to which cells are looked up in a table, which is many times faster than a binary search."""
MAX_JOINED = 4
"""Fields of a combination, at most."""
FIRST_FIELD = np.array([[0] + [-1] * (MAX_JOINED - 1)], dtype=np.int32)
"""The fields of a combination that is the first column of ids."""
MAX_STATEMENT = 30.0


def joint_keys(ids: Sequence[Ids], n_ids: Sequence[int]) -> Keys:
    """One number per row for the ids of some fields, given the number of ids of each."""
    keys_R: Keys = ids[0].astype(np.int64)
    for ids_R, n in zip(ids[1:], n_ids[1:], strict=True):
        keys_R = keys_R * n + ids_R
    return keys_R


def rounded(values: npt.NDArray[Any]) -> Floats:
    """The nearest multiples of `UNIT`."""
    return np.round(values.astype(np.float64) / UNIT) * UNIT


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The cells of one combination.

    Attributes:
        fields: positions of the fields, ascending.
        n_ids: local ids of each.
        keys_G: the joint values that occur, ascending.
        n_G: training rows of each, or the sum of their weights.
        s_GC: sums of their targets: 0 or 1, an indicator per class, or standardised numbers.
        prior: rows of the base rate that are added to every cell.
    """

    fields: tuple[int, ...]
    n_ids: tuple[int, ...]
    keys_G: Keys
    n_G: Floats
    s_GC: Floats
    prior: float

    def __len__(self) -> int:
        return len(self.keys_G)

    def merge(self, other: Cells) -> Cells:
        """The cells of both sets of rows together."""
        keys = np.concatenate([self.keys_G, other.keys_G])
        n, s = np.concatenate([self.n_G, other.n_G]), np.concatenate([self.s_GC, other.s_GC])
        keys_G, cell = np.unique(keys, return_inverse=True)
        return replace(self, keys_G=keys_G, n_G=sum_by(cell, n, len(keys_G)), s_GC=sums_by(cell, s, len(keys_G)))

    def with_rows(self, least: float) -> Cells:
        """The cells of at least so many rows."""
        kept_G = self.n_G >= least
        return replace(self, keys_G=self.keys_G[kept_G], n_G=self.n_G[kept_G], s_GC=self.s_GC[kept_G])

    def find(self, keys_R: Keys) -> Keys:
        """Position of the cell of each joint value; `len(self)` if it has none."""
        if len(self._places):
            return self._places[np.minimum(keys_R, len(self._places) - 1)]
        place_R = np.searchsorted(self.keys_G, keys_R)
        if not len(self):
            return place_R
        known_R = self.keys_G[np.minimum(place_R, len(self) - 1)] == keys_R
        return np.where(known_R, place_R, len(self))

    @cached_property
    def _places(self) -> Keys:
        """Position of every joint value and, at the end, of any larger one; empty if there are too many."""
        if not len(self) or self.keys_G[-1] >= MAX_TABLE:
            return np.empty(0, dtype=np.int64)
        places = np.full(int(self.keys_G[-1]) + 2, len(self))
        places[self.keys_G] = np.arange(len(self))
        return places

    def sums(self, keys_R: Keys) -> tuple[Floats, Floats]:
        """Training rows (R) and sums of targets (R, C) of the cells of rows; zeros without a cell."""
        place_R = self.find(keys_R)
        n_G, s_GC = self._padded
        return n_G[place_R], s_GC[place_R]

    @cached_property
    def _padded(self) -> tuple[Floats, Floats]:
        return np.append(self.n_G, 0.0), np.concatenate([self.s_GC, np.zeros((1, self.s_GC.shape[1]))])


def sum_by(cell_R: Keys, values_R: Floats, n_cells: int) -> Floats:
    """Sum of the values of every cell."""
    sums: Floats = np.bincount(cell_R, values_R, minlength=n_cells).astype(np.float64)
    return sums


def sums_by(cell_R: Keys, values_RC: Floats, n_cells: int) -> Floats:
    """The same for each column."""
    return np.stack([sum_by(cell_R, values_R, n_cells) for values_R in values_RC.T], axis=1)


def statements(n_R: Floats, s_RC: Floats, base_C: Floats, prior: float, task: Task) -> Floats:
    """What cells say about each output, and how often they were seen: (R, C + 1).

    Two classes: the difference of log-odds to the base rate. Several: the logarithm of the ratio to it. Regression: the
    difference to the mean, 0, in standard deviations.
    """
    n_R1 = n_R[:, None]
    mean_RC = (s_RC + prior * base_C) / (n_R1 + prior)
    if task == "regression":
        said_RC = mean_RC
    elif task == "multiclass":
        said_RC = np.log(mean_RC / base_C)
    else:
        said_RC = np.log(mean_RC / (1.0 - mean_RC)) - np.log(base_C / (1.0 - base_C))
    said_RC = np.clip(said_RC, -MAX_STATEMENT, MAX_STATEMENT)
    return np.concatenate([said_RC, np.log1p(n_R1)], axis=1)


class _Joined(NamedTuple):
    """Fields (-1: no more), their numbers of ids, prior and first cell of all combinations, and the last one's end."""

    fields_KJ: Ids
    n_ids_KJ: Keys
    priors_K: Floats
    starts: Keys


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """The cells of all combinations. Get one from `learn_evidence`, or from a saved model.

    Attributes:
        task: of the target.
        base_C: mean target of the training rows; 0 for regression. No share of a class is 0 or 1.
        cells: one entry per combination: single fields first. Their arrays are parts of the following.
        keys_G, n_G, s_GC: keys, rows and sums of all cells, one combination after the other.
        in_order: whether a training row was told of earlier folds only, because the split is by time.
    """

    task: Task
    base_C: Floats
    cells: tuple[Cells, ...]
    keys_G: Keys
    n_G: Floats
    s_GC: Floats
    in_order: bool = False

    @classmethod
    def of(cls, task: Task, base_C: Floats, cells: Sequence[Cells], *, in_order: bool = False) -> Evidence:
        """The evidence of counted combinations."""
        arrays = {
            "keys": np.concatenate([np.empty(0, dtype=np.int64), *(c.keys_G for c in cells)]),
            "n": np.concatenate([np.empty(0), *(c.n_G for c in cells)]),
            "s": np.concatenate([np.empty((0, len(base_C))), *(c.s_GC for c in cells)]),
        }
        return cls.from_parts(_state(task, base_C, cells, in_order), arrays)

    @property
    def combinations(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the fields of each combination."""
        return tuple(cells.fields for cells in self.cells)

    @property
    def n_cells(self) -> int:
        """Cells of all combinations."""
        return len(self.keys_G)

    @property
    def width(self) -> int:
        """Inputs of the model per combination: a statement per output, and the logarithm of the rows."""
        return len(self.base_C) + 1

    def encode(self, ids_RF: Ids, lists: Mapping[int, Ragged]) -> Statements:
        """Statements about rows that were not counted (R, K * (C + 1)), given ids and, by field, lists."""
        module = native()
        said_RE = np.empty((len(ids_RF), len(self.cells) * self.width), dtype=np.float16)
        self._say(module, slice(0, len(self.cells)), self._joined.fields_KJ, ids_RF, said_RE)
        for k, fields in enumerate(self.combinations if lists else ()):
            listed = lists.get(fields[0])
            if listed is None:
                continue
            # The mean over its values replaces what was said of the stand-in of a list.
            said_V = np.empty((len(listed.values), self.width))
            self._say(module, slice(k, k + 1), FIRST_FIELD, listed.values[:, None], said_V)
            said_RE[:, k * self.width : (k + 1) * self.width] = list_means(said_V, listed)
        return said_RE

    def _say(
        self, module: ModuleType | None, which: slice, fields_KJ: Ids, ids_RF: Ids, said_RE: npt.NDArray[Any]
    ) -> None:
        """Write what some combinations say of rows, given the columns of ids of their fields."""
        if module is not None:
            n_ids_KJ, priors_K = self._joined.n_ids_KJ[which], self._joined.priors_K[which]
            starts = self._joined.starts[which.start : which.stop + 1]
            cells = (self.keys_G, self.n_G, self.s_GC)
            module.say(self.task, self.base_C, fields_KJ, n_ids_KJ, priors_K, starts, *cells, ids_RF, bits_of(said_RE))
            return
        said_RKE = said_RE.reshape(len(ids_RF), len(fields_KJ), self.width)
        for k, (cells_k, fields) in enumerate(zip(self.cells[which], fields_KJ, strict=True)):
            keys_R = joint_keys([ids_RF[:, f] for f in fields if f >= 0], cells_k.n_ids)
            said_RKE[:, k] = statements(*cells_k.sums(keys_R), self.base_C, cells_k.prior, self.task)

    @cached_property
    def _joined(self) -> _Joined:
        fields_KJ = np.full((len(self.cells), MAX_JOINED), -1, dtype=np.int32)
        n_ids_KJ = np.ones((len(self.cells), MAX_JOINED), dtype=np.int64)
        for k, cells in enumerate(self.cells):
            fields_KJ[k, : len(cells.fields)] = cells.fields
            n_ids_KJ[k, : len(cells.fields)] = cells.n_ids
        return _Joined(
            fields_KJ=fields_KJ,
            n_ids_KJ=n_ids_KJ,
            priors_K=np.array([cells.prior for cells in self.cells]),
            starts=np.cumsum([0, *map(len, self.cells)]),
        )

    def merge(self, other: Evidence) -> Evidence:
        """The evidence of both sets of rows, with the base rate and the priors of this one."""
        merged = [one.merge(two) for one, two in zip(self.cells, other.cells, strict=True)]
        return Evidence.of(self.task, self.base_C, merged, in_order=self.in_order)

    def to_json(self) -> dict[str, Any]:
        """Everything but the cells, which `arrays` holds."""
        return _state(self.task, self.base_C, self.cells, self.in_order)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The cells of all combinations one after the other: keys, rows and sums."""
        return {"keys": self.keys_G, "n": self.n_G, "s": self.s_GC}

    @classmethod
    def from_parts(cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Evidence:
        """Rebuild from `to_json` and `arrays`, which may be `compact`.

        Raises:
            BundleError: if the two do not fit together.
        """
        n_cells = sum(entry["cells"] for entry in state["combinations"])
        if any(len(arrays[name]) != n_cells for name in ("keys", "n", "s")):
            raise BundleError(f"the evidence must have {n_cells} cells; the file has others. Save the model again")
        keys = arrays["keys"].astype(np.int64, copy=False)
        n, s = (arrays[name].astype(np.float64, copy=False) for name in ("n", "s"))
        cells, start = [], 0
        for entry in state["combinations"]:
            part = slice(start, start + entry["cells"])
            start = part.stop
            cells.append(
                Cells(
                    fields=tuple(entry["fields"]),
                    n_ids=tuple(entry["n_ids"]),
                    keys_G=keys[part],
                    n_G=n[part],
                    s_GC=s[part],
                    prior=entry["prior"],
                )
            )
        base_C, in_order = np.array(state["base"]), state.get("in_order", False)
        return cls(task=state["task"], base_C=base_C, cells=tuple(cells), keys_G=keys, n_G=n, s_GC=s, in_order=in_order)


def _state(task: Task, base_C: Floats, cells: Sequence[Cells], in_order: bool) -> dict[str, Any]:
    """What `Evidence.to_json` returns."""
    combinations = [
        {"fields": list(c.fields), "n_ids": list(c.n_ids), "prior": c.prior, "cells": len(c)} for c in cells
    ]
    ordered = {"in_order": True} if in_order else {}
    return {"task": task, "base": base_C.tolist(), "combinations": combinations, **ordered}


def compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers with four bytes each, or as they are if that would change one."""
    for dtype in (np.int32,) if values.dtype.kind == "i" else (np.int32, np.float32):
        with np.errstate(invalid="ignore", over="ignore"):
            small = values.astype(dtype)
        if np.array_equal(small, values):
            return small
    return values


def bits_of(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same array as the compiled module wants it, which has no float16."""
    return values.view(np.uint16) if values.dtype == np.float16 else values


def list_means(values_V: Floats, lists: Ragged) -> Floats:
    """Means over the values of each list, none of which is empty."""
    sums = np.add.reduceat(values_V, lists.offsets[:-1], axis=0) if len(lists) else values_V[:0]
    means: Floats = sums / lists.lengths[:, None]
    return means
