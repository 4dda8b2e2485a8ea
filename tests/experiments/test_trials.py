"""What a search draws: settings that every model takes, and learning rates of the optimiser at hand."""

from __future__ import annotations

import json
from typing import Any

import optuna
import pytest

from fielddep.config import MODEL_CONFIGS
from fielddep.config.defaults import fill_defaults
from fielddep.config.mdl import LEARNING_RATE_SEARCH, Between
from fielddep.experiments.plan import find_contender
from fielddep.experiments.trials import SearchSpace


@pytest.mark.parametrize("name", MODEL_CONFIGS)
def test_every_declared_value_and_start_is_a_setting(name: str) -> None:
    space = SearchSpace.of(find_contender(name), {}, task="binary")
    for path, where in space.spaces.items():
        values = (where.low, where.high) if isinstance(where, Between) else where.values
        for value in values:
            space.config.replace({path: value})
    for start in space.starts:
        space.config.replace(start)
    assert space.starts[0] == {}


@pytest.mark.parametrize("name", MODEL_CONFIGS)
def test_a_drawn_point_is_found_again(name: str) -> None:
    """What is drawn becomes settings, and those settings are the point that was drawn."""
    space = SearchSpace.of(find_contender(name), {}, task="binary")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(5):
        trial = study.ask()
        config = fill_defaults(space.config.replace(space.suggest(trial)), n_rows=1000)
        assert space.point(config) == trial.params
        assert trial.params


def _fixed(space: SearchSpace, **known: Any) -> dict[str, Any]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.enqueue_trial(known)
    return space.suggest(study.ask())


@pytest.mark.parametrize("optimizer", LEARNING_RATE_SEARCH)
def test_the_learning_rate_is_drawn_from_the_range_of_the_optimiser_drawn(optimizer: str) -> None:
    settings = _fixed(SearchSpace.of(find_contender("mdl"), {}, task="binary"), **{"train.optimizer": f'"{optimizer}"'})
    assert settings["train.optimizer"] == optimizer
    where = LEARNING_RATE_SEARCH[optimizer]
    assert where.low <= settings["train.lr"] <= where.high


def test_trees_have_no_learning_rate_of_training() -> None:
    settings = _fixed(SearchSpace.of(find_contender("lightgbm"), {}, task="binary"))
    assert "train.lr" not in settings
    assert isinstance(settings["model.num_leaves"], int)


def test_given_settings_are_not_searched() -> None:
    space = SearchSpace.of(find_contender("mdl"), {"train.lr": 0.07, "model.hidden": [5]}, task="binary")
    settings = _fixed(space)
    assert "train.lr" not in settings
    assert "model.hidden" not in settings
    assert all("model.hidden" not in start for start in space.starts)
    assert space.config.train.lr == 0.07


def test_what_makes_a_variant_is_not_searched() -> None:
    space = SearchSpace.of(find_contender("mdl-wo-dep"), {}, task="binary")
    assert space.config.model.dependencies == "none"
    assert "model.dependencies" not in space.spaces


def test_defaults_outside_a_space_are_left_out_of_the_point() -> None:
    space = SearchSpace.of(find_contender("fm"), {}, task="binary")
    inside = fill_defaults(space.config.replace({"model.d_embed": 20, "train.lr": 0.05}), n_rows=1000)
    outside = fill_defaults(space.config.replace({"model.d_embed": 21, "train.lr": 5.0}), n_rows=1000)
    assert {"model.d_embed", "train.lr (adagrad)"} <= space.point(inside).keys()
    assert not {"model.d_embed", "train.lr (adagrad)"} & space.point(outside).keys()


@pytest.mark.parametrize(
    ("bootstrap", "drawn"),
    [("Bayesian", {"model.bagging_temperature"}), ("MVS", {"model.subsample"}), (None, set())],
)
def test_a_setting_is_drawn_only_where_it_counts(bootstrap: str | None, drawn: set[str]) -> None:
    space = SearchSpace.of(find_contender("catboost"), {}, task="binary")
    settings = _fixed(space, **{"model.bootstrap_type": json.dumps(bootstrap)})
    assert {"model.bagging_temperature", "model.subsample"} & settings.keys() == drawn
    fixed = SearchSpace.of(find_contender("catboost"), {"model.bootstrap_type": bootstrap}, task="binary")
    assert {"model.bagging_temperature", "model.subsample"} & _fixed(fixed).keys() == drawn


@pytest.mark.parametrize(("task", "counts"), [("binary", False), ("multiclass", False), ("regression", True)])
def test_some_settings_are_searched_for_some_tasks_only(task: str, counts: bool) -> None:
    space = SearchSpace.of(find_contender("catboost"), {}, task=task)
    assert ("model.ctr_target_border_count" in _fixed(space)) is counts
    assert any("model.ctr_target_border_count" in start for start in space.starts) is counts


def test_a_variant_does_not_search_what_means_nothing_to_it() -> None:
    without = SearchSpace.of(find_contender("mdl-wo-dep"), {}, task="binary")
    assert not {path for path in without.spaces if "inner" in path or path == "model.sparsity"}
    assert "model.d_embed" in without.spaces
