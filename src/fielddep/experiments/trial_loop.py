"""The loop of a search: trial after trial until the budget is spent; a failing trial is recorded and not the end."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fielddep.errors import UserError
from fielddep.experiments.contender_training import train_contender
from fielddep.experiments.lookers import SearchLooker
from fielddep.experiments.search_space import SearchSpace
from fielddep.experiments.study import NOT_KILLED, import_optuna, lose, next_trial
from fielddep.experiments.trained import Watcher
from fielddep.experiments.trial_records import (
    COMPLETE,
    FAILED,
    METRICS,
    PRUNED,
    REASON,
    SECONDS,
    SETTINGS,
    TrialRecord,
    best_record,
    trial_records,
)
from fielddep.prepared import TrainingData
from fielddep.training.defaults import decide

if TYPE_CHECKING:
    import optuna

START = "start"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When a search ends: after so many trials or minutes, whichever comes first; those before a resume count.

    When time is up the trial under way is cut off and counts with its lowest loss so far. While no trial is complete it
    is let go on to its first evaluation, so that there is a result.
    """

    trials: int = 30
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.trials < 1 or (self.minutes is not None and not self.minutes > 0):
            raise UserError(
                f"expected at least one trial and some minutes, given {self.trials} trials and {self.minutes} minutes"
            )

    def seconds_left(self, records: Sequence[TrialRecord]) -> float | None:
        """Seconds until time is up; None where there is no such limit."""
        return None if self.minutes is None else self.minutes * 60 - sum(record.seconds for record in records)

    def is_spent(self, records: Sequence[TrialRecord]) -> bool:
        """Whether no further trial may begin."""
        left = self.seconds_left(records)
        return len(records) >= self.trials or (left is not None and left <= 0)


class _StoppedError(Exception):
    """Ends the training of a trial: it is pruned, or time is up."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state, self.reason = state, reason


@dataclass(kw_only=True)
class _TrialWatch(Watcher):
    """Reports losses to Optuna, and ends a trial that is hopeless or out of time."""

    trial: optuna.Trial
    number: int
    deadline: float | None
    is_needed: bool
    looker: SearchLooker
    losses: list[float] = field(default_factory=list)

    def on_step(self) -> None:
        late = self.deadline is not None and time.perf_counter() > self.deadline
        if late and (self.losses or not self.is_needed):
            raise _StoppedError(COMPLETE if self.losses else FAILED, "time was up")

    def on_loss(self, loss: float) -> None:
        self.losses.append(loss)
        self.looker.on_loss(self.number, loss)
        self.trial.report(min(self.losses), len(self.losses))
        self.on_step()
        if self.trial.should_prune():
            raise _StoppedError(PRUNED, f"after {len(self.losses)} evaluations")


@dataclass(frozen=True, kw_only=True)
class TrialLoop:
    """A search that goes on.

    Attributes:
        study: Optuna's file.
        space: where it looks.
        data: training and validation rows.
        n_training_rows: training rows that open settings are decided from.
        budget: when it ends.
        seed: seed of the proposals.
        looker: told of trials.
        keep: called with all trials after each of them.
    """

    study: optuna.Study
    space: SearchSpace
    data: TrainingData
    n_training_rows: int
    budget: Budget
    seed: int
    looker: SearchLooker
    keep: Callable[[Sequence[TrialRecord]], None]

    def run(self) -> list[TrialRecord]:
        """Trials until the budget is spent."""
        records = trial_records(self.study)
        while not self.budget.is_spent(records):
            self._run_trial(records)
            records = trial_records(self.study)
            self.keep(records)
            self.looker.on_end(records[-1], best_record(records))
        return records

    def _run_trial(self, records: Sequence[TrialRecord]) -> None:
        trial = next_trial(self.study, len(records), self.seed, self._start(len(records)))
        began, left = time.perf_counter(), self.budget.seconds_left(records)
        watch = _TrialWatch(
            trial=trial,
            number=len(records),
            deadline=None if left is None else began + left,
            is_needed=best_record(records) is None,
            looker=self.looker,
        )
        self.looker.on_begin(len(records))
        try:
            state, facts = self._train(trial, watch)
        except KeyboardInterrupt:
            lose(self.study, trial.number, NOT_KILLED)
            raise
        for name, value in {**facts, SECONDS: time.perf_counter() - began}.items():
            trial.set_user_attr(name, value)
        states = import_optuna().trial.TrialState
        told = {COMPLETE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[state]
        self.study.tell(trial, facts[METRICS]["loss"] if state == COMPLETE else None, state=told)

    def _start(self, n_over: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Parameters and facts of the next start; None where all were tried."""
        if n_over >= len(self.space.starts):
            return None
        settings = self.space.starts[n_over]
        return self.space.point(self._data(settings).config), {START: True, SETTINGS: settings}

    def _train(self, trial: optuna.Trial, watch: _TrialWatch) -> tuple[str, dict[str, Any]]:
        """State and facts of a trial."""
        facts: dict[str, Any] = {}
        try:
            facts[SETTINGS] = self._settings(trial)
            trained = train_contender(self._data(facts[SETTINGS]), watch)
        except _StoppedError as stopped:
            lowest = {METRICS: {"loss": min(watch.losses)}} if watch.losses else {}
            return stopped.state, {**facts, **lowest, REASON: stopped.reason}
        except Exception as error:  # settings may fail in any way: diverge, need too much memory, not fit each other
            return FAILED, {**facts, REASON: reason_of(error)}
        if not math.isfinite(trained.validation["loss"]):
            return FAILED, {**facts, REASON: "the validation loss is not a number"}
        return COMPLETE, {**facts, METRICS: trained.validation}

    def _settings(self, trial: optuna.Trial) -> dict[str, Any]:
        if START not in trial.user_attrs:
            return self.space.suggest(trial)
        settings: dict[str, Any] = trial.user_attrs[SETTINGS]
        self.space.register(trial, self.space.point(self._data(settings).config))
        return settings

    def _data(self, settings: Mapping[str, Any]) -> TrainingData:
        """The rows, with settings of which none is open."""
        merged = dataclasses.replace(self.space.config, data=self.data.config.data, split=self.data.config.split)
        config = decide(merged.replace(settings), n_rows=self.n_training_rows)
        return dataclasses.replace(self.data, config=config)


def reason_of(error: BaseException) -> str:
    """One line that tells what went wrong."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}".rstrip(": ")
