"""Fitting: from a table or store and settings to a trained model, in one function that everything above it calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from fielddep.config import Config
from fielddep.data.batch import FieldLayout
from fielddep.data.encoder import TableEncoder
from fielddep.data.splits import Split
from fielddep.data.store.loader import loader_for
from fielddep.data.store.store import Store
from fielddep.data.target import Target
from fielddep.devices import check_device
from fielddep.errors import SplitError, TrainingError
from fielddep.models import build_model
from fielddep.nn.model import FieldModel
from fielddep.nn.norm import BatchNorm
from fielddep.prepared import Prepared, TrainingData, prepare, prepare_store
from fielddep.training.callbacks import Callback
from fielddep.training.checkpoint import CheckpointFolder
from fielddep.training.history import History
from fielddep.training.metrics import base_rate_metrics
from fielddep.training.optim import rarity_scale
from fielddep.training.trainer import Trainer, evaluate
from fielddep.training.unknown import UnknownTraining

__all__ = ["Fitted", "Prepared", "TrainingData", "fit_table", "measure", "prepare", "prepare_store", "train_model"]

EVALUATION_ROWS = 2048
COPIES_IN_TRAINING = {"adagrad": 2, "adam": 3}
"""Copies of all weights while training: the weights and the optimiser's state. Averaging keeps one more, and so do the
best weights where there is no checkpoint folder to keep them. Weights outside of tables have a gradient as large as
they are; that of a table is of the ids of a batch."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained model and all that tells how it came about."""

    config: Config
    encoder: TableEncoder
    model: FieldModel
    history: History
    metrics: dict[str, dict[str, float]]
    """Metrics of validation and test rows, and of always predicting the base rate of the training rows."""


def fit_table(
    table: pl.DataFrame | Store,
    config: Config,
    *,
    split: Split | None = None,
    callbacks: Sequence[Callback] = (),
    history_path: Path | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
) -> Fitted:
    """Split, encode, decide open settings, train, evaluate.

    Args:
        table: fields and target, or a store, whose rows are read from disk while training.
        config: settings; open ones are decided from the training rows. Those of data and split that a store was made
            with are its own.
        split: rows of each part, instead of those that `config.split` says; not for a store.
        callbacks: lookers-on of the training.
        history_path: JSON-lines file of the evaluations.
        checkpoints: folder for checkpoints.
        resume: go on from the last checkpoint there.
    """
    if isinstance(table, Store) and split is not None:
        raise SplitError("a store is split already; leave out split, or give the table itself")
    check_device(config.train.device, "train.device")
    prepared = prepare_store(table, config) if isinstance(table, Store) else prepare(table, config, split=split)
    history = History(history_path)
    folder = None if checkpoints is None else CheckpointFolder(checkpoints)
    model = train_model(prepared, callbacks=callbacks, history=history, checkpoints=folder, resume=resume)
    return Fitted(
        config=prepared.config,
        encoder=prepared.encoder,
        model=model,
        history=history,
        metrics=measure(prepared, model),
    )


def train_model(
    prepared: TrainingData,
    *,
    callbacks: Sequence[Callback] = (),
    history: History | None = None,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
) -> FieldModel:
    """Build and train the model of prepared rows."""
    config, encoder, target = prepared.config, prepared.encoder, prepared.target
    assert config.train.batch_size is not None
    train, validation = prepared.parts["train"], prepared.parts["validation"]
    _check_memory(encoder.layout, target, config, best_in_memory=checkpoints is None)
    model = build_for(target, encoder.layout, config)
    _check_batches(len(train), model, config)
    with torch.no_grad():
        model.bias.copy_(prepared.base_C)
    trainer = Trainer(
        model,
        target,
        config.train,
        train=loader_for(train, batch_size=config.train.batch_size, seed=config.train.seed),
        validation=loader_for(validation, batch_size=EVALUATION_ROWS),
        prepare=UnknownTraining(encoder.layout, encoder.counts, rate=config.train.unknown_rate, seed=config.train.seed),
        l2_scale_I=rarity_scale(encoder.counts, config.train.l2_rarity) if config.train.l2_rarity else None,
        callbacks=callbacks,
        history=history,
        checkpoints=checkpoints,
    )
    with torch_threads(config.train.threads):
        trainer.fit(resume=resume)
    return model


def measure(prepared: TrainingData, model: FieldModel) -> dict[str, dict[str, float]]:
    """Metrics on validation and test rows beside those of the base rate."""
    target, device = prepared.target, torch.device(prepared.config.train.device)
    found: dict[str, dict[str, float]] = {}
    for name in ("validation", "test"):
        if name in prepared.parts:
            part = prepared.parts[name]
            found[name] = evaluate(model, target, loader_for(part, batch_size=EVALUATION_ROWS), device)
            found[f"{name}_base_rate"] = base_rate_metrics(target, prepared.base_C, part)
    return found


@contextmanager
def torch_threads(n_threads: int | None) -> Iterator[None]:
    """Within the block torch uses so many threads; the caller's number comes back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_for(target: Target, layout: FieldLayout, config: Config, *, device: str = "cpu") -> FieldModel:
    """The fresh model of a target and settings."""
    regression = target.task == "regression"
    return build_model(
        layout, target.n_outputs, config.model, regression=regression, seed=config.train.seed, device=device
    )


def _check_memory(layout: FieldLayout, target: Target, config: Config, *, best_in_memory: bool) -> None:
    """Refuse a model that cannot fit before an hour of work is lost on it."""
    assert config.train.optimizer is not None
    planned = build_for(target, layout, config, device="meta")
    copies = COPIES_IN_TRAINING[config.train.optimizer] + (config.train.average > 0) + best_in_memory
    of_tables = sum(table.weight.numel() for _, table in planned.tables())
    others = planned.n_parameters - of_tables
    needed = 4 * (copies * of_tables + (copies + 1) * others)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if config.train.device == "cpu" and present is not None and needed > present:
        what, advice = f"the tables of {layout.n_ids_total:,} ids", "lower model.d_embed or raise data.min_count"
        if others > of_tables:
            what, advice = f"{others:,} weights outside of the tables", "lower model.d_embed, or use fewer fields"
        raise TrainingError(
            f"training would need about {needed / 2**30:.1f} GiB, most of it for {what}, this machine has "
            f"{present / 2**30:.1f} GiB; {advice}"
        )


def _check_batches(n_rows: int, model: FieldModel, config: Config) -> None:
    """Refuse batches of one row where BatchNorm must tell a spread."""
    assert config.train.batch_size is not None
    smallest = n_rows // -(-n_rows // config.train.batch_size)
    if smallest < 2 and any(isinstance(module, BatchNorm) for module in model.modules()):
        raise TrainingError(
            f"BatchNorm needs batches of at least 2 rows; {n_rows} training rows with train.batch_size = "
            f"{config.train.batch_size} give batches of 1; give more rows, raise train.batch_size, or set "
            "model.batch_norm = 'none' where the model has that setting"
        )
