"""Input of the estimators: X and y of any type become Polars frames."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_array, check_consistent_length, column_or_1d

from fielddep.encoding.values import canonical
from fielddep.errors import SchemaError
from fielddep.tables.row_stream import read_table

TARGET, WEIGHT = "y", "sample_weight"
"""Default names of the target and the weights."""


@dataclass(frozen=True, kw_only=True)
class FitInput:
    """The arguments of `fit`, without rows of weight 0.

    Attributes:
        fields: one column per field.
        target: target of every row.
        target_name: name of the target for the model, never that of a field.
        weight: sample weights; None means one each.
        weight_name: name of the weights, never that of a field.
        named: whether the columns had names.
    """

    fields: pl.DataFrame
    target: npt.NDArray[Any]
    target_name: str
    weight: npt.NDArray[np.float64] | None
    weight_name: str
    named: bool

    @classmethod
    def of(cls, estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any) -> FitInput:
        """Check and convert the arguments of `fit`."""
        target = check_target(estimator, y)
        fields = frame_of(X)
        check_consistent_length(fields, target)
        name = _target_name(y, fields.columns)
        rows = cls(
            fields=fields,
            target=target,
            target_name=name,
            weight=None,
            weight_name=_unused_name(WEIGHT, [*fields.columns, name]),
            named=has_names(X),
        )
        if sample_weight is None:
            return rows
        weight = _check_sample_weight(sample_weight, fields, dtype=np.float64)
        kept = np.flatnonzero(weight)
        if not len(kept):
            raise SchemaError("sample_weight must be above 0 in some rows; given only zeros")
        return replace(rows, fields=fields[kept], target=target[kept], weight=weight[kept])

    def check_size(self) -> None:
        """Refuse fewer than two fields or rows, in words that scikit-learn's tests look for."""
        if self.fields.width < 2:
            raise SchemaError(
                "a model learns how fields depend on each other, so it needs at least two; given "
                f"{self.fields.width} feature(s)"
            )
        if len(self.fields) < 2:
            raise SchemaError("training needs at least two rows; given 1 sample")

    def table(self) -> pl.DataFrame:
        """Fields, target and weight in one table."""
        table = self.fields.with_columns(pl.Series(self.target_name, self.target.tolist(), strict=False))
        return table if self.weight is None else table.with_columns(pl.Series(self.weight_name, self.weight))


def check_target(estimator: BaseEstimator, y: Any) -> npt.NDArray[Any]:
    """The target as a flat array of finite numbers or labels."""
    if y is None:
        raise SchemaError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    values = y.to_numpy() if isinstance(y, pl.Series) else y
    column: npt.NDArray[Any] = column_or_1d(values, warn=True)
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise SchemaError("y must hold finite numbers or labels; given NaN or inf. Remove these rows")
    # A list is checked itself, because numpy turns NaN among texts into the text "nan".
    labels = (y if isinstance(y, (list, tuple)) else column) if column.dtype.kind in "OU" else ()
    missing = [row for row, label in enumerate(labels) if _is_missing(label)]
    if missing:
        raise SchemaError(
            f"y must hold a label in every row; given {len(missing)} missing, the first in row {missing[0]} (counted "
            "from 0). Remove these rows"
        )
    return column


def _is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, or their counterpart in pandas."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas' NA is neither equal to itself nor unequal
        return True


def _target_name(y: Any, columns: list[str]) -> str:
    """The name of `y`, unless it has none or a column has the same."""
    given = getattr(y, "name", None)
    return given if isinstance(given, str) and given and given not in columns else _unused_name(TARGET, columns)


def _unused_name(name: str, others: list[str]) -> str:
    """The name, followed by underscores until no other name is the same.

    Example:
        >>> _unused_name("y", ["x"]), _unused_name("y", ["y", "y_"])
        ('y', 'y__')
    """
    while name in others:
        name += "_"
    return name


def frame_of(X: Any) -> pl.DataFrame:
    """Any table as a Polars frame; anything else is refused as by scikit-learn's own estimators."""
    if not has_names(X):
        # Refuses sparse, complex, one-dimensional and empty input, and converts nothing: values are encoded later.
        X = check_array(X, dtype=None, ensure_all_finite=False)
        if X.dtype.kind == "f" and np.isinf(X).any():
            raise SchemaError("X must not hold infinity (inf); replace it by a number or by NaN, which means missing")
    return read_table(X)


def stack(table: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
    """Training rows, then validation rows.

    A column with two types becomes text in both, because numbers cast to a common type could lose digits.
    """
    absent = [name for name in table.columns if name not in extra.columns]
    if absent:
        raise SchemaError(f"eval_set must have the columns of X; absent: {', '.join(map(repr, absent))}; add them")
    for name in table.columns:
        if table[name].dtype != extra[name].dtype:
            table = table.with_columns(canonical(table[name]))
            extra = extra.with_columns(canonical(extra[name]))
    return pl.concat([table, extra.select(table.columns)])


def has_names(X: Any) -> bool:
    """Whether the columns of a table have names; those of an array have none."""
    return hasattr(X, "columns")
