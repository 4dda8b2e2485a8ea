"""Leaks: does one field alone determine the target? Then it was probably recorded after the fact."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.target import Target, class_texts
from fielddep.data.values import as_number, canonical

_MAX_CHANCE_LOG = math.log(1e-6)
_MIN_ORDERED = 20
_MIN_IN_CLASS = 5
_SAME = 1e-9

Floats = npt.NDArray[np.float64]


def target_numbers(column: pl.Series, target: Target, missing_values: Iterable[str] = ("",)) -> pl.Series:
    """The target as one number a row: the class index, or the number itself."""
    if target.task == "regression":
        return as_number(column, missing_values).alias("target")
    known = class_texts(target.classes)
    texts = canonical(column, missing_values)
    index: pl.Series = texts.replace_strict(known, list(range(len(known))), return_dtype=pl.Float64)
    return index.alias("target")


def most_frequent_share(target: pl.Series) -> float:
    """Share of the most frequent target value."""
    counts = np.unique(target.to_numpy(), return_counts=True)[1]
    return float(counts.max() / len(target))


def determines(groups: pl.DataFrame, most_frequent: float) -> bool:
    """Whether every value of a field goes with one target value, too often for chance.

    Values must repeat, at least twice on average. If field and target were unrelated, each repetition would
    agree with at most the share of the most frequent target value; below one in a million it is no chance.

    Args:
        groups: one row a value: value, n (rows), low and high (range of the target in them).
        most_frequent: share of the most frequent target value.
    """
    groups = _merge(groups)
    n_rows, n_distinct = int(groups["n"].sum()), len(groups)
    if n_distinct < 2 or n_distinct > n_rows / 2:
        return False
    low, high = groups["low"].to_numpy(), groups["high"].to_numpy()
    span = high.max() - low.min()
    if span == 0 or (high - low).max() > _SAME * span:
        return False
    return (n_rows - n_distinct) * math.log(most_frequent) < _MAX_CHANCE_LOG


def orders(groups: pl.DataFrame, *, regression: bool) -> bool:
    """Whether the numbers of a field put the targets in order: thresholds on it give the target without error.

    Args:
        groups: as for `determines`, the values being numbers.
        regression: whether the target is a number rather than a class.
    """
    groups = _merge(groups).sort("value")
    if len(groups) < _MIN_ORDERED:
        return False
    low, high = groups["low"].to_numpy(), groups["high"].to_numpy()
    if regression:
        return len(np.unique(low)) >= _MIN_ORDERED and (_rises(low, high) or _rises(-high, -low))
    if (low != high).any():
        return False
    classes, index = np.unique(low, return_inverse=True)
    n_in_class = np.bincount(index, weights=groups["n"].to_numpy())
    n_changes = int((np.diff(low) != 0).sum())
    return n_changes == len(classes) - 1 > 0 and bool(n_in_class.min() >= _MIN_IN_CLASS)


def _merge(groups: pl.DataFrame) -> pl.DataFrame:
    """One row for each known value; several raw values may have become one."""
    known = groups.filter(pl.col("value").is_not_null())
    return known.group_by("value").agg(pl.col("n").sum(), pl.col("low").min(), pl.col("high").max())


def _rises(low: Floats, high: Floats) -> bool:
    return bool((high[:-1] <= low[1:]).all())
