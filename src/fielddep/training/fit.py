"""Fit: from a table or store and settings to a trained model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import polars as pl
import torch

from fielddep.config.defaults import direct_settings
from fielddep.config.mdl import FieldModelConfig
from fielddep.config.metrics import monitored_metrics
from fielddep.config.settings import Config, TrainConfig
from fielddep.config.trees import TreeConfig
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import Layout
from fielddep.encoding.split import Parts
from fielddep.encoding.target import Target
from fielddep.errors import ConfigError, TrainingError
from fielddep.nn import build_model
from fielddep.nn.blend import Blend
from fielddep.nn.layers import BatchNorm
from fielddep.nn.model import FieldModel
from fielddep.observer import Observer
from fielddep.store.loader import Loader
from fielddep.store.recount import recount
from fielddep.store.shards import StorePart
from fielddep.store.store import Store
from fielddep.training.blend import refit_blend, train_blend
from fielddep.training.checkpoint import HISTORY, CheckpointFolder, Evaluation, History
from fielddep.training.metrics import Measured, base_output, base_rate_metrics, measure
from fielddep.training.mixing import find_mix
from fielddep.training.optim import rarity_scale
from fielddep.training.prepare import Prepared, prepare
from fielddep.training.refit import Passes, Refit
from fielddep.training.trainer import Trainer
from fielddep.training.trees import TrainedTrees, train_trees
from fielddep.training.unknown import UnknownTraining
from fielddep.wording import format_bytes


def check_device(name: str, setting: str = "device") -> None:
    """Raise `ConfigError` for a torch device that does not exist; `setting` names it in the error."""
    try:
        torch.empty(0, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{setting} must be a device of this machine, such as cpu; given {name!r}: {reason}"
        ) from None


MAIN = ""
"""Name of the model among the parts that are trained on their own. Its direct networks have the names of their kinds,
and folders of checkpoints below that of the model; the trees of a blend have the names of its members."""
Histories = Mapping[str, Sequence[Evaluation]]
AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)

COPIES_IN_TRAINING = {"adagrad": 2, "adam": 3}
"""Copies of all weights in training: the weights and the state of the optimizer. Averaging adds one, and so do the best
weights without a checkpoint folder. Dense weights also have a gradient of their size; that of a table is sparse."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model, its rows and its history.

    Attributes:
        prepared: rows, encoder and settings; after a refit with the evidence that the kept model saw.
        model: a network, or trees.
        histories: evaluations in order, of every part of the model that is trained on its own; `MAIN` is the model.
        seconds: wall time of training, including evaluations.
        rows_per_s: training rows per second; every tree counts all of them.
        measured: metrics of validation and test rows; empty until `fit` measures them. After a refit, those of the
            validation rows are still of the first training, because the model that is kept has seen them.
        base_rate: metrics of the same rows if the base rate of the training rows is predicted.
    """

    prepared: Prepared
    model: FieldModel | TrainedTrees
    histories: Mapping[str, Sequence[Evaluation]]
    seconds: float
    rows_per_s: float
    measured: Mapping[str, Measured] = field(default_factory=dict)
    base_rate: Mapping[str, dict[str, float]] = field(default_factory=dict)

    @property
    def history(self) -> Sequence[Evaluation]:
        """Evaluations of the model, without those of its direct networks."""
        return self.histories[MAIN]

    @cached_property
    def validation(self) -> dict[str, float]:
        """Metrics of the kept weights on the validation rows."""
        if len(self.histories) > 1:  # no evaluation saw all parts together
            rows = self.prepared.parts["validation"]
            return measure(self.model.outputs, self.prepared.target, rows.chunks()).metrics
        return next(evaluation for evaluation in reversed(self.history) if evaluation.best).validation

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of validation and test rows next to those of the base rate, as a run saves them."""
        found: dict[str, dict[str, float]] = {}
        for part, measured in self.measured.items():
            found |= {part: measured.metrics, f"{part}_base_rate": self.base_rate[part]}
        return found


def fit(
    source: pl.DataFrame | Store | Prepared,
    config: Config | None = None,
    *,
    parts: Parts | None = None,
    observer: Observer | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
) -> Trained:
    """Split, encode, fill in open settings, train and measure: the one way from rows to a model.

    Args:
        source: a table, a store whose rows are read from disk in training, or prepared rows.
        config: settings. A store keeps its own data and split settings, prepared rows keep all of theirs.
        parts: part of every row, instead of the split of the settings; not for a store.
        observer: is told about progress.
        checkpoints: folder for checkpoints and the history.
        resume: continue from the last checkpoint there.
    """
    if isinstance(source, Prepared):
        prepared = source
    else:
        config = config or Config()
        check_device(config.train.device, "train.device")
        prepared = prepare(source, config, parts=parts)
    trained = train(prepared, observer=observer, checkpoints=checkpoints, resume=resume)
    held_out = {name: prepared.parts[name] for name in ("validation", "test") if name in prepared.parts}
    target, measured = prepared.target, {}
    for name in held_out:
        measured[name] = measure(trained.model.outputs, target, trained.prepared.parts[name].chunks())
        if name == "validation" and prepared.config.train.refit:  # the model that is kept sees these rows
            trained = _refit(trained, observer or Observer(), checkpoints)
    return replace(
        trained,
        measured=measured,
        base_rate={name: base_rate_metrics(target, prepared.base_C, rows.chunks()) for name, rows in held_out.items()},
    )


