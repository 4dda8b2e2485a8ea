"""Trials: where a search looks for settings, and one trial after another until its budget is spent.

A trial that fails is recorded and does not end the search. A trial of a network is pruned when its lowest validation
loss is above the median of the others at the same evaluation.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fielddep.config.mdl import LEARNING_RATE_SEARCH, Between, Space, Where
from fielddep.config.settings import Config
from fielddep.config.trees import TreeConfig
from fielddep.experiments.plan import Budget, Contender, Deadline
from fielddep.experiments.processes import reason_of
from fielddep.experiments.study import (
    COMPLETE,
    FAILED,
    METRICS,
    NOT_KILLED,
    PRUNED,
    REASON,
    SECONDS,
    SETTINGS,
    TrialRecord,
    best_record,
    import_optuna,
    mark_lost,
    next_trial,
    trial_records,
)
from fielddep.observer import JobResult, Observer
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import train
from fielddep.training.prepare import Prepared, decided

if TYPE_CHECKING:
    import optuna

START = "start"
"""Key of a trial whose settings are a start of the model."""
OPTIMIZER, RATE, TASK = "train.optimizer", "train.lr", "data.task"


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Where a search looks.

    Attributes:
        config: settings that the search starts from.
        spaces: where it looks, by dotted setting; a setting that a space depends on comes before it.
        has_rate: whether it also looks for `train.lr`, in the range of the optimizer.
        starts: settings that are tried first: the defaults, then those the model declares.
    """

    config: Config
    spaces: Mapping[str, Space]
    has_rate: bool
    starts: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, contender: Contender, given: Mapping[str, Any], *, task: str) -> SearchSpace:
        """What the model declares for a task, except settings that are given or make the contender a variant."""
        config, fixed = contender.config(given), {*contender.settings, *contender.unused, *given}
        model = config.model
        fixed |= {path for path, space in model.SEARCH.items() if not _suits(space.where, task)}
        starts = [{path: value for path, value in start.items() if path not in fixed} for start in model.STARTS]
        return cls(
            config=config,
            spaces={path: space for path, space in model.SEARCH.items() if path not in fixed},
            has_rate=RATE not in fixed and not isinstance(model, TreeConfig),
            starts=({}, *filter(None, starts)),
        )

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """Dotted settings that Optuna chooses."""
        settings: dict[str, Any] = {}
        for path, space in self.spaces.items():
            if _counts(space.where, self.config, settings):
                settings[path] = _suggest(trial, path, space)
        if self.has_rate:
            optimizer = settings.get(OPTIMIZER) or _optimizer(self.config)
            settings[RATE] = _suggest(trial, rate_name(optimizer), LEARNING_RATE_SEARCH[optimizer])
        return settings

    def point(self, config: Config) -> dict[str, Any]:
        """Decided settings as Optuna's parameters; a value outside its space is skipped."""
        spaces = {path: (path, space) for path, space in self.spaces.items() if _counts(space.where, config)}
        if self.has_rate:
            optimizer = _optimizer(config)
            spaces[RATE] = (rate_name(optimizer), LEARNING_RATE_SEARCH[optimizer])
        found = {name: _parameter(space, attrgetter(path)(config)) for path, (name, space) in spaces.items()}
        return {name: value for name, value in found.items() if value is not None}

    def register(self, trial: optuna.Trial, point: Mapping[str, Any]) -> None:
        """Give a trial with fixed parameters their spaces, so that the sampler learns from it."""
        rates = {rate_name(optimizer): space for optimizer, space in LEARNING_RATE_SEARCH.items()}
        for name in point:
            _suggest(trial, name, {**self.spaces, **rates}[name])


def _suits(where: Where | None, task: str) -> bool:
    """Whether a space may count for a task."""
    return where is None or where.path != TASK or task in where.values


def _counts(where: Where | None, config: Config, changed: Mapping[str, Any] | None = None) -> bool:
    """Whether a space counts with some settings and changes to them."""
    if where is None or where.path == TASK:  # `_suits` has decided
        return True
    return (changed or {}).get(where.path, attrgetter(where.path)(config)) in where.values


def _optimizer(config: Config) -> str:
    return config.train.optimizer or config.model.OPTIMIZER


def rate_name(optimizer: str) -> str:
    """Name of the parameter: one per optimizer, because their ranges have nothing in common."""
    return f"{RATE} ({optimizer})"


