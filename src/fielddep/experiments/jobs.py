"""Jobs: the runs of an experiment, each in its own process.

A run that failed is recorded with its reason, loses no other, and is tried again by the next call.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from fielddep.config import TREES
from fielddep.experiments.folder import reopen_store
from fielddep.experiments.plan import LOGS, RUNS, ModelSettings, Workspace, changed_settings, config_of
from fielddep.experiments.processes import Outcome, Task, run_tasks
from fielddep.experiments.results import RunResult
from fielddep.experiments.time_left import TimeLeft
from fielddep.tables.files import write_json
from fielddep.training.fit import Trained, fit
from fielddep.training.trees import TrainedTrees

FAILED_SUFFIX = ".failed.json"

SomeJob = TypeVar("SomeJob", bound="Job")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: a model is trained with one seed and measured.

    Attributes:
        contender: name of the model.
        settings: name of the settings ("tuned", "default").
        config: nested settings that are not defaults.
        store: folder of the rows.
        sha256: checksum of that store; another one is refused.
        result: file of the result.
        commit: version of the source.
    """

    dataset: str
    contender: str
    seed: int
    settings: str
    config: Mapping[str, Mapping[str, Any]]
    store: str
    sha256: str
    result: str
    threads: int | None = None
    device: str = "cpu"
    commit: str | None = None

    @classmethod
    def of(cls: type[SomeJob], work: Workspace, name: str, seed: int, chosen: ModelSettings, **others: Any) -> SomeJob:
        """The run of a named model in the folder of an experiment."""
        return cls(
            dataset=work.dataset,
            contender=name,
            seed=seed,
            settings=chosen.name,
            config=changed_settings(chosen.config),
            store=str(work.store.folder.resolve()),
            sha256=work.store.sha256,
            result=str(work.folder.resolve() / RUNS / f"{name}-{seed}.json"),
            threads=work.plan.process_threads,
            device=chosen.config.train.device,
            **others,
        )

    @property
    def title(self) -> str:
        """What observers see."""
        return f"{self.contender} seed {self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What a saved result must have been made from to count for this job."""
        return {"config": json.loads(json.dumps(self.config)), "settings": self.settings, "store": self.sha256}

    def failed(self, reason: str) -> RunResult:
        """The result of a run that failed."""
        return dataclasses.replace(self._blank(), error=reason)

    def _blank(self) -> RunResult:
        return RunResult(
            dataset=self.dataset,
            model=self.contender,
            seed=self.seed,
            settings=self.settings,
            threads=self.threads,
            device="cpu" if self.contender in TREES else self.device,
            commit=self.commit,
        )

    def save(self, result: RunResult) -> None:
        """Write a result and what it was made from; a failure never replaces a finished result."""
        path, failure = Path(self.result), self._failure_file
        before = read_saved(path)
        keeps = result.error is not None and before is not None and before[1].error is None
        content = {"made_from": self.identity, "result": json.loads(result.to_json())}
        write_json(failure if keeps else path, content)
        if not keeps:
            failure.unlink(missing_ok=True)

    def saved(self) -> RunResult | None:
        """The saved result; None if there is none, or one of other settings or rows."""
        for path in (Path(self.result), self._failure_file):
            found = read_saved(path)
            if found is not None and found[0] == self.identity:
                return found[1]
        return None

    @property
    def _failure_file(self) -> Path:
        """Holds a failure while the file of the result has a finished one, of other settings or rows."""
        return Path(self.result).with_suffix(FAILED_SUFFIX)

    def run(self) -> RunResult:
        """Train and measure.

        Raises:
            UserError: the rows or the settings cannot be used.
        """
        own = {"train.seed": self.seed, "train.threads": self.threads, "train.device": self.device}
        config = config_of(self.config).replace(own)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return self.result_of(fit(reopen_store(self.store, self.sha256), config))

    def result_of(self, trained: Trained) -> RunResult:
        """Metrics on validation and test rows, and what the run cost."""
        test = trained.measured["test"]
        return dataclasses.replace(
            self._blank(),
            metrics={name: without_loss(part.metrics) for name, part in trained.measured.items()},
            n_parameters=trained.model.n_parameters,
            train_seconds=trained.seconds,
            rows_per_s=trained.rows_per_s,
            peak_mb=peak_mb(),
            predict_seconds=test.seconds,
            predict_rows_per_s=test.n_rows / test.seconds,
            n_trees=trained.model.n_trained if isinstance(trained.model, TrainedTrees) else None,
        )


