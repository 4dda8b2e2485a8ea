"""Plan of an experiment: its contenders (models and variants of models), their settings, and how they are run."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fielddep.config import MODEL_CONFIGS
from fielddep.config.settings import Config, dotted_settings, read_toml
from fielddep.errors import ConfigError, UserError
from fielddep.observer import Observer
from fielddep.training.trees import check_installed, is_installed
from fielddep.wording import did_you_mean

if TYPE_CHECKING:
    from fielddep.experiments.study import TrialRecord
    from fielddep.store.store import Store

ALL = "all"
PER_RUN = ("train.seed", "train.device", "train.threads")
"""Settings that belong to a single run; a search does not find them."""
SEARCHES, CONFIGS, RUNS, LOGS = "search", "configs", "runs", "logs"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A model, or a variant of one.

    Attributes:
        name: its name in tables and files.
        model: the model whose settings it has.
        settings: what makes it a variant; they override the settings found for the model.
        unused: settings of the model that mean nothing to the variant, so that no search looks at them.
    """

    name: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    def config(self, values: Mapping[str, Any] | None = None) -> Config:
        """The model's defaults, changed by dotted settings and then by those of the variant."""
        base = dataclasses.replace(Config(), model=MODEL_CONFIGS[self.model]())
        return base.replace({**(values or {}), **self.settings})


VARIANTS: Mapping[str, Contender] = {
    "mdl-wo-dep": Contender(
        name="mdl-wo-dep",
        model="mdl",
        settings={"model.dependencies": "none"},
        unused=("model.n_inner_steps", "model.inner_step", "model.inner_lr", "model.sparsity"),
    ),
    "mdl-global-dep": Contender(name="mdl-global-dep", model="mdl", settings={"model.dependencies": "global"}),
    "lightgbm-evidence": Contender(
        name="lightgbm-evidence", model="lightgbm", settings={"model.evidence": True, "model.categories": False}
    ),
}
"""Variants by name."""


def known_contender(name: str) -> Contender | None:
    """The contender of a name, even if its library is not installed; None for an unknown name."""
    if name in VARIANTS:
        return VARIANTS[name]
    return Contender(name=name, model=name) if name in MODEL_CONFIGS else None


def find_contender(name: str) -> Contender:
    """The contender of a name.

    Raises:
        UserError: the name is unknown; suggests the nearest.
        MissingExtraError: its library is not installed.
    """
    found = known_contender(name)
    if found is None:
        known = [*MODEL_CONFIGS, *VARIANTS]
        raise UserError(f"no model is called {name!r}; {did_you_mean(name, known, what='models')}")
    check_installed(found.model)
    return found


def find_contenders(names: str) -> tuple[Contender, ...]:
    """Contenders in a list such as "mdl,fm"; "all" stands for every model and for the installed trees.

    Raises:
        UserError: a name is unknown, or the list is empty.
    """
    chosen: list[str] = []
    for name in filter(None, map(str.strip, names.split(","))):
        chosen += [*filter(is_installed, MODEL_CONFIGS)] if name == ALL else [name]
    if not chosen:
        raise UserError(f"expected models such as mdl,fm or {ALL}, given {names!r}")
    return tuple(map(find_contender, dict.fromkeys(chosen)))


def read_settings(
    path: Path, contender: Contender, sections: Sequence[str] = ("data", "split", "model", "train")
) -> dict[str, Any]:
    """Dotted settings of some sections of a TOML file.

    Raises:
        ConfigError: the file cannot be read, or is for another model.
    """
    values = read_toml(path)
    name = values.pop("model.name", "mdl")
    if name != contender.model:
        raise ConfigError(f"expected settings of {contender.model} in {path}, given those of {name}; use another file")
    contender.config(values)  # refuses unknown settings, in the other sections too
    return {path: value for path, value in values.items() if path.split(".")[0] in sections}


