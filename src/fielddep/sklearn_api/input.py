"""Input of the estimators: X and y of any type become Polars frames."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_array, check_consistent_length, column_or_1d

from fielddep.encoding.encoder import bad_weight
from fielddep.encoding.values import LIST_SEPARATOR, canonical, is_list
from fielddep.errors import ConfigError, SchemaError
from fielddep.tables.row_stream import read_table
from fielddep.wording import listing

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
    def of(cls, estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, weights: str = WEIGHT) -> FitInput:
        """Check and convert the arguments of `fit`; `weights` is what errors call the weights."""
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
        if (weight < 0).any():
            raise bad_weight(weights, int(np.argmax(weight < 0)))
        kept = np.flatnonzero(weight)
        if not len(kept):
            raise SchemaError(f"{weights} must be above 0 in some rows; given only zeros")
        return replace(rows, fields=fields[kept], target=target[kept], weight=weight[kept])

    @classmethod
    def of_eval_set(cls, estimator: BaseEstimator, eval_set: Any, eval_sample_weight: Any) -> FitInput | None:
        """Check and convert the validation rows of `fit`; None if there are none.

        Raises:
            SchemaError: there is not exactly one pair (X, y), or not exactly one array of weights for it.
        """
        if eval_set is None:
            if eval_sample_weight is not None:
                raise SchemaError("eval_sample_weight needs the rows that it weights; give eval_set=[(X, y)] as well")
            return None
        X, y = _only_pair(eval_set)
        weight = None if eval_sample_weight is None else _only_weights(eval_sample_weight)
        return cls.of(estimator, X, y, weight, "eval_sample_weight")

    def check_size(self) -> None:
        """Refuse fewer than two fields or rows, in words that scikit-learn's tests look for."""
        if self.fields.width < 2:
            raise SchemaError(
                "a model learns how fields depend on each other, so it needs at least two; given "
                f"{self.fields.width} feature(s)"
            )
        if len(self.fields) < 2:
            raise SchemaError("training needs at least two rows; given 1 sample")

    def with_names_of(self, other: FitInput) -> FitInput:
        """The same rows with the names of target and weights that other rows have."""
        return replace(self, target_name=other.target_name, weight_name=other.weight_name)

    def with_weights(self) -> FitInput:
        """The same rows, each of weight 1 if they have no weights."""
        return self if self.weight is not None else replace(self, weight=np.ones(len(self.fields)))

    def with_class_weight(self, class_weight: Any) -> FitInput:
        """The same rows, with weights multiplied by those of their classes.

        Raises:
            ConfigError: the argument is neither "balanced" nor a dict of classes with weights above 0.
        """
        classes, position, counts = np.unique(self.target, return_inverse=True, return_counts=True)
        if isinstance(class_weight, str) and class_weight == "balanced":
            of_class = len(position) / (len(classes) * counts)
        else:
            of_class = _weights_of_classes(class_weight, classes.tolist())
        weight = 1.0 if self.weight is None else self.weight
        return replace(self, weight=weight * of_class[position])

    def table(self) -> pl.DataFrame:
        """Fields, target and weight in one table."""
        table = self.fields.with_columns(pl.Series(self.target_name, self.target.tolist(), strict=False))
        return table if self.weight is None else table.with_columns(pl.Series(self.weight_name, self.weight))


def _only_pair(eval_set: Any) -> tuple[Any, Any]:
    """The one pair of an `eval_set`, which is a list of pairs, or the pair itself as a tuple."""
    is_pair = isinstance(eval_set, tuple) and not all(isinstance(item, tuple) for item in eval_set)
    pairs = [eval_set] if is_pair else eval_set
    if not isinstance(pairs, (list, tuple)) or len(pairs) != 1:
        raise SchemaError(f"eval_set must hold exactly one pair, [(X, y)]; given {_described(pairs)}")
    if not isinstance(pairs[0], (list, tuple)) or len(pairs[0]) != 2:
        raise SchemaError(f"the entry of eval_set must be a pair (X, y); given {_described(pairs[0])}")
    return pairs[0][0], pairs[0][1]


def _only_weights(eval_sample_weight: Any) -> Any:
    """The weights of the one pair of an `eval_set`."""
    is_list = isinstance(eval_sample_weight, (list, tuple))
    if not is_list or len(eval_sample_weight) != 1:
        raise SchemaError(
            "eval_sample_weight must be a list of one array, [w], because eval_set has one pair; given "
            f"{_described(eval_sample_weight)}"
        )
    return eval_sample_weight[0]


def _described(given: Any) -> str:
    size = f" of length {len(given)}" if isinstance(given, (list, tuple)) else ""
    return f"a {type(given).__name__}{size}"


def _weights_of_classes(class_weight: Any, classes: list[Any]) -> npt.NDArray[np.float64]:
    """The weights of classes, in their order; 1 for a class without one."""
    if not isinstance(class_weight, Mapping):
        raise ConfigError(f"class_weight must be 'balanced' or a dict of class and weight; given {class_weight!r}")
    unknown = [label for label in class_weight if label not in classes]
    if unknown:
        raise ConfigError(f"class_weight must name classes of y ({listing(classes)}); given also {listing(unknown)}")
    weights = [class_weight.get(label, 1.0) for label in classes]
    bad = [label for label, weight in zip(classes, weights, strict=True) if not 0 < weight < np.inf]
    if bad:
        raise ConfigError(
            f"class_weight must be above 0 for every class; given {class_weight[bad[0]]} for {bad[0]!r}. To train "
            "without a class, remove its rows"
        )
    return np.array(weights, dtype=np.float64)


def n_threads(n_jobs: int) -> int:
    """The threads that scikit-learn's `n_jobs` stands for: -1 means all processors, -2 all but one.

    Example:
        >>> n_threads(3), n_threads(-1) == os.cpu_count()
        (3, True)
    """
    return n_jobs if n_jobs >= 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


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

    A column with two types becomes text, or lists of text, in both, because numbers cast to a common type could lose
    digits.
    """
    absent = [name for name in table.columns if name not in extra.columns]
    if absent:
        raise SchemaError(f"eval_set must have the columns of X; absent: {', '.join(map(repr, absent))}; add them")
    for name in table.columns:
        if table[name].dtype != extra[name].dtype:
            table = table.with_columns(_texts(table[name]))
            extra = extra.with_columns(_texts(extra[name]))
    return pl.concat([table, extra.select(table.columns)])


def _texts(column: pl.Series) -> pl.Series:
    texts = canonical(column)
    return texts.str.split(LIST_SEPARATOR) if is_list(column.dtype) else texts


def has_names(X: Any) -> bool:
    """Whether the columns of a table have names; those of an array have none."""
    return hasattr(X, "columns")
