"""Target: the task of a column, its classes, and its encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.data import Task
from fielddep.config.metrics import KnownTask
from fielddep.encoding.values import as_number, boolean_synonyms, canonical, try_numbers
from fielddep.errors import SchemaError
from fielddep.wording import listing

ClassLabel = str | int | float | bool

_MAX_CLASSES = 1000
_MAX_NUMBER_CLASSES = 20
_MAX_SCORE = 3.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """The column to predict.

    Attributes:
        name: its column.
        task: binary, multiclass or regression.
        classes: labels in their own type, sorted; of two, the last is the positive class. Empty for regression.
        mean: mean of a regression target over training rows.
        scale: its standard deviation over training rows, 1 for a constant.
    """

    name: str
    task: KnownTask
    classes: tuple[ClassLabel, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    @property
    def n_outputs(self) -> int:
        """Outputs of a model per row: one logit or value, or one logit per class."""
        return len(self.classes) if self.task == "multiclass" else 1

    @property
    def loss_unit(self) -> float:
        """Factor from the loss of a model to the unit of the target; infinite if its square overflows."""
        return self.scale * self.scale if self.task == "regression" else 1.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for `from_json`."""
        return {**vars(self), "classes": list(self.classes)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Target:
        """Read what `to_json` wrote."""
        return cls(**{**values, "classes": tuple(values["classes"])})

    def encode(
        self, column: pl.Series, missing_values: Iterable[str] = ("",), *, first_row: int = 0
    ) -> npt.NDArray[Any]:
        """Targets of rows: 0/1 float32 (binary), class index int64 (multiclass), standardised float32 (regression).

        Raises:
            SchemaError: for a missing target or an unknown class.
        """
        if self.task == "regression":
            numbers = as_number(column, missing_values, first_row=first_row)
            _refuse_missing(numbers, first_row)
            with np.errstate(over="ignore"):  # a target far beyond those of training may become infinite
                return ((numbers.to_numpy() - self.mean) / self.scale).astype(np.float32)
        texts = canonical(column, missing_values)
        _refuse_missing(texts, first_row)
        index = self._class_index(texts)
        return index.to_numpy().astype(np.float32 if self.task == "binary" else np.int64)

    def is_known(self, column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series:
        """Whether each row has a target; see `has_target`. Some rows of a table are judged like all of it."""
        if self.task == "regression" or try_numbers(pl.Series(class_texts(self.classes))) is not None:
            return has_target(column, missing_values)
        return canonical(column, missing_values).is_not_null()

    def _class_index(self, texts: pl.Series) -> pl.Series:
        known = class_texts(self.classes)
        places = {text: place for place, text in enumerate(known)}
        places |= {other: places[text] for other, text in boolean_synonyms(pl.Series(known)).items()}
        index: pl.Series = texts.replace_strict(places, default=None, return_dtype=pl.Int64)
        if index.null_count():
            unknown = texts.filter(index.is_null()).unique().sort().to_list()
            raise SchemaError(
                f"target {self.name!r} has the classes {listing(known)}; these rows also hold {listing(unknown)}. "
                "Remove such rows, or train on rows of every class"
            )
        return index


def infer_target(
    column: pl.Series, task: Task = "auto", missing_values: Iterable[str] = ("",), *, n_rows: int | None = None
) -> Target:
    """Decide the task of a column and list its classes.

    Args:
        column: values of all rows, or each different value once.
        task: the task in the settings.
        missing_values: texts that mean missing.
        n_rows: number of rows, if `column` holds each value once.

    Raises:
        SchemaError: for missing, infinite or constant targets, or a task that does not fit.
    """
    numbers = try_numbers(column, missing_values)
    texts = canonical(column, missing_values)
    _refuse_missing(texts if numbers is None else numbers, 0)
    if numbers is not None:
        as_number(column, missing_values)  # refuses infinite numbers
    n_distinct = texts.n_unique()
    if n_distinct < 2:
        raise SchemaError(
            f"target {column.name!r} must have at least two different values; given {n_rows or len(column)} rows of "
            f"{texts.first()!r}. Choose another target, or add rows"
        )
    chosen = guess_task(column, missing_values) if task == "auto" else task
    if chosen == "regression":
        as_number(column, missing_values)
        return Target(name=column.name, task="regression")
    _check_n_classes(column.name, n_distinct, chosen, asked=task != "auto")
    return Target(name=column.name, task=chosen, classes=_classes(column, missing_values))


def guess_task(column: pl.Series, missing_values: Iterable[str] = ("",)) -> KnownTask:
    """Two values are binary; text is multiclass; fractions or more than 20 whole numbers are regression."""
    n_distinct = canonical(column, missing_values).drop_nulls().n_unique()
    numbers = None if column.dtype == pl.Boolean else try_numbers(column, missing_values)
    if n_distinct <= 2:
        return "binary"
    if numbers is None:
        return "multiclass"
    fractions = not (numbers.drop_nulls() % 1 == 0).all()
    return "regression" if fractions or n_distinct > _MAX_NUMBER_CLASSES else "multiclass"


def class_texts(classes: Iterable[ClassLabel]) -> list[str]:
    """Canonical text of each class; labels of any type are matched by it."""
    return [str(canonical(pl.Series([label]))[0]) for label in classes]


def target_score(target: Target) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.float64]]:
    """A function from encoded targets to one number per row that says how high they are.

    Regression: the standardised target, with outliers cut. Several classes: whether every other class occurred.
    """
    if target.task == "regression":
        return lambda encoded: np.clip(encoded.astype(np.float64), -_MAX_SCORE, _MAX_SCORE)
    if target.task == "binary":
        return lambda encoded: encoded.astype(np.float64)
    return lambda encoded: (encoded % 2).astype(np.float64)


