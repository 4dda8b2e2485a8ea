"""Progress of a command: a live bar on a terminal, and log lines."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fielddep.cli.console import console
from fielddep.config.metrics import in_order
from fielddep.observer import JobResult, Observer
from fielddep.wording import duration, rough_duration

if TYPE_CHECKING:
    from rich.console import Console

    from fielddep.training.checkpoint import Evaluation
    from fielddep.training.prepare import Prepared

DIRECT_KINDS = ("numbers", "evidence")
"""Direct networks, named after what they see."""
STAGES = {
    "read": "reading",
    "split": "splitting",
    "learn": "learning the values",
    "count": "counting what rows with the same values did",
    "encode": "writing the store",
}


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Observer]:
    """An observer that shows progress, or nothing if quiet."""
    if quiet:
        yield Observer()
        return
    bar = ProgressBar(console(stderr=True))
    with bar.live:
        yield bar


class ProgressBar(Observer):
    """One bar for whatever is running, drawn on a terminal only."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = console
        self.live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self.task = self.live.add_task("", total=None, note="", visible=False)
        self.title, self.validation = "", ""
        self.has_direct = False
        self.started, self.n_rows = 0.0, 0

    def on_stage(self, stage: str, n_rows: int, share: float | None) -> None:
        """Log every stage once, and move the bar within it."""
        if self.title != STAGES[stage]:
            self._begin(STAGES[stage], None)
            self.first_row = n_rows
            if self.live.disable:
                self._log(self.title)
        total = None if share is None else 1.0
        note = f"{n_rows:,} rows{self._rate(n_rows - self.first_row)}"
        self.live.update(self.task, total=total, completed=share or 0.0, note=note)

    def on_prepared(self, prepared: Prepared) -> None:
        """Note how many rows one pass has."""
        self.pass_rows = len(prepared.parts["train"])

    def on_part(self, name: str, n_batches: int, max_epochs: int) -> None:
        """Note how many batches or trees a pass has, and log what is trained."""
        self.batches, self.passes = n_batches, max_epochs
        self.title = ""
        if name in DIRECT_KINDS:
            self._log(f"training the network that sees {name}")
        elif name:
            self._log(f"training {name}")
        elif self.has_direct:
            self._log("training the model on top of it")
        self.has_direct = bool(name)

    def on_refit(self, n_rows: int, n_passes: float) -> None:
        """Log what happens, and let the bar count the passes of the second training."""
        passes = f"{n_passes:.3g} {'pass' if n_passes == 1 else 'passes'}"
        self._log(f"refit on {n_rows:,} training and validation rows for {passes}; metrics of validation rows are kept")
        self.batches = -(-self.batches * n_rows // self.pass_rows)
        self.pass_rows, self.passes = n_rows, math.ceil(n_passes)

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        """Move the bar, which starts again with every epoch."""
        epoch, batch = divmod(step - 1, self.batches)
        title = f"epoch {epoch + 1}/{self.passes}" if self.passes > 1 else "training"
        if title != self.title:
            self._begin(title, self.batches, completed=batch)
        self.n_rows += n_rows
        note = f"loss {loss:.4f}{self.validation}{self._rate(self.n_rows)}"
        self.live.update(self.task, advance=1, note=note)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Log the evaluation of a training, but only show the loss of a trial."""
        loss = f"{evaluation.validation['loss']:.4f}"
        if self._is_training:
            self.validation = f"  validation {loss}"
            self._log(str(evaluation))
        else:
            self.live.update(self.task, note=f"validation loss {loss}")

    def on_end(self) -> None:
        """Hide the bar."""
        self.live.update(self.task, visible=False)
        self.live.refresh()

    def on_plan(self, what: str, n_todo: int, n_done: int) -> None:
        """Log how much there is to do."""
        self._begin(what, n_todo + n_done, completed=n_done)
        self._log(f"{n_todo} {what} to do" + (f", {n_done} done" if n_done else ""))

    def on_estimate(self, seconds: float) -> None:
        """Log how long the rest takes."""
        self._log(f"about {rough_duration(seconds)} left")

    def on_job(self, title: str, result: JobResult | None) -> None:
        """Show what is running, and log how it ended."""
        if result is None:
            self.live.update(self.task, description=title, note="")
            return
        self.live.update(self.task, advance=1)
        self._log(f"{title}: {job_text(result)}")

    @property
    def _is_training(self) -> bool:
        return hasattr(self, "batches")

    def _begin(self, title: str, total: float | None, *, completed: int = 0) -> None:
        self.title, self.started, self.n_rows = title, time.perf_counter(), 0
        self.live.reset(self.task, description=title, total=total, completed=completed, visible=True, note="")

    def _rate(self, n_rows: int) -> str:
        return f", {n_rows / max(time.perf_counter() - self.started, 1e-9):,.0f} rows/s" if n_rows else ""

    def _log(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, highlight=False)


def job_text(result: JobResult) -> str:
    """How a search, trial or run ended, in one line.

    Example:
        >>> job_text(JobResult(state="failed", reason="no memory", seconds=3.0))
        'failed (no memory), 3 s'
        >>> job_text(JobResult(state="complete", metrics={"logloss": 0.25, "auc": 0.75}, note="best so far"))
        'complete, logloss 0.2500, auc 0.7500; best so far'
    """
    figures = in_order(result.metrics) or result.metrics
    reason = f" ({result.reason})" if result.reason else ""
    parts = [result.state + reason, *(f"{name} {value:.4f}" for name, value in figures.items())]
    parts += [] if result.seconds is None else [duration(result.seconds)]
    return ", ".join(parts) + (f"; {result.note}" if result.note else "")
