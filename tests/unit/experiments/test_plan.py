"""Plans of comparisons: what is refused, and what reaches a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fielddep.errors import UserError
from fielddep.experiments.comparison import Comparison
from fielddep.experiments.contenders import find_contender, find_contenders
from fielddep.experiments.plan import Plan
from fielddep.experiments.results import RunResult
from fielddep.experiments.single_run import Job
from fielddep.experiments.tuning import Chosen
from tests.conftest import quick_config, small_frame
from tests.stores import write_store


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_seeds": 0}, "at least one seed"),
        ({"configs": Path("nowhere")}, "folder of settings"),
        ({"given": {"model.d_embed": 3}}, "only settings of train"),
        ({"given": {"train.seed": 3}}, "--seeds"),
        ({"given": {"train.lrr": 1}}, "unknown setting train.lrr"),
        ({"search_rows": 0}, "at least one row to search on, given 0"),
        ({"slow_rows": {"lr": 0}}, "at least one row to search on, given 0"),
    ],
)
def test_impossible_plans_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Plan(contenders=find_contenders("lr"), **settings)


def job_of(folder: Path, **settings: object) -> Job:
    store = write_store(folder / "rows", small_frame(), quick_config(data__crosses="none"))
    whole = Comparison(dataset="shop", store=store, folder=folder, plan=Plan(contenders=find_contenders("fm")))
    chosen = Chosen(config=find_contender("fm").config(settings), name="tuned")
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