def _classes(column: pl.Series, missing_values: Iterable[str]) -> tuple[ClassLabel, ...]:
    """One label per different canonical text, in the type of the column, sorted."""
    texts = canonical(column, missing_values)
    plain = column.dtype.is_integer() or column.dtype.is_float() or column.dtype in (pl.Boolean, pl.String)
    labels = pl.DataFrame({"text": texts, "label": column if plain else texts})
    found: list[ClassLabel] = labels.group_by("text").agg(pl.col("label").min())["label"].to_list()
    if column.dtype == pl.String and try_numbers(column, missing_values) is not None:
        return tuple(sorted(found, key=lambda label: Decimal(str(label).strip())))
    return tuple(sorted(found))


def _refuse_missing(column: pl.Series, first_row: int) -> None:
    if column.null_count():
        raise missing_target(column.name, column.null_count(), first_row + int(column.is_null().arg_true()[0]))


def has_target(column: pl.Series, missing_values: Iterable[str] = ("",)) -> pl.Series:
    """Whether each value is a target; "NA" and the like are missing only if all other values are numbers.

    Args:
        column: targets of all rows, or each different value.
        missing_values: texts that mean missing.
    """
    numbers = try_numbers(column, missing_values)
    known = canonical(column, missing_values) if numbers is None else numbers
    return known.is_not_null()


def missing_target(name: str, n_missing: int, row: int) -> SchemaError:
    """The error for rows without a target."""
    return SchemaError(
        f"target {name!r} must have a value in every row; it has {n_missing} missing, the first in row {row} "
        "(counted from 0). Set data.missing_target = 'drop' to train and evaluate without such rows"
    )


def _check_n_classes(name: str, n_distinct: int, task: Task, *, asked: bool) -> None:
    if task == "binary" and n_distinct != 2:
        raise SchemaError(
            f"target {name!r} must have two values for data.task = 'binary'; it has {n_distinct}. Use multiclass"
        )
    if not asked and n_distinct > _MAX_CLASSES:
        raise SchemaError(
            f"target {name!r} must have at most {_MAX_CLASSES} classes; it has {n_distinct} different values. Choose "
            "another target, convert it to numbers for regression, or set data.task = 'multiclass' if you mean it"
        )