def train(
    prepared: Prepared,
    *,
    observer: Observer | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
) -> Trained:
    """Build and train the model that the settings name. Trees are trained in one go, without checkpoints."""
    observer = observer or Observer()
    _check_stopping(prepared)
    observer.on_prepared(prepared)
    started = time.perf_counter()
    try:
        if isinstance(prepared.config.model, TreeConfig):
            observer.on_part(MAIN, prepared.config.model.max_trees, 1)
            trees = train_trees(prepared, prepared.config.model, observer)
            seconds = time.perf_counter() - started
            rate = len(prepared.parts["train"]) * trees.n_trained / seconds
            histories: Histories = {MAIN: trees.history}
            return Trained(prepared=prepared, model=trees, histories=histories, seconds=seconds, rows_per_s=rate)
        model, histories = _train_network(prepared, observer, checkpoints, resume=resume)
        seconds, rate = time.perf_counter() - started, histories[MAIN][-1].rows_per_s
        return Trained(prepared=prepared, model=model, histories=histories, seconds=seconds, rows_per_s=rate)
    finally:
        observer.on_end()


def _train_network(
    prepared: Prepared, observer: Observer, checkpoints: Path | None, *, resume: bool
) -> tuple[FieldModel, Histories]:
    _check_memory(prepared.encoder.layout, prepared.target, prepared.config, best_in_memory=checkpoints is None)
    model = build_for(prepared.target, prepared.encoder.layout, prepared.config)
    rows = prepared.parts["train"]
    histories: dict[str, Sequence[Evaluation]] = {}
    for name, part, settings in _parts(model, prepared.config, len(rows)):
        folder = checkpoints / name if checkpoints is not None and name else checkpoints
        part.apart = _trains_apart(prepared.config)
        if len(part.direct) > 1 and not part.apart:
            find_mix(part, prepared.target, prepared.parts["validation"], direct_only=True)
        with torch_threads(settings.threads):
            trainer = _trainer(Trainer, part, settings, prepared, rows, prepared.base_C, observer, name, folder)
            histories[name] = trainer.fit(resume=resume)
    model.apart = False
    if model.mix_P is not None:
        find_mix(model, prepared.target, prepared.parts["validation"])
    if isinstance(model, Blend):
        trees = train_blend(model, prepared, observer)
        histories |= {name: one.history for name, one in zip(model.members[1:], trees, strict=True)}
    return model, histories


def _trains_apart(config: Config) -> bool:
    return isinstance(config.model, FieldModelConfig) and config.model.on_direct is False


def _parts(model: FieldModel, config: Config, n_rows: int) -> list[tuple[str, FieldModel, TrainConfig]]:
    """What is trained one after the other: name, weights and settings; the model itself, without a name, is last."""
    found: list[tuple[str, FieldModel, TrainConfig]] = [
        (name, network, direct_settings(config.train, n_rows=n_rows))
        for name, network in model.direct.items()
        if isinstance(network, FieldModel)
    ]
    return [*found, (MAIN, model, config.train)]


def _refit(trained: Trained, observer: Observer, scratch: Path | None) -> Trained:
    """The same with a new model, trained on training and validation rows for as many passes; weights of parts stay.

    What a model starts from is of the rows that it sees: their evidence, its spread, and their base rate.
    """
    started, before = time.perf_counter(), trained.prepared
    store = recount(before.store, scratch)
    prepared = before if store is before.store else Prepared.of(store, before.config)
    rows = store.part(("train", "validation"))
    base_C = base_output(prepared.target, rows.chunks())
    model = build_for(prepared.target, prepared.encoder.layout, prepared.config)
    if model.mix_P is not None:
        assert isinstance(trained.model, FieldModel) and trained.model.mix_P is not None
        model.mix_P.copy_(trained.model.mix_P)
    try:
        for name, part, settings in _parts(model, prepared.config, len(before.parts["train"])):
            passes = Passes.of(trained.histories[name], settings)
            observer.on_refit(len(rows), passes.n)
            part.apart = _trains_apart(prepared.config)
            with torch_threads(settings.threads):
                _trainer(Refit, part, settings, prepared, rows, base_C, observer, name, None).follow(passes)
        model.apart = False
        if isinstance(model, Blend) and isinstance(trained.model, Blend):
            model.share_P.copy_(trained.model.share_P)
            refit_blend(model, trained.model.trees, prepared, rows, observer)
    finally:
        observer.on_end()
    seconds = trained.seconds + time.perf_counter() - started
    return replace(trained, prepared=prepared, model=model, seconds=seconds)


