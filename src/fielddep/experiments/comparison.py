"""Comparison: every model with its tuned settings and several seeds on the same rows, each run in its own process.

    comparison.json     which rows are compared
    search/MODEL/       the search of a model's settings
    configs/MODEL.toml  the settings that it was run with
    runs/MODEL-N.json   what seed N gave, and what it was made from
    logs/               what the processes printed
    results.csv         all figures; comparison.* and dunnett-METRIC.* are the tables made from them

What is done is kept: a comparison that was interrupted goes on where it stopped. A run that failed is recorded with its
reason, loses no other, and is tried again by the next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fielddep.data.store.store import Store
from fielddep.environment import source_version
from fielddep.errors import SplitError
from fielddep.experiments.comparison_files import write_tables
from fielddep.experiments.contenders import Contender, changed_settings, settings_toml
from fielddep.experiments.experiment_folder import COMPARISON, mark_folder, working_in
from fielddep.experiments.job_runs import JobRuns
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import CONFIGS, RUNS, Plan
from fielddep.experiments.results import RunResult
from fielddep.experiments.single_run import Job
from fielddep.experiments.tables import ComparisonTable
from fielddep.experiments.tuning import Chosen, Tuning
from fielddep.files import write_text

__all__ = ["Comparison", "ComparisonLooker", "Plan", "compare"]


def compare(
    dataset: str,
    store: Store,
    folder: str | Path,
    plan: Plan,
    *,
    control: str = "mdl",
    looker: ComparisonLooker | None = None,
) -> ComparisonTable:
    """Search, run and test whatever was not done yet, and write the tables.

    Args:
        dataset: what the rows are called.
        store: the rows.
        folder: where everything is kept.
        plan: what is compared.
        control: the model that all others are tested against.
        looker: told of searches and runs.

    Raises:
        UserError: the folder holds something else, another process works in it, the store has no test rows, or
            settings cannot be read.
    """
    whole = Comparison(
        dataset=dataset, store=store, folder=Path(folder), plan=plan, looker=looker or ComparisonLooker()
    )
    with working_in(Path(folder), COMPARISON):
        results = whole.run()
        table = ComparisonTable.of(results, control=control)
        write_tables(Path(folder), results, table, plan)
    return table


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The searches and runs of a comparison.

    Attributes:
        dataset: what the rows are called.
        store: the rows.
        folder: where everything is kept.
        plan: what is compared.
        looker: told of searches and runs.
    """

    dataset: str
    store: Store
    folder: Path
    plan: Plan
    looker: ComparisonLooker = field(default_factory=ComparisonLooker)

    def run(self) -> list[RunResult]:
        """All results, model by model, after whatever was not done yet."""
        if not self.store.n_rows_of["test"]:
            raise SplitError(
                f"a comparison measures on test rows, {self.store.folder} has none; encode anew with split.test above 0"
            )
        mark_folder(self.folder, self.dataset, self.store.sha256, COMPARISON)
        chosen = Tuning(store=self.store, folder=self.folder, plan=self.plan, looker=self.looker).run()
        for name, settings in chosen.items():
            if settings.failure is not None:  # what was run before keeps its file
                continue
            write_text(self.folder / CONFIGS / f"{name}.toml", settings_toml(settings.config))
        jobs = self._jobs(chosen)
        failures = {
            name: f"the search of its settings failed: {settings.failure}"
            for name, settings in chosen.items()
            if settings.failure is not None
        }
        results = JobRuns(folder=self.folder, plan=self.plan, looker=self.looker).run(jobs, failures=failures)
        names = list(chosen)
        return sorted(results, key=lambda result: names.index(result.model))

    def _jobs(self, chosen: Mapping[str, Chosen]) -> list[Job]:
        """Seed by seed, so that an interrupted comparison has whole tables of fewer seeds."""
        commit = source_version()
        return [
            self._job(contender, seed, chosen[contender.name], commit)
            for seed in range(self.plan.n_seeds)
            for contender in self.plan.contenders
        ]

    def _job(self, contender: Contender, seed: int, chosen: Chosen, commit: str) -> Job:
        return Job(
            dataset=self.dataset,
            contender=contender.name,
            seed=seed,
            settings=chosen.name,
            config=changed_settings(chosen.config),
            store=str(self.store.folder.resolve()),
            sha256=self.store.sha256,
            result=str(self.folder.resolve() / RUNS / f"{contender.name}-{seed}.json"),
            threads=self.plan.process_threads,
            device=chosen.config.train.device,
            commit=commit,
        )
