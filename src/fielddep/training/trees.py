"""LightGBM and CatBoost on encoded rows, with their native handling of categories (extra `trees`).

They get the rows, weights and splits of all other models (`tree_rows` says in which form) and stop early on the same
validation loss; predictions use the best number of trees.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np

from fielddep.config.trees import TREE_CONFIGS, CatBoostConfig, LightGBMConfig, TreeConfig
from fielddep.errors import MissingExtraError
from fielddep.observer import Observer
from fielddep.training.metrics import measure
from fielddep.training.prepare import Prepared
from fielddep.training.tree_rows import (
    Matrix,
    TrainedTrees,
    TreeColumns,
    TreeJob,
    TreeLog,
    TreeTable,
    library_settings,
)

LIGHTGBM_FIXED = {
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


def train_lightgbm(job: TreeJob) -> TrainedTrees:
    """Train with early stopping on the validation rows."""
    lgb = importlib.import_module("lightgbm")
    config, columns, log = job.data.config.model, job.columns, job.log
    assert isinstance(config, LightGBMConfig)
    train, validation = (
        lgb.Dataset(
            columns.matrix(part.columns), part.target, weight=part.weight, categorical_feature=columns.categorical
        )
        for part in (job.parts["train"], job.parts["validation"])
    )
    validation.reference = train
    booster = lgb.train(
        {**lightgbm_settings(job.data), "max_bin_by_feature": _max_bins(columns)},
        train,
        config.max_trees,
        valid_sets=[validation],
        callbacks=[
            lgb.early_stopping(config.patience, verbose=False),
            lambda env: log.add(env.evaluation_result_list[0][2]),
        ],
    )
    best = booster.best_iteration or booster.current_iteration()
    n_threads = job.data.config.train.threads or 0

    def predict(given: list[Any]) -> Matrix:
        x = columns.matrix(given)
        return np.asarray(booster.predict(x, raw_score=True, num_iteration=best, num_threads=n_threads))

    trees = booster.dump_model(num_iteration=best)["tree_info"]
    n_parameters = sum(2 * tree["num_leaves"] - 1 for tree in trees)
    return TrainedTrees(columns=columns, predict=predict, n_parameters=n_parameters, n_trained=log.n_trees)


def _max_bins(columns: TreeColumns) -> list[int]:
    """A bin for every value of a categorical field; as many as LightGBM has by default for numbers."""
    return [
        DEFAULT_BINS if numbers is not None else max(DEFAULT_BINS, n_ids)
        for numbers, n_ids in zip(columns.numbers_of, columns.n_ids, strict=True)
    ]


def lightgbm_settings(data: Prepared) -> dict[str, Any]:
    """The parameters that LightGBM is called with."""
    config, (objective, metric) = data.config.model, _TASKS[data.target.task]
    assert isinstance(config, LightGBMConfig)
    common = {"seed": data.config.train.seed, "num_threads": data.config.train.threads or 0}
    classes = {"num_class": data.target.n_outputs} if data.target.task == "multiclass" else {}
    return {**LIGHTGBM_FIXED, **library_settings(config), **common, **classes, "objective": objective, "metric": metric}


CATBOOST_FIXED = {"allow_writing_files": False, "verbose": False, "use_best_model": True, "bootstrap_type": "Bayesian"}
_LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}


def train_catboost(job: TreeJob) -> TrainedTrees:
    """Train with early stopping on the validation rows."""
    catboost = importlib.import_module("catboost")
    data, log = job.data, job.log
    model = catboost.CatBoost(catboost_settings(data))
    watch = _Watch(log, squared=data.target.task == "regression")
    train, validation = (_pool(job, part.columns, part) for part in (job.parts["train"], job.parts["validation"]))
    model.fit(train, eval_set=validation, callbacks=[watch])
    if watch.raised is not None:
        raise watch.raised
    n_threads = data.config.train.threads or -1

    def predict(given: list[Any]) -> Matrix:
        pool = _pool(job, given)
        return np.asarray(model.predict(pool, prediction_type="RawFormulaVal", thread_count=n_threads))

    leaves = np.asarray(model.get_tree_leaf_counts(), dtype=np.int64)
    # All leaves of a tree lie at the same depth, and all splits of a level are one.
    n_parameters = int(leaves.sum()) * data.target.n_outputs + int(np.log2(leaves).sum())
    return TrainedTrees(columns=job.columns, predict=predict, n_parameters=n_parameters, n_trained=log.n_trees)


def _pool(job: TreeJob, columns: list[Any], part: TreeTable | None = None) -> Any:
    """Columns as CatBoost takes codes and numbers together: in a frame of pandas, which comes with it."""
    frame = importlib.import_module("pandas").DataFrame(dict(enumerate(columns)))
    target, weight = (None, None) if part is None else (part.target, part.weight)
    pool = importlib.import_module("catboost").Pool
    return pool(frame, target, cat_features=job.columns.categorical, weight=weight)


def catboost_settings(data: Prepared) -> dict[str, Any]:
    """The parameters that CatBoost is called with."""
    config, train = data.config.model, data.config.train
    assert isinstance(config, CatBoostConfig)
    common = {"random_seed": train.seed, "thread_count": train.threads or -1}
    stopping = {"iterations": config.max_trees, "early_stopping_rounds": config.patience}
    classes = {"classes_count": data.target.n_outputs} if data.target.task == "multiclass" else {}
    loss = {"loss_function": _LOSSES[data.target.task]}
    return {**CATBOOST_FIXED, **library_settings(config), **common, **stopping, **classes, **loss}


class _Watch:
    """Keeps what an observer raises, because CatBoost would turn it into another error."""

    def __init__(self, log: TreeLog, *, squared: bool) -> None:
        self.log, self.squared = log, squared
        self.raised: BaseException | None = None

    def after_iteration(self, info: Any) -> bool:
        """Log a tree; False ends the training."""
        (losses,) = info.metrics["validation"].values()
        try:
            self.log.add(losses[-1] ** 2 if self.squared else losses[-1])
        except BaseException as error:  # also an interrupt: it is raised again outside of CatBoost
            self.raised = error
            return False
        return True


LIBRARIES = {"lightgbm": train_lightgbm, "catboost": train_catboost}


def installed_trees() -> tuple[str, ...]:
    """Names of the tree models whose library is there."""
    return tuple(name for name in TREE_CONFIGS if importlib.util.find_spec(name) is not None)


def check_installed(name: str) -> None:
    """Refuse a tree model whose library is not there.

    Raises:
        MissingExtraError: names the extra to install.
    """
    if name in TREE_CONFIGS and name not in installed_trees():
        raise MissingExtraError(f"{name} is not installed; pip install 'fielddep[trees]'")


def train_trees(data: Prepared, observer: Observer) -> TrainedTrees:
    """Train the tree model of prepared rows, with early stopping on the validation rows.

    Raises:
        MissingExtraError: its library is not installed.
    """
    assert isinstance(data.config.model, TreeConfig)
    check_installed(data.config.model.name)
    columns = TreeColumns.of(data.encoder)
    parts = {name: TreeTable.of(columns, data.parts[name]) for name in ("train", "validation")}
    log = TreeLog(data.target, len(parts["train"]), observer)
    trees = LIBRARIES[data.config.model.name](TreeJob(data=data, columns=columns, parts=parts, log=log))
    validation = measure(trees.outputs, data.target, data.parts["validation"].chunks()).metrics
    return replace(trees, history=(*log.history, log.evaluation(validation, best=True)))
