"""How long an experiment still takes, and what happens when its time is up."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from fielddep.cli.console import console
from fielddep.cli.progress import ProgressBar
from fielddep.errors import UserError
from fielddep.experiments import jobs as jobs_module
from fielddep.experiments import search as search_module
from fielddep.experiments.compare import compare
from fielddep.experiments.jobs import Job
from fielddep.experiments.plan import Budget, Contender, Deadline, Plan, find_contenders
from fielddep.experiments.processes import Outcome, Task, run_tasks
from fielddep.experiments.results import RunResult
from fielddep.experiments.search import SUMMARY, search
from fielddep.experiments.tables import ComparisonTable
from fielddep.experiments.time_left import TimeLeft
from fielddep.observer import Observer
from fielddep.store.store import Store
from tests.conftest import quick_config, small_frame
from tests.experiments.runs import run_here
from tests.helpers import raises
from tests.stores import write_store

# --- the estimate ---------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(models: list[str], n_seeds: int, n_jobs: int = 1) -> tuple[TimeLeft, Clock, list[float]]:
    clock, told = Clock(), list[float]()
    runs = {f"{model} {seed}": model for seed in range(n_seeds) for model in models}
    return TimeLeft(runs, n_jobs=n_jobs, tell=told.append, clock=clock), clock, told


def take(left: TimeLeft, clock: Clock, title: str, seconds: float, *, counts: bool = True) -> None:
    left.begin(title)
    clock.now += seconds
    left.end(title, counts=counts)


@pytest.mark.parametrize(("n_jobs", "expected"), [(1, 2 * (10 + 100)), (2, 10 + 100)])
def test_every_model_takes_as_long_as_before(n_jobs: int, expected: float) -> None:
    left, clock, told = watched(["fm", "mdl"], 3, n_jobs)
    take(left, clock, "fm 0", 10)
    assert told == []
    take(left, clock, "mdl 0", 100)
    assert told == [expected]
    take(left, clock, "fm 1", 50)
    assert told == [expected]  # once
    assert left.seconds() == (100 + 30 + 100) / min(n_jobs, 3)


def test_a_model_without_a_run_takes_the_mean() -> None:
    left, clock, told = watched(["a", "b", "c", "d", "e", "f"], 1)
    take(left, clock, "a 0", 10)
    take(left, clock, "b 0", 30)
    assert told == [4 * 20]


def test_failures_do_not_count() -> None:
    left, clock, told = watched(["fm", "mdl"], 2)
    take(left, clock, "fm 0", 1, counts=False)
    take(left, clock, "mdl 0", 40)
    assert told == [80]


def test_nothing_is_told_of_the_last_run() -> None:
    left, clock, told = watched(["fm"], 1)
    take(left, clock, "fm 0", 10)
    assert told == []


# --- the deadline ---------------------------------------------------------------------------------------------


def test_no_task_starts_after_the_deadline(tmp_path: Path) -> None:
    begun: list[str] = []
    tasks = [Task(title=name, call=dict, log=tmp_path / name) for name in "abc"]
    found = run_tasks(tasks, on_begin=lambda task: begun.append(task.title), may_start=lambda: not begun)
    assert begun == ["a"]
    assert found == [Outcome(value={}), Outcome(started=False), Outcome(started=False)]


def test_a_deadline_is_over_after_its_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    deadline = Deadline.after(2)
    assert not deadline.is_over()
    monkeypatch.setattr(time, "time", lambda: now + 121)
    assert deadline.is_over()
    assert not Deadline.after(None).is_over()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("rows") / "store", small_frame(), quick_config(data__crosses="none"))


class Estimates(Observer):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_estimate(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs as they go; each takes a minute of a clock that only they move."""
    names: list[str] = []
    now = time.time()

    def run(job: Job) -> RunResult:
        names.append(f"{job.contender}-{job.seed}")
        return dataclasses.replace(job.failed(""), error=None, metrics={"test": {"auc": 0.7 + 0.01 * job.seed}})

    monkeypatch.setattr(Job, "run", run)
    monkeypatch.setattr(jobs_module, "run_tasks", run_here)
    monkeypatch.setattr(time, "time", lambda: now + 60 * len(names))
    return names


def call(store: Store, folder: Path, observer: Observer | None = None, **settings: Any) -> ComparisonTable:
    plan = Plan(contenders=find_contenders("lr,fm"), n_seeds=3, budget=None, **settings)
    return compare("shop", store, folder, plan, control="lr", observer=observer)


def test_finished_runs_are_reported_and_the_rest_is_named(store: Store, tmp_path: Path, ran: list[str]) -> None:
    table = call(store, tmp_path, minutes=3)
    assert ran == ["lr-0", "fm-0", "lr-1"]
    assert {row.name: row.n_finished for row in table.rows} == {"fm": 1, "lr": 2}
    assert not any(row.failures for row in table.rows)
    [note] = [note for note in table.notes if "not run" in note]
    assert "lr (seed 2)" in note
    assert "fm (seed 1, 2)" in note
    assert note in (tmp_path / "comparison.md").read_text()
    later = call(store, tmp_path)
    assert ran == ["lr-0", "fm-0", "lr-1", "fm-1", "lr-2", "fm-2"]
    assert not any("not run" in note for note in later.notes)


def test_the_rest_is_estimated_once(store: Store, tmp_path: Path, ran: list[str]) -> None:
    watch = Estimates()
    call(store, tmp_path, watch)
    assert len(watch.seconds) == 1
    call(store, tmp_path, watch)  # nothing to do
    assert len(watch.seconds) == 1


def test_time_for_no_run_at_all(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadline, "is_over", lambda self: self.at is not None)
    with raises(UserError, "no run", "--minutes 0.5"):
        call(store, tmp_path, minutes=0.5)
    with raises(UserError, "minutes", "0"):
        call(store, tmp_path, minutes=0)


def test_a_search_that_is_cut_off_is_resumed(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("optuna")

    class Late(Deadline):
        def is_over(self) -> bool:
            return len(trials) >= 1

    trials: list[str] = []

    class Watch(Observer):
        def on_job(self, title: str, result: object) -> None:
            if result is not None:
                trials.append(title)

    contender, budget, fast = Contender(name="lr", model="lr"), Budget(trials=2), {"train.max_epochs": 1}
    options: dict[str, Any] = {"budget": budget, "given": fast, "observer": Watch()}
    search(store, contender, tmp_path, **options, deadline=Late())
    assert len(trials) == 1
    assert not (tmp_path / SUMMARY).exists()
    search(store, contender, tmp_path, **options)
    assert len(trials) == 2
    assert (tmp_path / SUMMARY).exists()


def test_a_model_without_a_finished_search_is_not_run(
    store: Store, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "lr.toml").write_text('[model]\nname = "lr"\n')
    monkeypatch.setattr(search_module, "run_tasks", lambda tasks, **_: [Outcome(started=False) for _ in tasks])
    # Over when the search should start, but not for the run of the model that needs none.
    answers = iter([True])
    monkeypatch.setattr(Deadline, "is_over", lambda self: next(answers, False))
    plan = Plan(contenders=find_contenders("lr,fm"), n_seeds=1, configs=tmp_path / "configs", minutes=5)
    table = compare("shop", store, tmp_path / "out", plan, control="lr")
    assert ran == ["lr-0"]
    assert any("not run" in note and "fm (all seeds)" in note for note in table.notes)


def test_the_estimate_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressBar(console()).on_estimate(840)
    assert capsys.readouterr().out.splitlines() == ["about 14 minutes left"]
