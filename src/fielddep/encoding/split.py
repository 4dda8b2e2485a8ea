"""Splits: which rows train, which stop the training early, and which give the final metrics.

Every row gets a 64-bit draw, a keyed hash of its row number. Within each stratum, the rows with the smallest draws are
test rows and the next ones are validation rows. So the part of a row depends on the table and the settings only,
whichever command asks and in whatever order chunks are read. A row's number is its place in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.data import SplitConfig
from fielddep.encoding.coded import CodedTable
from fielddep.encoding.ordering import (
    Draws,
    Floats,
    Numbers,
    draw,
    one_of,
    order_statistics,
    select_smallest,
    split_by_time,
)
from fielddep.encoding.target import guess_task
from fielddep.encoding.values import canonical, try_numbers
from fielddep.errors import SplitError
from fielddep.wording import did_you_mean

Parts = npt.NDArray[np.uint8]
"""Part of every row, as an index into `PART_NAMES`."""
ReadParts = Callable[[int, int], Parts]
"""Parts of the rows from `start` to `stop`."""
Folds = npt.NDArray[np.uint8]
"""Fold of every row."""
Keys = npt.NDArray[Any]
"""Cells of the column that decides: codes, or numbers if the column is kept as numbers."""
Sizes = tuple[int, int, int]

_StrataOf = Callable[[Keys], Numbers] | None

PART_NAMES = ("train", "validation", "test")
SPLIT_VERSION = 2
"""Changes whenever the same table and settings give another split than before."""
BY_COLUMN = ("group", "time", "column")
"""Methods that `split.column` is for."""
N_TENTHS = 10
_NAMED = {"train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2}
_PARTS, _FOLDS, _STRATA, _GROUPS = 0, 1, 1 << 32, (1 << 32) + 1
"""Streams of draws: parts of rows, folds of rows (plus the number of the draw), order of strata, order of groups."""


class _Rule(Protocol):
    """Part and fold of a row, by its number and its key."""

    def parts(self, rows: Numbers, keys: Keys | None) -> Parts: ...

    def folds(self, rows: Numbers, keys: Keys | None, n: int, number: int) -> Numbers: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """How the rows of a table are divided.

    Attributes:
        sizes: rows for training, validation and test.
        column: the column whose cells decide, together with row numbers; None for a random split.
        rule: how they decide.
    """

    sizes: Sizes
    column: str | None
    rule: _Rule

    def parts(self, start: int, stop: int, keys: Keys | None = None) -> Parts:
        """Parts of the rows from `start` to `stop`, given their cells of `column`."""
        return self.rule.parts(np.arange(start, stop), keys)

    def folds(self, start: int, stop: int, keys: Keys | None = None, *, n: int, draw: int) -> Numbers:
        """Folds of the training and validation rows from `start` to `stop`; those of test rows are meaningless.

        Every `draw` gives other folds, 0 to n - 1, which keep groups together. Folds of a split by time follow each
        other in time, whatever the draw, and those of validation rows are numbered on from n.
        """
        return self.rule.folds(np.arange(start, stop), keys, n, draw)

    def parts_of(self, table: CodedTable, start: int, stop: int) -> Parts:
        """Parts of the rows of a table from `start` to `stop`."""
        return self.parts(start, stop, self._keys(table, start, stop))

    def folds_of(self, table: CodedTable, start: int, stop: int, *, n: int, draw: int = 0) -> Numbers:
        """Folds of the rows of a table from `start` to `stop`."""
        return self.folds(start, stop, self._keys(table, start, stop), n=n, draw=draw)

    def _keys(self, table: CodedTable, start: int, stop: int) -> Keys | None:
        return None if self.column is None else table.keys(self.column, start, stop)


def random_folds(seed: int, start: int, stop: int, *, n: int) -> Numbers:
    """Folds of rows whose parts were given, so that no split says which rows belong together."""
    return one_of(draw(seed, _FOLDS, np.arange(start, stop)), n)


def group_folds(table: CodedTable, config: SplitConfig, *, n: int) -> Callable[[int, int], Numbers]:
    """Folds of a table that keep the groups of `split.group` together; given first and last row."""
    assert config.group is not None
    name, rank = config.group, _dense_rank(canonical(table.columns[config.group].values))
    return lambda start, stop: one_of(draw(config.seed, _FOLDS, rank[table.codes(name, start, stop)]), n)


def plan_split(table: CodedTable, config: SplitConfig, target: str | None) -> Split:
    """Decide how to divide the rows of a table; a part with a share above 0 gets at least one row.

    Raises:
        SplitError: if the column is absent or unusable, or no row is left for training.
    """
    rule: _Rule
    if not table.n_rows:
        raise _no_training_rows(config.method, 0)
    column = split_column(list(table.columns), config, target)
    if column is None:
        rule, sizes = _draw_parts(table, None, None, np.array([table.n_rows]), config)
    else:
        plan = {"stratified": _plan_stratified, "group": _plan_groups, "time": _plan_times, "column": _plan_column}
        rule, sizes = plan[config.method](table, column, config)
    if not sizes[0]:
        raise _no_training_rows(config.method, table.n_rows)
    return Split(sizes=sizes, column=column, rule=rule)


def _no_training_rows(method: str, n_rows: int) -> SplitError:
    return SplitError(
        f"training needs at least one row; split.method {method!r} leaves none of {n_rows}. Lower split.validation and "
        "split.test, or add rows"
    )


def split_column(columns: Sequence[str], config: SplitConfig, target: str | None) -> str | None:
    """The column whose cells decide a split: `split.column`, the target of a stratified one, None for a random one.

    Raises:
        SplitError: if no column is named, the table has none of that name, or `split.column` would decide nothing but
            still be excluded from the fields.
    """
    by_column = config.method in BY_COLUMN
    if config.column is not None and not by_column:
        raise SplitError(
            f"split.column is for split.method group, time or column; split.method is {config.method}, split.column is "
            f"{config.column!r}. Set split.method, or remove split.column"
        )
    if config.group is not None:
        _check_group(columns, config)
    if config.method == "random":
        return None
    name, setting = (config.column, "split.column") if by_column else (target, "data.target")
    if name is None:
        raise SplitError(f"split.method {config.method!r} needs a column; set {setting}")
    if name not in columns:
        raise SplitError(f"{setting} names {name!r}, which is not a column; {did_you_mean(name, columns)}")
    return name


def _check_group(columns: Sequence[str], config: SplitConfig) -> None:
    if config.method in ("group", "time"):
        advice = "Name the groups in split.column" if config.method == "group" else "Rows are told of earlier rows only"
        raise SplitError(
            f"split.group is for split.method random, stratified or column; split.method is {config.method}, "
            f"split.group is {config.group!r}. {advice}: remove split.group"
        )
    if config.group not in columns:
        raise SplitError(
            f"split.group names {config.group!r}, which is not a column; {did_you_mean(config.group or '', columns)}"
        )


def wanted_rows(share: float, n_rows: int) -> int:
    """Rows of a part; at least one if its share is above 0."""
    return max(1, round(share * n_rows)) if share > 0 else 0


def _rows_of(groups: Numbers | Parts, counts: Numbers, n_groups: int = 0) -> Numbers:
    """Rows of every group, given the group and the rows of each code."""
    return np.bincount(groups, weights=counts, minlength=n_groups).astype(np.int64)


def _dense_rank(texts: pl.Series) -> Numbers:
    """Number of each text in sorted order, from 1; 0 for null."""
    return texts.rank("dense").fill_null(0).to_numpy().astype(np.int64)


# --- drawn rows: random, stratified, column -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _DrawnRows:
    """The smallest draws of each stratum are test rows, the next are validation rows.

    Attributes:
        seed: seed of the draws.
        strata: from keys to strata; None for one stratum.
        bounds: per stratum, the draws below which test rows, and test or validation rows lie (2, S).
        fixed: parts by code, for rows of stratum -1.
    """

    seed: int
    strata: _StrataOf
    bounds: Draws
    fixed: Parts | None = None

    def parts(self, rows: Numbers, keys: Keys | None) -> Parts:
        draws, strata = draw(self.seed, _PARTS, rows), _strata(self.strata, keys)
        test, both = self.bounds[:, 0] if strata is None else self.bounds[:, strata]
        parts: Parts = (draws < test).astype(np.uint8) + (draws < both)
        if self.fixed is None or keys is None or strata is None:
            return parts
        return np.where(strata < 0, self.fixed[keys], parts)

    def folds(self, rows: Numbers, keys: Keys | None, n: int, number: int) -> Numbers:
        return one_of(draw(self.seed, _FOLDS + number, rows), n)


def _strata(strata: _StrataOf, keys: Keys | None) -> Numbers | None:
    return None if strata is None or keys is None else strata(keys)


def _draw_parts(
    table: CodedTable,
    column: str | None,
    strata: _StrataOf,
    sizes: Numbers,
    config: SplitConfig,
    fixed: Parts | None = None,
) -> tuple[_DrawnRows, Sizes]:
    """Draw the same share of every stratum, given the rows of each; with `fixed` parts, no test rows are drawn."""
    n_rows = int(sizes.sum())
    n_test = 0 if fixed is not None else min(wanted_rows(config.test, n_rows), n_rows)
    n_validation = min(wanted_rows(config.validation, n_rows), n_rows - n_test)
    order = np.argsort(draw(config.seed, _STRATA, np.arange(len(sizes))))
    test = _quotas(sizes, order, n_test)
    both = test + _quotas(sizes - test, order, n_validation)

    def chunks() -> Iterator[tuple[Draws, Numbers | None]]:
        for start, stop in table.chunks():
            keys = None if column is None else table.keys(column, start, stop)
            yield draw(config.seed, _PARTS, np.arange(start, stop)), _strata(strata, keys)

    bounds = select_smallest(chunks, sizes, np.stack([test, both]))
    rule = _DrawnRows(seed=config.seed, strata=strata, bounds=bounds, fixed=fixed)
    return rule, (n_rows - n_test - n_validation, n_validation, n_test)


def _quotas(sizes: Numbers, order: Numbers, n_wanted: int) -> Numbers:
    """Rows to take of each stratum, `n_wanted` in all; strata too small for one take turns."""
    ends = np.concatenate([[0], np.cumsum(sizes[order])])
    # Rounding the running total, not each stratum, makes the sum exact and every stratum right within one row.
    marks = np.floor(ends * (n_wanted / max(int(ends[-1]), 1)) + 0.5).astype(np.int64)
    quotas = np.zeros_like(sizes)
    quotas[order] = np.diff(marks)
    return quotas


def _plan_stratified(table: CodedTable, name: str, config: SplitConfig) -> tuple[_Rule, Sizes]:
    """Strata are classes or, for regression, tenths of the rows by target."""
    column = table.columns[name]
    if column.mode == "numbers":
        edges = order_statistics(lambda: _numbers(table, name), _ends_of_tenths(table.n_rows))
        sizes = np.sum(
            [np.bincount(np.searchsorted(edges, x), minlength=N_TENTHS) for x in _numbers(table, name)], axis=0
        )
        return _draw_parts(table, name, lambda keys: np.searchsorted(edges, keys), sizes, config)
    counts = table.code_counts(name)
    by_code = _strata_of_values(column.values, counts)
    return _draw_parts(table, name, by_code.__getitem__, _rows_of(by_code, counts), config)


def _numbers(table: CodedTable, name: str) -> Iterator[Floats]:
    for start, stop in table.chunks():
        yield table.keys(name, start, stop)


def _strata_of_values(values: pl.Series, counts: Numbers) -> Numbers:
    numbers = try_numbers(values) if guess_task(values.filter(pl.Series(counts > 0))) == "regression" else None
    if numbers is None:
        return _dense_rank(canonical(values))
    known = numbers.fill_null(np.nan).to_numpy()
    order = np.argsort(known)
    ends = np.searchsorted(np.cumsum(counts[order]), _ends_of_tenths(int(counts.sum())), side="right")
    return np.searchsorted(known[order[ends]], known)


def _ends_of_tenths(n_rows: int) -> Numbers:
    """Place, in sorted order, of the last number of every tenth but the highest; equal numbers share a tenth."""
    ends = -(-np.arange(1, N_TENTHS) * (n_rows + 1) // N_TENTHS) - 1
    return ends[ends < n_rows]


def _plan_column(table: CodedTable, name: str, config: SplitConfig) -> tuple[_Rule, Sizes]:
    """Parts named by the column; if it names no validation rows, they are drawn from the training rows."""
    values, counts = table.columns[name].values, table.code_counts(name)
    parts = np.zeros(len(values), dtype=np.uint8)
    parts[counts > 0] = _parts_by_name(values.filter(pl.Series(counts > 0)))
    n_train, n_validation, n_test = _rows_of(parts, counts, len(PART_NAMES)).tolist()
    is_drawn = (parts == 0) & (n_validation == 0)
    by_code = np.where(is_drawn, 0, -1)
    sizes = np.array([0 if n_validation else n_train])
    rule, (_, n_drawn, _) = _draw_parts(table, name, by_code.__getitem__, sizes, config, fixed=parts)
    return rule, (n_train - n_drawn, n_validation + n_drawn, n_test)


def _parts_by_name(column: pl.Series) -> Parts:
    names = canonical(column).str.strip_chars().str.to_lowercase()
    part = names.replace_strict(_NAMED, default=None, return_dtype=pl.UInt8)
    if part.null_count():
        bad = column.filter(part.is_null()).unique().head(5).to_list()
        raise SplitError(
            f"split.column {column.name!r} must hold train, validation (valid, val, dev) or test in every row; it also "
            f"holds {', '.join(map(repr, bad))}. Correct these rows"
        )
    parts: Parts = part.to_numpy()
    return parts


# --- groups and times -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _WholeGroups:
    """Rows of one group stay together: for each code, the part of its group and the rank of the group's text."""

    seed: int
    part: Parts
    rank: Numbers

    def parts(self, rows: Numbers, keys: Keys | None) -> Parts:
        return self.part[keys]

    def folds(self, rows: Numbers, keys: Keys | None, n: int, number: int) -> Numbers:
        return one_of(draw(self.seed, _FOLDS + number, self.rank[keys]), n)


