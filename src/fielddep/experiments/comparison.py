"""Comparison: every model with its tuned settings and several seeds on the same rows, each run in its own process.

    comparison.json     which rows are compared
    search/MODEL/       the search of a model's settings
    configs/MODEL.toml  the settings that it was run with
    runs/MODEL-N.json   what seed N gave, and what it was made from
    logs/               what the processes printed
    results.csv         all figures; comparison.* and dunnett-METRIC.* are the tables made from them

What is done is kept: a comparison that was interrupted goes on where it stopped. A run that failed is recorded with its
reason, loses no other, and is tried again by the next call. Models that an earlier call ran and this one does not name
stay in results and tables as long as this call would give them the same settings; the others are named in a note.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fielddep.data.store.store import Store
from fielddep.environment import source_version
from fielddep.errors import SplitError, UserError
from fielddep.experiments.comparison_files import write_tables
from fielddep.experiments.contenders import Contender, changed_settings, known_contender, settings_toml
from fielddep.experiments.experiment_folder import COMPARISON, mark_folder, working_in
from fielddep.experiments.job_runs import JobRuns
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import CONFIGS, RUNS, Plan
from fielddep.experiments.results import RunResult
from fielddep.experiments.single_run import FAILED_SUFFIX, Job, read_saved
from fielddep.experiments.tables import ComparisonTable
from fielddep.experiments.tuning import Chosen, Tuning
from fielddep.files import write_text

CONTROL = "mdl"
"""What models are tested against where no other is named."""

__all__ = ["CONTROL", "Comparison", "ComparisonLooker", "Plan", "compare"]


def compare(
    dataset: str,
    store: Store,
    folder: str | Path,
    plan: Plan,
    *,
    control: str | None = None,
    looker: ComparisonLooker | None = None,
) -> ComparisonTable:
    """Search, run and test whatever was not done yet, and write the tables.

    Args:
        dataset: what the rows are called.
        store: the rows.
        folder: where everything is kept.
        plan: what is compared.
        control: the model that all others are tested against, one of the plan or of an earlier call; None for MDL,
            and without MDL there are no tests.
        looker: told of searches and runs.

    Raises:
        UserError: the folder holds something else, another process works in it, the store has no test rows, the
            control is none of the models, or settings cannot be read.
    """
    check_control(control, Path(folder), plan)
    whole = Comparison(
        dataset=dataset, store=store, folder=Path(folder), plan=plan, looker=looker or ComparisonLooker()
    )
    with working_in(Path(folder), COMPARISON):
        results = whole.run()
        table = ComparisonTable.of(results, control=control or CONTROL)
        table = dataclasses.replace(table, notes=(*table.notes, *whole.left_out(results)))
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
        """All results, model by model, after whatever was not done yet; then those of other models of before."""
        if not self.store.n_rows_of["test"]:
            raise SplitError(
                f"a comparison measures on test rows, {self.store.folder} has none; encode anew with split.test above 0"
            )
        mark_folder(self.folder, self.dataset, self.store.sha256, COMPARISON)
        tuning = Tuning(store=self.store, folder=self.folder, plan=self.plan, looker=self.looker)
        chosen = tuning.run()
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
        return [*sorted(results, key=lambda result: names.index(result.model)), *self._of_before(tuning)]

    def left_out(self, results: Iterable[RunResult]) -> list[str]:
        """Which models of before are not among the results, and why."""
        shown = {result.model for result in results}
        names = [name for name in finished_models(self.folder) if name not in shown]
        if not names:
            return []
        return [f"not shown: {', '.join(names)}, whose runs in {RUNS}/ are of other settings, or of another budget"]

    def _of_before(self, tuning: Tuning) -> list[RunResult]:
        """Finished runs of models that are not asked for now, with the settings that this call would give them."""
        asked = {contender.name for contender in self.plan.contenders}
        others = [known_contender(name) for name in finished_models(self.folder) if name not in asked]
        settled = [(c, chosen) for c in others if c is not None and (chosen := tuning.settled(c)) is not None]
        jobs = (
            self._job(contender, seed, chosen, commit="")
            for contender, chosen in settled
            for seed in range(self.plan.n_seeds)
        )
        return [result for job in jobs if (result := job.saved()) is not None and result.error is None]

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


def check_control(control: str | None, folder: Path, plan: Plan) -> None:
    """Refuse a control that is neither among the models nor among those of an earlier call.

    Raises:
        UserError: names the models.
    """
    names = compared_models(folder, plan)
    if control is not None and control not in names:
        raise UserError(
            f"expected a control among the models ({', '.join(names)}), given {control!r}; add it to --models, or name "
            "another with --control"
        )


def compared_models(folder: Path, plan: Plan) -> list[str]:
    """The models of a plan, and those of which the folder has finished runs."""
    return list(dict.fromkeys([*(contender.name for contender in plan.contenders), *finished_models(folder)]))


def finished_models(folder: Path) -> list[str]:
    """Models of which the folder of a comparison has finished runs."""
    files = sorted(file for file in folder.glob(f"{RUNS}/*.json") if not file.name.endswith(FAILED_SUFFIX))
    results = [found[1] for file in files if (found := read_saved(file)) is not None]
    return list(dict.fromkeys(result.model for result in results if result.error is None))
