"""Folders of experiments: whose they are, and that one process at a time works in each.

    comparison.json, ablation.json   the mark: which experiment it is, and of which rows
    search.sqlite                    that of a search, Optuna's file
    store/                           the rows of a table, encoded
    .lock                            there, and locked, while a process works in the folder

The mark of a comparison or an ablation is there before any row is encoded.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fielddep.errors import UserError
from fielddep.files import write_json

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None

STORE_FOLDER, LOCK = "store", ".lock"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A kind of experiment.

    Attributes:
        what: its name in messages.
        mark: file that tells its folder from others.
        says_rows: whether the mark says which rows it is about, and is made here.
    """

    what: str
    mark: str
    says_rows: bool = True


SEARCH = Experiment(what="search", mark="search.sqlite", says_rows=False)
COMPARISON = Experiment(what="comparison", mark="comparison.json")
ABLATION = Experiment(what="ablation", mark="ablation.json")
_KINDS = (SEARCH, COMPARISON, ABLATION)
_held: set[tuple[Path, int]] = set()
"""Folders that are locked, each with the thread that did it."""


@contextlib.contextmanager
def working_in(folder: Path, kind: Experiment) -> Iterator[None]:
    """Keep a folder for this process and mark it as that of an experiment; within itself it does nothing more.

    If nothing comes of it, because the rows cannot be read for instance, nothing stays behind.

    Raises:
        UserError: the folder is of other things, cannot be used, or another process works in it.
    """
    check_folder(folder, kind)
    with _locked(folder):
        check_folder(folder, kind)  # another process may have been here since
        mark = folder / kind.mark
        is_new = kind.says_rows and not mark.exists()
        if is_new:
            write_json(mark, {})
        try:
            yield
        finally:
            if is_new and {entry.name for entry in folder.iterdir()} <= {LOCK, mark.name}:
                mark.unlink(missing_ok=True)


def check_folder(folder: Path, kind: Experiment) -> None:
    """Refuse a folder of other things; one that holds nothing but a store may become any experiment.

    Raises:
        UserError: it is no folder, or not empty and without the mark.
    """
    try:
        if not folder.exists() or (folder / kind.mark).exists():
            return
        names = [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror or error}; choose another folder") from error
    foreign = [name for name in names if name not in (STORE_FOLDER, LOCK) and not name.startswith(f".{kind.mark}.")]
    if foreign:
        other = next((f" but a{'n' * (k is ABLATION)} {k.what}" for k in _KINDS if k.mark in names), "")
        raise UserError(f"{folder} is not empty and holds no {kind.what}{other}; choose another folder")


def mark_folder(folder: Path, dataset: str, sha256: str, kind: Experiment) -> None:
    """Keep which rows an experiment is about.

    Raises:
        UserError: the folder holds one on other rows.
    """
    content, path = {"dataset": dataset, "store": sha256}, folder / kind.mark
    if path.is_file() and json.loads(path.read_text("utf-8")) not in ({}, content):
        raise UserError(f"{folder} holds the {kind.what} of other rows than {dataset}; choose another folder")
    write_json(path, content)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    holder = folder.resolve(), threading.get_ident()
    if fcntl is None or holder in _held:
        yield
        return
    was_there = folder.exists()
    handle = _lock(folder, fcntl)
    _held.add(holder)
    try:
        yield
    finally:
        _held.discard(holder)
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
            if not was_there:
                folder.rmdir()  # only if it is empty
        os.close(handle)


def _lock(folder: Path, library: ModuleType) -> int:
    """The open and locked file of a folder; the system unlocks it when it is closed or the process ends."""
    path = folder / LOCK
    try:
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                library.flock(handle, library.LOCK_EX | library.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise UserError(f"another process works in {folder}; wait for it, or choose another --out") from None
            except OSError:  # a file system without locks
                return handle
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
            os.close(handle)  # whoever had it took the file away
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror or error}; choose another folder") from error
