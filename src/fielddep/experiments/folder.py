"""Folders of experiments: what each holds, which rows it is about, and a lock for one process at a time.

    comparison.json, ablation.json   the mark: which experiment it is, and on which rows
    search.sqlite                    the mark of a search, Optuna's file
    store/                           the rows of a table, encoded once so that all models read the same ids
    .lock, .lock-owner               while a process works in the folder

The mark of a comparison or an ablation is written before any row is encoded.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fielddep.config.settings import Config
from fielddep.datasets import RECIPES, find_recipe, store_for
from fielddep.errors import ConfigError, StoreError, TableError, UserError
from fielddep.observer import Observer
from fielddep.store.build import build_store
from fielddep.store.folder import STORE
from fielddep.store.store import Store, is_store
from fielddep.tables.files import write_json
from fielddep.tables.readers import Source
from fielddep.tables.row_stream import check_same_sources, open_rows
from fielddep.training.prepare import with_store_settings

STORE_FOLDER, LOCK, OWNER = "store", ".lock", ".lock-owner"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A kind of experiment.

    Attributes:
        what: its name in messages.
        mark: file that identifies its folder.
        names_rows: whether the mark is written here and names the rows.
    """

    what: str
    mark: str
    names_rows: bool = True


SEARCH = Experiment(what="search", mark="search.sqlite", names_rows=False)
COMPARISON = Experiment(what="comparison", mark="comparison.json")
ABLATION = Experiment(what="ablation", mark="ablation.json")


@contextlib.contextmanager
def working_in(folder: Path, kind: Experiment) -> Iterator[None]:
    """Lock a folder for this process and mark it as that of an experiment; may be nested.

    If nothing is made in it, for instance because the rows cannot be read, nothing is left behind.

    Raises:
        UserError: the folder holds something else, cannot be used, or is in use.
    """
    check_folder(folder, kind)
    with _locked(folder):
        check_folder(folder, kind)  # another process may have been here since
        mark = folder / kind.mark
        is_new = kind.names_rows and not mark.exists()
        if is_new:
            write_json(mark, {})
        try:
            yield
        finally:
            if is_new and {entry.name for entry in folder.iterdir()} <= {LOCK, OWNER, mark.name}:
                mark.unlink(missing_ok=True)


def check_folder(folder: Path, kind: Experiment) -> None:
    """Refuse a folder that holds something else; one with nothing but a store may become any experiment.

    Raises:
        UserError: it is not a folder, or it has files but no mark.
    """
    try:
        if not folder.exists() or (folder / kind.mark).exists():
            return
        names = [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror or error}; choose another folder") from error
    own = (STORE_FOLDER, LOCK, OWNER)
    if any(name not in own and not name.startswith(f".{kind.mark}.") for name in names):
        others = [other.what for other in (SEARCH, COMPARISON, ABLATION) if other.mark in names]
        found = f"another experiment ({others[0]})" if others else "other files"
        raise UserError(f"{folder} already holds {found}; choose another folder for this {kind.what}")


def mark_folder(folder: Path, dataset: str, sha256: str, kind: Experiment) -> None:
    """Record which rows an experiment is about.

    Raises:
        UserError: the folder holds an experiment on other rows.
    """
    content, path = {"dataset": dataset, "store": sha256}, folder / kind.mark
    if path.is_file() and json.loads(path.read_text("utf-8")) not in ({}, content):
        raise UserError(f"{folder} holds the {kind.what} of other rows than {dataset}; choose another folder")
    write_json(path, content)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process and thread; the system unlocks it however the process ends."""
    was_there = folder.exists()
    lock = FileLock(folder.resolve() / LOCK, is_singleton=True)  # one object per folder: a thread may lock it twice
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        (folder / OWNER).write_text(f"process {os.getpid()} on {socket.gethostname()}", "utf-8")
    except Timeout:
        raise UserError(f"{folder} is in use by {_owner(folder)}; wait for it, or choose another folder") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror or error}; choose another folder") from error
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            with contextlib.suppress(OSError):
                (folder / OWNER).unlink()
                (folder / LOCK).unlink()
                if not was_there:
                    folder.rmdir()  # only if it is empty
        lock.release()


def _owner(folder: Path) -> str:
    try:
        return (folder / OWNER).read_text("utf-8")
    except OSError:  # it has just started or just ended
        return "another process"


@dataclass(frozen=True, kw_only=True)
class NamedStore:
    """Encoded rows, and their name in tables."""

    dataset: str
    store: Store


def open_source(
    source: str,
    folder: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    raw: Path | None = None,
    observer: Observer | None = None,
) -> NamedStore:
    """The store of a source, encoded if necessary.

    Args:
        source: folder of a store, name of a data set with a recipe, or a table (file, folder or glob).
        folder: where the store of a table or data set is kept.
        settings: dotted settings of data and split.
        raw: folder of a data set's published files.
        observer: notified of the progress of the encoding.

    Raises:
        UserError: the source does not exist or cannot be read, or `folder` holds the store of another one.
    """
    settings = dict(settings or {})
    for path in settings:
        if not path.startswith(("data.", "split.")):
            raise ConfigError(
                f"expected settings of data or split, given {path}; other settings do not change the rows"
            )
    if is_store(source) or STORE.state(Path(source)) == "unfinished":
        store = Store.open(source)
        with_store_settings(Config().replace(settings), store)
        return NamedStore(dataset=Path(source).resolve().name, store=store)
    if source in RECIPES:
        return NamedStore(dataset=source, store=store_for(source, folder, raw, settings=settings, observer=observer))
    if not Path(source).exists() and not set("*?[") & set(source):
        raise _no_source(source)
    config = Config().replace(settings)
    return NamedStore(dataset=Path(source).stem, store=_table_store(source, config, folder, observer))


def _no_source(source: str) -> TableError:
    advice = ""
    if not {"/", "."} & set(source):
        try:
            find_recipe(source)
        except ValueError as error:
            advice = f" ({error})"
    return TableError(f"expected a store, a table or the name of a data set, but {source} does not exist{advice}")


def _table_store(source: Source, config: Config, folder: Path, observer: Observer | None) -> Store:
    """The store of a table, encoded if it does not exist."""
    state = STORE.state(folder)
    if state != "finished":
        return build_store(source, config, folder, resume=state == "unfinished", observer=observer)
    store = Store.open(folder)
    if (store.config.data, store.config.split) != (config.data, config.split):
        raise StoreError(
            f"{folder} holds the rows of {source} encoded with other settings of data and split; use the same "
            "settings, or choose another folder"
        )
    check_same_sources([dict(facts) for facts in store.sources], open_rows(source, config.data).sources)
    return store


def reopen_store(folder: str, sha256: str) -> Store:
    """The store of an experiment, in another process.

    Raises:
        UserError: it was replaced since.
    """
    store = Store.open(folder)
    if store.sha256 != sha256:
        raise UserError(f"the store {folder} was replaced since the first run; start over in another folder")
    return store
