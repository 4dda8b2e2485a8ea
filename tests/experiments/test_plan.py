"""Plans of comparisons: what is refused, what reaches a run, and where settings come from."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from fielddep.errors import UserError
from fielddep.experiments import plan as plan_module
from fielddep.experiments.compare import Comparison
from fielddep.experiments.contenders import find_contender, find_contenders
from fielddep.experiments.jobs import Job, SearchJob
from fielddep.experiments.plan import ModelSettings, Plan, Tuning
from fielddep.experiments.results import RunResult
from fielddep.experiments.search import search_request
from fielddep.experiments.study import open_study
from fielddep.observer import Observer
from fielddep.store.store import Store
from tests.conftest import quick_config, small_frame
from tests.experiments.runs import run_here
from tests.stores import write_store


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_seeds": 0}, "seed.*0"),
        ({"configs": Path("nowhere")}, "nowhere"),
        ({"given": {"model.d_embed": 3}}, "train.*model.d_embed"),
        ({"given": {"train.seed": 3}}, "--seeds"),
        ({"given": {"train.lrr": 1}}, "train.lrr"),
        ({"search_rows": 0}, "row.*0"),
        ({"rows_by_model": {"lr": 0}}, "row.*0"),
    ],
)
def test_impossible_plans_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Plan(contenders=find_contenders("lr"), **settings)


def job_of(folder: Path, **settings: object) -> Job:
    store = write_store(folder / "rows", small_frame(), quick_config(data__crosses="none"))
    whole = Comparison(dataset="shop", store=store, folder=folder, plan=Plan(contenders=find_contenders("fm")))
    chosen = ModelSettings(config=find_contender("fm").config(settings), name="tuned")
    return whole._job(find_contender("fm"), 3, chosen, "abc")


def test_a_job_has_the_settings_seed_and_device(tmp_path: Path) -> None:
    job = job_of(tmp_path, **{"model.d_embed": 7, "train.device": "cuda"})
    assert (job.contender, job.seed, job.settings, job.device) == ("fm", 3, "tuned", "cuda")
    assert job.config == {"model": {"name": "fm", "d_embed": 7}}
    result = job.failed("no memory")
    assert (result.threads, result.device) == (job.threads, "cuda")
    assert dataclasses.replace(job, contender="lightgbm").failed("no memory").device == "cpu"


def test_a_result_counts_only_for_what_it_was_made_from(tmp_path: Path) -> None:
    job = job_of(tmp_path, **{"model.d_embed": 7})
    result = RunResult(dataset="shop", model="fm", seed=3, settings="tuned", metrics={"test": {"auc": 0.5}})
    job.save(result)
    assert job.saved() == result
    path = Path(job.result)
    path.write_text(path.read_text().replace('"d_embed": 7', '"d_embed": 8'))
    assert job.saved() is None
    path.write_text("{")
    assert job.saved() is None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("rows") / "store", small_frame(), quick_config(data__crosses="none"))


def tuning_of(store: Store, folder: Path, **settings: Any) -> Tuning:
    plan = Plan(contenders=find_contenders("lr,fm"), **settings)
    return Tuning(store=store, folder=folder, plan=plan, observer=Observer())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"search_rows": 50}, "fm.*rows.*None.*50"),
        ({"rows_by_model": {"fm": 50}}, "fm.*rows.*None.*50"),
        ({"given": {"train.max_epochs": 3}}, "train.max_epochs.*3"),
        ({"search_seed": 1}, "seed.*0.*1"),
    ],
)
def test_other_options_are_refused_before_any_search_begins(
    settings: dict[str, Any], said: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("a search was begun")

    monkeypatch.setattr(plan_module, "run_tasks", begun)
    fm = search_request(store, find_contender("fm"), {}, seed=0, n_rows=None)
    open_study(tmp_path / "search" / "fm", fm)
    with pytest.raises(UserError, match=said):
        tuning_of(store, tmp_path, **settings).run()
    assert [path.name for path in tmp_path.iterdir()] == ["search"]


def test_a_search_has_the_settings_rows_and_threads_of_the_plan(store: Store, tmp_path: Path) -> None:
    given = {"train.optimizer": None, "train.max_epochs": 3}
    tuning = tuning_of(store, tmp_path, given=given, search_rows=80, rows_by_model={"fm": 50}, threads=3, search_seed=7)
    lr, fm = (tuning._job(find_contender(name)) for name in ("lr", "fm"))
    assert lr.given == {**given, "train.threads": 3}
    assert (lr.n_rows, fm.n_rows, fm.seed, fm.budget) == (80, 50, 7, tuning.plan.budget)
    assert pickle.loads(pickle.dumps(fm)) == fm


def test_a_search_that_failed_is_known_by_its_reason_and_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(job: SearchJob) -> None:
        raise RuntimeError(f"no memory for {job.model}")

    monkeypatch.setattr(SearchJob, "run", fails)
    monkeypatch.setattr(plan_module, "run_tasks", run_here)
    chosen = tuning_of(store, tmp_path).run()
    assert [chosen[name].failure for name in ("lr", "fm")] == ["no memory for lr", "no memory for fm"]
    monkeypatch.setattr(SearchJob, "run", lambda job: write_best(Path(job.folder), job.model))
    kept = tuning_of(store, tmp_path, keep_failed=True).run()
    assert kept["fm"].failure == "no memory for fm"
    found = tuning_of(store, tmp_path).run()
    assert (found["fm"].failure, found["fm"].config.train.lr) == (None, 0.5)
    assert not list((tmp_path / "search").glob("*.failed.json"))


def write_best(folder: Path, model: str) -> None:
    folder.mkdir(parents=True)
    (folder / "best.toml").write_text(f'[model]\nname = "{model}"\n[train]\nlr = 0.5\n')
