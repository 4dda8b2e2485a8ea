"""Settings: what is taken, what is refused, and with which words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fielddep.coercion import parse_assignment
from fielddep.config import Config, for_field, settings_reference
from fielddep.errors import ConfigError

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
    with pytest.raises(ConfigError, match=r"model.d_embed must be a whole number or none; given 1.5"):
        Config().replace({"model.d_embed": np.float64(1.5)})


def test_configs_are_frozen_and_replace_copies():
    config = Config()
    changed = config.replace({"data.kinds": {"a": "numerical"}})
    assert config.data.kinds == {}
    assert changed.data.kinds == {"a": "numerical"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_embed = 3  # type: ignore[misc]


def test_a_file_that_is_no_config(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"config file .*none\.toml does not exist"):
        Config.from_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("model = [")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        Config.from_toml(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        Config.from_toml(tmp_path / "bytes.toml")
    (tmp_path / "flat.toml").write_text("d_embed = 3")
    with pytest.raises(
        ConfigError, match=r"settings stand in sections \(data, split, model, train\), given: d_embed = 3"
    ):
        Config.from_toml(tmp_path / "flat.toml")


# --- unknown names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("model.d_embd", "did you mean model.d_embed?"),
        ("model.lr", "did you mean train.lr?"),
        ("trian.lr", "did you mean train.lr?"),
        ("d_embed", "did you mean model.d_embed?"),
        ("data.kind", "did you mean data.kinds?"),
        ("zzzzzz.qqqqqq", "sections are data, split, model, train"),
    ],
)
def test_unknown_settings_name_the_nearest(path, advice):
    with pytest.raises(ConfigError) as caught:
        Config().replace({path: 1})
    assert str(caught.value).startswith("unknown setting ")
    assert str(caught.value).endswith(advice)


# --- types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.d_embed", "eight", "model.d_embed must be a whole number or none; given 'eight'"),
        ("model.d_embed", 2.5, "model.d_embed must be a whole number or none; given 2.5"),
        ("model.d_embed", True, "model.d_embed must be a whole number or none; given True"),
        ("model.n_inner_steps", None, "model.n_inner_steps must be a whole number; given None"),
        ("model.dropout", "much", "model.dropout must be a number; given 'much'"),
        ("model.dropout", False, "model.dropout must be a number; given False"),
        ("model.first_order", 1, "model.first_order must be true or false; given 1"),
        ("model.hidden", 5, "model.hidden must be a list of a whole number; given 5"),
        ("model.hidden", ["a"], "model.hidden must be a whole number; given 'a'"),
        ("data.target", 3, "data.target must be a text or none; given 3"),
        ("train.optimizer", "sgd", "train.optimizer is one of 'adagrad', 'adam'; given 'sgd'"),
        ("train.optimizer", "adagard", "given 'adagard'; did you mean 'adagrad'?"),
        ("data.kinds", {"a": "number"}, "data.kinds.a is one of 'categorical', 'numerical'; given 'number'"),
        ("data.kinds", "numerical", "data.kinds must be a table of field name to one of 'categorical', 'numerical'"),
    ],
)
def test_wrong_types(path, value, message):
    with pytest.raises(ConfigError) as caught:
        Config().replace({path: value})
    assert message in str(caught.value)


# --- ranges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.d_embed", 0, "model.d_embed must be at least 1; given 0"),
        ("model.n_inner_steps", -1, "model.n_inner_steps must be at least 0; given -1"),
        ("model.sparsity", 0, "model.sparsity must be above 0; given 0.0"),
        ("model.dropout", 1, "model.dropout must be below 1; given 1.0"),
        ("model.dropout", float("nan"), "model.dropout must be at least 0; given nan"),
        ("model.hidden", [8, 0], "model.hidden must be at least 1; given 0"),
        ("train.lr", -0.1, "train.lr must be above 0; given -0.1"),
        ("train.lr", float("nan"), "train.lr must be above 0; given nan"),
        ("train.patience", 0, "train.patience must be at least 1; given 0"),
        ("train.eval_every", 0, "train.eval_every must be above 0; given 0.0"),
        ("data.min_count", {"a": 0}, "data.min_count must be at least 1; given 0"),
        ("data.n_bins", 1, "data.n_bins must be at least 2; given 1"),
        ("split.validation", 1.5, "split.validation must be below 1"),
    ],
)
def test_ranges(path, value, message):
    with pytest.raises(ConfigError) as caught:
        Config().replace({path: value})
    assert message in str(caught.value)


def test_shares_must_leave_training_rows():
    with pytest.raises(ConfigError, match=r"must leave rows for training; given 0\.5 \+ 0\.5"):
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
    with pytest.raises(ConfigError, match=r"model.d_embed must be a whole number or none; given \{'user': 3\}"):
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
    with pytest.raises(ConfigError, match=r"expected section\.key=value, given .*; for instance model\.d_embed=20"):
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
    assert config.train.average == 0.0


def test_a_folder_is_no_config_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.from_toml(tmp_path)


@pytest.mark.parametrize("path", ["split.seed", "train.seed"])
@pytest.mark.parametrize("seed", [-1, 2**40])
def test_seeds_have_a_range(path, seed):
    with pytest.raises(ConfigError, match=f"{path} must be"):
        Config().replace({path: seed})
