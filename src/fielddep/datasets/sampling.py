"""Sampling of parts and negatives, as in the paper's data sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.errors import TableError

N_NEGATIVES = 2
"""Negatives per positive."""
SPLIT = "split"
"""Column with the part of every row."""

Names = npt.NDArray[np.str_]
Numbers = npt.NDArray[np.int64]


def part_sizes(n_rows: int) -> tuple[int, int, int]:
    """Rows of each part, 8:1:1; the remainder of the division goes to test.

    Example:
        >>> part_sizes(288_609)
        (230887, 28860, 28862)
    """
    n_train, n_validation = n_rows * 8 // 10, n_rows // 10
    return n_train, n_validation, n_rows - n_train - n_validation


def random_split(n_rows: int, rng: np.random.Generator) -> Names:
    """The part of every row, 8:1:1 at random."""
    n_train, n_validation, _ = part_sizes(n_rows)
    split = np.full(n_rows, "test", dtype="<U10")
    order = rng.permutation(n_rows)
    split[order[:n_train]] = "train"
    split[order[n_train : n_train + n_validation]] = "validation"
    return split


def group_split(groups: npt.NDArray[np.object_], rng: np.random.Generator) -> Names:
    """The part of every row; groups are split 8:1:1 at random, and each stays in one part."""
    names, group_of_row = np.unique(groups, return_inverse=True)
    return random_split(len(names), rng)[group_of_row]


def with_split(frame: pl.DataFrame, split: Names) -> pl.DataFrame:
    """The frame with the part of every row as its last column."""
    return frame.with_columns(pl.Series(SPLIT, split))


def add_unused_negatives(
    log: pl.DataFrame, user: str, item: str, target: str, rng: np.random.Generator
) -> pl.DataFrame:
    """Every row (target 1), followed by two copies (target 0) with items that its user never used.

    The two items differ and are drawn uniformly from all items of the log. Other columns are copied.

    Raises:
        TableError: a user leaves fewer than two items unused.
    """
    users, user_of_row = np.unique(log[user].to_numpy(), return_inverse=True)
    items, item_of_row = np.unique(log[item].to_numpy(), return_inverse=True)
    used = np.zeros((len(users), len(items)), dtype=bool)
    used[user_of_row, item_of_row] = True
    n_unused = len(items) - used.sum(axis=1)
    if n_unused.min() < N_NEGATIVES:
        raise TableError(
            f"expected every {user} to leave at least {N_NEGATIVES} values of {item} unused, as negatives; one leaves "
            f"{n_unused.min()}. Is the log complete?"
        )
    unused_first = np.argsort(used, axis=1, kind="stable")
    first = rng.integers(n_unused[user_of_row])
    second = rng.integers(n_unused[user_of_row] - 1)
    second += second >= first
    drawn = [unused_first[user_of_row, rank] for rank in (first, second)]
    return _with_negatives(log, item, items[np.column_stack([item_of_row, *drawn]).ravel()], target)


def add_unassigned_negatives(
    log: pl.DataFrame, key: tuple[str, ...], value: str, target: str, rng: np.random.Generator
) -> pl.DataFrame:
    """Every row (target 1), followed by two copies (target 0) with values that its key never has.

    Like `add_unused_negatives`, for so many keys that a table of keys and values would not fit in memory: draws are
    repeated until they are neither positives nor equal.

    Raises:
        TableError: a key leaves fewer than two values.
    """
    key_of_row = log.select(pl.struct(*key).rank("dense")).to_series().to_numpy().astype(np.int64)
    values, value_of_row = np.unique(log[value].to_numpy(), return_inverse=True)
    n_values = len(values)
    positives = np.unique(key_of_row * n_values + value_of_row)
    fewest = n_values - int(np.bincount(positives // n_values).max())
    if fewest < N_NEGATIVES:
        raise TableError(
            f"expected every {' and '.join(key)} to leave at least {N_NEGATIVES} values of {value} unused, as "
            f"negatives; one leaves {fewest}. Is the file complete?"
        )
    first = _draw_others(key_of_row, n_values, positives, np.full(len(key_of_row), -1), rng)
    second = _draw_others(key_of_row, n_values, positives, first, rng)
    return _with_negatives(log, value, values[np.column_stack([value_of_row, first, second]).ravel()], target)


def _draw_others(keys: Numbers, n_values: int, positives: Numbers, taken: Numbers, rng: np.random.Generator) -> Numbers:
    """A random value for every key, neither one of its positives nor the one taken."""
    drawn = rng.integers(n_values, size=len(keys))
    waiting = np.arange(len(keys))
    while len(waiting):
        codes = keys[waiting] * n_values + drawn[waiting]
        refused = np.isin(codes, positives) | (drawn[waiting] == taken[waiting])
        waiting = waiting[refused]
        drawn[waiting] = rng.integers(n_values, size=len(waiting))
    return drawn


def _with_negatives(log: pl.DataFrame, column: str, values: npt.NDArray[np.object_], target: str) -> pl.DataFrame:
    """Copies of the rows with new values of a column; the first copy of each is the positive."""
    is_positive = np.tile(np.array([1] + [0] * N_NEGATIVES, dtype=np.int8), log.height)
    copies = log[np.repeat(np.arange(log.height), 1 + N_NEGATIVES)]
    return copies.with_columns(pl.Series(column, values, dtype=pl.String), pl.Series(target, is_positive))
