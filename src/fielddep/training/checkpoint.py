"""Checkpoints, from which a run resumes exactly; the best weights so far; the history of evaluations.

`checkpoint.safetensors` holds weights, optimizer state and random state as tensors, and the trainer's state as JSON in
the metadata. It is written atomically. The best weights have their own file, named by step and written only when they
change, so a kill between the two writes leaves a checkpoint whose best weights are still there. Without a checkpoint
folder they stay in memory, where a copy of large embedding tables is a good part of what training needs.

Tensors are read one at a time and by position. All of them together can be as large as the training itself, and a
mapped file would count as memory of the process as well.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fielddep.config.metrics import METRICS, in_order
from fielddep.errors import CheckpointError, MissingExtraError
from fielddep.nn.model import FieldModel
from fielddep.observer import Observer
from fielddep.tables.files import write_atomically, write_text


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """State of training at one evaluation."""

    step: int
    epoch: float
    """Passes over the training rows so far."""
    lr: float
    train_loss: float
    """Mean task loss of the training batches since the last evaluation."""
    validation: dict[str, float]
    best: bool
    """Whether the monitored metric is the best so far."""
    seconds: float
    """Training time so far, including evaluations and the time before a resume."""
    rows_per_s: float = 0.0
    """Training rows per second so far, without the time of evaluations and checkpoints."""
    monitor: str = "loss"
    """The monitored metric."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """One line; a star marks the best so far."""
        values = in_order(self.validation, brief=True)
        if self.monitor in METRICS:
            values[self.monitor] = self.validation[self.monitor]
        text = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        mark = "  *" if self.best else ""
        return f"epoch {self.epoch:5.2f}  train loss {self.train_loss:.4f}  validation {text}{mark}"


class TensorBoard(Observer):
    """Losses and metrics for TensorBoard (extra `tensorboard`)."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("TensorBoard is not installed; pip install 'fielddep[tensorboard]'") from None
        self.writer: Any = SummaryWriter(str(folder))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Write one point per metric."""
        self.writer.add_scalar("train/loss", evaluation.train_loss, evaluation.step)
        self.writer.add_scalar("train/lr", evaluation.lr, evaluation.step)
        for name, value in evaluation.validation.items():
            self.writer.add_scalar(f"validation/{name}", value, evaluation.step)

    def on_end(self) -> None:
        """Flush and close."""
        self.writer.close()


HISTORY = "history.jsonl"


class History(list[Evaluation]):
    """Evaluations in order, mirrored to a file if there is a path."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self.path = path

    def add(self, evaluation: Evaluation) -> None:
        """Append and mirror. The complete file is written, which drops lines from after a checkpoint."""
        self.append(evaluation)
        if self.path is not None:
            lines = [json.dumps(e.to_json(), sort_keys=True) for e in self]
            write_text(self.path, "\n".join(lines) + "\n")


class BestWeights:
    """Keeps the best weights of a model: in a checkpoint folder, or in memory if there is none."""

    def __init__(self, checkpoints: CheckpointFolder | None) -> None:
        self.checkpoints = checkpoints
        self._kept: dict[str, torch.Tensor] = {}

    def keep(self, model: FieldModel, step: int) -> None:
        """Replace the weights kept before by those of the model."""
        weights = model.state_dict()
        if self.checkpoints is not None:
            self.checkpoints.save_best(weights, step)
        elif self._kept:
            copy_weights(self._kept, weights)
        else:
            self._kept = {name: weight.detach().clone() for name, weight in weights.items()}

    def restore(self, model: FieldModel, step: int) -> None:
        """Give the model the weights that were kept at this step."""
        kept = self._kept if self.checkpoints is None else self.checkpoints.load_best(step)
        copy_weights(model.state_dict(), kept)


@torch.no_grad()
def copy_weights(to: Mapping[str, torch.Tensor], source: Mapping[str, torch.Tensor]) -> None:
    """Copy tensors in place, one at a time.

    Raises:
        KeyError: names differ.
        RuntimeError: shapes differ.
    """
    if set(to) != set(source):
        raise KeyError(f"weights {sorted(set(to) ^ set(source))}")
    for name, tensor in to.items():
        shape = source.shape(name) if isinstance(source, TensorFile) else tuple(source[name].shape)
        if shape != tuple(tensor.shape):
            raise RuntimeError(f"{name} has shape {shape} instead of {tuple(tensor.shape)}")
        if isinstance(source, TensorFile):
            source.read_into(name, tensor)
        else:
            tensor.copy_(source[name])


HEADER_LENGTH = 8
"""Bytes of the number at the start of a safetensors file: the length of its header."""
DTYPES = {
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Types that a checkpoint may hold, as safetensors names them."""


class TensorFile(Mapping[str, torch.Tensor]):
    """Tensors of a safetensors file by name; each is read on access and not kept.

    Args:
        path: the file; its header and size are checked at once.
        prefix: only tensors whose names start with it; they are named by the rest.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        with safe_open(path, framework="pt") as file:  # refuses a file that is cut off or not safetensors
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
        """Shape of a tensor, without reading it."""
        return tuple(self._entries[name]["shape"])

    def read_into(self, name: str, tensor: torch.Tensor) -> None:
        """Read a tensor into the memory of another one of its shape; directly if type, device and layout allow it.

        Raises:
            CheckpointError: the file has been removed or damaged since it was opened.
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


class CheckpointFolder:
    """Folder with the last checkpoint of a run and its best weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "checkpoint.safetensors"

    def save(self, tensors: Mapping[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Write a checkpoint and remove best weights that are out of date; those of `best_step` are saved already."""
        best_file = self._best_path(state["best_step"])
        metadata = {"state": json.dumps({**state, "best_file": best_file.name})}
        write_atomically(self.path, lambda p: _save(tensors, p, metadata))
        for old in self.folder.glob("best-*.safetensors"):
            if old != best_file:
                old.unlink(missing_ok=True)

    def save_best(self, weights: Mapping[str, torch.Tensor], step: int) -> None:
        """Write the best weights; the previous ones stay until the next checkpoint."""
        write_atomically(self._best_path(step), lambda p: _save(weights, p))

    def load_best(self, step: int) -> TensorFile:
        """The best weights that `save_best` wrote at this step.

        Raises:
            CheckpointError: the file is damaged or missing.
        """
        try:
            return TensorFile(self._best_path(step))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"the best weights {self._best_path(step)} cannot be read ({error}); train again with --force"
            ) from error

    def load(self) -> dict[str, Any] | None:
        """The trainer's state at the last checkpoint, or None if there is none; `tensors` reads the rest.

        Raises:
            CheckpointError: a file is damaged or missing.
        """
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = json.loads(TensorFile(self.path).metadata["state"])
            TensorFile(self.folder / state.pop("best_file"))  # refuses damaged weights now, not hours later
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"checkpoint {self.path} cannot be read ({error}); train again with --force"
            ) from error
        return state

    def tensors(self, prefix: str = "") -> TensorFile:
        """Tensors of the last checkpoint whose names start with a prefix, named by the rest."""
        return TensorFile(self.path, prefix)

    def _best_path(self, step: int) -> Path:
        return self.folder / f"best-{step}.safetensors"


def _save(tensors: Mapping[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    own = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(own, path, metadata=metadata)
    except SafetensorError as error:  # a full disk, which safetensors does not report as an OSError
        raise OSError(str(error)) from error
