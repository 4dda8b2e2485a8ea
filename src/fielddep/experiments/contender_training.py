"""Training of any contender on the rows of a store, on all of them or on a sample of the training rows."""

from __future__ import annotations

import dataclasses
import time

from fielddep.bundle import Bundle
from fielddep.config import Config
from fielddep.data.row_sample import sample_rows
from fielddep.data.store.loader import Rows
from fielddep.data.store.store import Store
from fielddep.errors import UserError
from fielddep.experiments.trained import Trained, Watcher
from fielddep.experiments.tree_configs import TreeConfig
from fielddep.experiments.trees import train_trees
from fielddep.fitting import train_model
from fielddep.predictor import Predictor
from fielddep.prepared import TrainingData, prepare_store
from fielddep.training.callbacks import Callback
from fielddep.training.history import Evaluation, History


def search_rows(store: Store, config: Config, *, n_rows: int | None = None, seed: int = 0) -> TrainingData:
    """Training and validation rows of a store; its test rows are not among them.

    Settings that are open are decided from the number of all training rows, as they are to be used on all.

    Args:
        store: the rows.
        config: settings of model and training.
        n_rows: training rows at most; a random sample where there are more.
        seed: seed of the sample.
    """
    data = prepare_store(store, config)
    parts: dict[str, Rows] = {name: data.parts[name] for name in ("train", "validation")}
    if n_rows is not None and n_rows < len(parts["train"]):
        if n_rows < 1:
            raise UserError(f"a search needs at least one training row; given --rows {n_rows}")
        parts["train"] = sample_rows(parts["train"].blocks(), n_rows, seed=seed).rows
    return dataclasses.replace(data, parts=parts)


def train_contender(data: TrainingData, watcher: Watcher | None = None) -> Trained:
    """Train the model that the settings name, network or trees.

    Args:
        data: rows and settings.
        watcher: looks on; what it raises ends the training.
    """
    if isinstance(data.config.model, TreeConfig):
        return train_trees(data, watcher)
    history = History()
    start = time.perf_counter()
    model = train_model(data, callbacks=[_Told(watcher)] if watcher else [], history=history)
    seconds = time.perf_counter() - start
    bundle = Bundle(config=data.config, encoder=data.encoder, model=model)
    predictor = Predictor(bundle, device=data.config.train.device)
    assert history.best is not None
    return Trained(
        logits=predictor.logits,
        predictor=predictor,
        validation=history.best.validation,
        n_parameters=model.n_parameters,
        seconds=seconds,
        rows_per_s=history[-1].rows_per_s,
    )


class _Told(Callback):
    """Passes the events of a trainer on to a watcher."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.watcher.on_step()

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.watcher.on_loss(evaluation.validation["loss"])
