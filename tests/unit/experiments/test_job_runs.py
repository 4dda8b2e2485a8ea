"""Runs of an experiment: which are done, what a failure leaves alone, and what is told of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fielddep.experiments import job_runs
from fielddep.experiments.contenders import find_contenders
from fielddep.experiments.job_runs import NO_RESULT, JobRuns
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import Plan
from fielddep.experiments.processes import Task
from fielddep.experiments.results import RunResult
from fielddep.experiments.single_run import Job


def job_of(folder: Path, **config: Any) -> Job:
    return Job(
        dataset="shop",
        contender="fm",
        seed=0,
        settings="tuned",
        config={"model": {"name": "fm", **config}},
        store="rows",
        sha256="abc",
        result=str(folder / "runs" / "fm-0.json"),
    )


def finished(job: Job, auc: float = 0.9) -> RunResult:
    return dataclasses.replace(job.failed(""), error=None, metrics={"test": {"auc": auc}})


class Told(ComparisonLooker):
    """Keeps the results it is told of."""

    def __init__(self) -> None:
        self.results: list[RunResult] = []

    def on_run(self, result: RunResult) -> None:
        self.results.append(result)


def run(
    folder: Path,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    *,
    process: Callable[[], str | None] = lambda: None,
    failures: dict[str, str] | None = None,
) -> tuple[list[RunResult], list[RunResult]]:
    """Results, and what was told, of a run whose process is `process`: it tells how it ended."""

    def run_tasks(tasks: Iterable[Task], **_: Any) -> None:
        for task in tasks:
            task.on_end(process())

    monkeypatch.setattr(job_runs, "run_tasks", run_tasks)
    told = Told()
    runs = JobRuns(folder=folder, plan=Plan(contenders=find_contenders("fm")), looker=told)
    return runs.run([job], failures=failures), told.results


def test_a_failure_leaves_a_finished_result_of_other_settings_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = job_of(tmp_path, d_embed=7), job_of(tmp_path, d_embed=8)
    old.save(finished(old))
    results, told = run(tmp_path, new, monkeypatch, process=lambda: "no memory")
    assert old.saved() == finished(old)
    assert [result.error for result in (*results, *told)] == ["no memory", "no memory"]
    saved = new.saved()
    assert saved is not None
    assert saved.error == "no memory"
    new.save(finished(new, 0.8))
    assert (old.saved(), new.saved()) == (None, finished(new, 0.8))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["fm-0.json"]


def test_a_failed_search_is_told_and_leaves_equal_runs_of_before_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    job.save(finished(job))
    results, told = run(tmp_path, job, monkeypatch, failures={"fm": "the search failed"})
    assert [result.error for result in (*results, *told)] == ["the search failed"] * 2
    assert job.saved() == finished(job)
    assert run(tmp_path, job, monkeypatch)[0] == [finished(job)]


def test_a_process_that_left_no_result_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, told = run(tmp_path, job_of(tmp_path), monkeypatch)
    assert [result.error for result in (*results, *told)] == [NO_RESULT, NO_RESULT]


def test_a_whole_result_counts_however_its_process_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path)

    def process() -> str:
        job.save(finished(job))
        return "the process was killed (SIGSEGV)"

    assert run(tmp_path, job, monkeypatch, process=process) == ([finished(job)], [finished(job)])
