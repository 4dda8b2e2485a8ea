"""Splits: which rows train, which stop the training early, which give the final metrics. Seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config import SplitConfig
from fielddep.data.target import guess_task, nearest
from fielddep.data.values import canonical, try_numbers
from fielddep.errors import SplitError

Rows = npt.NDArray[np.int64]
Parts = tuple[Rows, Rows, Rows]

_PART_NAMES = {
    "train": 0,
    "training": 0,
    "validation": 1,
    "valid": 1,
    "val": 1,
    "dev": 1,
    "test": 2,
}
_TIME_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S%.fZ",
    "%Y-%m-%dT%H:%M:%S%.f%z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%Y/%m/%d",
)
STRATA_OF_NUMBERS = 10


@dataclass(frozen=True, kw_only=True)
class Split:
    """Row numbers of each part, ascending. Every row is in exactly one part; validation or test may be empty."""

    train: Rows
    validation: Rows
    test: Rows
    warnings: tuple[str, ...] = ()


def split_rows(table: pl.DataFrame, config: SplitConfig, target: str | None = None) -> Split:
    """Share out the rows of a table.

    A part whose share is above 0 gets at least one row. The same seed gives the same split.

    Raises:
        SplitError: if the column is absent or unusable, or no row is left for training.
    """
    rng = np.random.default_rng(config.seed)
    if config.method == "random":
        parts = _draw_parts([np.arange(len(table))], config, rng)
    elif config.method == "stratified":
        parts = _draw_parts(_strata(_column(table, target, "data.target")), config, rng)
    else:
        column = _column(table, config.column, "split.column")
        by_method = {"group": _by_group, "time": _by_time, "column": _by_column}
        parts = by_method[config.method](column, config, rng)
    if not len(parts[0]):
        raise no_training_rows(config.method, len(table))
    train, validation, test = (np.sort(rows) for rows in parts)
    named = {"train": train, "validation": validation, "test": test}
    return Split(**named, warnings=_absent_classes(table, target, named))


def no_training_rows(method: str, n_rows: int) -> SplitError:
    """The error of a split that leaves nothing to learn from."""
    return SplitError(
        f"training needs at least one row; method {method!r} left none of {n_rows}; lower "
        "split.validation and split.test, or give more rows"
    )


def split_column(columns: Sequence[str], name: str | None, setting: str) -> str:
    """The column that a split needs.

    Raises:
        SplitError: if it is not named, or there is none of that name.
    """
    if name is None:
        raise SplitError(f"this split needs a column; set {setting}")
    if name not in columns:
        raise SplitError(f"{setting} names {name!r}, which is no column; {nearest(name, columns)}")
    return name


def _column(table: pl.DataFrame, name: str | None, setting: str) -> pl.Series:
    return table[split_column(table.columns, name, setting)]


def wanted_rows(share: float, n_rows: int) -> int:
    """Rows of a part: its share, and at least one where the share is above 0."""
    return max(1, round(share * n_rows)) if share > 0 else 0


def _draw_parts(strata: list[Rows], config: SplitConfig, rng: np.random.Generator) -> Parts:
    """Draw the same share of every stratum; strata too small for it take turns."""
    n_rows = sum(map(len, strata))
    shuffled = [rng.permutation(rows) for rows in strata]
    order = rng.permutation(len(shuffled))
    shuffled = [shuffled[i] for i in order]
    test, rest = _draw(shuffled, wanted_rows(config.test, n_rows))
    validation, train = _draw(rest, wanted_rows(config.validation, n_rows))
    return _join(train), _join(validation), _join(test)


def _draw(strata: list[Rows], n_wanted: int) -> tuple[list[Rows], list[Rows]]:
    """Take rows off the front of every stratum, `n_wanted` in all."""
    ends = np.cumsum([0, *map(len, strata)])
    # Rounding the running total, not each stratum, makes the sum exact and every stratum right within one row.
    marks = np.floor(ends * (min(n_wanted, ends[-1]) / max(ends[-1], 1)) + 0.5).astype(np.int64)
    takes = np.diff(marks)
    taken = [rows[:n] for rows, n in zip(strata, takes, strict=True)]
    return taken, [rows[n:] for rows, n in zip(strata, takes, strict=True)]


def _join(strata: list[Rows]) -> Rows:
    return np.concatenate([np.empty(0, dtype=np.int64), *strata])


def _strata(column: pl.Series) -> list[Rows]:
    """Rows of each class; of a number to regress on, rows of each tenth."""
    numbers = try_numbers(column) if guess_task(column) == "regression" else None
    if numbers is None:
        key = canonical(column).rank("dense").fill_null(0).to_numpy()
    else:
        key = numbers.fill_null(0.0).rank("ordinal").to_numpy() * STRATA_OF_NUMBERS // (len(column) + 1)
    order = np.argsort(key, kind="stable").astype(np.int64)
    starts = np.flatnonzero(np.diff(key[order])) + 1
    return np.split(order, starts)


def _by_group(column: pl.Series, config: SplitConfig, rng: np.random.Generator) -> Parts:
    """Whole groups, in random order, into test and validation while they come nearer to their share.

    Rows without a group are one group, as nobody knows whether they belong together.
    """
    key = dense_rank(canonical(column))
    rows = parts_of_groups(np.bincount(key), config, rng)[key]
    return np.flatnonzero(rows == 0), np.flatnonzero(rows == 1), np.flatnonzero(rows == 2)


def dense_rank(texts: pl.Series) -> Rows:
    """Number of each text in sorted order, from 1; 0 for null."""
    return texts.rank("dense").fill_null(0).to_numpy().astype(np.int64)


def parts_of_groups(sizes: Rows, config: SplitConfig, rng: np.random.Generator) -> Rows:
    """Part (0 train, 1 validation, 2 test) of every group, by the number of rows of each."""
    groups = rng.permutation(np.flatnonzero(sizes))
    part_of = np.zeros(len(sizes), dtype=np.int64)
    for part, share in ((2, config.test), (1, config.validation)):
        free = groups[part_of[groups] == 0]
        part_of[_pick_groups(free, sizes, wanted_rows(share, int(sizes.sum())))] = part
    return part_of


def _pick_groups(groups: Rows, sizes: Rows, n_wanted: int) -> list[int]:
    picked: list[int] = []
    n_rows = 0
    for group in groups if n_wanted else []:
        if n_rows + sizes[group] / 2 <= n_wanted:
            picked.append(int(group))
            n_rows += int(sizes[group])
        if n_rows >= n_wanted:
            break
    if n_wanted and not picked and len(groups):
        picked.append(int(groups[np.argmin(sizes[groups])]))
    return picked


def _by_time(column: pl.Series, config: SplitConfig, rng: np.random.Generator) -> Parts:
    """Oldest rows train, newest test. Rows of one time stay together unless a part would be empty by it."""
    times = _times(column)
    order = np.argsort(times, kind="stable").astype(np.int64)
    middle, end = time_cuts(np.bincount(times), config)
    return order[:middle], order[middle:end], order[end:]


def time_cuts(sizes: Rows, config: SplitConfig) -> tuple[int, int]:
    """Where validation and test rows begin, of rows in order of time; `sizes` are the rows of each time."""
    ends = np.cumsum(sizes)
    n_rows = int(ends[-1])
    end = _between_times(ends, n_rows - wanted_rows(config.test, n_rows), n_rows)
    return max(_between_times(ends, end - wanted_rows(config.validation, n_rows), end), 0), end


def _between_times(ends: Rows, cut: int, stop: int) -> int:
    """The place nearest to `cut`, between 0 and `stop`, where the time changes; `cut` itself if there is none."""
    if not 0 < cut < stop:
        return cut
    time = int(np.searchsorted(ends, cut, side="right"))
    before, after = int(ends[time - 1]) if time else 0, int(ends[time])
    places = sorted((place for place in (before, after) if 0 < place < stop), key=lambda place: abs(place - cut))
    return places[0] if places else cut


def _times(column: pl.Series) -> Rows:
    """Rank of each row's time; a rank keeps the order of any dtype without rounding."""
    typed = typed_times(column)
    if typed.null_count():
        raise missing_times(column.name, typed.null_count(), int(typed.is_null().arg_true()[0]))
    return typed.rank("dense").to_numpy().astype(np.int64)


