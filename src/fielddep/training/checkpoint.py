"""Checkpoints: one safetensors file that holds all a run needs to go on exactly, written atomically.

`checkpoint.safetensors` holds weights, optimiser state and random state as tensors, and the trainer's state as
JSON in the file's metadata. The best weights so far lie in a file of their own, written only when they change and
named by step, so that a kill between the two writes leaves a checkpoint whose best weights are still there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from fielddep.errors import CheckpointError
from fielddep.files import write_atomically

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A point to go on from."""

    tensors: Tensors
    state: dict[str, Any]
    best: Tensors


class CheckpointFolder:
    """Folder with the last checkpoint of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "checkpoint.safetensors"

    def save(self, tensors: Mapping[str, torch.Tensor], state: dict[str, Any], best: Tensors | None) -> None:
        """Write a checkpoint; `best` holds the best weights when they are new, else None."""
        best_name = f"best-{state['best_step']}.safetensors"
        if best is not None:
            write_atomically(self.folder / best_name, lambda p: _save(best, p))
        metadata = {"state": json.dumps({**state, "best_file": best_name})}
        write_atomically(self.path, lambda p: _save(tensors, p, metadata))
        for old in self.folder.glob("best-*.safetensors"):
            if old.name != best_name:
                old.unlink(missing_ok=True)

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None where there is none.

        Raises:
            CheckpointError: when a file is damaged.
        """
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                state = json.loads(file.metadata()["state"])
            tensors = load_file(self.path)
            best = load_file(self.folder / state.pop("best_file"))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"checkpoint {self.path} cannot be read ({error}); train again with --force"
            ) from error
        return Checkpoint(tensors=tensors, state=state, best=best)

    def delete(self) -> None:
        """Remove the checkpoint of a finished run."""
        for path in (self.path, *self.folder.glob("best-*.safetensors")):
            path.unlink(missing_ok=True)


def _save(tensors: Mapping[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    own = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(own, path, metadata=metadata)
    except SafetensorError as error:  # a full disk, which safetensors does not report as an OSError
        raise OSError(str(error)) from error
