"""Which models can be compared, and how their settings are written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.config.settings import MODEL_CONFIGS, Config
from fielddep.errors import ConfigError, UserError
from fielddep.experiments.contenders import (
    CONFIG_CLASSES,
    changed_settings,
    config_of,
    find_contender,
    find_contenders,
    read_settings,
    settings_toml,
)


def test_all_is_every_model_and_the_trees() -> None:
    names = [contender.name for contender in find_contenders("all")]
    assert names == [*MODEL_CONFIGS, "lightgbm", "catboost"]
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


@pytest.mark.parametrize("name", CONFIG_CLASSES)
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
