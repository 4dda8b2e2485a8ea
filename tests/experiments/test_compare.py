"""A comparison that is called again in its folder, with made-up runs, and the notes below its tables."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fielddep.errors import UserError
from fielddep.experiments import jobs as jobs_module
from fielddep.experiments.compare import compare, machine_note, settings_note, trees_note, trials_note
from fielddep.experiments.jobs import Job
from fielddep.experiments.plan import Budget, Plan, find_contenders
from fielddep.experiments.results import RunResult
from fielddep.experiments.study import TrialRecord, trials_csv
from fielddep.experiments.tables import ComparisonTable
from fielddep.store.store import Store
from tests.conftest import quick_config, small_frame
from tests.experiments.runs import run_here, runs
from tests.stores import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("rows") / "store", small_frame(), quick_config(data__crosses="none"))


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs as they go, as "name-seed"; each is made up."""
    names: list[str] = []

    def run(job: Job) -> RunResult:
        names.append(f"{job.contender}-{job.seed}")
        return dataclasses.replace(job.failed(""), error=None, metrics={"test": {"auc": 0.7 + 0.01 * job.seed}})

    monkeypatch.setattr(Job, "run", run)
    monkeypatch.setattr(jobs_module, "run_tasks", run_here)
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
    [note] = [note for note in table.notes if note.startswith("not shown: fm")]
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
    assert "1 thread" not in (tmp_path / "comparison.md").read_text()


def test_a_control_that_takes_no_part_is_refused_before_anything_runs(
    store: Store, tmp_path: Path, ran: list[str]
) -> None:
    with pytest.raises(UserError, match=r"fm, lr.*'mdl'"):
        call(store, tmp_path, "fm,lr", "mdl")
    assert (ran, list(tmp_path.iterdir())) == ([], [])
    table = call(store, tmp_path, "fm,lr", None)
    assert table.tests == {}
    assert any(note.startswith("auc: no test") and "mdl" in note for note in table.notes)


def of(model: str, **means: Any) -> list[RunResult]:
    return runs(model, [0.5, 0.6], **means)


@pytest.mark.parametrize(
    ("results", "note"),
    [
        (of("fm", threads=1, device="cpu"), "Every run .*1 thread\\."),
        (of("fm", threads=2, device="cuda"), "Every run .*2 threads .*cuda"),
        (of("fm"), "Every run .*threads"),
        ([*of("fm", threads=1), *of("lr", threads=2), *of("mdl", threads=1)], ".*1 thread \\(fm, mdl\\); 2 .*\\(lr\\)"),
        ([*of("fm"), *of("lr", threads=2)], ".*threads .*\\(fm\\); 2 threads \\(lr\\)"),
        ([*of("fm", threads=1), *runs("lr", ["no memory"], threads=2)], "Every run .*1 thread\\."),
        (runs("lr", ["no memory"]), "$"),
    ],
)
def test_threads_are_those_that_the_runs_had(results: list[RunResult], note: str) -> None:
    assert re.match(note, machine_note(results))


def test_trials_are_those_that_each_search_had(tmp_path: Path) -> None:
    for model, states in {"mdl": ["complete", "pruned", "complete"], "catboost": ["complete"]}.items():
        records = [
            TrialRecord(number=number, state=state, loss=0.5, seconds=1.0, settings={})
            for number, state in enumerate(states)
        ]
        (tmp_path / model).mkdir()
        (tmp_path / model / "trials.csv").write_text(trials_csv(records), "utf-8")
    contenders = find_contenders("catboost,mdl,mdl-wo-dep,fm")
    note = trials_note(tmp_path, Plan(contenders=contenders))
    assert "catboost 1, mdl 3 (1 pruned);" in note
    assert trials_note(tmp_path, Plan(contenders=contenders, budget=None)) == ""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "mdl.toml").touch()
    told = trials_note(tmp_path, Plan(contenders=contenders, configs=tmp_path / "given"))
    assert "catboost 1;" in told
    (tmp_path / "mdl").rename(tmp_path / "mdl-wo-dep")
    assert "catboost 1, mdl-wo-dep 3" in trials_note(tmp_path, Plan(contenders=contenders))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, r"all models .*30 trials\."),
        ({"search_rows": 5000}, r"30 trials.* 5,000 training rows\."),
        ({"rows_by_model": {"fm": 1000}}, r"30 trials.* all training rows.* fm.* 1,000"),
        ({"search_rows": 5000, "rows_by_model": {"fm": 1000}}, r"30 trials.* 5,000 training rows.* fm.* 1,000"),
    ],
)
def test_the_rows_that_searches_had_are_told(rows: dict[str, Any], said: str) -> None:
    assert re.search(said, settings_note(Plan(contenders=find_contenders("lr,fm"), **rows)))


@pytest.mark.parametrize(
    ("files", "budget", "said"),
    [
        ([], None, "All models .*defaults"),
        (["fm"], None, r"of fm .*given/\. Other models .*defaults"),
        (["mdl", "fm"], None, r"of fm, mdl-wo-dep .*given/\.$"),
        (["mdl"], Budget(trials=9, minutes=5), r"of mdl-wo-dep .*given/\. .*other models .*9 trials .*5 minutes"),
    ],
)
def test_whose_settings_were_given_is_told(files: list[str], budget: Budget | None, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    for name in files:
        (folder / f"{name}.toml").touch()
    slow = {"mdl": 100} if files else {}
    contenders = find_contenders("fm,mdl-wo-dep")
    note = settings_note(Plan(contenders=contenders, configs=folder, budget=budget, rows_by_model=slow))
    assert re.search(said, note)


def test_trees_show_whether_their_cap_was_reached() -> None:
    results = [*of("catboost", n_trees=800), *runs("catboost", [0.4], n_trees=5000), *of("mdl")]
    assert "catboost 800 to 5,000" in trees_note(results)
    assert trees_note(of("mdl")) == ""
