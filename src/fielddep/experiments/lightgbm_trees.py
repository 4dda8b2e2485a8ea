"""LightGBM on the columns of encoded rows."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fielddep.experiments.tree_configs import LightGBMConfig
from fielddep.experiments.tree_growing import Grown, Matrix, Planting, library_settings
from fielddep.experiments.tree_rows import TreeColumns
from fielddep.prepared import TrainingData

FIXED = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "bagging_freq": 1,
    # By default values seen fewer than three times in a sample of 200,000 rows share one bin; here none does. In a
    # field of many values those of the last hundredth of the rows would, too: see `_max_bins`.
    "min_data_in_bin": 1,
    "bin_construct_sample_cnt": 2_000_000,
    "feature_pre_filter": False,
}
DEFAULT_BINS = 255
_TASKS = {
    "binary": ("binary", "binary_logloss"),
    "multiclass": ("multiclass", "multi_logloss"),
    "regression": ("regression", "l2"),
}


def grow_lightgbm(planting: Planting) -> Grown:
    """Train with early stopping on the validation rows."""
    lgb = importlib.import_module("lightgbm")
    config, columns, teller = planting.data.config.model, planting.columns, planting.teller
    assert isinstance(config, LightGBMConfig)
    train, validation = (
        lgb.Dataset(
            columns.matrix(part.columns), part.target, weight=part.weight, categorical_feature=columns.categorical
        )
        for part in (planting.parts["train"], planting.parts["validation"])
    )
    validation.reference = train
    booster = lgb.train(
        {**lightgbm_settings(planting.data), "max_bin_by_feature": _max_bins(columns)},
        train,
        config.max_trees,
        valid_sets=[validation],
        callbacks=[
            lgb.early_stopping(config.patience, verbose=False),
            lambda env: teller.tell(env.evaluation_result_list[0][2]),
        ],
    )
    best = booster.best_iteration or booster.current_iteration()
    n_threads = planting.data.config.train.threads or 0

    def predict(given: list[Any]) -> Matrix:
        x = columns.matrix(given)
        return np.asarray(booster.predict(x, raw_score=True, num_iteration=best, num_threads=n_threads))

    trees = booster.dump_model(num_iteration=best)["tree_info"]
    n_parameters = sum(2 * tree["num_leaves"] - 1 for tree in trees)
    return Grown(predict=predict, n_parameters=n_parameters, n_grown=teller.n_trees)


def _max_bins(columns: TreeColumns) -> list[int]:
    """A bin for every value of a categorical field; as many as LightGBM has by default for numbers."""
    return [
        DEFAULT_BINS if numbers is not None else max(DEFAULT_BINS, n_ids)
        for numbers, n_ids in zip(columns.numbers_of, columns.n_ids, strict=True)
    ]


def lightgbm_settings(data: TrainingData) -> dict[str, Any]:
    """The parameters that LightGBM is called with."""
    config, (objective, metric) = data.config.model, _TASKS[data.target.task]
    assert isinstance(config, LightGBMConfig)
    common = {"seed": data.config.train.seed, "num_threads": data.config.train.threads or 0}
    classes = {"num_class": data.target.n_outputs} if data.target.task == "multiclass" else {}
    return {**FIXED, **library_settings(config), **common, **classes, "objective": objective, "metric": metric}
