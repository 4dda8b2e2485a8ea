"""Folders that are complete or unfinished, such as a run or a store: what one holds, and whether it may be written to.

Each is built in a work folder and moved into place when it is complete, so an interrupted one can be resumed.
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
        unfinished: file below the folder that marks an unfinished one.
        is_finished: whether a folder holds a finished one.
        names: entries that are written atomically, whose temporary files a kill may leave behind.
    """

    what: str
    unfinished: Path
    is_finished: Callable[[Path], bool]
    names: Sequence[str]

    def state(self, folder: Path) -> State:
        """What a folder holds; one that is being replaced is unfinished.

        Raises:
            UserError: when it cannot be read.
        """
        try:
            return self._state(folder)
        except OSError as error:
            raise UserError(f"{folder} cannot be read: {error.strerror or error}. Check its permissions") from error

    def check(self, folder: Path, *, force: bool = False, resume: bool = False) -> State:
        """Refuse a folder that must not be written to.

        Raises:
            UserError: for one that is there already without `force` or `resume`, and for a folder of other things.
        """
        if force and resume:
            raise UserError("--force starts over, --resume continues; give one of them")
        state = self.state(folder)
        if state == "foreign":
            raise UserError(
                f"{folder} is not empty and holds no {self.what}, so it is left alone even with --force; choose "
                "another folder"
            )
        if state == "finished" and not (force or resume):
            raise UserError(
                f"there is a {self.what} in {folder} already; use --force to replace it, or choose another folder"
            )
        if state == "unfinished" and not (force or resume):
            raise UserError(
                f"there is an unfinished {self.what} in {folder}; use --resume to continue from its last "
                "checkpoint, or --force to start over"
            )
        return state

    def is_leftover(self, path: Path) -> bool:
        """Whether a kill left it behind while it was being written."""
        return path.name.startswith(tuple(f".{name}." for name in self.names))

    def _state(self, folder: Path) -> State:
        if not folder.exists():
            return "absent"
        if (folder / self.unfinished).is_file():
            return "unfinished"
        if self.is_finished(folder):
            return "finished"
        if folder.is_dir() and all(map(self.is_leftover, folder.iterdir())):
            return "absent"
        return "foreign"


def start_workdir(part: Path, write: Callable[[Path], None]) -> None:
    """Make a part of a folder appear in one move, so that a kill leaves either nothing or something to resume.

    Args:
        part: its path; one that is there is replaced.
        write: fills it, in another place.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{part.name}.", dir=part.parent))
    fresh.chmod(0o755)
    write(fresh)
    remove_workdir(part)
    fresh.rename(part)


def remove_workdir(part: Path) -> None:
    """Take a part of a folder away; renamed first, as a half-deleted one must not look like something to resume."""
    if part.is_dir():
        aside = Path(tempfile.mkdtemp(prefix=f".{part.name}.", dir=part.parent))
        part.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