def typed_times(column: pl.Series) -> pl.Series:
    """Times in a type that sorts as time does; null for missing."""
    typed = column if column.dtype.is_numeric() or column.dtype.is_temporal() else _parse_times(column)
    return typed.fill_nan(None) if typed.dtype.is_float() else typed


def time_numbers(column: pl.Series) -> tuple[pl.Series, bool]:
    """Times as Float64, null for missing, and whether they are times of a clock (microseconds) or plain numbers."""
    typed = typed_times(column)
    is_clock = typed.dtype.is_temporal()
    if typed.dtype in (pl.Date, pl.Datetime):
        typed = typed.cast(pl.Datetime("us"))
    numbers: pl.Series = typed.to_physical().cast(pl.Float64)
    return numbers, is_clock


def missing_times(name: str, n_missing: int, row: int) -> SplitError:
    """The error of rows without a time."""
    return SplitError(
        f"split.column {name!r} must have a time in every row; given {n_missing} missing, the "
        f"first in row {row} (counted from 0); fill them or choose another column"
    )


def _parse_times(column: pl.Series) -> pl.Series:
    text = column.cast(pl.String).str.strip_chars().replace("", None)
    numbers = try_numbers(text)
    if numbers is not None:
        return numbers
    for time_format in _TIME_FORMATS:
        dtype = pl.Date if "%H" not in time_format else pl.Datetime("us", "UTC" if "%z" in time_format else None)
        times: pl.Series = text.str.strptime(dtype, time_format, strict=False)
        if times.null_count() == text.null_count():
            return times
    raise SplitError(
        f"split.column {column.name!r} must hold numbers, dates or ISO times of one format, such as 2024-01-31 or "
        f"2024-01-31T12:00:00; given values such as {text.drop_nulls().first()!r}; convert them"
    )


