"""Runs of an experiment: what is not done yet, each in a process of its own.

A run that failed is recorded with its reason, loses no other, and is tried again by the next call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import LOGS, Plan
from fielddep.experiments.processes import Task, run_tasks
from fielddep.experiments.single_run import Job, command


@dataclass(frozen=True, kw_only=True)
class JobRuns:
    """How the runs of an experiment are made.

    Attributes:
        folder: folder of the experiment.
        plan: how many at a time, and whether failed ones are kept.
        looker: told of runs.
    """

    folder: Path
    plan: Plan
    looker: ComparisonLooker = field(default_factory=ComparisonLooker)

    def run(self, jobs: Sequence[Job], *, failures: Mapping[str, str] | None = None, what: str = "runs") -> None:
        """Run whatever has no result yet.

        Args:
            jobs: all runs.
            failures: why contenders cannot be run, by their names.
            what: what the runs are called.
        """
        failed = failures or {}
        todo = [job for job in jobs if not self._is_done(job)]
        self.looker.on_plan(what, len(todo), len(jobs) - len(todo))
        for job in todo:
            if job.contender in failed:
                self._end(job, failed[job.contender])
        run_tasks(
            [self._task(job) for job in todo if job.contender not in failed],
            n_jobs=self.plan.n_jobs,
            on_begin=lambda task: self.looker.on_begin(task.title),
        )

    def _is_done(self, job: Job) -> bool:
        result = job.saved()
        return result is not None and (result.error is None or self.plan.keep_failed)

    def _task(self, job: Job) -> Task:
        def ended(reason: str | None) -> None:
            self._end(job, reason if job.saved() is None or reason is not None else None)

        log = self.folder / LOGS / f"{job.contender}-{job.seed}.log"
        return Task(title=f"{job.contender} seed {job.seed}", command=command(job), log=log, on_end=ended)

    def _end(self, job: Job, reason: str | None) -> None:
        """Tell of a run that is over; one that left no result of its own is saved with the reason."""
        if reason is not None:
            job.save(job.failed(reason))
        result = job.saved()
        assert result is not None
        self.looker.on_run(result)
