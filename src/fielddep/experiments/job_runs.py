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
from fielddep.experiments.results import RunResult
from fielddep.experiments.single_run import Job, command

NO_RESULT = "the run ended and left no result; try it again"


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

    def run(
        self, jobs: Sequence[Job], *, failures: Mapping[str, str] | None = None, what: str = "runs"
    ) -> list[RunResult]:
        """Run whatever has no result yet; the results of all jobs.

        Args:
            jobs: all runs.
            failures: why contenders cannot be run, by their names; what they gave before is no result of this call.
            what: what the runs are called.
        """
        failed = failures or {}
        todo = [job for job in jobs if not self._is_done(job, job.contender in failed)]
        self.looker.on_plan(what, len(todo), len(jobs) - len(todo))
        for job in todo:
            if job.contender in failed:
                self._fail(job, failed[job.contender])
        run_tasks(
            [self._task(job) for job in todo if job.contender not in failed],
            n_jobs=self.plan.n_jobs,
            on_begin=lambda task: self.looker.on_begin(task.title),
        )
        return [self._result(job, failed.get(job.contender)) for job in jobs]

    def _is_done(self, job: Job, cannot_run: bool) -> bool:
        result = job.saved()
        if result is None:
            return False
        return not cannot_run if result.error is None else self.plan.keep_failed

    def _result(self, job: Job, failure: str | None) -> RunResult:
        if failure is not None:
            return job.failed(failure)
        return job.saved() or job.failed(NO_RESULT)

    def _task(self, job: Job) -> Task:
        def ended(reason: str | None) -> None:
            result = job.saved()
            if result is not None and (reason is None or result.error is None):
                self.looker.on_run(result)  # a result that is whole counts, however its process ended
            else:
                self._fail(job, reason or NO_RESULT)

        log = self.folder / LOGS / f"{job.contender}-{job.seed}.log"
        return Task(title=f"{job.contender} seed {job.seed}", command=command(job), log=log, on_end=ended)

    def _fail(self, job: Job, reason: str) -> None:
        """Record why a run came to nothing, and tell of it."""
        result = job.failed(reason)
        job.save(result)
        self.looker.on_run(result)
