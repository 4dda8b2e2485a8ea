"""Checkpoints: one safetensors file that holds all a run needs to go on exactly, written atomically.

`checkpoint.safetensors` holds weights, optimiser state and random state as tensors, and the trainer's state as
JSON in the file's metadata. The best weights so far lie in a file of their own, written only when they change and
named by step, so that a kill between the two writes leaves a checkpoint whose best weights are still there.

Tensors are read one at a time and by position: all together can be as large as the training itself, and a mapped file
would count as memory of the process as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fielddep.errors import CheckpointError
from fielddep.files import write_atomically

Tensors = Mapping[str, torch.Tensor]

HEADER_LENGTH = 8
"""Bytes of the number that a safetensors file begins with: the length of its header."""
DTYPES = {
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types of tensors that a checkpoint may hold, as safetensors names them."""


class TensorFile(Mapping[str, torch.Tensor]):
    """Tensors of a safetensors file by name; each is read when it is asked for, and kept by nobody.

    Args:
        path: the file; its header and size are checked at once.
        prefix: only tensors whose name begins so, named by the rest.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        with safe_open(path, framework="pt") as file:  # refuses a file that is cut off or no safetensors
            self.metadata: dict[str, str] = file.metadata() or {}
        with path.open("rb") as plain:
            n_header = int.from_bytes(plain.read(HEADER_LENGTH), "little")
            header: dict[str, Any] = json.loads(plain.read(n_header))
        self._data_start = HEADER_LENGTH + n_header
        self._entries = {
            name.removeprefix(prefix): entry
            for name, entry in header.items()
            if name.startswith(prefix) and name != "__metadata__"
        }

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self._entries[name]
        tensor = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
        self.read_into(name, tensor)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, which is not read for it."""
        return tuple(self._entries[name]["shape"])

    def read_into(self, name: str, tensor: torch.Tensor) -> None:
        """Read a tensor into the memory of another of its shape and type; through a copy where that is elsewhere.

        Raises:
            CheckpointError: when the file is gone or damaged by now.
        """
        entry = self._entries[name]
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.dtype != DTYPES[entry["dtype"]]:
            tensor.copy_(self[name])
            return
        memory = tensor.detach().reshape(-1).view(torch.uint8).numpy().data
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self._data_start + entry["data_offsets"][0])
                while len(memory) and (n_bytes := file.readinto(memory)):
                    memory = memory[n_bytes:]
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read ({error}); train again with --force") from error
        if len(memory):
            raise CheckpointError(f"{self.path} is cut off within {name}; train again with --force")

    def under(self, prefix: str) -> TensorFile:
        """Those of its tensors whose name begins with a prefix, named by the rest."""
        return TensorFile(self.path, self.prefix + prefix)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A point to go on from."""

    tensors: TensorFile
    state: dict[str, Any]
    best: TensorFile


class CheckpointFolder:
    """Folder with the last checkpoint of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "checkpoint.safetensors"

    def save(self, tensors: Tensors, state: dict[str, Any], best: Tensors | None) -> None:
        """Write a checkpoint; `best` holds the best weights when they are new and not saved yet, else None."""
        if best is not None:
            self.save_best(best, state["best_step"])
        best_file = self._best_path(state["best_step"])
        metadata = {"state": json.dumps({**state, "best_file": best_file.name})}
        write_atomically(self.path, lambda p: _save(tensors, p, metadata))
        for old in self.folder.glob("best-*.safetensors"):
            if old != best_file:
                old.unlink(missing_ok=True)

    def save_best(self, weights: Tensors, step: int) -> None:
        """Write the best weights; those before them stay until the next checkpoint."""
        write_atomically(self._best_path(step), lambda p: _save(weights, p))

    def load_best(self, step: int) -> TensorFile:
        """The best weights, which `save_best` wrote at this step.

        Raises:
            CheckpointError: when the file is damaged or gone.
        """
        try:
            return TensorFile(self._best_path(step))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"the best weights {self._best_path(step)} cannot be read ({error}); train again with --force"
            ) from error

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None where there is none.

        Raises:
            CheckpointError: when a file is damaged.
        """
        if not self.path.exists():
            return None
        try:
            tensors = TensorFile(self.path)
            state = json.loads(tensors.metadata["state"])
            best = TensorFile(self.folder / state.pop("best_file"))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"checkpoint {self.path} cannot be read ({error}); train again with --force"
            ) from error
        return Checkpoint(tensors=tensors, state=state, best=best)

    def delete(self) -> None:
        """Remove the checkpoint of a finished run."""
        for path in (self.path, *self.folder.glob("best-*.safetensors")):
            path.unlink(missing_ok=True)

    def _best_path(self, step: int) -> Path:
        return self.folder / f"best-{step}.safetensors"


def _save(tensors: Tensors, path: Path, metadata: dict[str, str] | None = None) -> None:
    own = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(own, path, metadata=metadata)
    except SafetensorError as error:  # a full disk, which safetensors does not report as an OSError
        raise OSError(str(error)) from error
