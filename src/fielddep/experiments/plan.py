"""Plan: which models are compared and how, and their settings: given by the user, searched, or defaults."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fielddep.config.settings import Config
from fielddep.errors import ConfigError, UserError
from fielddep.experiments.contenders import Contender, find_contender, read_settings
from fielddep.experiments.jobs import JobRuns, SearchJob
from fielddep.experiments.processes import Outcome, Task, n_threads, run_tasks
from fielddep.experiments.results import DEFAULT_SETTINGS
from fielddep.experiments.search import BEST, is_searched, search_request
from fielddep.experiments.study import as_json, check_request
from fielddep.experiments.trials import Budget
from fielddep.observer import JobResult, Observer
from fielddep.store.store import Store
from fielddep.tables.files import write_json

SEARCHES, CONFIGS, RUNS, LOGS = "search", "configs", "runs", "logs"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is compared, and how.

    Attributes:
        contenders: the models.
        n_seeds: runs of each, with seeds 0, 1, ...
        budget: of the search of each model without settings in `configs`; None: such models have their defaults.
        configs: folder of settings, `MODEL.toml`, that were found before.
        given: dotted settings of training that hold for every model.
        search_rows: training rows of a search at most.
        rows_by_model: the same for single models that are too slow for so many.
        search_seed: seed of the searches.
        threads: CPU threads of each process; None: an even share of the processors.
        n_jobs: processes at a time.
        keep_failed: whether what failed is not tried again.

    Raises:
        UserError: for no seeds, no such folder, no rows, or settings that cannot hold for every model.
    """

    contenders: tuple[Contender, ...]
    n_seeds: int = 5
    budget: Budget | None = field(default_factory=Budget)
    configs: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    search_rows: int | None = None
    rows_by_model: Mapping[str, int] = field(default_factory=dict)
    search_seed: int = 0
    threads: int | None = None
    n_jobs: int = 1
    keep_failed: bool = False

    def __post_init__(self) -> None:
        if self.n_seeds < 1:
            raise UserError(f"expected at least one seed, given {self.n_seeds}")
        if self.configs is not None and not self.configs.is_dir():
            raise UserError(f"expected a folder of settings (MODEL.toml), given {self.configs}, which is no folder")
        for path in self.given:
            if path in ("train.seed", "train.threads"):
                raise UserError(f"{path} differs between runs and cannot be set; use --seeds and --threads")
            if not path.startswith("train."):
                raise UserError(f"expected settings of train, which hold for every model, given {path}; use --configs")
        for n_rows in (self.search_rows, *self.rows_by_model.values()):
            if n_rows is not None and n_rows < 1:
                raise UserError(f"expected at least one row to search on, given {n_rows}; omit --rows to use all")
        for contender in self.contenders:
            contender.config(self.given)  # refuses unknown settings

    def settings_file(self, contender: Contender) -> Path | None:
        """The file of settings given by the user: that of the variant, else that of its model."""
        if self.configs is None:
            return None
        files = (self.configs / f"{name}.toml" for name in (contender.name, contender.model))
        return next((file for file in files if file.is_file()), None)

    def searched_models(self) -> list[str]:
        """The models whose settings are searched."""
        if self.budget is None:
            return []
        return list({c.model: None for c in self.contenders if self.settings_file(c) is None})

    def rows_of(self, model: str) -> int | None:
        """Training rows of the search of a model at most; None for all."""
        return self.rows_by_model.get(model, self.search_rows)

    @property
    def process_threads(self) -> int:
        """CPU threads of each process."""
        return n_threads(self.threads, self.n_jobs)

    def job_runs(self, folder: Path, observer: Observer) -> JobRuns:
        """How runs are made in the folder of an experiment."""
        return JobRuns(logs=folder / LOGS, n_jobs=self.n_jobs, keep_failed=self.keep_failed, observer=observer)


