"""Runs of an experiment: which are run, what a failure leaves alone, and what observers see."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fielddep.experiments import jobs as jobs_module
from fielddep.experiments.jobs import Job, run_jobs
from fielddep.experiments.plan import ModelSettings, Plan, Workspace, find_contender, find_contenders
from fielddep.experiments.processes import Outcome, Task
from fielddep.experiments.results import RunResult
from fielddep.observer import JobResult, Observer
from tests.conftest import quick_config, small_frame
from tests.stores import write_store


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


def work_of(folder: Path, *, observer: Observer | None = None, keep_failed: bool = False) -> Workspace:
    """An experiment whose rows are not needed."""
    plan = Plan(contenders=find_contenders("fm"), keep_failed=keep_failed)
    store: Any = None
    return Workspace(dataset="shop", store=store, folder=folder, plan=plan, observer=observer or Observer())


def finished(job: Job, auc: float = 0.9) -> RunResult:
    return dataclasses.replace(job.failed(""), error=None, metrics={"test": {"auc": auc}})


class Kept(Observer):
    """Keeps the results it is told of."""

    def __init__(self) -> None:
        self.results: list[JobResult | None] = []

    def on_job(self, title: str, result: JobResult | None) -> None:
        assert title == "fm seed 0"
        self.results.append(result)


def run(
    folder: Path,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    *,
    outcome: Outcome[RunResult] | None = None,
    failures: dict[str, str] | None = None,
    keep_failed: bool = False,
) -> tuple[list[RunResult], list[JobResult | None]]:
    """Results, and what was told, of a run whose process has this outcome; None: it must not be started."""

    def run_tasks(tasks: Sequence[Task[RunResult]], **_: Any) -> list[Outcome[RunResult]]:
        assert (outcome is None) == (not tasks)
        for task in tasks:
            assert outcome is not None
            task.on_end(outcome)
        return [outcome for _ in tasks if outcome is not None]

    monkeypatch.setattr(jobs_module, "run_tasks", run_tasks)
    told = Kept()
    work = work_of(folder, observer=told, keep_failed=keep_failed)
    return run_jobs([job], work, failures=failures), told.results


def test_a_failure_leaves_a_finished_result_of_other_settings_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = job_of(tmp_path, d_embed=7), job_of(tmp_path, d_embed=8)
    old.save(finished(old))
    results, told = run(tmp_path, new, monkeypatch, outcome=Outcome(failure="no memory"))
    assert old.saved() == finished(old)
    assert [result.error for result in results] == ["no memory"]
    assert told == [JobResult(state="failed", reason="no memory")]
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
    assert [result.error for result in results] == ["the search failed"]
    assert told == [JobResult(state="failed", reason="the search failed")]
    assert job.saved() == finished(job)
    assert run(tmp_path, job, monkeypatch)[0] == [finished(job)]


def test_a_result_is_returned_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path)
    found = run(tmp_path, job, monkeypatch, outcome=Outcome(value=finished(job)))
    assert found == ([finished(job)], [JobResult(state="complete", metrics={"auc": 0.9})])
    assert job.saved() == finished(job)
    assert run(tmp_path, job, monkeypatch) == ([finished(job)], [])


def test_a_failed_run_is_tried_again_unless_failures_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path)
    run(tmp_path, job, monkeypatch, outcome=Outcome(failure="no memory"))
    [kept], _ = run(tmp_path, job, monkeypatch, keep_failed=True)
    assert kept.error == "no memory"
    assert run(tmp_path, job, monkeypatch, outcome=Outcome(value=finished(job)))[0] == [finished(job)]


def test_runs_keep_their_order_whichever_were_done_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        dataclasses.replace(job_of(tmp_path), seed=seed, result=str(tmp_path / f"{seed}.json")) for seed in range(4)
    ]
    jobs[1].save(finished(jobs[1]))

    def run_tasks(tasks: Sequence[Task[RunResult]], **_: Any) -> list[Outcome[RunResult]]:
        return [Outcome(value=finished(jobs[seed])) for seed in (0, 2, 3)]

    monkeypatch.setattr(jobs_module, "run_tasks", run_tasks)
    assert [result.seed for result in run_jobs(jobs, work_of(tmp_path))] == [0, 1, 2, 3]


def job_in(folder: Path, **settings: object) -> Job:
    store = write_store(folder / "rows", small_frame(), quick_config(data__crosses="none"))
    work = Workspace(dataset="shop", store=store, folder=folder, plan=Plan(contenders=find_contenders("fm")))
    chosen = ModelSettings(config=find_contender("fm").config(settings), name="tuned")
    return Job.of(work, "fm", 3, chosen, commit="abc")


def test_a_job_has_the_settings_seed_and_device(tmp_path: Path) -> None:
    job = job_in(tmp_path, **{"model.d_embed": 7, "train.device": "cuda"})
    assert (job.contender, job.seed, job.settings, job.device) == ("fm", 3, "tuned", "cuda")
    assert job.config == {"model": {"name": "fm", "d_embed": 7}}
    result = job.failed("no memory")
    assert (result.threads, result.device) == (job.threads, "cuda")
    assert dataclasses.replace(job, contender="lightgbm").failed("no memory").device == "cpu"


def test_a_result_counts_only_for_what_it_was_made_from(tmp_path: Path) -> None:
    job = job_in(tmp_path, **{"model.d_embed": 7})
    result = RunResult(dataset="shop", model="fm", seed=3, settings="tuned", metrics={"test": {"auc": 0.5}})
    job.save(result)
    assert job.saved() == result
    path = Path(job.result)
    path.write_text(path.read_text().replace('"d_embed": 7', '"d_embed": 8'))
    assert job.saved() is None
    path.write_text("{")
    assert job.saved() is None
