"""The folder of a store while it is being made.

Everything is built in `STORE/unfinished/`; the files move up when all of them are there, the manifest last. So a folder
without manifest is no store, and a store that is replaced stays usable until the new one is whole.

    unfinished/request.json    settings and sources of the start
    unfinished/progress.json   how far the work is; what lies behind it is cut off when it goes on
    unfinished/spool/          codes, different values and parts of the rows, removed at the end
    unfinished/shard-*         shards of the new store
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fielddep.config.settings import Config
from fielddep.errors import ConfigError, UserError
from fielddep.store.store import MANIFEST, SCHEMA, VOCABULARY, is_store
from fielddep.tables.files import write_json
from fielddep.tables.folders import FolderKind, remove_workdir, start_workdir
from fielddep.tables.row_stream import SourceFile, check_same_sources

UNFINISHED, WORK = "unfinished", "spool"
REQUEST, PROGRESS = "request.json", "progress.json"
MOVED = "moved"
FORMAT = 3
"""Of the unfinished folder; an encoding goes on only with the same."""

STORE = FolderKind(
    what="store",
    unfinished=Path(UNFINISHED, REQUEST),
    is_finished=is_store,
    names=(UNFINISHED, MANIFEST, SCHEMA, VOCABULARY),
)


@dataclass(frozen=True, kw_only=True)
class StoreFolder:
    """The paths of a store that is being made."""

    folder: Path

    @property
    def unfinished(self) -> Path:
        """Where the new store grows."""
        return self.folder / UNFINISHED

    @property
    def work(self) -> Path:
        """Where codes, values and parts lie until it is whole."""
        return self.unfinished / WORK

    @property
    def is_whole(self) -> bool:
        """Whether all files of the new store are there."""
        return (self.unfinished / MANIFEST).is_file()

    @property
    def is_moved(self) -> bool:
        """Whether the new store was moved up, or is being moved."""
        return self.progress().get("stage") == MOVED

    def begin(self, config: Config, sources: Sequence[SourceFile]) -> None:
        """Make `unfinished/` appear in one move, so that a kill leaves either nothing or an encoding to resume."""

        def write(fresh: Path) -> None:
            (fresh / WORK).mkdir()
            write_json(fresh / REQUEST, _request(config, sources))

        start_workdir(self.unfinished, write)

    def check_request(self, config: Config, sources: Sequence[SourceFile]) -> None:
        """Refuse to go on with other settings or sources than those of the start.

        Raises:
            UserError: names what differs.
        """
        before = _read(self.unfinished / REQUEST)
        if before.get("format") != FORMAT:
            raise UserError(f"{self.folder} was begun by another fielddep; start over with --force")
        now = _request(config, sources)
        for section in ("data", "split"):
            old_settings, settings = before["config"][section], now["config"][section]
            for key in sorted({*old_settings, *settings}):
                old, new = old_settings.get(key), settings.get(key)
                if old != new:
                    raise ConfigError(
                        f"to resume an encoding its settings must stay the same; {section}.{key} was {old!r} and is "
                        f"now {new!r}. Give the old value, or start over with --force"
                    )
        check_same_sources(before["sources"], sources)

    def progress(self) -> dict[str, Any]:
        """How far the work is; empty before the first checkpoint."""
        path = self.unfinished / PROGRESS
        return _read(path) if path.is_file() else {}

    def save_progress(self, progress: Mapping[str, Any]) -> None:
        """Keep how far the work is."""
        write_json(self.unfinished / PROGRESS, progress)

    def discard(self) -> None:
        """Take away what was done of the new store, and its folder where that holds nothing else."""
        remove_workdir(self.unfinished)
        with contextlib.suppress(OSError):  # an old store is in there
            self.folder.rmdir()

    def promote(self) -> None:
        """Put the new store in place of an old one; a kill in between can be resumed."""
        if self.is_whole:
            self._move_up()
        remove_workdir(self.unfinished)
        for path in filter(STORE.is_leftover, list(self.folder.iterdir())):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _move_up(self) -> None:
        files = _read(self.unfinished / MANIFEST)["files"]
        self.save_progress({"stage": MOVED})
        (self.folder / MANIFEST).unlink(missing_ok=True)
        for path in list(self.folder.iterdir()):
            if path.name.startswith("shard-") and path.name not in files:
                path.unlink()
        for name in (*files, MANIFEST):
            if (self.unfinished / name).exists():
                (self.unfinished / name).replace(self.folder / name)


def _request(config: Config, sources: Sequence[SourceFile]) -> dict[str, Any]:
    settings = config.to_dict()
    request = {
        "format": FORMAT,
        "config": {"data": settings["data"], "split": settings["split"]},
        "sources": [asdict(source) for source in sources],
    }
    # As JSON gives it back, so that both sides can be compared.
    plain: dict[str, Any] = json.loads(json.dumps(request))
    return plain


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); try again, or start over with --force") from error
    return found