def read_saved(path: Path) -> tuple[dict[str, Any], RunResult] | None:
    """What a result was made from, and the result; None if the file is absent or damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return dict(found["made_from"]), RunResult.from_json(json.dumps(found["result"]))
    except (OSError, ValueError, KeyError, TypeError):  # UserError is a ValueError
        return None


def without_loss(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without the loss, which repeats one of the others."""
    return {name: value for name, value in metrics.items() if name != "loss"}


def peak_mb() -> float:
    """Largest resident memory of this process so far, in millions of bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Of this program alone; `getrusage` includes the process that started it.
        lines = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def run_jobs(
    jobs: Sequence[Job], work: Workspace, *, failures: Mapping[str, str] | None = None, what: str = "runs"
) -> list[RunResult]:
    """Run all jobs that have no result yet; those that the deadline prevents have none.

    Args:
        jobs: all runs; the results have the same order.
        work: the experiment.
        failures: why models cannot be run, by name; their earlier results do not count.
        what: what the observer calls the runs.
    """
    failed, keep_failed = failures or {}, work.plan.keep_failed
    results = {at: found for at, job in enumerate(jobs) if (found := _earlier(job, failed, keep_failed)) is not None}
    work.observer.on_plan(what, len(jobs) - len(results), len(results))
    for at, job in enumerate(jobs):
        if at not in results and job.contender in failed:
            results[at] = job.failed(failed[job.contender])
            _keep(job, results[at], work)
    todo = [at for at in range(len(jobs)) if at not in results]
    models = {jobs[at].title: jobs[at].contender for at in todo}
    left = TimeLeft(models, n_jobs=work.plan.n_jobs, tell=work.observer.on_estimate)

    def begin(task: Task[RunResult]) -> None:
        work.observer.on_job(task.title, None)
        left.begin(task.title)

    outcomes = run_tasks(
        [_task(jobs[at], work, left) for at in todo],
        n_jobs=work.plan.n_jobs,
        on_begin=begin,
        may_start=lambda: not work.deadline.is_over(),
    )
    ended = [(at, outcome) for at, outcome in zip(todo, outcomes, strict=True) if outcome.started]
    results |= {at: _result(jobs[at], outcome) for at, outcome in ended}
    return [results[at] for at in range(len(jobs)) if at in results]


def _earlier(job: Job, failed: Mapping[str, str], keep_failed: bool) -> RunResult | None:
    """The result of an earlier call, if it counts."""
    result = job.saved()
    if result is None:
        return None
    counts = job.contender not in failed if result.error is None else keep_failed
    return result if counts else None


def _task(job: Job, work: Workspace, left: TimeLeft) -> Task[RunResult]:
    def ended(outcome: Outcome[RunResult]) -> None:
        _keep(job, _result(job, outcome), work)
        left.end(job.title, counts=outcome.failure is None)

    return Task(title=job.title, call=job.run, log=work.folder / LOGS / f"{job.contender}-{job.seed}.log", on_end=ended)


def _keep(job: Job, result: RunResult, work: Workspace) -> None:
    job.save(result)
    work.observer.on_job(job.title, result.job_result())


def _result(job: Job, outcome: Outcome[RunResult]) -> RunResult:
    return outcome.value or job.failed(str(outcome.failure))
