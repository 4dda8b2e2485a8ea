"""Fitting: from a table and settings to a trained model, in one function that everything above it calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import torch

from fielddep.config import Config
from fielddep.data.batch import FieldLayout
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.loader import Loader
from fielddep.data.schema import Schema, check_names, infer_schema
from fielddep.data.splits import Split, split_rows
from fielddep.data.target import Target, infer_target
from fielddep.errors import SchemaError, SplitError, TrainingError
from fielddep.nn.model import FieldModel
from fielddep.nn.registry import build_model
from fielddep.training.callbacks import Callback
from fielddep.training.checkpoint import CheckpointFolder
from fielddep.training.defaults import decide
from fielddep.training.history import History
from fielddep.training.metrics import base_rate_metrics
from fielddep.training.objective import base_output
from fielddep.training.optim import rarity_scale
from fielddep.training.trainer import Trainer, evaluate
from fielddep.training.unknown import UnknownTraining

EVALUATION_ROWS = 8192
COPIES_IN_TRAINING = {"adagrad": 3, "adam": 4}
"""Copies of every table while training: weights, best weights, and the optimiser's state; averaging keeps one more."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A table that is split and encoded, with every setting decided."""

    config: Config
    encoder: TableEncoder
    split: Split
    parts: dict[str, EncodedTable]

    @property
    def target(self) -> Target:
        """The column to predict."""
        assert self.encoder.schema.target is not None
        return self.encoder.schema.target


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
    table: pl.DataFrame,
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
        table: fields and target.
        config: settings; open ones are decided from the training rows.
        split: rows of each part, instead of those that `config.split` says.
        callbacks: lookers-on of the training.
        history_path: JSON-lines file of the evaluations.
        checkpoints: folder for checkpoints.
        resume: go on from the last checkpoint there.
    """
    prepared = prepare(table, config, split=split)
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


def prepare(table: pl.DataFrame, config: Config, *, split: Split | None = None) -> Prepared:
    """Split and encode a table; nothing of validation or test rows reaches the encoder."""
    if table.is_empty():
        raise SchemaError("the table has no rows; training needs some")
    if config.data.target is None:
        raise SchemaError(f"a target is needed; set data.target (--target) to one of {', '.join(table.columns)}")
    check_names(table, config)
    # The labels are known beforehand to be all those of the table, so a class seen in validation only is no surprise.
    target = infer_target(table[config.data.target], config.data.task, config.data.missing_values)
    if split is None:
        split = split_rows(table, config.split, config.data.target)
    if len(split.validation) == 0:
        raise SplitError("no rows for validation, which decides when to stop; set split.validation above 0")
    training_rows = table[split.train]
    schema: Schema = replace(infer_schema(training_rows, config), target=target)
    count_table = table if config.data.counts_from == "all" else None
    encoder = TableEncoder.fit(training_rows, schema, config.data, count_table=count_table)
    rows = {"train": split.train, "validation": split.validation, "test": split.test}
    parts = {
        name: encoder.encode(table[rows[name]], with_target=True, handle_unknown="rare")
        for name in rows
        if len(rows[name])
    }
    for name, part in parts.items():
        if part.weight_R is not None and float(part.weight_R.sum()) == 0:
            raise SchemaError(f"all {name} rows have weight 0; give some rows of each part a weight above 0")
    decided = decide(config, n_rows=len(split.train))
    return Prepared(config=decided, encoder=encoder, split=split, parts=parts)


def train_model(
    prepared: Prepared,
    *,
    callbacks: Sequence[Callback] = (),
    history: History | None = None,
    checkpoints: CheckpointFolder | None = None,
    resume: bool = False,
) -> FieldModel:
    """Build and train the model of a prepared table."""
    config, encoder, target = prepared.config, prepared.encoder, prepared.target
    _check_memory(encoder.layout, target, config)
    _check_batches(len(prepared.parts["train"]), config)
    train, validation = prepared.parts["train"], prepared.parts["validation"]
    model = build_model(encoder.layout, target.n_outputs, config.model, seed=config.train.seed)
    assert train.target_R is not None and config.train.batch_size is not None
    with torch.no_grad():
        model.bias.copy_(base_output(target, train.target_R, train.weight_R))
    trainer = Trainer(
        model,
        target,
        config.train,
        train=Loader(train, batch_size=config.train.batch_size, seed=config.train.seed),
        validation=Loader(validation, batch_size=EVALUATION_ROWS),
        prepare=UnknownTraining(encoder.layout, encoder.counts, rate=config.train.unknown_rate, seed=config.train.seed),
        l2_scale_I=rarity_scale(encoder.counts, config.train.l2_rarity) if config.train.l2_rarity else None,
        callbacks=callbacks,
        history=history,
        checkpoints=checkpoints,
    )
    with _threads(config.train.threads):
        trainer.fit(resume=resume)
    return model


def measure(prepared: Prepared, model: FieldModel) -> dict[str, dict[str, float]]:
    """Metrics on validation and test rows beside those of the base rate."""
    target, train = prepared.target, prepared.parts["train"]
    assert train.target_R is not None
    base_C = base_output(target, train.target_R, train.weight_R)
    found: dict[str, dict[str, float]] = {}
    for name in ("validation", "test"):
        if name in prepared.parts:
            part = prepared.parts[name]
            loader = Loader(part, batch_size=EVALUATION_ROWS)
            found[name] = evaluate(model, target, loader, torch.device(prepared.config.train.device))
            found[f"{name}_base_rate"] = base_rate_metrics(target, base_C, part)
    return found


@contextmanager
def _threads(n_threads: int | None) -> Iterator[None]:
    """Within the block torch uses so many threads; the caller's number comes back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_memory(layout: FieldLayout, target: Target, config: Config) -> None:
    """Refuse a model that cannot fit before an hour of work is lost on it."""
    assert config.model.d_embed is not None
    row_bytes = 4 * (config.model.d_embed + (target.n_outputs if config.model.first_order else 0))
    copies = COPIES_IN_TRAINING[config.train.optimizer] + (config.train.average > 0)
    needed = layout.n_ids_total * row_bytes * copies
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if config.train.device == "cpu" and present is not None and needed > present:
        raise TrainingError(
            f"training would need about {needed / 2**30:.1f} GiB for {layout.n_ids_total:,} ids with embeddings of "
            f"{config.model.d_embed}, this machine has {present / 2**30:.1f} GiB; lower model.d_embed or raise "
            "data.min_count"
        )


def _check_batches(n_rows: int, config: Config) -> None:
    """Refuse batches of one row where BatchNorm must tell a spread."""
    assert config.train.batch_size is not None
    smallest = n_rows // -(-n_rows // config.train.batch_size)
    if smallest < 2 and config.model.hidden and config.model.batch_norm != "none":
        raise TrainingError(
            f"BatchNorm needs batches of at least 2 rows; {n_rows} training rows with train.batch_size = "
            f"{config.train.batch_size} give batches of 1; give more rows, raise train.batch_size, or set "
            "model.batch_norm = 'none'"
        )
