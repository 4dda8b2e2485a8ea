"""Plans: which models can be compared, how their settings are written and read, and which plans are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fielddep.config import MODEL_CONFIGS, NETWORKS
from fielddep.config.settings import Config
from fielddep.errors import ConfigError, UserError
from fielddep.experiments.plan import (
    Budget,
    Plan,
    changed_settings,
    config_of,
    find_contender,
    find_contenders,
    read_settings,
    settings_toml,
)


def test_all_is_every_model_and_the_trees() -> None:
    names = [contender.name for contender in find_contenders("all")]
    assert names == [*NETWORKS, "lightgbm", "catboost"]
    assert names[0] == "mdl"


def test_names_keep_their_order_and_count_once() -> None:
    assert [c.name for c in find_contenders("fm, mdl-wo-dep,mdl,fm")] == ["fm", "mdl-wo-dep", "mdl"]


@pytest.mark.parametrize(("names", "said"), [("mld", "'mdl'"), ("ligthgbm", "'lightgbm'"), (",", "','")])
def test_unknown_names_are_refused_with_advice(names: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_contenders(names)


def test_a_variant_overrules_what_was_found_for_its_model() -> None:
    config = find_contender("mdl-wo-dep").config({"model.dependencies": "refined", "model.d_embed": 7})
    assert (config.model.name, config.model.dependencies, config.model.d_embed) == ("mdl", "none", 7)


@pytest.mark.parametrize("name", MODEL_CONFIGS)
def test_settings_survive_writing_and_reading(name: str, tmp_path: Path) -> None:
    contender = find_contender(name)
    config = contender.config({"train.max_epochs": 3, "data.target": "y", "train.seed": 5, "train.threads": 2})
    (tmp_path / "a.toml").write_text(settings_toml(config))
    read = contender.config(read_settings(tmp_path / "a.toml", contender))
    assert read == contender.config({"train.max_epochs": 3, "data.target": "y"})  # seed and threads are a run's own
    assert config_of(changed_settings(config)) == read


def test_fit_reads_the_settings(tmp_path: Path) -> None:
    config = find_contender("fm").config({"model.d_embed": 12, "train.lr": 0.02})
    (tmp_path / "a.toml").write_text(settings_toml(config))
    assert Config.from_toml(tmp_path / "a.toml") == config


def test_settings_of_some_sections_only(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[data]\ntarget = "y"\n[model]\nname = "fm"\n[train]\nlr = 0.1\n')
    fm = find_contender("fm")
    assert read_settings(tmp_path / "a.toml", fm, sections=("model", "train")) == {"train.lr": 0.1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[model]\nname = "lr"', "fm.*lr"),
        ("[train]\nlr = 0.1", "fm.*mdl"),
        ('[model]\nname = "fm"\nd_embd = 3', "model.d_embd.*model.d_embed"),
        ("[model", "TOML"),
        ("lr = 3", "lr"),
    ],
)
def test_files_of_other_things_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_settings(tmp_path / "a.toml", find_contender("fm"))


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


@pytest.mark.parametrize(("threads", "n_jobs", "found"), [(None, 3, 2), (5, 3, 5), (None, 100, 1)])
def test_processors_are_shared_evenly(
    threads: int | None, n_jobs: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert Plan(contenders=find_contenders("lr"), threads=threads, n_jobs=n_jobs).process_threads == found


@pytest.mark.parametrize("budget", [{"trials": 0}, {"minutes": 0.0}, {"minutes": -1.0}])
def test_an_empty_budget_is_refused(budget: dict[str, float]) -> None:
    with pytest.raises(UserError, match="trial"):
        Budget(**budget)
