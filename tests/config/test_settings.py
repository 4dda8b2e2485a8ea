"""Settings: what is taken, what is refused, and with which words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fielddep.config.data import for_field
from fielddep.config.decode import parse_assignment
from fielddep.config.settings import Config, settings_reference
from fielddep.errors import ConfigError
from tests.helpers import raises

FULL = {
    "data.target": "y",
    "data.fields": ["a", "b c", "é"],
    "data.kinds": {"a": "numerical", "b c": "categorical"},
    "data.numeric": {"*": "scale", "a": "log2"},
    "data.min_count": {"a": 3, "*": 2},
    "data.crosses": [["a", "b c"]],
    "data.missing_values": ["", "NA", "?"],
    "split.method": "time",
    "split.column": "when",
    "model.hidden": [64, 32],
    "model.d_embed": 12,
    "model.dropout": 0.25,
    "model.dependencies": "global",
    "train.lr": 0.01,
    "train.eval_every": 4,
    "train.plateau_restore": False,
}


# --- round trips ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [Config(), Config().replace(FULL), Config().replace({"model.hidden": []})])
def test_toml_round_trip(config, tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), "utf-8")
    assert Config.from_toml(path) == config
    assert Config.from_toml(str(path)).to_toml() == config.to_toml()
    assert Config.from_dict(config.to_dict()) == config


def test_values_get_their_own_types():
    config = Config().replace(FULL)
    assert config.model.hidden == (64, 32)
    assert config.data.crosses == (("a", "b c"),)
    assert config.train.eval_every == 4.0
    assert isinstance(config.train.eval_every, float)
    assert config.data.min_count == {"a": 3, "*": 2}


def test_numbers_of_numpy_are_numbers():
    """As `GridSearchCV` hands them on from an array."""
    config = Config().replace(
        {"model.d_embed": np.int64(8), "train.lr": np.float32(0.5), "model.first_order": np.bool_(False)}
    )
    found = (config.model.d_embed, config.train.lr, config.model.first_order)
    assert [type(value) for value in found] == [int, float, bool]
    assert found == (8, 0.5, False)
    assert Config().replace({"model.hidden": [np.int64(4)]}).model.hidden == (4,)
    with raises(ConfigError, "model.d_embed", 1.5):
        Config().replace({"model.d_embed": np.float64(1.5)})


def test_configs_are_frozen_and_replace_copies():
    config = Config()
    changed = config.replace({"data.kinds": {"a": "numerical"}})
    assert config.data.kinds == {}
    assert changed.data.kinds == {"a": "numerical"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_embed = 3  # type: ignore[misc]


def test_a_file_that_is_no_config(tmp_path: Path):
    with raises(ConfigError, tmp_path / "none.toml"):
        Config.from_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("model = [")
    with raises(ConfigError, "bad.toml", "TOML"):
        Config.from_toml(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with raises(ConfigError, "bytes.toml", "TOML"):
        Config.from_toml(tmp_path / "bytes.toml")
    (tmp_path / "flat.toml").write_text("d_embed = 3")
    with raises(ConfigError, "data, split, model, train", "d_embed = 3"):
        Config.from_toml(tmp_path / "flat.toml")


# --- unknown names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("model.d_embd", "model.d_embed"),
        ("model.lr", "train.lr"),
        ("trian.lr", "train.lr"),
        ("d_embed", "model.d_embed"),
        ("data.kind", "data.kinds"),
    ],
)
def test_unknown_settings_name_the_nearest(path, nearest):
    with raises(ConfigError, path, f"did you mean {nearest!r}"):
        Config().replace({path: 1})


def test_a_setting_that_is_near_to_none():
    with raises(ConfigError, "zzzzzz.qqqqqq", "data.target"):
        Config().replace({"zzzzzz.qqqqqq": 1})


# --- types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "facts"),
    [
        ("model.d_embed", "eight", ["whole number"]),
        ("model.d_embed", 2.5, ["whole number"]),
        ("model.d_embed", True, ["whole number"]),
        ("model.n_inner_steps", None, ["whole number"]),
        ("model.dropout", "much", ["number"]),
        ("model.dropout", False, ["number"]),
        ("model.first_order", 1, ["true or false"]),
        ("model.hidden", 5, ["list"]),
        ("model.hidden", ["a"], ["whole number"]),
        ("data.target", 3, ["text"]),
        ("train.optimizer", "sgd", ["adagrad", "adam"]),
        ("train.optimizer", "adagard", ["did you mean 'adagrad'"]),
        ("data.kinds", {"a": "number"}, ["data.kinds.a", "did you mean 'numerical'"]),
        ("data.kinds", "numerical", ["table"]),
    ],
)
def test_wrong_types(path, value, facts):
    given = value["a"] if isinstance(value, dict) else value[0] if isinstance(value, list) else value
    with raises(ConfigError, path, repr(given), *facts):
        Config().replace({path: value})


def test_settings_of_older_files_keep_their_meaning():
    config = Config.from_dict({"train": {"average": 0.5}})
    assert config.train.average_decay == 0.5
    assert "average" not in config.to_dict()["train"]
    assert Config().replace({"train.average": 0.25}).train.average_decay == 0.25


# --- ranges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "facts"),
    [
        ("model.d_embed", 0, ["at least 1", "given 0"]),
        ("model.n_inner_steps", -1, ["at least 0", "given -1"]),
        ("model.sparsity", 0.0, ["above 0", "given 0.0"]),
        ("model.dropout", 1.0, ["below 1", "given 1.0"]),
        ("model.dropout", float("nan"), ["at least 0", "given nan"]),
        ("model.hidden", [8, 0], ["at least 1", "given 0"]),
        ("train.lr", -0.1, ["above 0", "given -0.1"]),
        ("train.lr", float("nan"), ["above 0", "given nan"]),
        ("train.patience", 0, ["at least 1", "given 0"]),
        ("train.eval_every", 0.0, ["above 0", "given 0.0"]),
        ("data.min_count", {"a": 0}, ["at least 1", "given 0"]),
        ("data.n_bins", 1, ["at least 2", "given 1"]),
        ("split.validation", 1.5, ["below 1", "given 1.5"]),
    ],
)
def test_ranges(path, value, facts):
    with raises(ConfigError, path, *facts):
        Config().replace({path: value})


def test_shares_must_leave_training_rows():
    with raises(ConfigError, "split.validation", "split.test", "0.5 + 0.5"):
        Config().replace({"split.validation": 0.5, "split.test": 0.5})


def test_edges_of_ranges_are_allowed():
    config = Config().replace(
        {"model.n_inner_steps": 0, "split.test": 0, "model.dropout": 0, "train.plateau_factor": 1}
    )
    assert (config.model.n_inner_steps, config.split.test) == (0, 0.0)


# --- per field ------------------------------------------------------------------------------------------------


def test_one_entry_of_a_per_field_setting():
    config = Config().replace({"data.kinds.age": "numerical", "data.kinds.zip": "categorical"})
    assert config.data.kinds == {"age": "numerical", "zip": "categorical"}
    config = config.replace({"data.min_count.user": 5})
    assert config.data.min_count == {"*": 1, "user": 5}
    assert config.replace({"data.min_count.item": 2}).data.min_count == {"*": 1, "user": 5, "item": 2}
    assert config.replace({"data.kinds.age": "categorical"}).data.kinds["age"] == "categorical"
    assert Config().replace({"data.numeric.a.b": "scale"}).data.numeric == {"*": "quantile", "a.b": "scale"}


def test_an_entry_of_a_setting_that_has_none():
    with raises(ConfigError, "model.d_embed", "user"):
        Config().replace({"model.d_embed.user": 3})


def test_for_field():
    assert for_field(4, "any", 1) == 4
    assert for_field({"a": 2}, "a", 1) == 2
    assert for_field({"a": 2}, "b", 1) == 1
    assert for_field({"a": 2, "*": 9}, "b", 1) == 9


# --- --set ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.d_embed=20", ("model.d_embed", 20)),
        ("train.lr=1e-3", ("train.lr", 0.001)),
        ("model.hidden=[64, 32]", ("model.hidden", [64, 32])),
        ("model.hidden=[]", ("model.hidden", [])),
        ("train.optimizer=adam", ("train.optimizer", "adam")),
        ("train.optimizer='adam'", ("train.optimizer", "adam")),
        ("model.first_order=false", ("model.first_order", False)),
        ("model.first_order=False", ("model.first_order", False)),
        ("model.d_embed=none", ("model.d_embed", None)),
        ("data.delimiter=;", ("data.delimiter", ";")),
        ("data.target=a=b", ("data.target", "a=b")),
        (" data.target = late ", ("data.target", "late")),
        ("data.kinds.age=numerical", ("data.kinds.age", "numerical")),
        ("data.crosses=[['month', 'day']]", ("data.crosses", [["month", "day"]])),
    ],
)
def test_assignments(text, expected):
    assert parse_assignment(text) == expected
    Config().replace(dict([expected]))


@pytest.mark.parametrize("text", ["model.d_embed", "=5", "", "  = 3"])
def test_what_is_no_assignment(text):
    with raises(ConfigError, "section.key=value", repr(text)):
        parse_assignment(text)


@pytest.mark.parametrize("path", ["model.dependencies", "model.batch_norm", "data.crosses", "train.lr_decay"])
def test_none_may_be_a_word(path):
    section, _, key = path.partition(".")
    config = Config().replace(dict([parse_assignment(f"{path}=none")]))
    assert getattr(getattr(config, section), key) == "none"


# --- reference ------------------------------------------------------------------------------------------------


def test_every_setting_is_documented():
    infos = list(settings_reference())
    assert len({info.path for info in infos}) == len(infos) > 40
    for info in infos:
        assert len(info.doc) > 4, info.path
        section, _, key = info.path.partition(".")
        assert getattr(getattr(Config(), section), key) == info.default


def test_reference_settings_are_those_of_the_public_code():
    config = Config.reference()
    assert (config.model.mu_start, config.model.mu_update_from, config.model.residual_reduction) == (
        "share",
        "new",
        "sum",
    )
    assert (config.model.dependency_scale, config.model.dependency_diagonal) == ("raw", False)
    assert (config.model.hidden, config.model.batch_norm, config.model.first_order) == ((100, 100), "all", True)
    assert (config.model.dependency_init, config.model.embedding_init) == ("uniform", "xavier")
    assert config.model.interaction_init == "xavier"
    assert config.data.counts_from == "all"
    assert (config.model.n_inner_steps, config.model.inner_lr, config.model.sparsity) == (4, 1.0, 100.0)
    assert (config.train.lr, config.train.weight_decay, config.train.batch_size) == (0.05, 1e-8, 2048)
    assert not config.train.plateau_restore
    assert config.train.average_decay == 0.0


def test_a_folder_is_no_config_file(tmp_path):
    with raises(ConfigError, tmp_path):
        Config.from_toml(tmp_path)


@pytest.mark.parametrize("path", ["split.seed", "train.seed"])
@pytest.mark.parametrize("seed", [-1, 2**40])
def test_seeds_have_a_range(path, seed):
    with raises(ConfigError, path):
        Config().replace({path: seed})
