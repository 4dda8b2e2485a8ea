"""Tuning: the settings of every model of a comparison, given by the user or searched, each in its own process."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fielddep.config import Config
from fielddep.data.store.store import Store
from fielddep.errors import ConfigError
from fielddep.experiments.contenders import Contender, find_contender, read_settings
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import LOGS, SEARCHES, Plan
from fielddep.experiments.processes import Task, run_tasks
from fielddep.experiments.results import DEFAULT_SETTINGS
from fielddep.experiments.search import BEST, is_searched, search_request
from fielddep.experiments.study import as_json, check_request
from fielddep.files import write_json

TUNED = "tuned"


@dataclass(frozen=True, kw_only=True)
class Chosen:
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
        looker: told of searches.
    """

    store: Store
    folder: Path
    plan: Plan
    looker: ComparisonLooker

    def run(self) -> dict[str, Chosen]:
        """Settings by the name of the contender, after the searches that were not done yet.

        Raises:
            ConfigError: settings that the user gives cannot be read.
            UserError: a search that was begun in the folder was asked for with other options; nothing is changed then.
        """
        failures = self._search([find_contender(model) for model in self.plan.searched_models()])
        return {c.name: self._chosen(c, failures.get(c.model)) for c in self.plan.contenders}

    def settled(self, contender: Contender) -> Chosen | None:
        """Settings that a contender would have in this comparison; None where they would have to be searched first."""
        if (
            self.plan.budget is not None
            and self.plan.settings_file(contender) is None
            and not self._is_searched(contender.model)
        ):
            return None
        with contextlib.suppress(ConfigError):  # of a model that nobody asked for
            return self._chosen(contender, None)
        return None

    def _chosen(self, contender: Contender, failure: str | None) -> Chosen:
        given = self.plan.settings_file(contender)
        if given is None and self.plan.budget is None:
            return Chosen(config=contender.config(self.plan.given), name=DEFAULT_SETTINGS)
        if given is None and failure is not None:
            return Chosen(config=contender.config(self.plan.given), name=TUNED, failure=failure)
        path = given or self._search_folder(contender.model) / BEST
        values = read_settings(path, contender, sections=("model", "train"))
        return Chosen(config=contender.config({**values, **self.plan.given}), name=TUNED)

    def _search(self, models: list[Contender]) -> dict[str, str]:
        """Search what was not searched yet; the reasons of failures by model."""
        for model in models:  # all before the first begins
            check_request(self._search_folder(model.name), self._request(model))
        failures = {m.name: reason for m in models if (reason := self._kept_failure(m)) is not None}
        todo = [m for m in models if m.name not in failures and not self._is_searched(m.name)]
        if models:
            self.looker.on_plan("searches", len(todo), len(models) - len(todo))
        run_tasks(
            [self._task(model, failures) for model in todo],
            n_jobs=self.plan.n_jobs,
            on_begin=lambda task: self.looker.on_begin(task.title),
        )
        return failures

    def _is_searched(self, model: str) -> bool:
        assert self.plan.budget is not None
        request = self._request(Contender(name=model, model=model))
        return is_searched(self._search_folder(model), request, self.plan.budget)

    def _request(self, model: Contender) -> dict[str, Any]:
        plan = self.plan
        n_rows = plan.rows_of(model.name)
        return search_request(self.store, model, plan.given, seed=plan.search_seed, n_rows=n_rows)

    def _task(self, model: Contender, failures: dict[str, str]) -> Task:
        title = f"search {model.name}"

        def ended(reason: str | None) -> None:
            if reason is None:
                self._failure_file(model).unlink(missing_ok=True)
            else:
                failures[model.name] = reason
                write_json(self._failure_file(model), {**self._whole_request(model), "reason": reason})
            self.looker.on_searched(title, reason)

        log = self.folder / LOGS / f"search-{model.name}.log"
        return Task(title=title, command=self._command(model), log=log, on_end=ended)

    def _command(self, model: Contender) -> list[str]:
        plan = self.plan
        assert plan.budget is not None
        options: Mapping[str, Any] = {
            "--model": model.name,
            "--out": self._search_folder(model.name),
            "--trials": plan.budget.trials,
            "--minutes": plan.budget.minutes,
            "--rows": plan.rows_of(model.name),
            "--seed": plan.search_seed,
            "--threads": plan.process_threads,
        }
        words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        words += [word for path, value in plan.given.items() for word in ("--set", f"{path}={_word(value)}")]
        return [sys.executable, "-m", "fielddep", "search", str(self.store.folder), *words]

    def _kept_failure(self, model: Contender) -> str | None:
        """Why the same search failed before, where failures are kept."""
        path = self._failure_file(model)
        if not self.plan.keep_failed or not path.is_file():
            return None
        found = json.loads(path.read_text("utf-8"))
        reason: str = found.pop("reason")
        return reason if found == self._whole_request(model) else None

    def _whole_request(self, model: Contender) -> dict[str, Any]:
        assert self.plan.budget is not None
        whole: dict[str, Any] = as_json({"request": self._request(model), "budget": asdict(self.plan.budget)})
        return whole

    def _failure_file(self, model: Contender) -> Path:
        return self.folder / SEARCHES / f"{model.name}.failed.json"

    def _search_folder(self, model: str) -> Path:
        return self.folder / SEARCHES / model


def _word(value: Any) -> str:
    """A value as `--set` reads it."""
    return "none" if value is None else json.dumps(value)
