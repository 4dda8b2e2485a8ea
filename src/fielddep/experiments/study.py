"""Study: the file in which Optuna keeps the trials of a search (extra `search`); it survives any kill.

What is tried next follows from the seed and from the trials that are over: a start that the model declares, or the
proposal of a sampler with a new seed for every trial. A trial that was lost is therefore simply proposed again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fielddep.config import TREES
from fielddep.config.settings import dotted_settings
from fielddep.errors import MissingExtraError, UserError
from fielddep.experiments.folder import SEARCH, check_folder
from fielddep.experiments.results import csv_text

if TYPE_CHECKING:
    import optuna

SETTINGS, METRICS, SECONDS, REASON = "settings", "metrics", "seconds", "reason"
"""Keys of the facts of a trial in Optuna's file."""
LOST = "lost"
"""Key of the trials that an interrupt or a kill ended, each with its place among all."""
KILLED = "the process was killed in training, more than once; perhaps it ran out of memory"
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
STUDY, REQUEST = "search", "request"
RANDOM_TRIALS = 6
"""Trials that are over before the sampler learns from them."""
UNPRUNED_TRIALS, UNPRUNED_LOSSES = 4, 6
"""No trial is pruned before this many trials are over, nor before it has had this many evaluations."""
MAX_KILLS = 2
"""A trial is not tried again after this many kills."""
NOT_KILLED = -1
"""Recorded instead of the place of a trial that the user interrupted, because that is no sign of a bad trial."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial that is over.

    Attributes:
        number: its place among the trials of the search; trial 0 has the defaults.
        state: complete, pruned or failed.
        loss: lowest validation loss; None for a failed trial.
        settings: dotted settings that it changed.
        reason: why it was pruned, was cut off or failed.
    """

    number: int
    state: str
    loss: float | None
    seconds: float
    settings: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    reason: str = ""


def trial_records(study: optuna.Study) -> list[TrialRecord]:
    """The trials that are over, except lost ones, which are run again."""
    lost = {number for number, _ in study.user_attrs.get(LOST, [])}
    ended = [
        trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished() and trial.number not in lost
    ]
    return [_record(number, trial) for number, trial in enumerate(ended)]


