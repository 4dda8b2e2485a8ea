"""LightGBM on the tables of the accuracy benchmark, with its native handling of categorical fields.

    python benchmarks/accuracy/trees.py flights --seed 0

trains with the parameters that `search_trees.py` chose and prints the metrics as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import polars as pl
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score

from tables import NAMES, PARTS, BenchTable, load

CONFIGS = Path(__file__).parent / "configs"
MAX_ROUNDS = 2000
PATIENCE = 50
LOSS = {"binary": "logloss", "regression": "mse"}
_FIXED = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "bagging_freq": 1,
    # By default values seen fewer than three times in a sample of 200,000 rows share one bin; here none does.
    "min_data_in_bin": 1,
    "bin_construct_sample_cnt": 2_000_000,
    "feature_pre_filter": False,
}


@dataclass(frozen=True, kw_only=True)
class TreeData:
    """A table as LightGBM takes it.

    Attributes:
        task: "binary" or "regression".
        fields: names of the columns of every x.
        categorical: names of the fields that hold codes of values.
        x: matrix of each part; NaN where a value is missing or was not seen in training.
        y: target of each part.
    """

    task: str
    fields: tuple[str, ...]
    categorical: tuple[str, ...]
    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]


def prepare(table: BenchTable) -> TreeData:
    """Encode a table; the vocabulary holds the values of training rows only."""
    train = table.part("train")
    categorical = tuple(name for name in table.fields if train.schema[name] == pl.String)
    codes = [_code(name, train) if name in categorical else pl.col(name) for name in table.fields]
    parts = {part: table.part(part) for part in PARTS}
    return TreeData(
        task=table.task,
        fields=table.fields,
        categorical=categorical,
        x={part: rows.select(codes).cast(pl.Float64).to_numpy() for part, rows in parts.items()},
        y={part: rows[table.target].cast(pl.Float64).to_numpy() for part, rows in parts.items()},
    )


def _code(name: str, train: pl.DataFrame) -> pl.Expr:
    vocabulary = train[name].drop_nulls().unique().sort()
    codes = np.arange(len(vocabulary), dtype=np.int32)
    return pl.col(name).replace_strict(vocabulary, codes, default=None, return_dtype=pl.Int32)


def fit(data: TreeData, params: Mapping[str, Any], seed: int, n_threads: int = 1) -> lgb.Booster:
    """Train with early stopping on the validation loss; the test part is not looked at."""
    train, validation = (
        lgb.Dataset(
            data.x[part],
            data.y[part],
            feature_name=list(data.fields),
            categorical_feature=list(data.categorical),
        )
        for part in ("train", "validation")
    )
    validation.reference = train
    settings = {
        **_FIXED,
        **params,
        "objective": data.task,
        "metric": "binary_logloss" if data.task == "binary" else "l2",
        "seed": seed,
        "num_threads": n_threads,
    }
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    return lgb.train(settings, train, MAX_ROUNDS, valid_sets=[validation], callbacks=[stop])


def metrics(booster: lgb.Booster, data: TreeData, part: str) -> dict[str, float]:
    """Logloss and AUC, or MSE, of one part with the best number of trees."""
    truth = data.y[part]
    predicted = np.asarray(booster.predict(data.x[part], num_iteration=booster.best_iteration))
    if data.task == "regression":
        return {"mse": float(mean_squared_error(truth, predicted))}
    return {"logloss": float(log_loss(truth, predicted)), "auc": float(roc_auc_score(truth, predicted))}


def run_lightgbm(table: BenchTable, params: Mapping[str, Any], seed: int, n_threads: int = 1) -> dict[str, float]:
    """Train on a table and measure it.

    Returns:
        `validation_<metric>` and `test_<metric>` (logloss and auc, or mse), train_seconds and n_trees.
    """
    data = prepare(table)
    start = time.perf_counter()
    booster = fit(data, params, seed, n_threads)
    figures = {"train_seconds": time.perf_counter() - start, "n_trees": float(booster.best_iteration)}
    for part in ("validation", "test"):
        for name, value in metrics(booster, data, part).items():
            figures[f"{part}_{name}"] = value
    return figures


def load_params(name: str) -> dict[str, Any]:
    """The parameters that the search chose for a table."""
    params: dict[str, Any] = json.loads((CONFIGS / f"lightgbm-{name}.json").read_text("utf-8"))["params"]
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", choices=NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--untuned", action="store_true", help="LightGBM's defaults, but rare values keep their own bins"
    )
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    params = {} if given.untuned else load_params(given.table)
    print(json.dumps(run_lightgbm(load(given.table), params, given.seed, given.threads), indent=2))


if __name__ == "__main__":
    main()
