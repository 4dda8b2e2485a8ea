"""Folders that are finished or unfinished, such as runs and stores: what they hold, and whether to write to them.

Each is built in a work folder inside it, so an interrupted one can be resumed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fielddep.errors import UserError

State = Literal["absent", "unfinished", "finished", "foreign"]


@dataclass(frozen=True, kw_only=True)
class FolderKind:
    """One kind of folder.

    Attributes:
        what: its name in messages.
        unfinished: file in the folder that marks an unfinished one.
        is_finished: whether a folder holds a finished one.
        names: entries that are written atomically; a kill may leave their temporary files behind.
    """

    what: str
    unfinished: Path
    is_finished: Callable[[Path], bool]
    names: Sequence[str]

    def state(self, folder: Path) -> State:
        """What a folder holds; one that is being replaced is unfinished. A UserError if it cannot be read."""
        try:
            if not folder.exists():
                return "absent"
            if (folder / self.unfinished).is_file():
                return "unfinished"
            if self.is_finished(folder):
                return "finished"
            if folder.is_dir() and all(map(self.is_leftover, folder.iterdir())):
                return "absent"
            return "foreign"
        except OSError as error:
            raise UserError(f"{folder} cannot be read: {error.strerror or error}. Check its permissions") from error

    def check(self, folder: Path, *, force: bool = False, resume: bool = False) -> State:
        """Refuse a folder that must not be written to.

        Raises:
            UserError: it holds a finished or unfinished one and neither `force` nor `resume` is given, or other things.
        """
        if force and resume:
            raise UserError("--force starts over and --resume continues. Give one of them")
        state = self.state(folder)
        if state == "foreign":
            raise UserError(
                f"{folder} is not empty and holds no {self.what}, so it is not touched even with --force. Choose "
                "another folder"
            )
        if state == "finished" and not (force or resume):
            raise UserError(
                f"there is already a {self.what} in {folder}. Use --force to replace it, or choose another folder"
            )
        if state == "unfinished" and not (force or resume):
            raise UserError(
                f"there is an unfinished {self.what} in {folder}. Use --resume to continue from its last "
                "checkpoint, or --force to start over"
            )
        return state

    def is_leftover(self, path: Path) -> bool:
        """Whether it is a temporary file or folder that a kill left behind."""
        return path.name.startswith(tuple(f".{name}." for name in self.names))


def start_workdir(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a work folder elsewhere, then move it into place, so a kill leaves nothing or all of it.

    An existing one is replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    fresh.chmod(0o755)
    write(fresh)
    remove_workdir(path)
    fresh.rename(path)


def remove_workdir(path: Path) -> None:
    """Remove a work folder; it is renamed first because a half-deleted one must not look like something to resume."""
    if path.is_dir():
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
