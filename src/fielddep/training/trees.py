"""LightGBM and CatBoost on encoded rows, with their native handling of categories or on evidence (extra `trees`).

They get the same rows, weights and split as all other models (`tree_rows.py` has the form) and stop early on the same
validation loss. Predictions use the best number of trees.

Shape legend: R rows, C outputs.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fielddep.config import TREES
from fielddep.config.settings import Config
from fielddep.config.trees import CatBoostConfig, LightGBMConfig, TreeConfig
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.errors import MissingExtraError
from fielddep.observer import Observer
from fielddep.store.shards import StorePart
from fielddep.training.checkpoint import Evaluation
from fielddep.training.metrics import measure
from fielddep.training.prepare import Prepared
from fielddep.training.tree_rows import TreeColumns, TreeTable
from fielddep.training.unknown import UnknownTraining

TREES_PER_EVALUATION = 25
"""Trees between two validation losses in the history."""
FEW_ROWS = 512
"""Rows up to which one thread predicts: starting others would take longer."""
Matrix = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TrainedTrees:
    """Trees of one library.

    Attributes:
        columns: how encoded rows become columns.
        predict: raw outputs for columns, with the best number of trees.
        n_parameters: leaves and splits of these trees.
        n_trained: trees trained until early stopping.
        n_best: trees that are used.
        text: the trees as a bundle keeps them; None for CatBoost.
        history: validation losses during training, then the metrics of the best number of trees.
    """

    columns: TreeColumns
    predict: Callable[[list[Any]], Matrix]
    n_parameters: int
    n_trained: int
    n_best: int
    text: str | None = None
    history: Sequence[Evaluation] = ()

    def outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Raw outputs (R, C) of encoded rows."""
        return torch.from_numpy(self.predict(self.columns.columns(rows)).reshape(len(rows), -1))


@dataclass(frozen=True, kw_only=True)
class TreeJob:
    """What a library needs to train trees.

    Attributes:
        data: rows and settings of the training.
        config: settings of the trees.
        columns: what they see.
        train: rows to train on.
        validation: rows that stop the training early; None trains `config.max_trees` trees.
        log: is told about every tree.
    """

    data: Prepared
    config: TreeConfig
    columns: TreeColumns
    train: TreeTable
    validation: TreeTable | None
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
    ours = ("name", "max_trees", "patience", "evidence", "categories")
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
    config, columns, log = job.config, job.columns, job.log
    assert isinstance(config, LightGBMConfig)

    def dataset(part: TreeTable) -> Any:
        x = columns.matrix(part.columns)
        return lgb.Dataset(x, part.target, weight=part.weight, categorical_feature=columns.categorical)

    train, held_out = dataset(job.train), []
    if job.validation is not None:
        held_out = [dataset(job.validation)]
        held_out[0].reference = train
    booster = lgb.train(
        {**lightgbm_settings(job.data, config), "max_bin_by_feature": _max_bins(columns, len(job.train.columns))},
        train,
        config.max_trees,
        valid_sets=held_out,
        callbacks=[
            lgb.early_stopping(config.patience, verbose=False),
            lambda env: log.add(env.evaluation_result_list[0][2]),
        ]
        if held_out
        else [],
    )
    best = booster.best_iteration or booster.current_iteration()
    text = booster.model_to_string(num_iteration=best)
    return lightgbm_from(text, columns, job.data.config, n_trained=booster.current_iteration())


def lightgbm_from(text: str, columns: TreeColumns, config: Config, *, n_trained: int | None = None) -> TrainedTrees:
    """Trees from the text of LightGBM, all of which are used."""
    booster = importlib.import_module("lightgbm").Booster(model_str=text)
    n_threads = config.train.threads or 0

    def predict(given: list[Any]) -> Matrix:
        x = columns.matrix(given)
        return np.asarray(booster.predict(x, raw_score=True, num_threads=n_threads if len(x) > FEW_ROWS else 1))

    n_parameters = sum(2 * tree["num_leaves"] - 1 for tree in booster.dump_model()["tree_info"])
    n_best = booster.current_iteration()
    return TrainedTrees(
        columns=columns,
        predict=predict,
        n_parameters=n_parameters,
        n_trained=n_trained or n_best,
        n_best=n_best,
        text=text,
    )