def _by_column(column: pl.Series, config: SplitConfig, rng: np.random.Generator) -> Parts:
    """Parts as the column says; without validation rows, a share of the training rows is held out at random."""
    part = parts_by_name(column)
    train, validation, test = (np.flatnonzero(part == p) for p in range(3))
    if not len(validation):
        (drawn,), (kept,) = _draw([rng.permutation(train)], wanted_rows(config.validation, len(train)))
        return kept, drawn, test
    return train, validation, test


def parts_by_name(column: pl.Series) -> Rows:
    """Part (0 train, 1 validation, 2 test) that each value names."""
    names = canonical(column).str.strip_chars().str.to_lowercase()
    part = names.replace_strict(_PART_NAMES, default=None, return_dtype=pl.Int64)
    if part.null_count():
        bad = column.filter(part.is_null()).unique().head(5).to_list()
        raise SplitError(
            f"split.column {column.name!r} must say train, validation (valid, val, dev) or test in every row; given "
            f"also {', '.join(map(repr, bad))}; correct these rows"
        )
    parts: Rows = part.to_numpy()
    return parts


def absent_warnings(target: str, absent: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Warnings of classes that parts have no row of."""
    found = []
    for name, classes in absent.items():
        if classes:
            shown = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
            found.append(f"the {name} rows hold no row of class {shown} of target {target!r}")
    return tuple(found)


def _absent_classes(table: pl.DataFrame, target: str | None, parts: dict[str, Rows]) -> tuple[str, ...]:
    if target is None or target not in table.columns or guess_task(table[target]) == "regression":
        return ()
    labels = canonical(table[target])
    classes = labels.drop_nulls().unique().sort()
    absent = {
        name: classes.filter(~classes.is_in(labels.gather(rows).drop_nulls().unique().implode())).to_list()
        for name, rows in parts.items()
        if len(rows)
    }
    return absent_warnings(target, absent)
