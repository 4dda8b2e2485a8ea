"""LightGBM and CatBoost on encoded rows, with their native handling of categories (extra `trees`).

They get the same rows, weights and split as all other models (`tree_rows.py` has the form) and stop early on the same
validation loss. Predictions use the best number of trees.

Shape legend: R rows, C outputs.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fielddep.config import TREES
from fielddep.config.trees import CatBoostConfig, LightGBMConfig, TreeConfig
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.errors import MissingExtraError
from fielddep.observer import Observer
from fielddep.training.checkpoint import Evaluation
from fielddep.training.metrics import measure
from fielddep.training.prepare import Prepared
from fielddep.training.tree_rows import TreeColumns, TreeTable

TREES_PER_EVALUATION = 25
"""Trees between two validation losses in the history."""
Matrix = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TrainedTrees:
    """Trees of one library.

    Attributes:
        columns: how encoded rows become columns.
        predict: raw outputs for columns, with the best number of trees.
        n_parameters: leaves and splits of these trees.
        n_trained: trees trained until early stopping.
        history: validation losses during training, then the metrics of the best number of trees.
    """

    columns: TreeColumns
    predict: Callable[[list[Any]], Matrix]
    n_parameters: int
    n_trained: int
    history: Sequence[Evaluation] = ()

    def outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Raw outputs (R, C) of encoded rows."""
        return torch.from_numpy(self.predict(self.columns.columns(rows)).reshape(len(rows), -1))


@dataclass(frozen=True, kw_only=True)
class TreeJob:
    """What a library needs to train trees."""

    data: Prepared
    columns: TreeColumns
    parts: Mapping[str, TreeTable]
    log: TreeLog


class TreeLog:
    """Tells an observer about every tree and, now and then, about the lowest validation loss so far."""

    def __init__(self, target: Target, n_rows: int, observer: Observer) -> None:
        self.n_rows, self.observer = n_rows, observer
        self.unit = target.loss_unit
        self.best = math.inf
        self.n_trees = 0
        self.history: list[Evaluation] = []
        self.started = time.perf_counter()

    def add(self, loss: float) -> None:
        """Count one more tree; the library's loss of a regression is the squared error of standardised targets."""
        self.n_trees += 1
        self.best = min(self.best, loss)
        self.observer.on_step(self.n_trees, self.n_rows, loss * self.unit)
        if self.n_trees % TREES_PER_EVALUATION == 0:
            self.history.append(self.evaluation({"loss": self.best * self.unit}, best=loss <= self.best))
            self.observer.on_evaluation(self.history[-1])

    def evaluation(self, validation: dict[str, float], *, best: bool) -> Evaluation:
        """The state of training; trees have neither a changing learning rate nor a loss of batches."""
        seconds = time.perf_counter() - self.started
        return Evaluation(
            step=self.n_trees,
            epoch=float(self.n_trees),
            lr=0.0,
            train_loss=math.nan,
            validation=validation,
            best=best,
            seconds=seconds,
            rows_per_s=self.n_rows * self.n_trees / seconds,
        )


def library_settings(config: TreeConfig) -> dict[str, Any]:
    """The settings that the library knows by the same names; it decides those that are None."""
    ours = ("name", "max_trees", "patience")
    return {key: value for key, value in asdict(config).items() if key not in ours and value is not None}


LIGHTGBM_FIXED = {
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "bagging_freq": 1,
    # By default, values seen fewer than three times in a sample of 200,000 rows share a bin; here every value has its
    # own. The rarest hundredth of a field with many values would share one as well; `_max_bins` prevents that.
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
    """A bin for every value of a categorical field; LightGBM's default for numbers."""
    categorical = set(columns.categorical)
    n_ids = enumerate(columns.n_ids)
    of_fields = [max(DEFAULT_BINS, n) if field in categorical else DEFAULT_BINS for field, n in n_ids]
    return of_fields + [DEFAULT_BINS] * sum(columns.lists.values())


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
    """Columns in a pandas frame, because CatBoost takes codes and numbers together only so; pandas comes with it."""
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
    """Keeps an error raised by an observer, because CatBoost would turn it into another one."""

    def __init__(self, log: TreeLog, *, squared: bool) -> None:
        self.log, self.squared = log, squared
        self.raised: BaseException | None = None

    def after_iteration(self, info: Any) -> bool:
        """Log a tree; False ends training."""
        (losses,) = info.metrics["validation"].values()
        try:
            self.log.add(losses[-1] ** 2 if self.squared else losses[-1])
        except BaseException as error:  # also an interrupt; raised again outside of CatBoost
            self.raised = error
            return False
        return True


LIBRARIES = {"lightgbm": train_lightgbm, "catboost": train_catboost}


def installed_trees() -> tuple[str, ...]:
    """Names of the tree models whose library is installed."""
    return tuple(name for name in TREES if importlib.util.find_spec(name) is not None)


def check_installed(name: str) -> None:
    """Raise `MissingExtraError`, which names the extra, for a tree model whose library is not installed."""
    if name in TREES and name not in installed_trees():
        raise MissingExtraError(f"{name} is not installed; pip install 'fielddep[trees]'")


def train_trees(data: Prepared, observer: Observer) -> TrainedTrees:
    """Train the tree model that the settings name, with early stopping on the validation rows."""
    assert isinstance(data.config.model, TreeConfig)
    check_installed(data.config.model.name)
    columns = TreeColumns.of(data.encoder)
    parts = {name: TreeTable.of(columns, data.parts[name]) for name in ("train", "validation")}
    log = TreeLog(data.target, len(parts["train"]), observer)
    trees = LIBRARIES[data.config.model.name](TreeJob(data=data, columns=columns, parts=parts, log=log))
    validation = measure(trees.outputs, data.target, data.parts["validation"].chunks()).metrics
    return replace(trees, history=(*log.history, log.evaluation(validation, best=True)))
