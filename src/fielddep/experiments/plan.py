"""Plan: what a comparison compares and how, and where its files lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fielddep.errors import UserError
from fielddep.experiments.contenders import Contender
from fielddep.experiments.processes import n_threads
from fielddep.experiments.trial_loop import Budget

SEARCHES, CONFIGS, RUNS, LOGS = "search", "configs", "runs", "logs"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is compared, and how.

    Attributes:
        contenders: the models.
        n_seeds: runs of each, with the seeds from 0 on.
        budget: of the search of each model that has no settings in `configs`; None leaves them at their defaults.
        configs: folder of settings, `MODEL.toml`, that were found before.
        given: dotted settings of training that hold for every model.
        search_rows: training rows at most that a search uses.
        slow_rows: the same for single models, which are too slow for so many.
        search_seed: seed of the searches.
        threads: CPU threads of each process; None shares the processors out.
        n_jobs: processes at a time.
        keep_failed: whether what failed is left as it is.

    Raises:
        UserError: for no seeds, no such folder, no rows, or settings that cannot hold for every model.
    """

    contenders: tuple[Contender, ...]
    n_seeds: int = 5
    budget: Budget | None = field(default_factory=Budget)
    configs: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    search_rows: int | None = None
    slow_rows: Mapping[str, int] = field(default_factory=dict)
    search_seed: int = 0
    threads: int | None = None
    n_jobs: int = 1
    keep_failed: bool = False

    def __post_init__(self) -> None:
        if self.n_seeds < 1:
            raise UserError(f"a comparison needs at least one seed, given {self.n_seeds}")
        if self.configs is not None and not self.configs.is_dir():
            raise UserError(f"expected a folder of settings (MODEL.toml), there is none at {self.configs}")
        for path in self.given:
            if path in ("train.seed", "train.threads"):
                raise UserError(f"{path} differs from run to run and cannot be given; use --seeds and --threads")
            if not path.startswith("train."):
                raise UserError(f"only settings of train hold for every model, given {path}; use --configs for others")
        for n_rows in (self.search_rows, *self.slow_rows.values()):
            if n_rows is not None and n_rows < 1:
                raise UserError(f"expected at least one row to search on, given {n_rows}; for all give no --rows")
        for contender in self.contenders:
            contender.config(self.given)  # refuses what is no setting

    def settings_file(self, contender: Contender) -> Path | None:
        """The file of settings that the user gives: of the variant, else of its model."""
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
        """Training rows at most that the search of a model uses; None for all."""
        return self.slow_rows.get(model, self.search_rows)

    @property
    def process_threads(self) -> int:
        """CPU threads of each process."""
        return n_threads(self.threads, self.n_jobs)
