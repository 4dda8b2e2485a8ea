"""Run: a folder that holds one training, from what was asked to the bundle.

    request.toml       settings as they were asked for
    config.toml        settings as they were used, nothing left to decide
    history.jsonl      one line an evaluation
    metrics.json       validation and test metrics beside those of the base rate
    environment.json   versions, machine, command and source
    bundle/            the model
    report.html        what is worth knowing of all this, for people; see `run_report`
    report.json        the numbers of the report
    tensorboard/       events, where asked for
    checkpoint/        only while unfinished: the same files, and the last checkpoint

Everything is written into `checkpoint/` first. A run that is replaced stays whole until the new one is.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fielddep.bundle import MANIFEST, Bundle
from fielddep.config import Config
from fielddep.data.store.store import Store
from fielddep.devices import check_device
from fielddep.environment import check_source, environment
from fielddep.errors import BundleError, ConfigError, MissingExtraError, UserError
from fielddep.files import write_atomically, write_json, write_text
from fielddep.fitting import TrainingData, measure, prepare, prepare_store, train_model
from fielddep.folders import FolderKind, State, begin_part, discard_part
from fielddep.training.callbacks import Callback, TensorBoard
from fielddep.training.checkpoint import CheckpointFolder
from fielddep.training.history import Evaluation, History

log = logging.getLogger(__name__)

REQUEST, CONFIG, HISTORY, METRICS = "request.toml", "config.toml", "history.jsonl", "metrics.json"
ENVIRONMENT, BUNDLE, CHECKPOINT, TENSORBOARD = "environment.json", "bundle", "checkpoint", "tensorboard"
REPORT, REPORT_NUMBERS = "report.html", "report.json"

RUN = FolderKind(
    what="run",
    make="train",
    unfinished=Path(CHECKPOINT, REQUEST),
    is_finished=lambda folder: (folder / REQUEST).is_file(),
    names=(REQUEST, CONFIG, HISTORY, METRICS, ENVIRONMENT, BUNDLE, CHECKPOINT, REPORT, REPORT_NUMBERS),
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run. Get one from `train_run` or `Run.open`."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in a folder.

        Raises:
            UserError: when there is no run, or an unfinished one only.
        """
        folder = Path(folder)
        if (folder / REQUEST).is_file() and (folder / BUNDLE / MANIFEST).is_file():
            return cls(folder=folder)
        if run_state(folder) == "unfinished":
            raise UserError(f"the run in {folder} is unfinished; go on with fit ... --out {folder} --resume")
        raise UserError(f"no run in {folder}: expected a folder with {REQUEST} and {BUNDLE}/, as fit writes it")

    @property
    def bundle(self) -> Path:
        """Folder of the model."""
        return self.folder / BUNDLE

    @property
    def config(self) -> Config:
        """Settings as they were used."""
        return Config.from_toml(self.folder / CONFIG)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of validation and test rows, and of the base rate on them."""
        found: dict[str, dict[str, float]] = json.loads((self.folder / METRICS).read_text("utf-8"))
        return found

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, machine, command and source."""
        found: dict[str, Any] = json.loads((self.folder / ENVIRONMENT).read_text("utf-8"))
        return found

    @property
    def history(self) -> list[Evaluation]:
        """The evaluations of the training, in order."""
        lines = (self.folder / HISTORY).read_text("utf-8").splitlines()
        return [Evaluation(**json.loads(line)) for line in lines]


def run_state(folder: Path) -> State:
    """What a folder holds; a run that is being replaced is unfinished."""
    return RUN.state(folder)


def check_folder(folder: Path, *, force: bool = False, resume: bool = False) -> State:
    """Refuse a folder that must not be written to; worth calling before a large table is read."""
    return RUN.check(folder, force=force, resume=resume)