def _plan_groups(table: CodedTable, name: str, config: SplitConfig) -> tuple[_Rule, Sizes]:
    """Assign groups, in the order of their draws, to test and validation while that brings them nearer to their share.

    Rows without a group form one group, because they might belong together.
    """
    counts, rank = table.code_counts(name), _dense_rank(canonical(table.columns[name].values))
    sizes = _rows_of(rank, counts)
    order = np.argsort(draw(config.seed, _GROUPS, np.arange(len(sizes))))
    groups = order[sizes[order] > 0]
    part_of = np.zeros(len(sizes), dtype=np.uint8)
    for part, share in ((2, config.test), (1, config.validation)):
        free = groups[part_of[groups] == 0]
        part_of[_pick_groups(free, sizes, wanted_rows(share, int(sizes.sum())))] = part
    rule = _WholeGroups(seed=config.seed, part=part_of[rank], rank=rank)
    n_train, n_validation, n_test = _rows_of(part_of, sizes, len(PART_NAMES)).tolist()
    return rule, (n_train, n_validation, n_test)


def _pick_groups(groups: Numbers, sizes: Numbers, n_wanted: int) -> list[int]:
    picked: list[int] = []
    n_rows = 0
    for group in groups.tolist() if n_wanted else []:
        if n_rows + sizes[group] / 2 <= n_wanted:
            picked.append(group)
            n_rows += int(sizes[group])
        if n_rows >= n_wanted:
            break
    if n_wanted and not picked and len(groups):
        picked.append(int(groups[np.argmin(sizes[groups])]))
    return picked


def _plan_times(table: CodedTable, name: str, config: SplitConfig) -> tuple[_Rule, Sizes]:
    n_validation, n_test = wanted_rows(config.validation, table.n_rows), wanted_rows(config.test, table.n_rows)
    return split_by_time(table, name, n_validation=n_validation, n_test=n_test, seed=config.seed)
