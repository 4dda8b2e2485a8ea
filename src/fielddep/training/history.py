"""History: what happened at every evaluation, kept in memory and, where asked, as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fielddep.files import write_text


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
    """Whether this is the lowest validation loss so far."""
    seconds: float
    """Training time so far, evaluations included, time before a resume included."""
    rows_per_s: float = 0.0
    """Training rows a second so far, without the time of evaluations and checkpoints."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


class History(list[Evaluation]):
    """Evaluations in order, with a mirror on disk."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self.path = path

    def add(self, evaluation: Evaluation) -> None:
        """Append and mirror."""
        self.append(evaluation)
        if self.path is not None:
            lines = [json.dumps(e.to_json(), sort_keys=True) for e in self]
            write_text(self.path, "\n".join(lines) + "\n")

    def restore(self, evaluations: list[dict[str, Any]]) -> None:
        """Start again from the evaluations a checkpoint knows; later lines on disk are dropped."""
        self[:] = [Evaluation(**values) for values in evaluations]

    @property
    def best(self) -> Evaluation | None:
        """The evaluation whose weights are kept."""
        return next((e for e in reversed(self) if e.best), None)