def _suggest(trial: optuna.Trial, name: str, space: Space) -> Any:
    """One value; a whole number if both ends of the range are."""
    if not isinstance(space, Between):
        texts = {json.dumps(value): value for value in space.values}  # Optuna takes no lists
        return texts[trial.suggest_categorical(name, list(texts))]
    if isinstance(space.low, int) and isinstance(space.high, int):
        return trial.suggest_int(name, space.low, space.high, log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _parameter(space: Space, value: Any) -> Any:
    """A value as Optuna keeps it; None if it is outside the space."""
    if isinstance(space, Between):
        return value if value is not None and space.low <= value <= space.high else None
    return json.dumps(value) if value in space.values else None


class _StoppedError(Exception):
    """Ends the training of a trial: it is pruned, or time is up."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state, self.reason = state, reason


@dataclass(kw_only=True)
class _TrialWatch(Observer):
    """Reports losses to Optuna, and stops a trial that is hopeless or out of time."""

    trial: optuna.Trial
    deadline: float | None
    is_needed: bool
    observer: Observer
    losses: list[float] = field(default_factory=list)

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self._stop_if_late()

    def _stop_if_late(self) -> None:
        late = self.deadline is not None and time.perf_counter() > self.deadline
        if late and (self.losses or not self.is_needed):
            raise _StoppedError(COMPLETE if self.losses else FAILED, "time was up")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.losses.append(evaluation.validation["loss"])
        self.observer.on_evaluation(evaluation)
        self.trial.report(min(self.losses), len(self.losses))
        self._stop_if_late()
        if self.trial.should_prune():
            raise _StoppedError(PRUNED, f"after {len(self.losses)} evaluations")


@dataclass(frozen=True, kw_only=True)
class TrialLoop:
    """The trials of a search.

    Attributes:
        data: training and validation rows.
        seed: seed of the proposals.
        keep: called with all trials after each of them.
        deadline: after which no trial starts.
    """

    study: optuna.Study
    space: SearchSpace
    data: Prepared
    budget: Budget
    seed: int
    observer: Observer
    keep: Callable[[Sequence[TrialRecord]], None]
    deadline: Deadline = field(default_factory=Deadline)

    def run(self) -> list[TrialRecord]:
        """Trials until the budget is spent, or the deadline is over."""
        records = trial_records(self.study)
        self.observer.on_plan("trials", max(0, self.budget.trials - len(records)), len(records))
        while not self.budget.is_spent(records) and not self.deadline.is_over():
            self._run_trial(records)
            records = trial_records(self.study)
            self.keep(records)
            self.observer.on_job(f"trial {records[-1].number}", _job_result(records))
        return records

    def _run_trial(self, records: Sequence[TrialRecord]) -> None:
        trial = next_trial(self.study, len(records), self.seed, self._start(len(records)))
        began, left = time.perf_counter(), self.budget.seconds_left(records)
        watch = _TrialWatch(
            trial=trial,
            deadline=None if left is None else began + left,
            is_needed=best_record(records) is None,
            observer=self.observer,
        )
        self.observer.on_job(f"trial {len(records)}", None)
        try:
            state, facts = self._train(trial, watch)
        except KeyboardInterrupt:
            mark_lost(self.study, trial.number, NOT_KILLED)
            raise
        for name, value in {**facts, SECONDS: time.perf_counter() - began}.items():
            trial.set_user_attr(name, value)
        states = import_optuna().trial.TrialState
        ended = {COMPLETE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[state]
        self.study.tell(trial, facts[METRICS]["loss"] if state == COMPLETE else None, state=ended)

    def _start(self, n_over: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Parameters and facts of the next start; None after the last one."""
        if n_over >= len(self.space.starts):
            return None
        settings = self.space.starts[n_over]
        return self.space.point(self._data(settings).config), {START: True, SETTINGS: settings}

    def _train(self, trial: optuna.Trial, watch: _TrialWatch) -> tuple[str, dict[str, Any]]:
        """State and facts of a trial."""
        facts: dict[str, Any] = {}
        try:
            facts[SETTINGS] = self._settings(trial)
            trained = train(self._data(facts[SETTINGS]), observer=watch)
        except _StoppedError as stopped:
            lowest = {METRICS: {"loss": min(watch.losses)}} if watch.losses else {}
            return stopped.state, {**facts, **lowest, REASON: stopped.reason}
        except Exception as error:  # settings may fail in any way: diverge, need too much memory, contradict each other
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

    def _data(self, settings: Mapping[str, Any]) -> Prepared:
        """The rows, with all settings decided."""
        merged = dataclasses.replace(self.space.config, data=self.data.config.data, split=self.data.config.split)
        config = decided(merged.replace(settings), self.data.store)
        return dataclasses.replace(self.data, config=config)


def _job_result(records: Sequence[TrialRecord]) -> JobResult:
    """How the last trial ended."""
    last, best = records[-1], best_record(records)
    return JobResult(
        state=last.state,
        metrics={} if last.loss is None else {"loss": last.loss},
        seconds=last.seconds,
        reason=last.reason,
        note="" if best is None else f"best {best.loss:.5f}, trial {best.number}",
    )
