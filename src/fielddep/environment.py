"""Environment: under what versions, on what machine and from what table a run was trained."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
import torch

from fielddep.data.store.manifest import read_manifest
from fielddep.data.store.store import Store
from fielddep.errors import CheckpointError


def environment(table: pl.DataFrame | Store, source: str = "") -> dict[str, Any]:
    """Facts for the record, as plain values.

    Args:
        table: what is trained on.
        source: file or store that it came from; empty for a table in memory.
    """
    return {
        "fielddep": metadata.version("fielddep"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "polars": pl.__version__,
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "command": [_program(), *sys.argv[1:]],
        "source": _store_facts(table) if isinstance(table, Store) else _table_facts(table, source),
    }


def _program() -> str:
    """What was called; `python -m fielddep` is the same as `fielddep`."""
    name = Path(sys.argv[0]).name
    return "fielddep" if name == "__main__.py" else name


def source_version() -> str:
    """The commit of the checkout that the package is run from, or the version of an installed package."""
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
        "fingerprint": _fingerprint(table),
    }


def _fingerprint(table: pl.DataFrame) -> str:
    """Of all values and the order of the rows, as a split is drawn by their places."""
    return hashlib.sha256(table.hash_rows(seed=0).to_numpy().tobytes()).hexdigest() if len(table) else ""


def _store_facts(store: Store) -> dict[str, Any]:
    """The checksums of all files of a store are its fingerprint, so that nothing large is read."""
    files = read_manifest(store.folder)["files"]
    return {
        "name": store.folder.name,
        "bytes": sum(file["bytes"] for file in files.values()),
        "rows": store.n_rows,
        "columns": list(store.layout.names),
        "fingerprint": hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest(),
    }


def check_source(path: Path, now: dict[str, Any]) -> None:
    """Refuse to resume with another table than the run began with.

    Args:
        path: record of the run's beginning.
        now: record of today.
    """
    before = json.loads(path.read_text("utf-8"))["source"]
    for fact, name in (
        ("rows", "rows"),
        ("columns", "columns"),
        ("fingerprint", "values or their order (by fingerprint)"),
    ):
        if before[fact] != now["source"][fact]:
            raise CheckpointError(
                f"to resume a run its table must stay the same; its {name} were {before[fact]} and are now "
                f"{now['source'][fact]}. Give the same table, or --force to train anew"
            )
