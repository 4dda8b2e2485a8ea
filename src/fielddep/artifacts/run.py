"""Run: the folder of one training, from the requested settings to the bundle.

    request.toml       settings as requested
    config.toml        settings as used, without open ones
    history.jsonl      one line per evaluation
    metrics.json       validation and test metrics next to those of the base rate
    environment.json   versions, machine, command and source
    bundle/            the model
    report.html        everything on one page (`report`)
    report.json        the numbers of the report
    tensorboard/       events, if requested
    checkpoint/        only while unfinished: the same files, and the last checkpoint

Everything is written to `checkpoint/` first. A run that is replaced stays complete until the new one is.
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

from fielddep.artifacts.bundle import Bundle, aside
from fielddep.config.settings import Config
from fielddep.encoding.split import SPLIT_VERSION
from fielddep.errors import BundleError, CheckpointError, ConfigError, MissingExtraError, UserError
from fielddep.observer import Observer, Observers
from fielddep.store.format import STORE_MANIFEST
from fielddep.store.store import Store
from fielddep.tables.files import MANIFEST, write_atomically, write_json, write_text
from fielddep.tables.folders import FolderKind, remove_workdir, start_workdir
from fielddep.training.checkpoint import HISTORY, Evaluation, TensorBoard
from fielddep.training.fit import Trained, check_device, fit
from fielddep.training.prepare import Prepared, prepare

RUN_FORMAT = 2
"""Format of an unfinished run; 1 had another split, so its rows would come in another order."""


def environment(table: pl.DataFrame | Store, source: str = "") -> dict[str, Any]:
    """Versions, machine, command and source, as plain values.

    Args:
        table: the table or store to train on.
        source: file that the table came from; empty for a table in memory.
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
        # `python -m fielddep` is recorded as `fielddep`.
        "command": [Path(sys.argv[0]).name.replace("__main__.py", "fielddep"), *sys.argv[1:]],
        "source": _store_facts(table) if isinstance(table, Store) else _table_facts(table, source),
    }


def source_version() -> str:
    """The commit of the checkout that the package runs from, or the version of an installed package."""
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
        # Of all values and the order of the rows, because the split depends on row numbers.
        "fingerprint": hashlib.sha256(table.hash_rows(seed=0).to_numpy().tobytes()).hexdigest() if len(table) else "",
    }


def _store_facts(store: Store) -> dict[str, Any]:
    """The fingerprint of a store covers the checksums of its files, so that nothing large is read."""
    files = STORE_MANIFEST.read(store.folder)["files"]
    return {
        "name": store.folder.name,
        "bytes": sum(file["bytes"] for file in files.values()),
        "rows": store.n_rows,
        "columns": list(store.layout.names),
        "fingerprint": hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest(),
    }


