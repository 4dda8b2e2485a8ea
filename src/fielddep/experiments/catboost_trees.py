"""CatBoost on the columns of encoded rows."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fielddep.experiments.tree_configs import CatBoostConfig
from fielddep.experiments.tree_growing import Grown, LossTeller, Matrix, Planting, library_settings
from fielddep.experiments.tree_rows import TreeTable
from fielddep.prepared import TrainingData

FIXED = {"allow_writing_files": False, "verbose": False, "use_best_model": True, "bootstrap_type": "Bayesian"}
_LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}


def grow_catboost(planting: Planting) -> Grown:
    """Train with early stopping on the validation rows."""
    catboost = importlib.import_module("catboost")
    data, teller = planting.data, planting.teller
    model = catboost.CatBoost(catboost_settings(data))
    watch = _Watch(teller, squared=data.target.task == "regression")
    train, validation = (
        _pool(planting, part.columns, part) for part in (planting.parts["train"], planting.parts["validation"])
    )
    model.fit(train, eval_set=validation, callbacks=[watch])
    if watch.raised is not None:
        raise watch.raised
    n_threads = data.config.train.threads or -1

    def predict(given: list[Any]) -> Matrix:
        pool = _pool(planting, given)
        return np.asarray(model.predict(pool, prediction_type="RawFormulaVal", thread_count=n_threads))

    leaves = np.asarray(model.get_tree_leaf_counts(), dtype=np.int64)
    # All leaves of a tree lie at the same depth, and all splits of a level are one.
    n_parameters = int(leaves.sum()) * data.target.n_outputs + int(np.log2(leaves).sum())
    return Grown(predict=predict, n_parameters=n_parameters, n_grown=teller.n_trees)


def _pool(planting: Planting, columns: list[Any], part: TreeTable | None = None) -> Any:
    """Columns as CatBoost takes codes and numbers together: in a frame of pandas, which comes with it."""
    frame = importlib.import_module("pandas").DataFrame(dict(enumerate(columns)))
    target, weight = (None, None) if part is None else (part.target, part.weight)
    pool = importlib.import_module("catboost").Pool
    return pool(frame, target, cat_features=planting.columns.categorical, weight=weight)


def catboost_settings(data: TrainingData) -> dict[str, Any]:
    """The parameters that CatBoost is called with."""
    config, train = data.config.model, data.config.train
    assert isinstance(config, CatBoostConfig)
    common = {"random_seed": train.seed, "thread_count": train.threads or -1}
    stopping = {"iterations": config.max_trees, "early_stopping_rounds": config.patience}
    classes = {"classes_count": data.target.n_outputs} if data.target.task == "multiclass" else {}
    loss = {"loss_function": _LOSSES[data.target.task]}
    return {**FIXED, **library_settings(config), **common, **stopping, **classes, **loss}


class _Watch:
    """Keeps what a watcher raises, as CatBoost would turn it into an error of its own."""

    def __init__(self, teller: LossTeller, *, squared: bool) -> None:
        self.teller, self.squared = teller, squared
        self.raised: BaseException | None = None

    def after_iteration(self, info: Any) -> bool:
        """Tell of a tree; False ends the training."""
        (losses,) = info.metrics["validation"].values()
        try:
            self.teller.tell(losses[-1] ** 2 if self.squared else losses[-1])
        except BaseException as error:  # also an interrupt: it is raised again outside of CatBoost
            self.raised = error
            return False
        return True
