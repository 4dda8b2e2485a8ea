"""Observers: progress bars and logs that are told about encoding, training and experiments.

An observer cannot change a result. What it raises stops the work and reaches the caller unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fielddep.training.checkpoint import Evaluation
    from fielddep.training.prepare import Prepared


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How a search, a trial or a run ended.

    Attributes:
        state: complete, pruned or failed.
        metrics: validation metrics of a trial, test metrics of a run; empty for a search.
        seconds: time it took, if known.
        reason: why it was stopped or failed.
        note: anything else worth a line.
    """

    state: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    reason: str = ""
    note: str = ""


class Observer:
    """Base class: every event is optional."""

    def on_stage(self, stage: str, n_rows: int, share: float | None) -> None:
        """A stage of encoding has processed `n_rows`, and this share of its work (None: unknown)."""

    def on_prepared(self, prepared: Prepared) -> None:
        """Rows are split and encoded and all settings decided; training begins."""

    def on_part(self, name: str, n_batches: int, max_epochs: int) -> None:
        """Training begins: of a direct network, of the trees of a blend, or, without a name, of the model.

        Every tree is a batch of one pass.
        """

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        """A batch was trained on, with its loss; or a tree was added, with its validation loss."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """The validation rows were evaluated and, if asked for, a checkpoint written."""

    def on_refit(self, n_rows: int, n_passes: float) -> None:
        """The first training is over; another begins on training and validation rows, without evaluations."""

    def on_end(self) -> None:
        """Training is over: finished, failed or interrupted."""

    def on_plan(self, what: str, n_todo: int, n_done: int) -> None:
        """`n_todo` searches, trials or runs are to be done; `n_done` were done before."""

    def on_estimate(self, seconds: float) -> None:
        """After the first runs: about how long the others will take."""

    def on_job(self, title: str, result: JobResult | None) -> None:
        """A search, trial or run begins (None) or has ended."""


class Observers(Observer):
    """Passes every event on to several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        for name in vars(Observer):
            if name.startswith("on_"):
                setattr(self, name, _each([getattr(observer, name) for observer in observers]))


def _each(events: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def event(*facts: object, **named: object) -> None:
        for one in events:
            one(*facts, **named)

    return event
