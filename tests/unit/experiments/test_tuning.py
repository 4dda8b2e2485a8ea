"""Settings of a comparison: searches that were begun before with other options, and what a search is told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from fielddep.coercion import parse_assignment
from fielddep.data.store.store import Store
from fielddep.errors import UserError
from fielddep.experiments import tuning as tuning_module
from fielddep.experiments.contenders import find_contender, find_contenders
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import Plan
from fielddep.experiments.search import search_request
from fielddep.experiments.study import open_study
from fielddep.experiments.tuning import Tuning
from tests.conftest import quick_config, small_frame
from tests.stores import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(tmp_path_factory.mktemp("rows") / "store", small_frame(), quick_config(data__crosses="none"))


def tuning_of(store: Store, folder: Path, **settings: Any) -> Tuning:
    plan = Plan(contenders=find_contenders("lr,fm"), **settings)
    return Tuning(store=store, folder=folder, plan=plan, looker=ComparisonLooker())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"search_rows": 50}, "search of fm with rows = None, now it is 50; give the same options"),
        ({"slow_rows": {"fm": 50}}, "search of fm with rows = None, now it is 50"),
        ({"given": {"train.max_epochs": 3}}, "with train.max_epochs = 'its default', now it is 3"),
        ({"search_seed": 1}, "with seed = 0, now it is 1"),
    ],
)
def test_other_options_are_refused_before_any_search_begins(
    settings: dict[str, Any], said: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("a search was begun")

    monkeypatch.setattr(tuning_module, "run_tasks", begun)
    fm = search_request(store, find_contender("fm"), {}, seed=0, n_rows=None)
    open_study(tmp_path / "search" / "fm", fm)
    with pytest.raises(UserError, match=said):
        tuning_of(store, tmp_path, **settings).run()
    assert [path.name for path in tmp_path.iterdir()] == ["search"]


def test_a_search_reads_settings_as_they_were_given(store: Store, tmp_path: Path) -> None:
    given = {"train.optimizer": None, "train.max_epochs": 3, "train.device": "cpu"}
    words = tuning_of(store, tmp_path, given=given)._command(find_contender("fm"))
    told = [value for name, value in itertools.pairwise(words) if name == "--set"]
    assert dict(map(parse_assignment, told)) == given


def test_a_slow_model_is_searched_on_rows_of_its_own(store: Store, tmp_path: Path) -> None:
    tuning = tuning_of(store, tmp_path, search_rows=80, slow_rows={"fm": 50})
    rows = {}
    for name in ("lr", "fm"):
        words = tuning._command(find_contender(name))
        rows[name] = words[words.index("--rows") + 1]
    assert rows == {"lr": "80", "fm": "50"}