def _max_bins(columns: TreeColumns, n_columns: int) -> list[int]:
    """A bin for every value of a categorical field; LightGBM's default for numbers."""
    of_codes = [max(DEFAULT_BINS, columns.n_ids[field]) for field in columns.codes]
    return of_codes + [DEFAULT_BINS] * (n_columns - len(of_codes))


def lightgbm_settings(data: Prepared, config: TreeConfig) -> dict[str, Any]:
    """The parameters that LightGBM is called with."""
    objective, metric = _TASKS[data.target.task]
    common = {"seed": data.config.train.seed, "num_threads": data.config.train.threads or 0}
    classes = {"num_class": data.target.n_outputs} if data.target.task == "multiclass" else {}
    return {**LIGHTGBM_FIXED, **library_settings(config), **common, **classes, "objective": objective, "metric": metric}


CATBOOST_FIXED = {"allow_writing_files": False, "verbose": False, "use_best_model": True}
_LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}


def train_catboost(job: TreeJob) -> TrainedTrees:
    """Train with early stopping on the validation rows."""
    catboost = importlib.import_module("catboost")
    data, log = job.data, job.log
    assert job.validation is not None
    model = catboost.CatBoost(catboost_settings(data))
    watch = _Watch(log, squared=data.target.task == "regression")
    train, validation = (_pool(job, part.columns, part) for part in (job.train, job.validation))
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
    return TrainedTrees(
        columns=job.columns,
        predict=predict,
        n_parameters=n_parameters,
        n_trained=log.n_trees,
        n_best=len(leaves),
    )


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
    own = library_settings(config)
    if "bagging_temperature" in own:  # with another bootstrap CatBoost ignores it without a word
        own.setdefault("bootstrap_type", "Bayesian")
    if data.target.task == "binary":  # CatBoost refuses it
        own.pop("ctr_target_border_count", None)
    return {**CATBOOST_FIXED, **own, **common, **stopping, **classes, **loss}


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
_LIBRARY_OF = {**{name: name for name in TREES}, "blend": "lightgbm"}


def is_installed(name: str) -> bool:
    """Whether the tree library of a model, if it needs one, is installed."""
    library = _LIBRARY_OF.get(name)
    return library is None or importlib.util.find_spec(library) is not None


def check_installed(name: str) -> None:
    """Raise `MissingExtraError`, which names the extra, for a model whose tree library is not installed."""
    if not is_installed(name):
        library = _LIBRARY_OF[name]
        what = f"{name} is" if name == library else f"{name} needs {library}, which is"
        raise MissingExtraError(f"{what} not installed; pip install 'fielddep[trees]'")


def train_trees(
    data: Prepared,
    config: TreeConfig,
    observer: Observer,
    *,
    rows: StorePart | None = None,
    hide: UnknownTraining | None = None,
) -> TrainedTrees:
    """Train trees with early stopping on the validation rows; or, given other rows, `config.max_trees` on those.

    With `hide`, trees learn what an unknown value means; libraries do not, so rivals in a comparison do without.
    """
    check_installed(config.name)
    columns = TreeColumns.of(data.encoder, evidence=config.evidence, categories=config.categories)
    train = TreeTable.of(columns, data.parts["train"] if rows is None else rows, hide)
    validation = TreeTable.of(columns, data.parts["validation"]) if rows is None else None
    log = TreeLog(data.target, len(train), observer)
    trees = LIBRARIES[config.name](
        TreeJob(data=data, config=config, columns=columns, train=train, validation=validation, log=log)
    )
    if rows is not None:
        return trees
    metrics = measure(trees.outputs, data.target, data.parts["validation"].chunks()).metrics
    return replace(trees, history=(*log.history, log.evaluation(metrics, best=True)))
