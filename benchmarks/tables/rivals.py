"""LightGBM and CatBoost with their defaults, on columns as a competent user would give them.

Numbers stay numbers and text becomes categories. A timestamp becomes numbers (year, month, day, weekday, hour), and a
list becomes one 0/1 column per value, because neither library takes lists. Both stop early on the validation rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import catboost
import lightgbm
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
from sklearn import metrics

from fielddep.encoding.split import PART_NAMES, Parts
from loaders import LIST_SEPARATOR, TIMESTAMP, Table

MAX_TREES = 5_000
PATIENCE = 100
MAX_LIST_VALUES = 300
MISSING = "missing"
TRAIN, VALIDATION, TEST = range(len(PART_NAMES))

Values = npt.NDArray[Any]
Predict = Callable[[pd.DataFrame], Values]
"""Probabilities (rows, classes), or numbers (rows,)."""
Fit = Callable[["TreeRows", str, int, int], Predict]
"""From rows, task, seed and threads to predictions."""


class TreeRows:
    """The rows of a table, by part.

    Attributes:
        columns: fields of all rows: float numbers, or text as objects with None where it is missing.
        text: names of the text columns.
        target: numbers, or the place of the class among all classes.
    """

    def __init__(self, table: Table, parts: Parts) -> None:
        self.parts = parts
        frame = expand(table, parts)
        self.text = [name for name, dtype in frame.schema.items() if dtype == pl.String]
        self.columns = pd.DataFrame({name: _cells(frame[name]) for name in frame.columns})
        target = table.frame[table.source.target].to_numpy()
        self.target = target if table.source.task == "regression" else np.unique(target, return_inverse=True)[1]

    def of(self, part: int) -> tuple[pd.DataFrame, Values]:
        """Columns and target of a part."""
        return self.columns[self.parts == part], self.target[self.parts == part]


def expand(table: Table, parts: Parts) -> pl.DataFrame:
    """Fields with timestamps and lists as numbers, and short names, because LightGBM refuses some characters."""
    frame = table.frame.select(table.fields)
    found = []
    for name in frame.columns:
        if name in table.source.dates:
            found += _date_numbers(frame[name])
        elif name in table.source.lists:
            found += _list_flags(frame[name], parts == TRAIN)
        else:
            found.append(frame[name])
    return pl.DataFrame([column.alias(f"x{at}") for at, column in enumerate(found)])


def _date_numbers(column: pl.Series) -> list[pl.Series]:
    time = column.str.to_datetime(TIMESTAMP).dt
    return [time.year(), time.month(), time.day(), time.weekday(), time.hour()]


def _list_flags(column: pl.Series, is_train: npt.NDArray[np.bool_]) -> list[pl.Series]:
    """One column for each of the most frequent values of the training rows."""
    values = column.str.split(LIST_SEPARATOR)
    counts = values.filter(is_train).explode().drop_nulls().value_counts(sort=True)
    chosen = sorted(counts[column.name].head(MAX_LIST_VALUES))
    return [values.list.contains(value).fill_null(value=False).cast(pl.Int8) for value in chosen]


def _cells(column: pl.Series) -> pd.Series:
    if column.dtype == pl.String:
        # Not the text type of pandas, whose missing values are no text and cannot be sorted.
        return pd.Series(column.to_list(), dtype=object)
    return pd.Series(column.cast(pl.Float64).to_numpy())


def fit_lightgbm(rows: TreeRows, task: str, seed: int, threads: int) -> Predict:
    """Train; values of a category that no training row has are missing."""
    columns = rows.columns.copy()
    for name in rows.text:
        known = sorted(set(columns[name][rows.parts == TRAIN]) - {None})
        columns[name] = pd.Categorical(columns[name].where(columns[name].isin(known)), categories=known)
    rows.columns = columns
    kind = lightgbm.LGBMRegressor if task == "regression" else lightgbm.LGBMClassifier
    model = kind(n_estimators=MAX_TREES, n_jobs=threads, random_state=seed, verbosity=-1)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    model.fit(*rows.of(TRAIN), eval_set=[rows.of(VALIDATION)], callbacks=[stop])
    return model.predict if task == "regression" else model.predict_proba


def fit_catboost(rows: TreeRows, task: str, seed: int, threads: int) -> Predict:
    """Train; a missing category is a value of its own."""
    rows.columns[rows.text] = rows.columns[rows.text].fillna(MISSING)
    kind = catboost.CatBoostRegressor if task == "regression" else catboost.CatBoostClassifier
    loss = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}[task]
    model = kind(
        iterations=MAX_TREES, early_stopping_rounds=PATIENCE, use_best_model=True, loss_function=loss,
        cat_features=rows.text, random_seed=seed, thread_count=threads, verbose=False, allow_writing_files=False,
    )  # fmt: skip
    model.fit(*rows.of(TRAIN), eval_set=rows.of(VALIDATION))
    return model.predict if task == "regression" else model.predict_proba


RIVALS: dict[str, Fit] = {"lightgbm": fit_lightgbm, "catboost": fit_catboost}


def held_out_metrics(rows: TreeRows, predict: Predict, task: str) -> dict[str, float]:
    """Metrics of the test rows."""
    columns, target = rows.of(TEST)
    found = predict(columns)
    if task == "regression":
        mse = metrics.mean_squared_error(target, found)
        return {"rmse": mse**0.5, "mae": metrics.mean_absolute_error(target, found), "r2": 1 - mse / target.var()}
    logloss = metrics.log_loss(target, found, labels=np.arange(found.shape[1]))
    if task == "multiclass":
        return {"logloss": logloss, "accuracy": metrics.accuracy_score(target, found.argmax(axis=1))}
    return {"logloss": logloss, "auc": metrics.roc_auc_score(target, found[:, 1])}
