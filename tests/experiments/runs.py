"""Runs made up for tests, and tasks that are run without a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fielddep.experiments.processes import Outcome, Task
from fielddep.experiments.results import RunResult


def runs(model: str, auc: Sequence[float | str], **others: Any) -> list[RunResult]:
    """One run a seed: a number is its test AUC, a text is why it failed."""
    common: dict[str, Any] = {"dataset": "toy", "model": model} | others
    return [
        RunResult(**common, seed=seed, error=value)
        if isinstance(value, str)
        else RunResult(**common, seed=seed, metrics={"test": {"auc": value}})
        for seed, value in enumerate(auc)
    ]


def run_here(
    tasks: Sequence[Task[Any]],
    *,
    on_begin: Callable[[Task[Any]], None] = lambda task: None,
    may_start: Callable[[], bool] = lambda: True,
    **_: Any,
) -> list[Outcome[Any]]:
    """`run_tasks` in this process."""
    return [_outcome(task, on_begin) if may_start() else Outcome(started=False) for task in tasks]


def _outcome(task: Task[Any], on_begin: Callable[[Task[Any]], None]) -> Outcome[Any]:
    on_begin(task)
    try:
        outcome = Outcome(value=task.call())
    except RuntimeError as error:
        outcome = Outcome(failure=str(error))
    task.on_end(outcome)
    return outcome
