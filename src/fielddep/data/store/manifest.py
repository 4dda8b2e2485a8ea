"""The manifest of a store: what makes a folder a store, and by what its files are known to be whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fielddep.errors import StoreError
from fielddep.files import content_checksum, file_damage

KIND, FORMAT = "fielddep store", 1
MANIFEST = "manifest.json"

Stamp = tuple[int, int, int]


def is_store(path: object) -> bool:
    """Whether a path leads to a folder that holds a store; its content is not checked."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    manifest = Path(path) / MANIFEST
    try:
        content = json.loads(manifest.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") == KIND


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a store says.

    Raises:
        StoreError: there is none, or it cannot be read or was altered, or its format is newer.
    """
    path = folder / MANIFEST
    with _reading(path):
        if not folder.is_dir():
            raise StoreError(f"no store at {folder}: expected a folder with {MANIFEST}, as `fielddep encode` writes it")
        if not path.is_file():
            raise StoreError(f"{folder} is no whole store: it lacks {MANIFEST}; finish it with encode ... --resume")
        content = path.read_bytes()
    try:
        manifest = json.loads(content)
        kind, version = manifest["kind"], manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no manifest of a store, or altered ({error}); encode the table anew") from None
    if kind != KIND or not isinstance(version, int) or version > FORMAT:
        raise StoreError(
            f"{path} is of kind {kind!r} and format {version}; this fielddep reads {KIND!r} up to format {FORMAT}; "
            "upgrade fielddep to use it"
        )
    if manifest.get("sha256") != content_checksum(manifest):
        raise StoreError(f"{path} was altered since it was written (its checksum differs); copy it again")
    return manifest  # type: ignore[no-any-return]  # JSON; the checksum says that it is what the writer wrote


def check_file(path: Path, expected: Mapping[str, Any], *, whole: bool) -> None:
    """Refuse a file that is not what the manifest says: its size and, if `whole`, its checksum.

    Raises:
        StoreError: names the file.
    """
    with _reading(path):
        damage = file_damage(path, expected, whole=whole)
    if damage:
        raise StoreError(damage)


def manifest_stamp(folder: Path) -> Stamp | None:
    """What changes when another manifest is put in place: its inode, size and time; None where there is none."""
    try:
        facts = (folder / MANIFEST).stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def is_manifest(folder: Path, checksum: str) -> bool:
    """Whether the manifest of a folder is the one with this checksum."""
    try:
        return bool(json.loads((folder / MANIFEST).read_bytes())["sha256"] == checksum)
    except (OSError, ValueError, LookupError, TypeError):
        return False


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror or error}; is it yours to read, and the disk in order?"
        ) from error
