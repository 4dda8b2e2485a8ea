"""Search spaces: the settings that a model declares, as parameters of an Optuna trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fielddep.config import Config
from fielddep.experiments.contenders import Contender
from fielddep.experiments.tree_configs import TreeConfig
from fielddep.model_config import LEARNING_RATE_SEARCH
from fielddep.setting import Between, Space

if TYPE_CHECKING:
    import optuna

OPTIMIZER, RATE = "train.optimizer", "train.lr"


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Where a search looks.

    Attributes:
        config: settings that the search starts from.
        spaces: where it looks, by dotted setting.
        has_rate: whether it looks for `train.lr` too, in the range of the optimiser at hand.
        starts: settings that are tried first: no change, then what the model declares as good starts.
    """

    config: Config
    spaces: Mapping[str, Space]
    has_rate: bool
    starts: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, contender: Contender, given: Mapping[str, Any]) -> SearchSpace:
        """What the model declares, but for settings that are given or make the contender a variant: they stay."""
        config, fixed = contender.config(given), {*contender.settings, *given}
        model = config.model
        starts = [{path: value for path, value in start.items() if path not in fixed} for start in model.STARTS]
        return cls(
            config=config,
            spaces={path: space for path, space in model.SEARCH.items() if path not in fixed},
            has_rate=RATE not in fixed and not isinstance(model, TreeConfig),
            starts=({}, *filter(None, starts)),
        )

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """Dotted settings that Optuna chooses."""
        settings = {path: _suggest(trial, path, space) for path, space in self.spaces.items()}
        if self.has_rate:
            optimizer = settings.get(OPTIMIZER) or self._optimizer(self.config)
            settings[RATE] = _suggest(trial, rate_name(optimizer), LEARNING_RATE_SEARCH[optimizer])
        return settings

    def point(self, config: Config) -> dict[str, Any]:
        """The parameters of settings of which nothing is open; a value outside its space is left out."""
        spaces = {path: (path, space) for path, space in self.spaces.items()}
        if self.has_rate:
            optimizer = self._optimizer(config)
            spaces[RATE] = (rate_name(optimizer), LEARNING_RATE_SEARCH[optimizer])
        found = {name: _parameter(space, _value(config, path)) for path, (name, space) in spaces.items()}
        return {name: value for name, value in found.items() if value is not None}

    def register(self, trial: optuna.Trial, point: Mapping[str, Any]) -> None:
        """Let a trial that was given its point know the spaces, so that the search learns from it."""
        rates = {rate_name(optimizer): space for optimizer, space in LEARNING_RATE_SEARCH.items()}
        for name in point:
            _suggest(trial, name, {**self.spaces, **rates}[name])

    def _optimizer(self, config: Config) -> str:
        return config.train.optimizer or config.model.OPTIMIZER


def rate_name(optimizer: str) -> str:
    """Name of the parameter; one an optimiser, as their ranges have nothing in common."""
    return f"{RATE} ({optimizer})"


def _suggest(trial: optuna.Trial, name: str, space: Space) -> Any:
    """One value; whole numbers where both ends of a range are."""
    if not isinstance(space, Between):
        # Optuna keeps texts and numbers, but no lists.
        texts = {_text(value): value for value in space.values}
        return texts[trial.suggest_categorical(name, list(texts))]
    if isinstance(space.low, int) and isinstance(space.high, int):
        return trial.suggest_int(name, space.low, space.high, log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _parameter(space: Space, value: Any) -> Any:
    """A value as Optuna keeps it; None where the space does not hold it."""
    if isinstance(space, Between):
        return value if value is not None and space.low <= value <= space.high else None
    return _text(value) if value in space.values else None


def _text(value: Any) -> str:
    return json.dumps(value)


def _value(config: Config, path: str) -> Any:
    section, key = path.split(".")
    return getattr(getattr(config, section), key)