def changed_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Nested settings that differ from the model's defaults, with the model's name and without those of a run."""
    defaults = dataclasses.replace(Config(), model=type(config.model)()).to_dict()
    changed = {
        section: {
            key: value
            for key, value in settings.items()
            if value != defaults[section].get(key) and f"{section}.{key}" not in PER_RUN
        }
        for section, settings in config.to_dict().items()
    }
    changed["model"] = {"name": config.model.name, **changed["model"]}
    return {section: settings for section, settings in changed.items() if settings}


def settings_toml(config: Config) -> str:
    """The same as TOML; `fielddep fit --config` reads it if it can train the model."""
    return tomli_w.dumps(changed_settings(config))


def config_of(values: Mapping[str, Mapping[str, Any]]) -> Config:
    """The settings that `changed_settings` was made from, with defaults for those of a run."""
    dotted = dotted_settings(values)
    model = dotted.pop("model.name", "mdl")
    return Contender(name=model, model=model).config(dotted)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When a search ends: after so many trials or minutes, earlier calls included, whichever comes first.

    When time is up, the running trial is cut off and counts with its lowest loss so far. If no trial is complete yet,
    it runs until its first evaluation, so there is always a result.
    """

    trials: int = 30
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.trials < 1 or (self.minutes is not None and not self.minutes > 0):
            raise UserError(
                f"expected at least one trial and more than 0 minutes, given {self.trials} and {self.minutes}"
            )

    def seconds_left(self, records: Sequence[TrialRecord]) -> float | None:
        """Seconds until time is up; None without a limit."""
        return None if self.minutes is None else self.minutes * 60 - sum(record.seconds for record in records)

    def is_spent(self, records: Sequence[TrialRecord]) -> bool:
        """Whether no further trial may start."""
        left = self.seconds_left(records)
        return len(records) >= self.trials or (left is not None and left <= 0)


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """When no further training may start: seconds since 1970, so that it means the same in every process."""

    at: float | None = None

    @classmethod
    def after(cls, minutes: float | None) -> Deadline:
        """In so many minutes from now; None for never."""
        return cls(at=None if minutes is None else time.time() + 60 * minutes)

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.at is not None and time.time() >= self.at


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is searched and run, and how.

    Attributes:
        contenders: the models.
        n_seeds: runs of each, with seeds 0, 1, ...
        budget: of each search; None: models without a file in `configs` have their defaults.
        configs: folder of known settings, `MODEL.toml`; these models are not searched.
        own_searches: whether variants are searched like models; if not, they have the settings of their model, so that
            nothing else differs.
        given: dotted settings of training for every model.
        search_rows: training rows of a search at most.
        rows_by_model: the same for single models that are too slow for so many.
        search_seed: seed of the searches.
        threads: CPU threads of each process; None: an even share of the processors.
        n_jobs: processes at a time.
        keep_failed: whether failed searches and runs are not tried again.
        minutes: time of one call, after which no training starts; a later call continues.

    Raises:
        UserError: there are no seeds or minutes, no such folder or no rows, or a setting does not suit every model.
    """

    contenders: tuple[Contender, ...]
    n_seeds: int = 5
    budget: Budget | None = field(default_factory=Budget)
    configs: Path | None = None
    own_searches: bool = True
    given: Mapping[str, Any] = field(default_factory=dict)
    search_rows: int | None = None
    rows_by_model: Mapping[str, int] = field(default_factory=dict)
    search_seed: int = 0
    threads: int | None = None
    n_jobs: int = 1
    keep_failed: bool = False
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise UserError(f"expected more than 0 minutes, given {self.minutes:g}")
        if self.n_seeds < 1:
            raise UserError(f"expected at least one seed, given {self.n_seeds}")
        if self.configs is not None and not self.configs.is_dir():
            raise UserError(f"expected a folder of settings (MODEL.toml), but {self.configs} is not a folder")
        for path in self.given:
            if path in ("train.seed", "train.threads"):
                raise UserError(f"{path} differs between runs and cannot be set; use --seeds and --threads")
            if not path.startswith("train."):
                raise UserError(f"expected settings of train, which suit every model, given {path}; use --configs")
        for n_rows in (self.search_rows, *self.rows_by_model.values()):
            if n_rows is not None and n_rows < 1:
                raise UserError(f"expected at least one row to search on, given {n_rows}; omit --rows to use all")
        for contender in self.contenders:
            contender.config(self.given)  # refuses unknown settings

    def settings_file(self, contender: Contender) -> Path | None:
        """The user's settings file: that of the variant if there is one, else that of its model."""
        if self.configs is None:
            return None
        files = (self.configs / f"{name}.toml" for name in (contender.name, contender.model))
        return next((file for file in files if file.is_file()), None)

    def searched_models(self) -> list[str]:
        """The models and variants whose settings are searched."""
        if self.budget is None:
            return []
        return list({self.search_of(c): None for c in self.contenders if self.settings_file(c) is None})

    def search_of(self, contender: Contender) -> str:
        """The model or variant whose search gives a contender its settings."""
        return contender.name if self.own_searches else contender.model

    @property
    def process_threads(self) -> int:
        """CPU threads of each process."""
        return self.threads or max(1, (os.cpu_count() or 1) // max(1, self.n_jobs))


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """What all searches and runs of an experiment share: rows and their name, folder, plan, observer and deadline."""

    dataset: str
    store: Store
    folder: Path
    plan: Plan
    observer: Observer = field(default_factory=Observer)
    deadline: Deadline = field(default_factory=Deadline)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of a contender.

    Attributes:
        config: the settings; the defaults if the search failed.
        name: "tuned" or "default".
        failure: why the search failed.
    """

    config: Config
    name: str
    failure: str | None = None
