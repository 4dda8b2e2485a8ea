"""Search: Optuna chooses settings of a model on validation rows, within a budget, and can be resumed at any moment.

    search.sqlite   Optuna's file: every trial, as it runs
    trials.csv      every trial that is over
    best.toml       the best settings so far, for `fielddep fit --config`
    search.json     what was searched, with which budget, and how it ended

Trial 0 has the defaults. The starts that the model declares come next, then proposals of Optuna's TPE sampler. No trial
sees a test row.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fielddep.config.settings import Config
from fielddep.errors import ConfigError, UserError
from fielddep.experiments.folder import SEARCH, reopen_store, working_in
from fielddep.experiments.plan import (
    LOGS,
    SEARCHES,
    Budget,
    Contender,
    Deadline,
    ModelSettings,
    Workspace,
    changed_settings,
    find_contender,
    known_contender,
    read_settings,
    settings_toml,
)
from fielddep.experiments.processes import Outcome, Task, run_tasks
from fielddep.experiments.results import DEFAULT_SETTINGS
from fielddep.experiments.study import (
    COMPLETE,
    FAILED,
    PRUNED,
    TrialRecord,
    as_json,
    best_record,
    check_request,
    drop_killed_trials,
    open_study,
    trials_csv,
)
from fielddep.experiments.trials import SearchSpace, TrialLoop
from fielddep.observer import JobResult, Observer
from fielddep.store.store import Store
from fielddep.tables.files import write_json, write_text
from fielddep.training.prepare import search_rows

TRIALS, BEST, SUMMARY = "trials.csv", "best.toml", "search.json"
TUNED = "tuned"


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best settings, the trial that had them, and all trials. Open settings are decided when they are used."""

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
    deadline: Deadline | None = None,
) -> SearchResult:
    """Search good settings of a model, or resume the search in the folder.

    Args:
        store: the rows; test rows are not used.
        contender: the model.
        folder: where the search is kept.
        budget: trials and minutes, including those of earlier calls.
        given: dotted settings of model and training that are not searched.
        seed: seed of the proposals and of every training.
        n_rows: training rows at most, drawn at random; all validation rows are used.
        observer: notified of trials.
        deadline: after which no trial starts; a search that it ends is unfinished, and the next call resumes it.

    Raises:
        UserError: the folder holds something else or is in use, or no trial was successful.
        MissingExtraError: Optuna, or the library of a tree model, is not installed.
    """
    folder = Path(folder)
    with working_in(folder, SEARCH):
        target = store.encoder.schema.target
        assert target is not None
        space = SearchSpace.of(contender, {**(given or {}), "train.seed": seed}, task=target.task)
        request = search_request(store, contender, given, seed=seed, n_rows=n_rows)
        data = search_rows(store, space.config, n_rows=n_rows, seed=seed)
        study = open_study(folder, request)
        drop_killed_trials(study)
        records = TrialLoop(
            study=study,
            space=space,
            data=data,
            budget=budget,
            seed=seed,
            observer=observer or Observer(),
            keep=lambda records: _keep(folder, space, store, records),
            deadline=deadline or Deadline(),
        ).run()
        _keep(folder, space, store, records)
        result = _result(folder, space, store, records)
        if budget.is_spent(records):
            write_json(folder / SUMMARY, {"request": request, **_summary(result, budget)})
    return result


def search_request(
    store: Store, contender: Contender, given: Mapping[str, Any] | None, *, seed: int, n_rows: int | None
) -> dict[str, Any]:
    """What identifies a search, apart from its budget."""
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


