"""Run: a folder that holds one training, from the settings asked for to the bundle.

    request.toml       settings as they were asked for
    config.toml        settings as they were used, nothing left to decide
    history.jsonl      one line an evaluation
    metrics.json       validation and test metrics next to those of the base rate
    environment.json   versions, machine, command and source
    bundle/            the model
    report.html        all of it on one page, for people (`report`)
    report.json        the numbers of the report
    tensorboard/       events, where asked for
    checkpoint/        only while unfinished: the same files, and the last checkpoint

Everything is written into `checkpoint/` first. A run that is replaced stays whole until the new one is.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
import torch

from fielddep.artifacts.bundle import MANIFEST, Bundle
from fielddep.config.settings import Config
from fielddep.encoding.split import SPLIT_VERSION
from fielddep.errors import BundleError, CheckpointError, ConfigError, MissingExtraError, UserError
from fielddep.observer import Observer, Observers
from fielddep.store.format import read_manifest
from fielddep.store.store import Store
from fielddep.tables.files import write_atomically, write_json, write_text
from fielddep.tables.folders import FolderKind, State, remove_workdir, start_workdir
from fielddep.training.checkpoint import HISTORY, Evaluation, TensorBoard
from fielddep.training.fit import Trained, check_device, fit
from fielddep.training.prepare import Prepared, prepare

RUN_FORMAT = 2
"""Of an unfinished run, which can be resumed only where its rows come in the same order: 1 had another split."""


def environment(table: pl.DataFrame | Store, source: str = "") -> dict[str, Any]:
    """Facts for the record, as plain values.

    Args:
        table: what is trained on.
        source: file or store that it came from; empty for a table in memory.
    """
    return {
        "format": RUN_FORMAT,
        "split_version": SPLIT_VERSION,
        "fielddep": metadata.version("fielddep"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "polars": pl.__version__,
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "command": [_program(), *sys.argv[1:]],
        "source": _store_facts(table) if isinstance(table, Store) else _table_facts(table, source),
    }


def _program() -> str:
    """What was called; `python -m fielddep` is the same as `fielddep`."""
    name = Path(sys.argv[0]).name
    return "fielddep" if name == "__main__.py" else name


def source_version() -> str:
    """The commit of the checkout that the package is run from, or the version of an installed package."""
    here = Path(__file__).resolve()
    try:
        # Only a checkout of this package tracks this file; an environment may lie in a checkout of something else.
        tracked = ["git", "-C", str(here.parent), "ls-files", "--error-unmatch", here.name]
        subprocess.run(tracked, capture_output=True, check=True)
        head = ["git", "-C", str(here.parent), "rev-parse", "--short", "HEAD"]
        return subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return metadata.version("fielddep")


def _table_facts(table: pl.DataFrame, source: str) -> dict[str, Any]:
    file = Path(source)
    return {
        "name": file.name,
        "bytes": file.stat().st_size if source and file.is_file() else None,
        "rows": len(table),
        "columns": table.columns,
        "fingerprint": _fingerprint(table),
    }


def _fingerprint(table: pl.DataFrame) -> str:
    """Of all values and the order of the rows, as a split is drawn by their places."""
    return hashlib.sha256(table.hash_rows(seed=0).to_numpy().tobytes()).hexdigest() if len(table) else ""


def _store_facts(store: Store) -> dict[str, Any]:
    """The checksums of all files of a store are its fingerprint, so that nothing large is read."""
    files = read_manifest(store.folder)["files"]
    return {
        "name": store.folder.name,
        "bytes": sum(file["bytes"] for file in files.values()),
        "rows": store.n_rows,
        "columns": list(store.layout.names),
        "fingerprint": hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest(),
    }


def check_source(path: Path, now: dict[str, Any]) -> None:
    """Refuse to resume with another table than the run began with.

    Args:
        path: record of the run's beginning.
        now: record of today.
    """
    record = json.loads(path.read_text("utf-8"))
    if record.get("format") != RUN_FORMAT:
        raise CheckpointError(
            f"{path.parent} holds a run of another version of fielddep, whose rows come in another order, so it cannot "
            "be resumed; start over with --force"
        )
    before = record["source"]
    for fact, name in (
        ("rows", "rows"),
        ("columns", "columns"),
        ("fingerprint", "values or their order (by fingerprint)"),
    ):
        if before[fact] != now["source"][fact]:
            raise CheckpointError(
                f"to resume a run its table must stay the same; its {name} were {before[fact]} and are now "
                f"{now['source'][fact]}. Give the same table, or start over with --force"
            )


log = logging.getLogger(__name__)

REQUEST, CONFIG, METRICS = "request.toml", "config.toml", "metrics.json"
ENVIRONMENT, BUNDLE, CHECKPOINT, TENSORBOARD = "environment.json", "bundle", "checkpoint", "tensorboard"
REPORT, REPORT_NUMBERS = "report.html", "report.json"

RUN = FolderKind(
    what="run",
    unfinished=Path(CHECKPOINT, REQUEST),
    is_finished=lambda folder: (folder / REQUEST).is_file(),
    names=(REQUEST, CONFIG, HISTORY, METRICS, ENVIRONMENT, BUNDLE, CHECKPOINT, REPORT, REPORT_NUMBERS),
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run. Get one from `Run.train` or `Run.open`.

    Attributes:
        folder: where it is kept.
        trained: the training that made it, rows included; None for a run that was opened.
    """

    folder: Path
    trained: Trained | None = field(default=None, repr=False, compare=False)

    @classmethod
    def train(
        cls,
        source: pl.DataFrame | Store,
        config: Config,
        folder: str | Path,
        *,
        force: bool = False,
        resume: bool = False,
        observer: Observer | None = None,
        tensorboard: bool = False,
        name: str = "",
    ) -> Run:
        """Train on a table or store and keep everything in a folder.

        Args:
            source: fields and target, or a store.
            config: settings; open ones are decided from the training rows. Data and split settings of a store are its
                own.
            folder: the run; created if absent.
            force: replace an existing run, once the new one is whole.
            resume: continue an unfinished run, or start where there is none; a finished one stays as it is.
            observer: follows the training.
            tensorboard: write events for TensorBoard into the run.
            name: file that the table came from, for the record.

        Raises:
            UserError: when the folder must not be written to, or the table or the settings cannot be used.
            StoreError: when a file of a store does not match its checksum.
        """
        folder = Path(folder)
        state = check_folder(folder, force=force, resume=resume)
        if state == "finished" and resume:
            log.warning("the run in %s is finished; nothing is left to resume", folder)
            return cls.open(folder)
        check_device(config.train.device, "train.device")
        if tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise MissingExtraError("TensorBoard is not installed; pip install 'fielddep[tensorboard]'")
        record = environment(source, name)
        if state == "unfinished" and resume:
            _check_request(folder / CHECKPOINT / REQUEST, config)
            check_source(folder / CHECKPOINT / ENVIRONMENT, record)
        prepared = _prepare(source, config)
        if state != "unfinished" or force:
            _begin(folder, config, record)
        if tensorboard:
            observer = Observers(observer or Observer(), TensorBoard(folder / CHECKPOINT / TENSORBOARD))
        trained = fit(prepared, observer=observer, checkpoints=folder / CHECKPOINT, resume=resume)
        _save(trained, folder)
        return replace(cls.open(folder), trained=trained)

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
            raise UserError(f"the run in {folder} is unfinished; resume it with fit ... --out {folder} --resume")
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
    """Refuse a folder that must not be written to. Call it before a large table is read."""
    return RUN.check(folder, force=force, resume=resume)


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


