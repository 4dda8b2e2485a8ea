"""Trainings of an ablation: run once a seed, whichever questions they answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fielddep.data.store.store import Store
from fielddep.environment import source_version
from fielddep.experiments.ablation.plan import VARIANTS, AblationPlan
from fielddep.experiments.ablation.points import Sweep, Training, steps_training, zeta_sweep
from fielddep.experiments.ablation.results import Runs, SweepResult, finite
from fielddep.experiments.ablation.run import AblationJob
from fielddep.experiments.contenders import changed_settings, settings_toml
from fielddep.experiments.job_runs import JobRuns
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import CONFIGS, RUNS
from fielddep.experiments.tuning import Chosen
from fielddep.files import write_text

ZETA_SEEDS = 1
"""Runs of every zeta: the first seed chooses."""


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """How the trainings of an ablation are run.

    Attributes:
        dataset: what the rows are called.
        store: the rows.
        folder: folder of the ablation.
        plan: what is asked.
        base: MDL with its tuned settings.
        settings: name of those settings ("tuned", "default").
        looker: told of runs.
    """

    dataset: str
    store: Store
    folder: Path
    plan: AblationPlan
    base: Training
    settings: str
    looker: ComparisonLooker

    def run(self, sweeps: Iterable[Sweep], *, n_seeds: int | None = None, what: str = "runs") -> Runs:
        """Results by training and seed, after the runs that were not done yet.

        Args:
            sweeps: what is varied.
            n_seeds: runs of every training; None: as the plan has it.
            what: what the runs are called.
        """
        wanted: dict[str, tuple[Training, int]] = {}
        for sweep in sweeps:
            for training in sweep.trainings:
                most = wanted.get(training.name, (training, 0))[1]
                wanted[training.name] = training, max(most, n_seeds or self.plan.n_seeds(sweep.what))
        for training, _ in wanted.values():
            write_text(self.folder / CONFIGS / f"{training.name}.toml", settings_toml(training.config))
        jobs = [
            self.job(training, seed)  # seed by seed, so that an interrupted ablation has whole curves of fewer seeds
            for seed in range(max(most for _, most in wanted.values()))
            for training, most in wanted.values()
            if seed < most
        ]
        JobRuns(folder=self.folder, plan=self.plan.runs, looker=self.looker).run(jobs, what=what)
        saved = {(job.contender, job.seed): job.saved() for job in jobs}
        return {key: result for key, result in saved.items() if result is not None}

    def job(self, training: Training, seed: int) -> AblationJob:
        """One run. What is measured follows from the settings alone, so that any question can use its result."""
        is_evaluated = training.config == self._evaluated.config
        return AblationJob(
            dataset=self.dataset,
            contender=training.name,
            seed=seed,
            settings=self.settings,
            config=changed_settings(training.config),
            store=str(self.store.folder.resolve()),
            sha256=self.store.sha256,
            result=str(self.folder.resolve() / RUNS / f"{training.name}-{seed}.json"),
            threads=self.plan.runs.process_threads,
            device=training.config.train.device,
            commit=self._commit,
            inner_steps=self.plan.evaluated_steps if is_evaluated else (),
            train_rows=self.plan.train_rows,
        )

    @cached_property
    def _evaluated(self) -> Training:
        return steps_training(self.base, self.plan)

    @cached_property
    def _commit(self) -> str:
        return source_version()


def choose_zeta(trainings: Trainings, chosen: Chosen) -> tuple[SweepResult, Training]:
    """Every zeta of *global dep*, the one of the lowest validation loss as the control, and its training.

    The smallest is taken where no run was successful, so that the reason is told with the variants.
    """
    sweep = zeta_sweep(chosen.config, trainings.plan)
    runs = trainings.run([sweep], n_seeds=ZETA_SEEDS, what="runs that choose zeta")
    result = SweepResult(dataset=trainings.dataset, sweep=sweep, runs=runs, n_seeds=ZETA_SEEDS)
    losses = {
        point.value: loss
        for point in sweep.points
        if result.metrics
        for loss in finite(result.values(point.value, "validation", result.metrics[0]))
    }
    best = min(losses, key=lambda value: losses[value], default=sweep.points[0].value)
    marked = dataclasses.replace(sweep, what=VARIANTS, control=best, control_is="chosen")
    training = next(point.training for point in sweep.points if point.value == best)
    return dataclasses.replace(result, sweep=marked), training
