"""Callbacks: what may look on while a model trains. None of them can change the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from fielddep.errors import MissingExtraError
from fielddep.training.history import Evaluation


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What a trainer is about to do."""

    n_rows: int
    n_batches: int
    max_epochs: int
    start_step: int


class Callback:
    """Base: every event is optional."""

    def on_start(self, plan: TrainingPlan) -> None:
        """Training begins or goes on."""

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        """A batch of `n_rows` rows has been learned from."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """The validation rows have been evaluated and, where asked, a checkpoint written."""

    def on_end(self) -> None:
        """Training is over, by its end, by an error or by an interrupt."""


class RateColumn(ProgressColumn):
    """Rows a second."""

    def __init__(self) -> None:
        super().__init__(table_column=Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        """Text of the column."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} rows/s" if speed else "", style="cyan")


class ProgressBar(Callback):
    """A live bar with rows/s, time left to the end of the epoch and losses; silent when not on a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=14),
            RateColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("loss {task.fields[loss]}  validation {task.fields[validation]}"),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )

    def on_start(self, plan: TrainingPlan) -> None:
        """Show the bar."""
        self.plan = plan
        epoch, within = divmod(plan.start_step, plan.n_batches)
        self.epoch = epoch
        self.task = self.progress.add_task(
            self._title(), total=plan.n_rows, loss="", validation="", completed=within * self._rows_a_step
        )
        self.progress.start()

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        """Move the bar; a new epoch starts it anew."""
        epoch = (step - 1) // self.plan.n_batches
        if epoch != self.epoch:
            self.epoch = epoch
            self.progress.reset(self.task, description=self._title(), total=self.plan.n_rows)
        self.progress.update(self.task, advance=n_rows, loss=f"{loss:.4f}")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Show the validation loss."""
        self.progress.update(self.task, validation=f"{evaluation.validation['loss']:.4f}")

    def on_end(self) -> None:
        """Take the bar away."""
        self.progress.stop()

    @property
    def _rows_a_step(self) -> int:
        return self.plan.n_rows // self.plan.n_batches

    def _title(self) -> str:
        return f"epoch {self.epoch + 1}/{self.plan.max_epochs}"


NOT_LOGGED = ("loss", "calibration_error")
"""Metrics that the history has, but that would make a line too long for a terminal."""


class EvaluationLog(Callback):
    """One line an evaluation; a star marks the best so far."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Print the line."""
        values = {k: v for k, v in evaluation.validation.items() if k not in NOT_LOGGED}
        text = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        mark = "  *" if evaluation.best else ""
        self.console.print(
            f"epoch {evaluation.epoch:5.2f}  train loss {evaluation.train_loss:.4f}  validation {text}{mark}",
            highlight=False,
        )


class TensorBoard(Callback):
    """Losses and metrics for TensorBoard (extra `tensorboard`)."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("TensorBoard is not installed; pip install 'fielddep[tensorboard]'") from None
        self.writer: Any = SummaryWriter(str(folder))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Write one point a metric."""
        self.writer.add_scalar("train/loss", evaluation.train_loss, evaluation.step)
        self.writer.add_scalar("train/lr", evaluation.lr, evaluation.step)
        for name, value in evaluation.validation.items():
            self.writer.add_scalar(f"validation/{name}", value, evaluation.step)

    def on_end(self) -> None:
        """Flush and close."""
        self.writer.close()
