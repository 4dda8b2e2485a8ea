"""Jobs: one search or one run of an experiment, each in its own process.

A run that failed is recorded with its reason, loses no other, and is tried again by the next call.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fielddep.config.trees import TREE_CONFIGS
from fielddep.errors import UserError
from fielddep.experiments.contenders import config_of, find_contender
from fielddep.experiments.processes import Outcome, Task, run_tasks
from fielddep.experiments.results import RunResult
from fielddep.experiments.search import search
from fielddep.experiments.trials import Budget
from fielddep.observer import Observer
from fielddep.store.store import Store
from fielddep.tables.files import write_json
from fielddep.training.fit import Trained, fit

FAILED_SUFFIX = ".failed.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one run is to do.

    Attributes:
        dataset: name of the data.
        contender: name of the model.
        seed: seed of the training.
        settings: name of the settings ("tuned", "default").
        config: nested settings that are not defaults.
        store: folder of the rows.
        sha256: which store it must be.
        result: file of the result.
        threads: CPU threads.
        device: torch device of the networks.
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

    @property
    def identity(self) -> dict[str, Any]:
        """What a result must have been made from to be that of this job."""
        return {"config": json.loads(json.dumps(self.config)), "settings": self.settings, "store": self.sha256}

    def failed(self, reason: str) -> RunResult:
        """The result of a run that came to nothing."""
        return dataclasses.replace(self._blank(), error=reason)

    def _blank(self) -> RunResult:
        return RunResult(
            dataset=self.dataset,
            model=self.contender,
            seed=self.seed,
            settings=self.settings,
            threads=self.threads,
            device="cpu" if self.contender in TREE_CONFIGS else self.device,
            commit=self.commit,
        )

    def save(self, result: RunResult) -> None:
        """Write a result and what it was made from; a failure never takes the place of a finished result."""
        path, failure = Path(self.result), self._failure_file
        before = read_saved(path)
        keeps = result.error is not None and before is not None and before[1].error is None
        content = {"made_from": self.identity, "result": json.loads(result.to_json())}
        write_json(failure if keeps else path, content)
        if not keeps:
            failure.unlink(missing_ok=True)

    def saved(self) -> RunResult | None:
        """The result that is there; None where there is none, or one of other settings or rows."""
        for path in (Path(self.result), self._failure_file):
            found = read_saved(path)
            if found is not None and found[0] == self.identity:
                return found[1]
        return None

    @property
    def _failure_file(self) -> Path:
        """Where a failure stands while a finished result, of other settings or rows, has its place."""
        return Path(self.result).with_suffix(FAILED_SUFFIX)

    def run(self) -> RunResult:
        """Train, and measure.

        Raises:
            UserError: the rows or the settings cannot be used.
        """
        return self.result_of(self.fit())

    def fit(self) -> Trained:
        """A model, trained and measured on the rows of the store."""
        own = {"train.seed": self.seed, "train.threads": self.threads, "train.device": self.device}
        config = config_of(self.config).replace(own)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return fit(_open_store(self.store, self.sha256), config)

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
        )


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """The search of a model's settings.

    Attributes:
        model: name of the model.
        store: folder of the rows.
        sha256: which store it must be.
        folder: where the search is kept.
        budget: when it ends.
        given: dotted settings that are not searched.
        seed: seed of the proposals and of every training.
        n_rows: training rows at most; None for all.
    """

    model: str
    store: str
    sha256: str
    folder: str
    budget: Budget
    given: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    n_rows: int | None = None

    def run(self) -> None:
        """Search, or resume the search in the folder, which keeps what it finds.

        Raises:
            UserError: no trial was successful, or the rows or the folder cannot be used.
        """
        search(
            _open_store(self.store, self.sha256),
            find_contender(self.model),
            self.folder,
            budget=self.budget,
            given=self.given,
            seed=self.seed,
            n_rows=self.n_rows,
        )


def _open_store(folder: str, sha256: str) -> Store:
    store = Store.open(folder)
    if store.sha256 != sha256:
        raise UserError(f"the store {folder} was replaced since the first run; start over in another folder")
    return store


def read_saved(path: Path) -> tuple[dict[str, Any], RunResult] | None:
    """What a result was made from, and the result; None where there is none, or the file is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return dict(found["made_from"]), RunResult.from_json(json.dumps(found["result"]))
    except (OSError, ValueError, KeyError, TypeError):  # UserError is a ValueError
        return None


def without_loss(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without the loss, which is one of the others."""
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


@dataclass(frozen=True, kw_only=True)
class JobRuns:
    """How the runs of an experiment are made.

    Attributes:
        logs: folder of what the processes print.
        n_jobs: processes at a time.
        keep_failed: whether runs that failed are not tried again.
        observer: notified of runs.
    """

    logs: Path
    n_jobs: int = 1
    keep_failed: bool = False
    observer: Observer = field(default_factory=Observer)

    def run(
        self, jobs: Sequence[Job], *, failures: Mapping[str, str] | None = None, what: str = "runs"
    ) -> list[RunResult]:
        """Run whatever has no result yet.

        Args:
            jobs: all runs.
            failures: why models cannot be run, by their names; what they gave before is no result of this call.
            what: what the runs are called.

        Returns:
            One result per job, in the order of the jobs.
        """
        failed = failures or {}
        results = {at: found for at, job in enumerate(jobs) if (found := self._earlier(job, failed)) is not None}
        self.observer.on_plan(what, len(jobs) - len(results), len(results))
        for at, job in enumerate(jobs):
            if at not in results and job.contender in failed:
                results[at] = job.failed(failed[job.contender])
                self._keep(job, results[at])
        todo = [at for at in range(len(jobs)) if at not in results]
        results |= zip(todo, self._run([jobs[at] for at in todo]), strict=True)
        return [results[at] for at in range(len(jobs))]

    def _earlier(self, job: Job, failed: Mapping[str, str]) -> RunResult | None:
        """The result of an earlier call, where it counts."""
        result = job.saved()
        if result is None:
            return None
        counts = job.contender not in failed if result.error is None else self.keep_failed
        return result if counts else None

    def _run(self, jobs: Sequence[Job]) -> list[RunResult]:
        def task(job: Job) -> Task[RunResult]:
            return Task(
                title=f"{job.contender} seed {job.seed}",
                call=job.run,
                log=self.logs / f"{job.contender}-{job.seed}.log",
                on_end=lambda outcome: self._keep(job, _result(job, outcome)),
            )

        outcomes = run_tasks(
            [task(job) for job in jobs],
            n_jobs=self.n_jobs,
            on_begin=lambda task: self.observer.on_job(task.title, None),
        )
        return [_result(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    def _keep(self, job: Job, result: RunResult) -> None:
        job.save(result)
        self.observer.on_job(f"{result.model} seed {result.seed}", result.job_result())


def _result(job: Job, outcome: Outcome[RunResult]) -> RunResult:
    return outcome.value or job.failed(str(outcome.failure))