def _record(number: int, trial: optuna.trial.FrozenTrial) -> TrialRecord:
    facts = trial.user_attrs
    states = {"COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAILED}
    return TrialRecord(
        number=number,
        state=states[trial.state.name],
        loss=facts.get(METRICS, {}).get("loss"),
        seconds=facts.get(SECONDS, 0.0),
        settings=facts.get(SETTINGS, {}),
        metrics=facts.get(METRICS, {}),
        reason=facts.get(REASON, "" if SECONDS in facts else KILLED),
    )


def best_record(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The complete trial of the lowest loss, the first of equals; None if no trial is complete."""
    complete = [record for record in records if record.state == COMPLETE and record.loss is not None]
    return min(complete, key=lambda record: record.loss or 0.0, default=None)


def trials_csv(records: Sequence[TrialRecord]) -> str:
    """One line per trial: how it ended, then its settings; an empty cell means the default."""
    metrics = list(dict.fromkeys(name for record in records for name in record.metrics if name != "loss"))
    settings = list(dict.fromkeys(path for record in records for path in record.settings))
    lines = [
        [
            *(record.number, record.state, record.loss),
            *(record.metrics.get(name) for name in metrics),
            *(round(record.seconds, 1), record.reason),
            *(_cell(record.settings.get(path)) for path in settings),
        ]
        for record in records
    ]
    return csv_text(["trial", "state", "loss", *metrics, "seconds", "reason", *settings], lines)


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, bool)) else value


def import_optuna() -> Any:
    """Optuna.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("a search needs Optuna; pip install 'fielddep[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _pruner(study: optuna.Study) -> optuna.pruners.BasePruner:
    """Ends trials that are behind the median.

    Trees are never pruned: those that learn slowly are behind for long and end best. For the same reason a trial is
    left alone until it has been evaluated as often as half of the complete ones were.
    """
    library = import_optuna()
    pruners: Any = library.pruners
    if study.user_attrs[REQUEST]["settings"]["model"]["name"] in TREES:
        return pruners.NopPruner()  # type: ignore[no-any-return]  # Optuna is imported when used
    complete = study.get_trials(deepcopy=False, states=[library.trial.TrialState.COMPLETE])
    lengths = [len(trial.intermediate_values) for trial in complete]
    patience = max(UNPRUNED_LOSSES, int(np.median(lengths or [0])))
    return pruners.MedianPruner(  # type: ignore[no-any-return]
        n_startup_trials=UNPRUNED_TRIALS, n_warmup_steps=patience, n_min_trials=2
    )


def check_request(folder: Path, request: Mapping[str, Any]) -> None:
    """Refuse a folder that holds the search of another request.

    Raises:
        UserError: names the option that differs, or the file that cannot be used.
    """
    if (folder / SEARCH.mark).is_file():
        open_study(folder, request)


def open_study(folder: Path, request: Mapping[str, Any]) -> optuna.Study:
    """The study of a folder, created if it does not exist.

    Raises:
        UserError: it is of another request, or the folder cannot be used.
    """
    library = import_optuna()
    path = folder / SEARCH.mark
    check_folder(folder, SEARCH)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        study: optuna.Study = library.create_study(
            storage=f"sqlite:///{path.resolve()}", study_name=STUDY, load_if_exists=True
        )
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error
    except Exception as error:  # a damaged file may raise anything from SQLite or SQLAlchemy
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be used ({reason}); remove it to start over") from error
    if REQUEST not in study.user_attrs:
        study.set_user_attr(REQUEST, as_json(request))
    _check_same(study.user_attrs[REQUEST], as_json(request), folder)
    return study


def as_json(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    old, new = _dotted(before), _dotted(now)
    for name in {**new, **old}:
        if old.get(name) != new.get(name):
            raise UserError(
                f"{folder} holds a search of {before.get('model')} with {name} = {old.get(name, 'its default')!r}, "
                f"given {new.get(name, 'its default')!r}; repeat the options of that search, or choose another folder"
            )


def _dotted(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request with every setting by its dotted name."""
    others = {name: value for name, value in request.items() if name != "settings"}
    return {**others, **dotted_settings(request.get("settings", {}))}


def next_trial(
    study: optuna.Study, n_over: int, seed: int, start: tuple[Mapping[str, Any], dict[str, Any]] | None
) -> optuna.Trial:
    """Start a trial after `n_over` others; `start` has parameters and facts that the sampler does not choose."""
    library = import_optuna()
    waiting = study.get_trials(deepcopy=False, states=[library.trial.TrialState.WAITING])
    if start is not None and not waiting:  # a kill may have left the same one waiting
        study.enqueue_trial(dict(start[0]), user_attrs=start[1])
    drawn = int(np.random.SeedSequence((seed, n_over)).generate_state(1)[0])
    study.sampler = library.samplers.TPESampler(
        seed=drawn, n_startup_trials=RANDOM_TRIALS, multivariate=False, constant_liar=False
    )
    study.pruner = _pruner(study)
    return study.ask()


def drop_killed_trials(study: optuna.Study) -> None:
    """End the trials that were running when a process was killed; each is tried again, up to `MAX_KILLS` times."""
    states = import_optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=[states.RUNNING]):
        place = len(trial_records(study))
        kills = 1 + sum(lost == place for _, lost in study.user_attrs.get(LOST, []))
        if kills < MAX_KILLS:
            mark_lost(study, trial.number, place)
        else:
            study.tell(trial.number, state=states.FAIL)


def mark_lost(study: optuna.Study, number: int, place: int) -> None:
    """End a trial as if it had never started; the next one will be the same."""
    study.set_user_attr(LOST, [*study.user_attrs.get(LOST, []), [number, place]])
    with contextlib.suppress(RuntimeError):  # it may be over already
        study.tell(number, state=import_optuna().trial.TrialState.FAIL)