TUNED = "tuned"


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of a contender.

    Attributes:
        config: the settings; the defaults where the search failed.
        name: "tuned" or "default".
        failure: why its search failed; None where it did not.
    """

    config: Config
    name: str
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The searches of a comparison.

    Attributes:
        store: the rows.
        folder: folder of the comparison.
        plan: what is compared.
        observer: notified of searches.
    """

    store: Store
    folder: Path
    plan: Plan
    observer: Observer

    def run(self) -> dict[str, ModelSettings]:
        """Settings by the name of the contender, after the searches that are missing.

        Raises:
            ConfigError: settings that the user gives cannot be read.
            UserError: an earlier search in the folder has other options; nothing is changed then.
        """
        failures = self._search([find_contender(model) for model in self.plan.searched_models()])
        return {c.name: self._settings(c, failures.get(c.model)) for c in self.plan.contenders}

    def known_settings(self, contender: Contender) -> ModelSettings | None:
        """Settings that a contender would have in this comparison; None where they must be searched first."""
        if (
            self.plan.budget is not None
            and self.plan.settings_file(contender) is None
            and not self._is_searched(contender.model)
        ):
            return None
        with contextlib.suppress(ConfigError):  # of a model that the plan does not have
            return self._settings(contender, None)
        return None

    def _settings(self, contender: Contender, failure: str | None) -> ModelSettings:
        given = self.plan.settings_file(contender)
        if given is None and self.plan.budget is None:
            return ModelSettings(config=contender.config(self.plan.given), name=DEFAULT_SETTINGS)
        if given is None and failure is not None:
            return ModelSettings(config=contender.config(self.plan.given), name=TUNED, failure=failure)
        path = given or self._search_folder(contender.model) / BEST
        values = read_settings(path, contender, sections=("model", "train"))
        return ModelSettings(config=contender.config({**values, **self.plan.given}), name=TUNED)

    def _search(self, models: list[Contender]) -> dict[str, str]:
        """Search what is missing; reasons of failures by model."""
        for model in models:  # all before the first starts
            check_request(self._search_folder(model.name), self._request(model))
        failures = {m.name: reason for m in models if (reason := self._kept_failure(m)) is not None}
        todo = [m for m in models if m.name not in failures and not self._is_searched(m.name)]
        if models:
            self.observer.on_plan("searches", len(todo), len(models) - len(todo))
        outcomes = run_tasks(
            [self._task(model) for model in todo],
            n_jobs=self.plan.n_jobs,
            on_begin=lambda task: self.observer.on_job(task.title, None),
        )
        ended = zip(todo, outcomes, strict=True)
        return failures | {model.name: outcome.failure for model, outcome in ended if outcome.failure is not None}

    def _is_searched(self, model: str) -> bool:
        assert self.plan.budget is not None
        request = self._request(Contender(name=model, model=model))
        return is_searched(self._search_folder(model), request, self.plan.budget)

    def _request(self, model: Contender) -> dict[str, Any]:
        plan = self.plan
        n_rows = plan.rows_of(model.name)
        return search_request(self.store, model, plan.given, seed=plan.search_seed, n_rows=n_rows)

    def _task(self, model: Contender) -> Task[None]:
        title = f"search {model.name}"

        def ended(outcome: Outcome[None]) -> None:
            if outcome.failure is None:
                self._failure_file(model).unlink(missing_ok=True)
            else:
                write_json(self._failure_file(model), {**self._request_and_budget(model), "reason": outcome.failure})
            state = "complete" if outcome.failure is None else "failed"
            self.observer.on_job(title, JobResult(state=state, reason=outcome.failure or ""))

        log = self.folder / LOGS / f"search-{model.name}.log"
        return Task(title=title, call=self._job(model).run, log=log, on_end=ended)

    def _job(self, model: Contender) -> SearchJob:
        plan = self.plan
        assert plan.budget is not None
        return SearchJob(
            model=model.name,
            store=str(self.store.folder.resolve()),
            sha256=self.store.sha256,
            folder=str(self._search_folder(model.name).resolve()),
            budget=plan.budget,
            given={**plan.given, "train.threads": plan.process_threads},
            seed=plan.search_seed,
            n_rows=plan.rows_of(model.name),
        )

    def _kept_failure(self, model: Contender) -> str | None:
        """Why the same search failed before, where failures are kept."""
        path = self._failure_file(model)
        if not self.plan.keep_failed or not path.is_file():
            return None
        found = json.loads(path.read_text("utf-8"))
        reason: str = found.pop("reason")
        return reason if found == self._request_and_budget(model) else None

    def _request_and_budget(self, model: Contender) -> dict[str, Any]:
        assert self.plan.budget is not None
        found: dict[str, Any] = as_json({"request": self._request(model), "budget": asdict(self.plan.budget)})
        return found

    def _failure_file(self, model: Contender) -> Path:
        return self.folder / SEARCHES / f"{model.name}.failed.json"

    def _search_folder(self, model: str) -> Path:
        return self.folder / SEARCHES / model
