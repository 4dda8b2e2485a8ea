"""The folder of a store while it is being built.

Everything is built in `STORE/unfinished/`; once all files are complete they move up, the manifest last. So a folder
without a manifest is not a store, and a store that is being replaced stays usable until the new one is complete.

    unfinished/request.json    settings and sources of the first start
    unfinished/progress.json   the last checkpoint; whatever was written after it is cut off on resuming
    unfinished/spool/          codes, distinct values and parts of the rows, removed at the end
    unfinished/shard-*         shards of the new store
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.coded import Array, places, smallest
from fielddep.errors import ConfigError, UserError
from fielddep.store.format import CELLS, SCHEMA, VOCABULARY, is_store, stored_settings
from fielddep.tables.files import MANIFEST, write_json
from fielddep.tables.folders import FolderKind, remove_workdir, start_workdir
from fielddep.tables.row_stream import SourceFile, check_same_sources

UNFINISHED, SPOOL = "unfinished", "spool"
REQUEST, PROGRESS = "request.json", "progress.json"
FORMAT = 4
"""Format of the unfinished folder; only the same one can be resumed."""
_MOVED = "moved"
_ABSENT = "-"

STORE = FolderKind(
    what="store",
    unfinished=Path(UNFINISHED, REQUEST),
    is_finished=is_store,
    names=(UNFINISHED, MANIFEST, SCHEMA, VOCABULARY, CELLS),
)


@dataclass(frozen=True, kw_only=True)
class StoreFolder:
    """The paths of a store that is being built."""

    folder: Path

    @property
    def unfinished(self) -> Path:
        """Where the new store grows."""
        return self.folder / UNFINISHED

    @property
    def spool(self) -> Path:
        """Where codes, values and parts are kept until the store is complete."""
        return self.unfinished / SPOOL

    @property
    def is_built(self) -> bool:
        """Whether the new store is complete and at most has to be moved."""
        return (self.unfinished / MANIFEST).is_file() or self.progress().get("stage") == _MOVED

    def begin(self, config: Config, sources: Sequence[SourceFile]) -> None:
        """Make `unfinished/` appear in one move, so a kill leaves either nothing or an encoding to resume."""

        def write(fresh: Path) -> None:
            (fresh / SPOOL).mkdir()
            write_json(fresh / REQUEST, _request(config, sources))

        start_workdir(self.unfinished, write)

    def check_request(self, config: Config, sources: Sequence[SourceFile]) -> None:
        """Raise a UserError if settings or sources differ from those of the first start."""
        before, now = _read(self.unfinished / REQUEST), _request(config, sources)
        if before.get("format") != FORMAT:
            raise UserError(f"{self.folder} was begun by another version of fielddep. Start over with --force")
        for section, settings in now["config"].items():
            old_settings = before["config"][section]
            for key in sorted({*old_settings, *settings}):
                old, new = old_settings.get(key), settings.get(key)
                if old != new:
                    raise ConfigError(
                        f"an encoding can be resumed with the same settings only; {section}.{key} was {old!r} and is "
                        f"now {new!r}. Give the old value, or start over with --force"
                    )
        check_same_sources(before["sources"], sources)

    def progress(self) -> dict[str, Any]:
        """The last checkpoint; empty if there is none."""
        path = self.unfinished / PROGRESS
        return _read(path) if path.is_file() else {}

    def save_progress(self, progress: Mapping[str, Any]) -> None:
        """Write a checkpoint."""
        write_json(self.unfinished / PROGRESS, progress)

    def save_values(self, number: int, values: pl.DataFrame) -> None:
        """Force the values that are new at a checkpoint to disk."""
        with self._values_path(number).open("wb") as file:
            values.write_ipc(file)
            file.flush()
            os.fsync(file.fileno())

    def read_values(self, n_files: int) -> dict[int, pl.Series]:
        """Texts of every column in the order of their codes."""
        try:
            frames = [pl.read_ipc(self._values_path(number)) for number in range(n_files)]
        except (OSError, pl.exceptions.PolarsError) as error:
            raise UserError(
                f"the values saved in {self.spool} cannot be read ({error}). Try again, or start over with --force"
            ) from error
        if not frames:
            return {}
        columns = pl.concat(frames).partition_by("column", as_dict=True, maintain_order=True)
        return {int(key[0]): values["text"] for key, values in columns.items()}

    def discard(self) -> None:
        """Remove the unfinished store, and the folder if it holds nothing else."""
        remove_workdir(self.unfinished)
        with contextlib.suppress(OSError):  # an old store is in there
            self.folder.rmdir()

    def promote(self) -> None:
        """Put the new store in place of an old one; a kill in between can be resumed."""
        if (self.unfinished / MANIFEST).is_file():
            self._move_up()
        remove_workdir(self.unfinished)
        for path in filter(STORE.is_leftover, list(self.folder.iterdir())):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _move_up(self) -> None:
        files = _read(self.unfinished / MANIFEST)["files"]
        self.save_progress({"stage": _MOVED})
        (self.folder / MANIFEST).unlink(missing_ok=True)
        for path in (*self.folder.glob("shard-*"), self.folder / CELLS):
            if path.name not in files:
                path.unlink(missing_ok=True)
        for name in (*files, MANIFEST):
            if (self.unfinished / name).exists():
                (self.unfinished / name).replace(self.folder / name)

    def _values_path(self, number: int) -> Path:
        return self.spool / f"values-{number:05d}.arrow"


def _request(config: Config, sources: Sequence[SourceFile]) -> dict[str, Any]:
    request = {
        "format": FORMAT,
        "config": stored_settings(config),
        "sources": [asdict(source) for source in sources],
    }
    # As JSON gives it back, so it can be compared with an old one.
    plain: dict[str, Any] = json.loads(json.dumps(request))
    return plain


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}). Try again, or start over with --force") from error
    return found


class FileCells:
    """Cells of all rows in one file, chunk after chunk and in a chunk column after column.

    So it is written and read in long strides. Each column of a chunk has the smallest type that holds its codes.

    Args:
        path: the file.
        chunks: entries of `chunks` for chunks that exist already; whatever follows them is cut off.
    """

    def __init__(self, path: Path, chunks: Sequence[Sequence[Any]] = ()) -> None:
        self.path = path
        self.chunks: list[list[Any]] = []
        """For every chunk: its rows, and the type of each column."""
        self._row_ends, self._byte_starts = [0], [0]
        for n_rows, types in chunks:
            self._add(n_rows, list(types))
        self._file = path.open("r+b" if path.exists() else "w+b")
        if self.n_bytes > os.fstat(self._file.fileno()).st_size:
            self._file.close()
            raise self._cut_off()
        self._file.truncate(self.n_bytes)
        self._file.seek(self.n_bytes)

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._row_ends[-1]

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self._byte_starts[-1]

    def append(self, columns: Sequence[Array | None]) -> None:
        """Write the next rows; None for a column that is no longer kept."""
        n_rows = next(len(cells) for cells in columns if cells is not None)
        small = [None if cells is None else smallest(cells) for cells in columns]
        for cells in small:
            if cells is not None:
                self._file.write(cells.data)
        self._add(n_rows, [_ABSENT if cells is None else cells.dtype.str for cells in small])

    def flush(self) -> None:
        """Force everything to disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, column: int, start: int, stop: int) -> Iterator[Array]:
        """Cells of a column from row `start` to `stop`, one array per chunk."""
        self._file.flush()
        for chunk, first, last in places(self._row_ends, start, stop):
            yield self._read(chunk, column, first, last)

    def row_numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The rows themselves."""
        return np.arange(start, stop)

    def _add(self, n_rows: int, types: list[str]) -> None:
        self.chunks.append([n_rows, types])
        self._row_ends.append(self._row_ends[-1] + n_rows)
        self._byte_starts.append(self._byte_starts[-1] + n_rows * sum(map(_item_size, types)))

    def _read(self, chunk: int, column: int, start: int, stop: int) -> Array:
        n_rows, types = self.chunks[chunk]
        if types[column] == _ABSENT:
            raise UserError(f"column {column} is not kept for all rows. Start over with --force")
        dtype = np.dtype(types[column])
        offset = self._byte_starts[chunk] + n_rows * sum(map(_item_size, types[:column])) + start * dtype.itemsize
        n_bytes = (stop - start) * dtype.itemsize
        data = os.pread(self._file.fileno(), n_bytes, offset)
        if len(data) < n_bytes:
            raise self._cut_off()
        return np.frombuffer(data, dtype=dtype)

    def _cut_off(self) -> UserError:
        return UserError(f"{self.path} is cut off, so the encoding cannot be resumed. Start over with --force")


def _item_size(dtype: str) -> int:
    return 0 if dtype == _ABSENT else np.dtype(dtype).itemsize