def _trainer(
    kind: type[AnyTrainer],
    model: FieldModel,
    settings: TrainConfig,
    prepared: Prepared,
    rows: StorePart,
    base_C: torch.Tensor,
    observer: Observer,
    name: str,
    folder: Path | None,
) -> AnyTrainer:
    """A trainer of a new model, or of one part of it that is a model of its own."""
    encoder = prepared.encoder
    assert settings.batch_size is not None
    _check_batches(len(rows), model, settings.batch_size)
    model.start_at(base_C)
    loader = Loader(rows, batch_size=settings.batch_size, seed=settings.seed)
    observer.on_part(name, loader.n_batches, settings.max_epochs)
    return kind(
        model,
        prepared.target,
        settings,
        train=loader,
        validation=prepared.parts["validation"],
        prepare=UnknownTraining(encoder.layout, encoder.counts, rate=settings.unknown_rate, seed=settings.seed),
        l2_scale_I=_l2_scale(encoder, settings.l2_rarity),
        observer=observer,
        history=History(None if folder is None else folder / HISTORY),
        checkpoints=None if folder is None else CheckpointFolder(folder),
    )


def _l2_scale(encoder: Encoder, rarity: float) -> torch.Tensor | None:
    return rarity_scale(encoder.layout.of_owners(encoder.counts), rarity) if rarity else None


def _check_stopping(prepared: Prepared) -> None:
    """Refuse a monitored metric that the task does not have, and what trees cannot do."""
    monitor, known = prepared.config.train.monitor, monitored_metrics(prepared.target.task)
    if monitor not in known:
        raise ConfigError(
            f"train.monitor must be one of {', '.join(known)} for a {prepared.target.task} target; given {monitor!r}"
        )
    if isinstance(prepared.config.model, TreeConfig) and (monitor != "loss" or prepared.config.train.refit):
        given = "train.refit = true" if monitor == "loss" else f"train.monitor = {monitor!r}"
        raise ConfigError(
            f"{prepared.config.model.name} stops by the validation loss and keeps those trees; given {given}. Remove "
            "this setting"
        )
    if prepared.config.train.refit and prepared.encoder.evidence is not None:
        prepared.store.folds(0, 0)  # a store without folds is refused before hours are lost on the first training


@contextmanager
def torch_threads(n_threads: int | None) -> Iterator[None]:
    """Within the context, torch uses this many threads; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_for(target: Target, layout: Layout, config: Config, *, device: str = "cpu") -> FieldModel:
    """An untrained model for a target and settings."""
    regression, seed = target.task == "regression", config.train.seed
    return build_model(layout, target.n_outputs, config.model, regression=regression, seed=seed, device=device)


def _check_memory(layout: Layout, target: Target, config: Config, *, best_in_memory: bool) -> None:
    """Refuse a model that does not fit into memory, before an hour is lost on it."""
    assert config.train.optimizer is not None
    planned = build_for(target, layout, config, device="meta")
    copies = COPIES_IN_TRAINING[config.train.optimizer] + (config.train.average_decay > 0) + best_in_memory
    of_tables = sum(table.weight.numel() for _, table in planned.tables())
    others = planned.n_parameters - of_tables
    needed = 4 * (copies * of_tables + (copies + 1) * others)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if config.train.device == "cpu" and present is not None and needed > present:
        what, advice = f"the tables of {layout.n_ids_total:,} ids", "lower model.d_embed or raise data.min_count"
        if others > of_tables:
            what, advice = f"{others:,} weights outside of the tables", "lower model.d_embed, or use fewer fields"
        raise TrainingError(
            f"training would need about {format_bytes(needed)}, most of it for {what}; this machine has "
            f"{format_bytes(present)}. To train, {advice}"
        )


def _check_batches(n_rows: int, model: FieldModel, batch_size: int) -> None:
    """Refuse batches of one row for a model with BatchNorm, which needs a spread."""
    smallest = n_rows // -(-n_rows // batch_size)
    if smallest < 2 and any(isinstance(module, BatchNorm) for module in model.modules()):
        raise TrainingError(
            f"BatchNorm needs batches of at least 2 rows; {n_rows} training rows with train.batch_size = "
            f"{batch_size} give batches of 1. Give more rows, raise train.batch_size, or set "
            "model.batch_norm = 'none' if the model has that setting"
        )
