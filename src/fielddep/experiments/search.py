"""Search: settings of a model chosen on validation rows by Optuna, within a budget, resumable at any moment.

    search.sqlite   Optuna's file: every trial, as it goes
    trials.csv      every trial that is over
    best.toml       the best settings so far, as `fielddep fit --config` takes them
    search.json     what was searched, with which budget, and how it ended

Trial 0 has the defaults, then come the starts that the model declares, then what Optuna's TPE sampler proposes. No
trial sees a test row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fielddep.config.settings import Config
from fielddep.errors import UserError
from fielddep.experiments.contenders import Contender, changed_settings, settings_toml
from fielddep.experiments.folder import SEARCH, working_in
from fielddep.experiments.study import (
    COMPLETE,
    FAILED,
    PRUNED,
    TrialRecord,
    as_json,
    best_record,
    drop_killed_trials,
    open_study,
    trials_csv,
)
from fielddep.experiments.trials import Budget, SearchSpace, TrialLoop
from fielddep.observer import Observer
from fielddep.store.store import Store
from fielddep.tables.files import write_json, write_text
from fielddep.training.prepare import search_rows

TRIALS, BEST, SUMMARY = "trials.csv", "best.toml", "search.json"


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What a search found.

    Attributes:
        config: the best settings; open ones are decided from the data when they are used.
        best: the trial that had them.
        records: all trials.
    """

    config: Config
    best: TrialRecord
    records: tuple[TrialRecord, ...]


def search(
    store: Store,
    contender: Contender,
    folder: str | Path,
    *,
    budget: Budget,
    given: Mapping[str, Any] | None = None,
    seed: int = 0,
    n_rows: int | None = None,
    observer: Observer | None = None,
) -> SearchResult:
    """Search good settings of a model, or resume the search in the folder.

    Args:
        store: the rows; test rows are not used.
        contender: the model.
        folder: where the search is kept.
        budget: trials and minutes, those of earlier calls included.
        given: dotted settings of model and training that are not searched.
        seed: seed of the proposals and of every training.
        n_rows: training rows at most, a random sample where there are more; all validation rows are used.
        observer: notified of trials.

    Raises:
        UserError: the folder holds something else, another process works in it, or no trial was successful.
        MissingExtraError: Optuna, or the library of a tree model, is not installed.
    """
    folder = Path(folder)
    with working_in(folder, SEARCH):
        space = SearchSpace.of(contender, {**(given or {}), "train.seed": seed})
        request = search_request(store, contender, given, seed=seed, n_rows=n_rows)
        data = search_rows(store, space.config, n_rows=n_rows, seed=seed)
        study = open_study(folder, request)
        drop_killed_trials(study)
        records = TrialLoop(
            study=study,
            space=space,
            data=data,
            n_training_rows=store.n_rows_of["train"],
            budget=budget,
            seed=seed,
            observer=observer or Observer(),
            keep=lambda records: _keep(folder, space, store, records),
        ).run()
        _keep(folder, space, store, records)
        result = _result(folder, space, store, records)
        write_json(folder / SUMMARY, {"request": request, **_summary(result, budget)})
    return result


def search_request(
    store: Store, contender: Contender, given: Mapping[str, Any] | None, *, seed: int, n_rows: int | None
) -> dict[str, Any]:
    """What a search is about, except its budget: searches with equal requests are the same."""
    settings = changed_settings(contender.config(given))
    return {"model": contender.name, "store": store.sha256, "settings": settings, "seed": seed, "rows": n_rows}


def is_searched(folder: Path, request: Mapping[str, Any], budget: Budget) -> bool:
    """Whether a folder holds a search of this request that ended with this budget."""
    try:
        found = json.loads((folder / SUMMARY).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return (found.get("request"), found.get("budget")) == (as_json(request), as_json(asdict(budget)))


def _keep(folder: Path, space: SearchSpace, store: Store, records: Sequence[TrialRecord]) -> None:
    write_text(folder / TRIALS, trials_csv(records))
    best = best_record(records)
    if best is not None:
        write_text(folder / BEST, settings_toml(_config(space, store, best)))


def _result(folder: Path, space: SearchSpace, store: Store, records: Sequence[TrialRecord]) -> SearchResult:
    best = best_record(records)
    if best is None:
        reasons = "; ".join(dict.fromkeys(record.reason for record in records))
        raise UserError(
            f"none of {len(records)} trials in {folder} was successful: {reasons}. Raise --trials or --minutes, lower "
            "--rows, or change the settings"
        )
    return SearchResult(config=_config(space, store, best), best=best, records=tuple(records))


def _config(space: SearchSpace, store: Store, best: TrialRecord) -> Config:
    """Settings of a trial, with the data and split settings of its rows."""
    config = space.config.replace(best.settings)
    return Config(data=store.config.data, split=store.config.split, model=config.model, train=config.train)


def _summary(result: SearchResult, budget: Budget) -> dict[str, Any]:
    states = [record.state for record in result.records]
    return {
        "budget": asdict(budget),
        "trials": {state: states.count(state) for state in (COMPLETE, PRUNED, FAILED)},
        "seconds": round(sum(record.seconds for record in result.records), 1),
        "best": {"trial": result.best.number, "loss": result.best.loss, "metrics": result.best.metrics},
    }
