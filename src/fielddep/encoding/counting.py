"""Count the cells of combinations, and make statements about every row.

A training row never meets its own target: its statements come from the rows of the other folds, or, if the split is by
time, from earlier folds. All other rows are told what all training rows say. Folds follow the split, so rows of one
group are in one fold.

`count_combination` is the definition. If there is a compiled module, it does the same work with the same sums.

Shape legend: R rows, V values of all rows of a list, G cells, K combinations, C outputs, S sampled rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fielddep.encoding.evidence import (
    Cells,
    Floats,
    Ids,
    Keys,
    Task,
    bits_of,
    joint_keys,
    list_means,
    rounded,
    statements,
    sum_by,
)
from fielddep.encoding.interning import n_threads
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.split import Parts
from fielddep.native import native

PRIORS = (1.0, 3.0, 10.0, 30.0, 100.0)
MAX_PRIOR_ROWS = 50_000
"""Training rows that choose the prior of a combination."""
SAME_LOSS = 1e-9
"""Losses that differ by less, relatively, are the same: rounding must not choose a prior."""
MAX_THREADS = 4
"""Combinations that are counted at the same time; ten million rows need about 500 MB for each."""

Combination = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class CountedRows:
    """All rows of a table with what counting needs.

    Attributes:
        columns: local ids of every field, or lists of them.
        n_ids: local ids of every field.
        measured: positions of the fields whose numbers the model sees.
        target_R: encoded targets.
        weight_R: sample weights; None means one each.
        parts_R: part of every row; 0 are training rows.
        folds_R: fold of every training row.
        in_order: whether a row may only know earlier folds.
        min_rows: fewer training rows, or a smaller sum of their weights, say nothing and have no cell.
        task: of the target.
        n_outputs: outputs of the model.
    """

    columns: Sequence[Ids | Ragged]
    n_ids: Sequence[int]
    measured: Collection[int] = ()
    target_R: npt.NDArray[Any]
    weight_R: npt.NDArray[np.float32] | None
    parts_R: Parts
    folds_R: npt.NDArray[Any]
    in_order: bool
    min_rows: float = 0.0
    task: Task
    n_outputs: int

    def __len__(self) -> int:
        return len(self.target_R)

    @cached_property
    def rows_T(self) -> Keys:
        """Numbers of the training rows."""
        return np.flatnonzero(self.parts_R == 0)

    @cached_property
    def n_R(self) -> Floats:
        """What each row counts."""
        return np.ones(len(self)) if self.weight_R is None else rounded(self.weight_R)

    @cached_property
    def s_R(self) -> Floats:
        """What each row adds to the sum of its cell, or of its class in the cell."""
        if self.task == "multiclass":
            return self.n_R
        target_R = rounded(self.target_R)
        return target_R if self.weight_R is None else rounded(self.n_R * target_R)

    @cached_property
    def base_C(self) -> Floats:
        """Mean target of the training rows, away from 0 and 1 for classes."""
        if self.task == "regression":
            return np.zeros(1)
        rows = self.rows_T
        n, s_C = self.n_R[rows].sum(), self.sums(np.zeros(len(rows), dtype=np.int64), rows, 1)[0]
        base_C: Floats = (s_C + 0.5) / (n + (1.0 if self.task == "binary" else 0.5 * self.n_outputs))
        return base_C

    @cached_property
    def fold_numbers(self) -> Keys:
        """The folds of training rows, ascending."""
        return np.unique(self.folds_R[self.rows_T]).astype(np.int64)

    @cached_property
    def places_R(self) -> npt.NDArray[np.uint16]:
        """The place of each row's fold among them; their number for a row that is not for training."""
        places_R = np.searchsorted(self.fold_numbers, self.folds_R).astype(np.uint16)
        places_R[self.parts_R != 0] = len(self.fold_numbers)
        return places_R

    @cached_property
    def classes_R(self) -> npt.NDArray[np.int32] | None:
        """Number of each row's class, if there are several outputs."""
        return self.target_R.astype(np.int32) if self.task == "multiclass" else None

    def entries(self, fields: Combination) -> tuple[list[Ids], Ragged | None]:
        """Ids of some fields, and the lists that they are from: of a field with several values per row."""
        columns = [self.columns[f] for f in fields]
        lists = next((column for column in columns if isinstance(column, Ragged)), None)
        return [column.values if isinstance(column, Ragged) else column for column in columns], lists

    def sums(self, cell_V: Keys, row_V: Keys, n_cells: int) -> Floats:
        """Sums of the targets of rows by cell (G, C)."""
        if self.task != "multiclass":
            return sum_by(cell_V, self.s_R[row_V], n_cells)[:, None]
        joint_V = cell_V * self.n_outputs + self.target_R[row_V]
        return sum_by(joint_V, self.s_R[row_V], n_cells * self.n_outputs).reshape(n_cells, self.n_outputs)

    def take(self, rows: Keys) -> CountedRows:
        """Some of the rows."""
        return replace(
            self,
            columns=[column.take(rows) for column in self.columns],
            target_R=self.target_R[rows],
            weight_R=None if self.weight_R is None else self.weight_R[rows],
            parts_R=self.parts_R[rows],
            folds_R=self.folds_R[rows],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted:
    """One combination, counted.

    Attributes:
        cells: what all training rows say.
        n_V: rows behind what every row, or value of a list, is told.
        s_VC: sums of their targets.
        lists: the lists of a field with several values per row.
    """

    cells: Cells
    n_V: Floats
    s_VC: Floats
    lists: Ragged | None = None

    def said(self, rows: CountedRows) -> Floats:
        """Statements about every row (R, C + 1)."""
        said_V = statements(self.n_V, self.s_VC, rows.base_C, self.cells.prior, rows.task)
        return said_V if self.lists is None else list_means(said_V, self.lists)


def count_all(
    rows: CountedRows, combinations: Sequence[Combination], said: npt.NDArray[Any], *, max_cells: float = math.inf
) -> list[Cells]:
    """Count combinations, and write their statements about every row to an array (K, R, C + 1) of any float type.

    Single fields are always counted. The first combination with which all cells are more than `max_cells`, and those
    that follow it, are dropped; their statements are undefined.
    """
    module = native()
    if module is None:
        counted = (_count_plainly(rows, fields, said_R) for fields, said_R in zip(combinations, said, strict=True))
        return _up_to(max_cells, counted)
    arguments = _arguments(rows)  # once: the threads share them
    with ThreadPoolExecutor(min(n_threads(), MAX_THREADS)) as threads:
        work = [
            threads.submit(_count_compiled, module, arguments, rows, fields, said_R)
            for fields, said_R in zip(combinations, said, strict=True)
        ]
        kept = _up_to(max_cells, (done.result() for done in work))
        threads.shutdown(cancel_futures=True)
        return kept


def _up_to(max_cells: float, counted: Iterable[Cells]) -> list[Cells]:
    """Combinations until there are too many cells; nothing after that is counted."""
    kept, n_cells = [], 0
    for cells in counted:
        n_cells += len(cells)
        if n_cells > max_cells and len(cells.fields) > 1:
            break
        kept.append(cells)
    return kept


def _count_plainly(rows: CountedRows, fields: Combination, said: npt.NDArray[Any]) -> Cells:
    counted = count_combination(rows, fields)
    said[...] = counted.said(rows)
    return counted.cells


def _arguments(rows: CountedRows) -> dict[str, Any]:
    return {
        "folds": rows.places_R,
        "n_folds": len(rows.fold_numbers),
        "weights": None if rows.weight_R is None else rows.n_R,
        "amounts": rows.s_R,
        "classes": rows.classes_R,
        "n_outputs": rows.n_outputs,
        "in_order": rows.in_order,
        "min_rows": rows.min_rows,
    }


def _count_compiled(
    module: ModuleType, arguments: dict[str, Any], rows: CountedRows, fields: Combination, said: npt.NDArray[Any]
) -> Cells:
    ids, lists = rows.entries(fields)
    n_ids = tuple(rows.n_ids[f] for f in fields)
    row_V = None if lists is None else lists.row_V
    count = module.Count(columns=ids, n_ids=n_ids, rows=row_V, **arguments)
    targets = rows.target_R if rows.classes_R is None else None
    prior = _best(count.losses(rows.task, PRIORS, rows.base_C, targets, MAX_PRIOR_ROWS))
    if lists is None:
        count.statements(rows.task, prior, rows.base_C, bits_of(said))
    else:
        said_V = np.empty((len(lists.values), rows.n_outputs + 1))
        count.statements(rows.task, prior, rows.base_C, said_V)
        said[...] = list_means(said_V, lists)
    keys_G, n_G, s_GC = count.take()
    return Cells(fields=fields, n_ids=n_ids, keys_G=keys_G, n_G=n_G, s_GC=s_GC, prior=prior)


def count_combination(rows: CountedRows, fields: Combination) -> Counted:
    """Count the cells of a combination; a list counts with each of its values, and is no part of pairs."""
    ids, lists = rows.entries(fields)
    n_ids = tuple(rows.n_ids[f] for f in fields)
    keys_V, row_V = joint_keys(ids, n_ids), np.arange(len(rows)) if lists is None else lists.row_V
    train_V = rows.parts_R[row_V] == 0
    at_V = np.flatnonzero(train_V)
    keys_G, cell = _distinct(keys_V[at_V], math.prod(n_ids))
    row, n_cells = row_V[at_V], len(keys_G)
    n_G, s_GC = sum_by(cell, rows.n_R[row], n_cells), rows.sums(cell, row, n_cells)
    counted = Cells(fields=fields, n_ids=n_ids, keys_G=keys_G, n_G=n_G, s_GC=s_GC, prior=PRIORS[0])
    n_V, s_VC = np.empty(len(keys_V)), np.empty((len(keys_V), s_GC.shape[1]))
    n_V[~train_V], s_VC[~train_V] = counted.sums(keys_V[~train_V])
    known_n, known_s = (np.zeros_like(n_G), np.zeros_like(s_GC)) if rows.in_order else (n_G, s_GC)
    fold = rows.folds_R[row]
    for number in np.unique(fold):
        own = np.flatnonzero(fold == number)
        own_n, own_s = sum_by(cell[own], rows.n_R[row[own]], n_cells), rows.sums(cell[own], row[own], n_cells)
        told_n, told_s = (known_n, known_s) if rows.in_order else (n_G - own_n, s_GC - own_s)
        n_V[at_V[own]], s_VC[at_V[own]] = told_n[cell[own]], told_s[cell[own]]
        if rows.in_order:
            known_n, known_s = known_n + own_n, known_s + own_s
    few_V = n_V < rows.min_rows
    n_V[few_V], s_VC[few_V] = 0.0, 0.0
    found = Counted(cells=counted.with_rows(rows.min_rows), n_V=n_V, s_VC=s_VC, lists=lists)
    return replace(found, cells=replace(found.cells, prior=_best_prior(found, rows)))


def _distinct(keys: Keys, n_keys: int) -> tuple[Keys, Keys]:
    """Ascending different keys, and the position of each key among them."""
    if n_keys > max(4 * len(keys), 1 << 20):
        return np.unique(keys, return_inverse=True)
    present = np.zeros(n_keys, dtype=bool)
    present[keys] = True
    places = np.cumsum(present) - 1
    return np.flatnonzero(present), places[keys]


def _best_prior(counted: Counted, rows: CountedRows) -> float:
    """The prior whose statements alone have the lowest loss on training rows."""
    row_V = np.arange(len(rows)) if counted.lists is None else counted.lists.row_V
    at = np.flatnonzero(rows.parts_R[row_V] == 0)
    at = at[:: max(1, len(at) // MAX_PRIOR_ROWS)]
    n_S, s_SC, row_S = counted.n_V[at], counted.s_VC[at], row_V[at]
    target_S, weight_S = rows.target_R[row_S], rows.n_R[row_S]

    def loss(prior: float) -> float:
        mean_SC = (s_SC + prior * rows.base_C) / (n_S[:, None] + prior)
        if rows.task == "regression":
            losses = np.square(mean_SC[:, 0] - target_S)
        elif rows.task == "multiclass":
            losses = -np.log(mean_SC[np.arange(len(row_S)), target_S])
        else:
            losses = -np.log(np.where(target_S > 0, mean_SC[:, 0], 1.0 - mean_SC[:, 0]))
        return float((weight_S * losses).sum())

    return _best([loss(prior) for prior in PRIORS])


def _best(losses: Sequence[float]) -> float:
    """The first prior with the lowest loss."""
    lowest = min(losses)
    return next(prior for prior, loss in zip(PRIORS, losses, strict=True) if loss - lowest <= SAME_LOSS * abs(lowest))
