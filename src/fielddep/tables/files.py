"""Writing files so that a crash, a full disk or a kill leaves either the old file or the new one, whole."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fielddep.errors import UserError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file next to `path`, then move it into place.

    Raises:
        UserError: when the disk is full or the folder cannot be written; the old file is untouched.
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
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, with sorted keys so that equal content gives equal bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    """Checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def file_facts(path: Path) -> dict[str, Any]:
    """Size and checksum of a file, as a manifest records them."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def file_damage(path: Path, facts: Mapping[str, Any], *, whole: bool = True) -> str | None:
    """What is wrong with a file compared with its manifest, and what to do; None if nothing is.

    Args:
        path: the file.
        facts: as `file_facts` gave them.
        whole: read all of it for its checksum, not its size alone.
    """
    if not path.is_file():
        return f"{path} is missing; copy the whole folder again"
    size = path.stat().st_size
    if size < facts["bytes"]:
        return f"{path} is cut off: {size:,} of {facts['bytes']:,} bytes; copy it again"
    if size != facts["bytes"] or (whole and sha256(path) != facts["sha256"]):
        return f"{path} was altered since it was written (its checksum differs); copy it again"
    return None


def content_checksum(manifest: Mapping[str, Any]) -> str:
    """Checksum of all that a manifest says, without its own checksum."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
