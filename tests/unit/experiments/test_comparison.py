"""A comparison that is called again in its folder, with runs whose figures are made up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fielddep.data.store.store import Store
from fielddep.errors import UserError
from fielddep.experiments import job_runs
from fielddep.experiments.comparison import compare
from fielddep.experiments.contenders import find_contenders
from fielddep.experiments.plan import Plan
from fielddep.experiments.processes import Task
from fielddep.experiments.single_run import Job
from fielddep.experiments.tables import ComparisonTable
from tests.conftest import quick_config, small_frame
from tests.stores import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("rows") / "store", small_frame(), quick_config(data__crosses="none"))


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs as they go, as "name-seed"; each is made up."""
    names: list[str] = []

    def run_tasks(tasks: Iterable[Task], **_: Any) -> None:
        for task in tasks:
            job = Job(**json.loads(task.command[-1]))
            names.append(f"{job.contender}-{job.seed}")
            figures = {"test": {"auc": 0.7 + 0.01 * job.seed}}
            job.save(dataclasses.replace(job.failed(""), error=None, metrics=figures))
            task.on_end(None)

    monkeypatch.setattr(job_runs, "run_tasks", run_tasks)
    return names


def call(store: Store, folder: Path, models: str, control: str | None = "lr", **settings: Any) -> ComparisonTable:
    plan = Plan(contenders=find_contenders(models), n_seeds=2, budget=None, **settings)
    return compare("shop", store, folder, plan, control=control)


def test_models_of_an_earlier_call_stay_in_the_tables(store: Store, tmp_path: Path, ran: list[str]) -> None:
    call(store, tmp_path, "lr,fm")
    table = call(store, tmp_path, "mdl")
    assert [row.name for row in table.rows] == ["mdl", "fm", "lr"]
    assert ran == ["lr-0", "fm-0", "lr-1", "fm-1", "mdl-0", "mdl-1"]
    assert set(pl.read_csv(tmp_path / "results.csv")["model"]) == {"mdl", "fm", "lr"}
    assert table.p("auc", "mdl") is not None


def test_runs_of_other_settings_are_named_and_not_shown(store: Store, tmp_path: Path) -> None:
    call(store, tmp_path, "lr,fm")
    table = call(store, tmp_path, "lr", given={"train.max_epochs": 1})
    assert [row.name for row in table.rows] == ["lr"]
    note = "not shown: fm, whose runs in runs/ are of other settings, or of another budget"
    assert note in table.notes
    assert note in (tmp_path / "comparison.md").read_text()
    assert sorted(path.name for path in (tmp_path / "runs").glob("fm-*")) == ["fm-0.json", "fm-1.json"]


def test_a_folder_of_an_older_version_goes_on(store: Store, tmp_path: Path, ran: list[str]) -> None:
    """Its results tell neither threads nor device, and there is no lock."""
    call(store, tmp_path, "lr,fm")
    for path in (tmp_path / "runs").iterdir():
        saved = json.loads(path.read_text())
        del saved["result"]["threads"], saved["result"]["device"]
        path.write_text(json.dumps(saved))
    (tmp_path / ".lock").unlink(missing_ok=True)
    before = len(ran)
    call(store, tmp_path, "lr,fm")
    assert ran[before:] == []
    assert "Every run had a number of threads that is not known." in (tmp_path / "comparison.md").read_text()


def test_a_control_that_takes_no_part_is_refused_before_anything_runs(
    store: Store, tmp_path: Path, ran: list[str]
) -> None:
    with pytest.raises(UserError, match=r"a control among the models \(fm, lr\), given 'mdl'"):
        call(store, tmp_path, "fm,lr", "mdl")
    assert (ran, list(tmp_path.iterdir())) == ([], [])
    table = call(store, tmp_path, "fm,lr", None)
    assert table.tests == {}
    assert "auc: no test: the control mdl has no finished run with it" in table.notes
