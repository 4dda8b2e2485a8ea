"""Files that are written completely or not at all, and manifests that show whether a folder of files is intact."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fielddep.errors import UserError

MANIFEST = "manifest.json"


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file next to `path`, then move it into place.

    After a crash, a full disk or a kill, `path` is either the old file or the new one.

    Raises:
        UserError: the disk is full or the folder cannot be written to; the old file is untouched.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched. "
            "Free some space or choose another folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, with sorted keys so that equal content gives equal bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


# --- manifests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ManifestFormat:
    """The manifest of one kind of folder: its format, size and sha256 of every file, and a checksum of itself.

    Attributes:
        what: the kind of folder, for messages.
        version: format that is written; newer ones are refused.
        error: raised for a file that is missing, damaged or of a newer format.
        kind: entry `kind` of the manifest; None if it has none.
        advice: how to get such a folder, for messages.
    """

    what: str
    version: int
    error: type[UserError]
    kind: str | None = None
    advice: str = ""

    def write(self, folder: Path, content: Mapping[str, Any], files: Mapping[str, Any]) -> None:
        """Sign and write the manifest. Write it last: a folder is complete once it has one."""
        manifest = {"format": self.version, **content, "files": dict(files)}
        if self.kind is not None:
            manifest["kind"] = self.kind
        write_json(folder / MANIFEST, {**manifest, "sha256": content_checksum(manifest)})

    def read(self, folder: Path) -> dict[str, Any]:
        """The manifest of a folder, which must be of this kind, of a known format and unaltered."""
        path = folder / MANIFEST
        with self._read_errors(path):
            if not path.is_file():
                raise self.error(f"no {self.what} at {folder}: expected a folder with {MANIFEST}{self.advice}")
            text = path.read_bytes()
        try:
            manifest = json.loads(text)
            version, kind = manifest["format"], manifest.get("kind")
        except (ValueError, KeyError, TypeError) as error:
            raise self.error(f"{path} is cut off or altered ({error}). Copy or make the {self.what} again") from None
        if kind != self.kind:
            raise self.error(f"{path} is not the manifest of a {self.what}; it is of kind {kind!r}")
        if not isinstance(version, int) or version > self.version:
            raise self.error(
                f"{path} has format {version}; this fielddep reads up to format {self.version}. Upgrade fielddep"
            )
        if manifest.get("sha256") != content_checksum(manifest):
            raise self.error(f"{path} was altered since it was written (its checksum differs). Copy it again")
        return manifest  # type: ignore[no-any-return]  # JSON; the checksum shows that it is what `write` wrote

    def check_files(
        self, folder: Path, manifest: Mapping[str, Any], names: Iterable[str] | None = None, *, sizes_only: bool = False
    ) -> None:
        """Refuse a folder if a file, of those named or of all, is not what the manifest states."""
        files = manifest["files"]
        for name in files if names is None else names:
            with self._read_errors(folder / name):
                damage = _damage(folder / name, files[name], sizes_only=sizes_only)
            if damage:
                raise self.error(f"{folder / name} {damage}")

    @contextlib.contextmanager
    def _read_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.error(f"{path} cannot be read: {error.strerror or error}. Check permissions and disk") from error


def file_facts(path: Path) -> dict[str, Any]:
    """Size and checksum of a file, as a manifest records them."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def sha256(path: Path) -> str:
    """Checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def content_checksum(manifest: Mapping[str, Any]) -> str:
    """Checksum of a manifest without the checksum in it."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damage(path: Path, facts: Mapping[str, Any], *, sizes_only: bool) -> str | None:
    """What is wrong with a file compared with its manifest, and what to do."""
    if not path.is_file():
        return "is missing. Copy the folder again"
    size = path.stat().st_size
    if size < facts["bytes"]:
        return f"is cut off: {size:,} of {facts['bytes']:,} bytes. Copy it again"
    if size != facts["bytes"] or not (sizes_only or sha256(path) == facts["sha256"]):
        return "was altered since it was written (its checksum differs). Copy it again"
    return None