def _check_source(path: Path, now: dict[str, Any]) -> None:
    """Refuse to resume with another table than at the start, which `path` records."""
    record = json.loads(path.read_text("utf-8"))
    if record.get("format") != RUN_FORMAT:
        raise CheckpointError(
            f"{path.parent} holds a run of another version of fielddep, whose rows come in another order, so it cannot "
            "be resumed. Start over with --force"
        )
    facts = {"rows": "rows", "columns": "columns", "fingerprint": "values or their order (by fingerprint)"}
    for fact, name in facts.items():
        old, new = record["source"][fact], now["source"][fact]
        if old != new:
            raise CheckpointError(
                f"to resume a run, its table must stay the same; its {name} were {old} and are now {new}. Give the "
                "same table, or start over with --force"
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
    """A finished run, from `Run.train` or `Run.open`.

    Attributes:
        folder: its folder.
        trained: the training, including its rows; None for a run that was opened.
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
            source: a table with the target, or a store.
            config: settings. A store keeps its own data and split settings.
            folder: folder of the run; created if absent.
            force: replace an existing run, once the new one is complete.
            resume: continue an unfinished run, or start if there is none; a finished one is returned as it is.
            observer: is told about progress.
            tensorboard: write events for TensorBoard into the run.
            name: file that the table came from, for the record.

        Raises:
            UserError: the folder must not be written to, or table or settings cannot be used.
            StoreError: a file of a store does not match its checksum.
        """
        folder = Path(folder)
        state = RUN.check(folder, force=force, resume=resume)
        if state == "finished" and resume:
            log.warning("the run in %s is finished; there is nothing to resume", folder)
            return cls.open(folder)
        check_device(config.train.device, "train.device")
        if tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise MissingExtraError("TensorBoard is not installed; pip install 'fielddep[tensorboard]'")
        record = environment(source, name)
        if state == "unfinished" and resume:
            _check_request(folder / CHECKPOINT / REQUEST, config)
            _check_source(folder / CHECKPOINT / ENVIRONMENT, record)
        prepared = _prepare(source, config)
        if state != "unfinished" or force:
            _begin(folder, config, record)
        if tensorboard:
            observer = Observers(observer or Observer(), TensorBoard(folder / CHECKPOINT / TENSORBOARD))
        trained = fit(prepared, observer=observer, checkpoints=folder / CHECKPOINT, resume=resume)
        write_json(folder / CHECKPOINT / METRICS, trained.metrics)
        write_text(folder / CHECKPOINT / CONFIG, prepared.config.to_toml())
        Bundle.of(trained).save(folder / BUNDLE)
        _finish(folder)
        return replace(cls.open(folder), trained=trained)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in a folder.

        Raises:
            UserError: there is no run, or only an unfinished one.
        """
        folder = Path(folder)
        if (folder / REQUEST).is_file() and (folder / BUNDLE / MANIFEST).is_file():
            return cls(folder=folder)
        if RUN.state(folder) == "unfinished":
            raise UserError(f"the run in {folder} is unfinished. Resume it with fit ... --out {folder} --resume")
        raise UserError(f"no run in {folder}; expected a folder with {REQUEST} and {BUNDLE}/, which fit writes")

    @property
    def bundle(self) -> Path:
        """Folder of the model."""
        return self.folder / BUNDLE

    @property
    def config(self) -> Config:
        """Settings as used."""
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
        """The evaluations in order."""
        lines = (self.folder / HISTORY).read_text("utf-8").splitlines()
        return [Evaluation(**json.loads(line)) for line in lines]


def resolve_bundle(path: str | Path) -> Path:
    """The folder of a bundle, from the folder of a run or of the bundle itself.

    Raises:
        BundleError: the folder is neither.
    """
    path = Path(path)
    if (path / MANIFEST).is_file():
        return path
    if not path.is_dir():
        if aside(path).exists():  # it is being replaced; `Bundle.load` finds it
            return path
        raise BundleError(f"no run or bundle at {path}: the folder does not exist. Check the path")
    try:
        return Run.open(path).bundle
    except UserError as error:
        raise BundleError(str(error)) from None


def _prepare(source: pl.DataFrame | Store, config: Config) -> Prepared:
    """Split and encode. A damaged store is refused before hours are spent on wrong rows."""
    if isinstance(source, Store):
        started = time.perf_counter()
        source.verify()
        log.info("the files of store %s are intact (checked in %.1f s)", source.folder, time.perf_counter() - started)
    prepared = prepare(source, config)
    for warning in prepared.store.warnings:
        log.warning("%s", warning)
    return prepared


def _begin(folder: Path, config: Config, record: dict[str, Any]) -> None:
    def write(fresh: Path) -> None:
        write_text(fresh / REQUEST, config.to_toml())
        write_json(fresh / ENVIRONMENT, record)

    try:
        start_workdir(folder / CHECKPOINT, write)
    except OSError as error:
        raise UserError(f"cannot write run {folder}: {error.strerror or error}; choose another folder") from error


def _finish(folder: Path) -> None:
    """Replace the old files by the new ones. `checkpoint/` is removed last, so a run killed here can be resumed."""
    attempt = folder / CHECKPOINT
    for name in (REPORT, REPORT_NUMBERS):  # of the run that is replaced
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
                    f"to resume a run, its settings must stay the same; {section}.{key} was {old!r} and is now "
                    f"{new!r}. Give the old value, or start over with --force"
                )