def search_reopened(store: str, sha256: str, model: str, folder: str, **options: Any) -> None:
    """Search in another process, which opens the store again; the folder keeps the result."""
    search(reopen_store(store, sha256), find_contender(model), folder, **options)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Settings of all models of an experiment: given by the user, searched, or defaults."""

    work: Workspace

    def run(self) -> dict[str, ModelSettings]:
        """Settings by the name of the contender, after the searches that are missing.

        A contender whose search the deadline prevented or ended has none.

        Raises:
            ConfigError: the user's settings cannot be read.
            UserError: an earlier search in the folder has other options; nothing is changed then.
        """
        plan = self.work.plan
        models = plan.searched_models()
        failures = self._search([find_contender(model) for model in models])
        unfinished = [model for model in models if model not in failures and self._is_cut(model)]
        known = (c for c in plan.contenders if plan.search_of(c) not in unfinished or plan.settings_file(c) is not None)
        return {c.name: self._settings(c, failures.get(plan.search_of(c))) for c in known}

    def known_settings(self, contender: Contender) -> ModelSettings | None:
        """Settings that a contender would have in this experiment; None if they must be searched first."""
        plan = self.work.plan
        is_known = plan.budget is None or plan.settings_file(contender) is not None
        if not is_known and not self._is_searched(plan.search_of(contender)):
            return None
        with contextlib.suppress(ConfigError):  # the plan does not have this model, so its file need not be valid
            return self._settings(contender, None)
        return None

    def _settings(self, contender: Contender, failure: str | None) -> ModelSettings:
        plan = self.work.plan
        given = plan.settings_file(contender)
        if given is None and (plan.budget is None or failure is not None):
            name = DEFAULT_SETTINGS if plan.budget is None else TUNED
            return ModelSettings(config=contender.config(plan.given), name=name, failure=failure)
        path = given or self._search_folder(plan.search_of(contender)) / BEST
        values = read_settings(path, contender, sections=("model", "train"))
        return ModelSettings(config=contender.config({**values, **plan.given}), name=TUNED)

    def _search(self, models: list[Contender]) -> dict[str, str]:
        """Run the missing searches; reasons of failures by model."""
        observer = self.work.observer
        for model in models:  # all of them before the first search starts
            check_request(self._search_folder(model.name), self._request(model.name))
        failures = {m.name: reason for m in models if (reason := self._kept_failure(m.name)) is not None}
        todo = [m.name for m in models if m.name not in failures and not self._is_searched(m.name)]
        if models:
            observer.on_plan("searches", len(todo), len(models) - len(todo))
        outcomes = run_tasks(
            [self._task(model) for model in todo],
            n_jobs=self.work.plan.n_jobs,
            on_begin=lambda task: observer.on_job(task.title, None),
            may_start=lambda: not self.work.deadline.is_over(),
        )
        ended = zip(todo, outcomes, strict=True)
        return failures | {model: outcome.failure for model, outcome in ended if outcome.failure is not None}

    def _is_cut(self, model: str) -> bool:
        """Whether the deadline prevented or ended a search."""
        return self.work.deadline.is_over() and not self._is_searched(model)

    def _is_searched(self, model: str) -> bool:
        assert self.work.plan.budget is not None
        return is_searched(self._search_folder(model), self._request(model), self.work.plan.budget)

    def _request(self, model: str) -> dict[str, Any]:
        plan, contender = self.work.plan, known_contender(model)
        assert contender is not None
        return search_request(self.work.store, contender, plan.given, seed=plan.search_seed, n_rows=self._n_rows(model))

    def _n_rows(self, model: str) -> int | None:
        return self.work.plan.rows_by_model.get(model, self.work.plan.search_rows)

    def _task(self, model: str) -> Task[None]:
        title = f"search {model}"

        def ended(outcome: Outcome[None]) -> None:
            if outcome.failure is None:
                self._failure_file(model).unlink(missing_ok=True)
            else:
                write_json(self._failure_file(model), {**self._request_and_budget(model), "reason": outcome.failure})
            state = "complete" if outcome.failure is None else "failed"
            note = "time was up before its last trial" if outcome.failure is None and self._is_cut(model) else ""
            self.work.observer.on_job(title, JobResult(state=state, reason=outcome.failure or "", note=note))

        store, plan = self.work.store, self.work.plan
        call = partial(
            search_reopened,
            str(store.folder.resolve()),
            store.sha256,
            model,
            str(self._search_folder(model).resolve()),
            budget=plan.budget,
            given={**plan.given, "train.threads": plan.process_threads},
            seed=plan.search_seed,
            n_rows=self._n_rows(model),
            deadline=self.work.deadline,
        )
        return Task(title=title, call=call, log=self.work.folder / LOGS / f"search-{model}.log", on_end=ended)

    def _kept_failure(self, model: str) -> str | None:
        """Why the same search failed before, if failures are kept."""
        path = self._failure_file(model)
        if not self.work.plan.keep_failed or not path.is_file():
            return None
        found = json.loads(path.read_text("utf-8"))
        reason: str = found.pop("reason")
        return reason if found == self._request_and_budget(model) else None

    def _request_and_budget(self, model: str) -> dict[str, Any]:
        assert self.work.plan.budget is not None
        found: dict[str, Any] = as_json({"request": self._request(model), "budget": asdict(self.work.plan.budget)})
        return found

    def _failure_file(self, model: str) -> Path:
        return self.work.folder / SEARCHES / f"{model}.failed.json"

    def _search_folder(self, model: str) -> Path:
        return self.work.folder / SEARCHES / model