def train_run(
    table: pl.DataFrame | Store,
    config: Config,
    folder: str | Path,
    *,
    force: bool = False,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = False,
    source: str = "",
    on_prepared: Callable[[TrainingData], None] | None = None,
) -> Run:
    """Train on a table or store and keep everything in a folder.

    Args:
        table: fields and target, or a store.
        config: settings; open ones are decided from the training rows. Those of data and split that a store was made
            with are its own.
        folder: the run; made if it is not there.
        force: replace a run that is there, once the new one is whole.
        resume: go on with an unfinished run, or begin where none is; a finished one is left as it is.
        callbacks: lookers-on of the training.
        tensorboard: write events for TensorBoard into the run.
        source: file that the table came from, for the record.
        on_prepared: told of the rows once they are split and encoded, before the training.

    Raises:
        UserError: when the folder must not be written to, or the table or the settings cannot be used.
        StoreError: when a file of a store is not what its checksum says.
    """
    folder = Path(folder)
    state = check_folder(folder, force=force, resume=resume)
    if state == "finished" and resume:
        log.warning("the run in %s is finished; nothing is left to resume", folder)
        return Run.open(folder)
    check_device(config.train.device, "train.device")
    if tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("TensorBoard is not installed; pip install 'fielddep[tensorboard]'")
    attempt = folder / CHECKPOINT
    record = environment(table, source)
    if state == "unfinished" and resume:
        _check_request(attempt / REQUEST, config)
        check_source(attempt / ENVIRONMENT, record)
    if isinstance(table, Store):
        _verify(table)
    prepared = prepare_store(table, config) if isinstance(table, Store) else prepare(table, config)
    for warning in prepared.warnings:
        log.warning("%s", warning)
    if on_prepared is not None:
        on_prepared(prepared)
    if state != "unfinished" or force:
        _begin(folder, config, record)
    if tensorboard:
        callbacks = (*callbacks, TensorBoard(attempt / TENSORBOARD))
    return _train(prepared, folder, callbacks, resume=resume)


def resolve_bundle(path: str | Path) -> Path:
    """The bundle of a run, or the bundle itself where its own folder is given.

    Raises:
        BundleError: when the folder is neither.
    """
    path = Path(path)
    if (path / MANIFEST).is_file():
        return path
    if not path.is_dir():
        raise BundleError(f"no run or bundle at {path}: there is no such folder; check the path")
    try:
        return Run.open(path).bundle
    except UserError as error:
        raise BundleError(str(error)) from None


def _verify(store: Store) -> None:
    """Refuse a damaged store before hours are spent on wrong rows."""
    started = time.perf_counter()
    store.verify()
    log.info("the files of store %s are whole (checked in %.1f s)", store.folder, time.perf_counter() - started)


def _train(prepared: TrainingData, folder: Path, callbacks: Sequence[Callback], *, resume: bool) -> Run:
    attempt = folder / CHECKPOINT
    history = History(attempt / HISTORY)
    model = train_model(
        prepared, callbacks=callbacks, history=history, checkpoints=CheckpointFolder(attempt), resume=resume
    )
    write_json(attempt / METRICS, measure(prepared, model))
    write_text(attempt / CONFIG, prepared.config.to_toml())
    Bundle(config=prepared.config, encoder=prepared.encoder, model=model).save(folder / BUNDLE)
    _finish(folder)
    return Run.open(folder)


def _begin(folder: Path, config: Config, record: dict[str, Any]) -> None:
    def write(fresh: Path) -> None:
        write_text(fresh / REQUEST, config.to_toml())
        write_json(fresh / ENVIRONMENT, record)

    try:
        begin_part(folder / CHECKPOINT, write)
    except OSError as error:
        raise UserError(f"cannot write run {folder}: {error.strerror or error}; choose another folder") from error


def _finish(folder: Path) -> None:
    """Put the new files in place of the old ones; `checkpoint/` goes last, so that a kill here can be resumed."""
    attempt = folder / CHECKPOINT
    for name in (REPORT, REPORT_NUMBERS):  # they tell of the run that is replaced
        (folder / name).unlink(missing_ok=True)
    for name in (CONFIG, HISTORY, METRICS, ENVIRONMENT, REQUEST):
        write_atomically(folder / name, functools.partial(_copy, attempt / name))
    shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)
    if (attempt / TENSORBOARD).is_dir():
        shutil.copytree(attempt / TENSORBOARD, folder / TENSORBOARD)
    discard_part(attempt)
    for path in filter(RUN.is_leftover, list(folder.iterdir())):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _check_request(path: Path, config: Config) -> None:
    asked, now = Config.from_toml(path).to_dict(), config.to_dict()
    for section, settings in now.items():
        for key in sorted({*settings, *asked[section]}):
            old, new = asked[section].get(key), settings.get(key)
            if old != new:
                raise ConfigError(
                    f"to resume a run its settings must stay the same; {section}.{key} was {old!r} and is now {new!r}. "
                    "Give the old value, or --force to train anew"
                )
