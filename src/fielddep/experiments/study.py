"""Study: Optuna's file of a search (extra `search`), which outlives any kill.

What is tried next follows from the seed and from the trials that are over: a start of the model, or the proposal of a
sampler that is seeded anew for every trial. So a trial that was lost is simply proposed again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fielddep.config import dotted_settings
from fielddep.errors import MissingExtraError, UserError
from fielddep.experiments.experiment_folder import SEARCH, check_folder
from fielddep.experiments.tree_configs import TREE_CONFIGS
from fielddep.experiments.trial_records import LOST, trial_records

if TYPE_CHECKING:
    import optuna

STUDY, REQUEST = "search", "request"
RANDOM_TRIALS = 6
"""Trials that are over before the sampler learns from them."""
UNPRUNED_TRIALS, UNPRUNED_LOSSES = 4, 6
"""No trial is pruned before so many are over, and none before so many of its own evaluations at least."""
MAX_KILLS = 2
"""A trial during which the process was killed so often is not tried again."""
NOT_KILLED = -1
"""In place of a trial's place: it was interrupted by the user, which says nothing against it."""


def import_optuna() -> Any:
    """Optuna, or an error that says how to install it.

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
    """Ends trials that are behind the median; none of trees: those that learn slowly are behind, and end best.

    For the same reason a trial is left alone until it was evaluated as often as half of the complete ones were.
    """
    library = import_optuna()
    pruners: Any = library.pruners
    if study.user_attrs[REQUEST]["model"] in TREE_CONFIGS:
        return pruners.NopPruner()  # type: ignore[no-any-return]  # Optuna is imported when used
    complete = study.get_trials(deepcopy=False, states=[library.trial.TrialState.COMPLETE])
    lengths = [len(trial.intermediate_values) for trial in complete]
    patience = max(UNPRUNED_LOSSES, int(np.median(lengths or [0])))
    return pruners.MedianPruner(  # type: ignore[no-any-return]
        n_startup_trials=UNPRUNED_TRIALS, n_warmup_steps=patience, n_min_trials=2
    )


def check_request(folder: Path, request: Mapping[str, Any]) -> None:
    """Refuse a folder that holds the search of another request; a folder without a search is left as it is.

    Raises:
        UserError: says what was asked and what is asked now, or that the file of the search cannot be used.
    """
    if (folder / SEARCH.mark).is_file():
        open_study(folder, request)


def open_study(folder: Path, request: Mapping[str, Any]) -> optuna.Study:
    """The study of a folder, made if it is not there.

    Raises:
        UserError: it is of another request, or the folder cannot be used.
    """
    library = import_optuna()
    path = folder / SEARCH.mark
    check_folder(folder, SEARCH)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        study: optuna.Study = library.create_study(
            storage=f"sqlite:///{path.resolve()}",
            study_name=STUDY,
            load_if_exists=True,
        )
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error
    except Exception as error:  # whatever a damaged file makes of SQLite and SQLAlchemy
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be used ({reason}); remove it to search anew") from error
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
                f"{folder} holds a search of {before.get('model')} with {name} = {old.get(name, 'its default')!r}, now "
                f"it is {new.get(name, 'its default')!r}; give the same options to go on, or choose another --out"
            )


def _dotted(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request with every setting by its dotted name."""
    others = {name: value for name, value in request.items() if name != "settings"}
    return {**others, **dotted_settings(request.get("settings", {}))}


def next_trial(
    study: optuna.Study, n_over: int, seed: int, start: tuple[Mapping[str, Any], dict[str, Any]] | None
) -> optuna.Trial:
    """Begin a trial.

    Args:
        study: the search.
        n_over: trials that are over.
        seed: seed of the search.
        start: parameters and facts of a trial that is not left to the sampler.
    """
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


def give_up_killed(study: optuna.Study) -> None:
    """End the trials that were under way when a process was killed: one is tried again, but not for ever."""
    states = import_optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=[states.RUNNING]):
        place = len(trial_records(study))
        kills = 1 + sum(lost == place for _, lost in study.user_attrs.get(LOST, []))
        if kills < MAX_KILLS:
            lose(study, trial.number, place)
        else:
            study.tell(trial.number, state=states.FAIL)


def lose(study: optuna.Study, number: int, place: int) -> None:
    """End a trial as if it had never been; the next one will be the same."""
    study.set_user_attr(LOST, [*study.user_attrs.get(LOST, []), [number, place]])
    with contextlib.suppress(RuntimeError):  # it may be over already
        study.tell(number, state=import_optuna().trial.TrialState.FAIL)
