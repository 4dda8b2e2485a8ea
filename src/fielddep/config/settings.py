"""Settings: frozen dataclasses that read and write TOML and refuse unknown keys.

Every setting carries its own documentation, which `fielddep settings` prints. `None` means *decided from the data*
(`fill_defaults`); the config that is saved with a model has the value.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from fielddep.config import MODEL_CONFIGS, NETWORKS
from fielddep.config.data import PER_FIELD_DEFAULT, DataConfig, SplitConfig
from fielddep.config.decode import RENAMED, check_range, decode
from fielddep.config.mdl import MDLConfig, ModelConfig, setting
from fielddep.config.metrics import Monitor
from fielddep.errors import ConfigError
from fielddep.wording import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained."""

    optimizer: Literal["adagrad", "adam"] | None = setting(
        None, "adagrad or adam; both touch only the ids of the batch; default: from the model"
    )
    lr: float | None = setting(None, "learning rate; default: from model and optimizer", above=0)
    batch_size: int | None = setting(None, "rows per step; default: from the number of rows", at_least=1)
    lr_decay: Literal["none", "linear"] = setting(
        "none", "linear: the learning rate falls evenly to zero over max_epochs; none: it stays until a plateau"
    )
    max_epochs: int = setting(50, "most passes over the training rows", at_least=1)
    eval_every: float | None = setting(
        None, "evaluations per epoch, such as 4; below 1: one evaluation every 1/eval_every epochs; default: 4", above=0
    )
    monitor: Monitor = setting(
        "loss", "loss, or a metric of the task: stops training and decides which weights are kept"
    )
    refit: bool = setting(
        False, "then train again on training and validation rows, for as many passes as gave the best weights"
    )
    patience: int = setting(6, "evaluations without improvement before training stops", at_least=1)
    plateau_patience: int = setting(2, "evaluations without improvement that count as a plateau", at_least=1)
    plateau_factor: float = setting(
        1.0, "factor of the learning rate at a plateau; 1 keeps it, because averaged weights need no drops", above=0
    )
    plateau_restore: bool = setting(True, "at a plateau, continue from the best weights so far")
    average_decay: float = setting(
        0.8,
        "evaluate and keep a running mean of the weights over evaluations, with this decay; 0 keeps the last weights",
        at_least=0,
        below=1,
    )
    min_delta: float = setting(0.0, "smallest change of the monitored metric that counts as improvement", at_least=0)
    embedding_l2: float | None = setting(
        None,
        "ridge on embeddings: to its loss, every row adds embedding_l2 / 2 * |e|^2 for each embedding it looks up; "
        "default: from model and number of rows",
        at_least=0,
    )
    first_order_l2: float | None = setting(None, "the same ridge on first-order weights; default: likewise", at_least=0)
    l2_rarity: float = setting(
        0.5,
        "how much stronger the ridge is on rare values: it is multiplied by count^-l2_rarity, scaled to 1 on average "
        "over the rows of each field; 0 treats all look-ups alike, 1 all values alike",
        at_least=0,
    )
    weight_decay: float = setting(
        0.0,
        "decoupled decay: a step multiplies a weight by 1 - lr * weight_decay; in embedding tables only for the ids of "
        "the batch",
        at_least=0,
    )
    clip_norm: float | None = setting(None, "largest joint norm of the gradients of dense weights and tables", above=0)
    unknown_rate: float = setting(
        0.25,
        "trains the rare id: a value seen c times is replaced by it with probability unknown_rate/(unknown_rate+c), "
        "at least .001 and at most .5; 0 turns this off",
        at_least=0,
    )
    seed: int = setting(0, "seed of weights, shuffling and dropout", at_least=0, below=2**32)
    device: str = setting("cpu", "torch device: cpu, cuda, cuda:1, ...")
    threads: int | None = setting(None, "CPU threads of torch; default: torch's choice", at_least=1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run, one section each for data, split, model and training."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    split: SplitConfig = dataclasses.field(default_factory=SplitConfig)
    model: ModelConfig = dataclasses.field(default_factory=MDLConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    @classmethod
    def reference(cls) -> Config:
        """The settings of the paper's public code on Avazu, where ours differ: a start for reproductions.

        Set `data.min_count` as well; it depends on the table (4 for Avazu).
        """
        return cls().replace(
            {
                "data.crosses": "none",
                "data.counts_from": "all",
                "model.d_embed": 40,
                "model.inner_step": "fixed",
                "model.dependency_scale": "raw",
                "model.batch_norm": "all",
                "model.embedding_init": "xavier",
                "model.interaction_init": "xavier",
                "model.product_output": False,
                "model.direct": "none",
                "model.sparsity": 100.0,
                "train.lr": 0.05,
                "train.batch_size": 2048,
                "train.eval_every": 1.0,
                "train.embedding_l2": 0.0,
                "train.first_order_l2": 0.0,
                "train.l2_rarity": 0.0,
                "train.weight_decay": 1e-8,
                "train.average_decay": 0.0,
                "train.plateau_restore": False,
                "train.unknown_rate": 0.0,
            }
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Build from nested plain values; see `replace` for errors."""
        return cls().replace(dotted_settings(values))

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """Read a TOML file."""
        return cls().replace(read_toml(path))

    def replace(self, values: Mapping[str, Any]) -> Config:
        """A copy with dotted settings changed.

        Another `model.name` starts from the defaults of that model, to which the other settings of `model` then apply.

        Raises:
            ConfigError: for an unknown key (with the nearest name), a value of the wrong type or out of range.

        Example:
            >>> Config().replace({"model.d_embed": 20}).model.d_embed
            20
            >>> Config().replace({"model.d_embd": 20})
            Traceback (most recent call last):
            fielddep.errors.ConfigError: unknown setting model.d_embd of the model mdl; did you mean 'model.d_embed'?
        """
        values = {RENAMED.get(path, path): value for path, value in values.items()}
        if "model.name" in values:
            return dataclasses.replace(self, model=self._model_called(values.pop("model.name"))).replace(values)
        changed: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            section, _, key = path.partition(".")
            hints = self._hints(section, key)
            name, _, entry = key.partition(".")
            if entry:  # data.kinds.age: one entry of a per-field setting
                old = changed.get(section, {}).get(name, getattr(getattr(self, section), name))
                if old is not None and not isinstance(old, Mapping):
                    old = {PER_FIELD_DEFAULT: old}
                value = {**(old or {}), entry: value}
            changed.setdefault(section, {})[name] = decode(value, hints[name], f"{section}.{name}")
        sections = {s: dataclasses.replace(getattr(self, s), **new) for s, new in changed.items()}
        config = dataclasses.replace(self, **sections)
        _check_ranges(config)
        return config

    def _model_called(self, name: Any) -> ModelConfig:
        if name not in NETWORKS:
            raise ConfigError(f"model.name: unknown model {name!r}; {did_you_mean(name, NETWORKS, what='models')}")
        return self.model if self.model.name == name else MODEL_CONFIGS[name]()

    def _hints(self, section: str, key: str) -> dict[str, Any]:
        """Types of a section's settings; refuses unknown names with the nearest known one."""
        name = key.partition(".")[0]
        if section in _names(Config) and name in _names(type(getattr(self, section))):
            return typing.get_type_hints(type(getattr(self, section)))
        known = [path for path, _, _ in _all_settings(self)]
        path = f"{section}.{name}" if name else section
        by_name = [k for k in known if k.endswith(f".{name or section}")]
        advice = f"did you mean {by_name[0]!r}?" if by_name else did_you_mean(path, known, what="settings")
        of_model = f" of the model {self.model.name}" if section == "model" else ""
        raise ConfigError(f"unknown setting {path}{of_model}; {advice}")

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested plain values; settings that are None are skipped, because TOML has no null."""
        return {
            section: {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in settings.items()
                if value is not None
            }
            for section, settings in dataclasses.asdict(self).items()
        }

    def to_toml(self) -> str:
        """TOML text that `from_toml` reads back to an equal config."""
        return tomli_w.dumps(self.to_dict())


def read_toml(path: str | Path) -> dict[str, Any]:
    """Dotted settings of a TOML file.

    Raises:
        ConfigError: it cannot be read, or a setting is outside of the sections.
    """
    path = Path(path)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config file {path} does not exist. Check the path") from None
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} is not valid TOML: {error}") from None
    return dotted_settings(found)


def dotted_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, from settings by section.

    Raises:
        ConfigError: a setting is outside of the sections.

    Example:
        >>> dotted_settings({"model": {"d_embed": 20, "hidden": [8]}})
        {'model.d_embed': 20, 'model.hidden': [8]}
    """
    for section, settings in values.items():
        if not isinstance(settings, Mapping):
            sections = ", ".join(_names(Config))
            raise ConfigError(f"settings belong in a section ({sections}); given {section} = {settings!r}")
    return {f"{section}.{key}": value for section, settings in values.items() for key, value in settings.items()}


@dataclass(frozen=True)
class SettingInfo:
    """One line of the settings' reference."""

    path: str
    default: Any
    doc: str


def settings_reference(config: Config | None = None) -> Iterator[SettingInfo]:
    """Every setting with its default and documentation, for the model of `config` (MDL if there is none)."""
    config = Config() if config is None else dataclasses.replace(Config(), model=type(config.model)())
    return (SettingInfo(path, value, metadata["doc"]) for path, value, metadata in _all_settings(config))


def _all_settings(config: Config) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Dotted name, value and metadata of every setting."""
    for section in _names(Config):
        values = getattr(config, section)
        for item in dataclasses.fields(values):
            yield f"{section}.{item.name}", getattr(values, item.name), item.metadata


def _names(cls: type) -> list[str]:
    return [item.name for item in dataclasses.fields(cls)]


def _check_ranges(config: Config) -> None:
    for path, value, metadata in _all_settings(config):
        check_range(path, value, metadata)
    if config.split.validation + config.split.test >= 1:
        raise ConfigError(
            "split.validation and split.test must leave rows for training; given "
            f"{config.split.validation} + {config.split.test}"
        )