def _prepare(source: pl.DataFrame | Store, config: Config) -> Prepared:
    """Split and encode; a damaged store is refused before hours are spent on wrong rows."""
    if isinstance(source, Store):
        started = time.perf_counter()
        source.verify()
        log.info("the files of store %s are whole (checked in %.1f s)", source.folder, time.perf_counter() - started)
    prepared = prepare(source, config)
    for warning in prepared.store.warnings:
        log.warning("%s", warning)
    return prepared


def _save(trained: Trained, folder: Path) -> None:
    attempt = folder / CHECKPOINT
    write_json(attempt / METRICS, trained.metrics)
    write_text(attempt / CONFIG, trained.prepared.config.to_toml())
    Bundle.of(trained).save(folder / BUNDLE)
    _finish(folder)


def _begin(folder: Path, config: Config, record: dict[str, Any]) -> None:
    def write(fresh: Path) -> None:
        write_text(fresh / REQUEST, config.to_toml())
        write_json(fresh / ENVIRONMENT, record)

    try:
        start_workdir(folder / CHECKPOINT, write)
    except OSError as error:
        raise UserError(f"cannot write run {folder}: {error.strerror or error}; choose another folder") from error


def _finish(folder: Path) -> None:
    """Put the new files in place of the old ones; `checkpoint/` goes last, so that a kill here can be resumed."""
    attempt = folder / CHECKPOINT
    for name in (REPORT, REPORT_NUMBERS):  # they are about the run that is replaced
        (folder / name).unlink(missing_ok=True)
    for name in (CONFIG, HISTORY, METRICS, ENVIRONMENT, REQUEST):
        write_atomically(folder / name, functools.partial(_copy, attempt / name))
    shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)
    if (attempt / TENSORBOARD).is_dir():
        shutil.copytree(attempt / TENSORBOARD, folder / TENSORBOARD)
    remove_workdir(attempt)
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
                    "Give the old value, or start over with --force"
                )
