"""Contenders: what can be searched and compared, by name: every model, the trees, and variants of models."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from fielddep.config.mdl import ModelConfig
from fielddep.config.settings import MODEL_CONFIGS, Config, dotted_settings, read_toml
from fielddep.config.trees import TREE_CONFIGS
from fielddep.errors import ConfigError, UserError
from fielddep.training.trees import check_installed, installed_trees
from fielddep.wording import did_you_mean

ALL = "all"
CONFIG_CLASSES: Mapping[str, type[ModelConfig]] = {**MODEL_CONFIGS, **TREE_CONFIGS}
"""Settings of every model and of the trees, by name."""
PER_RUN = ("train.seed", "train.device", "train.threads")
"""Settings that belong to one run and not to what a search found."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A model, or a variant of one.

    Attributes:
        name: its name in tables and files.
        model: the model whose settings it has.
        settings: what makes it a variant; they override what a search of the model found.
    """

    name: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def config(self, values: Mapping[str, Any] | None = None) -> Config:
        """Settings of the model with dotted ones changed; those of the variant override them."""
        base = dataclasses.replace(Config(), model=CONFIG_CLASSES[self.model]())
        return base.replace({**(values or {}), **self.settings})


VARIANTS: Mapping[str, Contender] = {
    "mdl-wo-dep": Contender(name="mdl-wo-dep", model="mdl", settings={"model.dependencies": "none"}),
    "mdl-global-dep": Contender(name="mdl-global-dep", model="mdl", settings={"model.dependencies": "global"}),
}
"""Variants by name; a variant is compared with the tuned settings of its model, all else equal."""


def known_contender(name: str) -> Contender | None:
    """The contender of a name, whether its library is installed or not; None for an unknown name."""
    if name in VARIANTS:
        return VARIANTS[name]
    return Contender(name=name, model=name) if name in CONFIG_CLASSES else None


def find_contender(name: str) -> Contender:
    """The contender of a name.

    Raises:
        UserError: for an unknown name; suggests the nearest.
        MissingExtraError: its library is not installed.
    """
    found = known_contender(name)
    if found is None:
        known = [*CONFIG_CLASSES, *VARIANTS]
        raise UserError(f"no model is called {name!r}; {did_you_mean(name, known, what='models')}")
    check_installed(found.model)
    return found


def find_contenders(names: str) -> tuple[Contender, ...]:
    """Contenders in a list such as "mdl,fm"; "all" stands for every model and for the trees that are installed.

    Raises:
        UserError: for an unknown name, or none at all.
    """
    chosen: list[str] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        chosen += [*MODEL_CONFIGS, *installed_trees()] if name == ALL else [name]
    if not chosen:
        raise UserError(f"expected models such as mdl,fm or {ALL}, given {names!r}")
    return tuple(find_contender(name) for name in dict.fromkeys(chosen))


def read_settings(
    path: Path, contender: Contender, sections: Sequence[str] = ("data", "split", "model", "train")
) -> dict[str, Any]:
    """Dotted settings of some sections of a TOML file for a contender.

    Raises:
        ConfigError: the file cannot be read, or is of another model.
    """
    values = read_toml(path)
    name = values.pop("model.name", "mdl")
    if name != contender.model:
        raise ConfigError(f"expected settings of {contender.model} in {path}, given those of {name}; use another file")
    contender.config(values)  # refuses unknown settings, in the other sections too
    return {path: value for path, value in values.items() if path.split(".")[0] in sections}


def changed_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Nested settings that are not the defaults of their model, and the model's name; what `config_of` reads.

    Seed, device and threads are not among them: they belong to a run.
    """
    defaults = dataclasses.replace(Config(), model=type(config.model)()).to_dict()
    changed = {
        section: {
            key: value
            for key, value in settings.items()
            if value != defaults[section].get(key) and f"{section}.{key}" not in PER_RUN
        }
        for section, settings in config.to_dict().items()
    }
    changed["model"] = {"name": config.model.name, **changed["model"]}
    return {section: settings for section, settings in changed.items() if settings}


def settings_toml(config: Config) -> str:
    """The same as TOML that `fielddep fit --config` takes, where it can train the model."""
    return tomli_w.dumps(changed_settings(config))


def config_of(values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Settings of any model from nested values, such as `changed_settings` gives."""
    dotted = dotted_settings(values)
    model = dotted.pop("model.name", "mdl")
    return Contender(name=model, model=model).config(dotted)
