"""Points of an ablation: the settings that are varied, and the trainings that answer for them.

Trainings with equal settings are one, whatever was asked: MDL with its tuned settings is a variant, a lambda, a T and a
depth at once, and is trained once a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fielddep.config import Config
from fielddep.errors import UserError
from fielddep.experiments.ablation.plan import DEPTH, GLOBAL, MDL, SPARSITY, STEPS, VARIANTS, WITHOUT, AblationPlan
from fielddep.model_config import MDLConfig

VARIANT, ZETA, LAMBDA = "variant", "zeta", "sparsity"
EVALUATED_STEPS, TRAINED_STEPS, LAYERS = "evaluated_steps", "trained_steps", "layers"
DEFAULT_WIDTH = 100
"""Width of hidden layers where the tuned network has none."""
DIGITS = 3
"""Digits of a lambda that is not the tuned one."""

PAPER_STEPS, PAPER_LAYERS = 4, 3
"""The best T to train with and the best depth in the paper's appendix."""

Value = str | float | int


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings that are trained, and their name in files."""

    name: str
    config: Config


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of a setting.

    Attributes:
        value: the value.
        training: the training that answers for it.
        n_steps: number of refinement steps that it is evaluated with; None: as it was trained.
    """

    value: Value
    training: Training
    n_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A setting that is varied.

    Attributes:
        what: what it is asked for.
        setting: what is varied.
        points: its values.
        control: the value that the others are compared with.
        control_is: one word that says why.
    """

    what: str
    setting: str
    points: tuple[Point, ...]
    control: Value | None = None
    control_is: str = ""

    @property
    def trainings(self) -> tuple[Training, ...]:
        """The different trainings."""
        return tuple({point.training.name: point.training for point in self.points}.values())


def tuned(config: Config) -> Training:
    """MDL with its tuned settings.

    Raises:
        UserError: they are not those of a model that refines.
    """
    model = mdl_settings(config)
    if model.dependencies != "refined":
        raise UserError(
            f"an ablation starts from a model that refines, the settings of {MDL} have model.dependencies = "
            f"{model.dependencies!r}; leave it out of them"
        )
    return Training(name=MDL, config=config)


def mdl_settings(config: Config) -> MDLConfig:
    """The settings of MDL."""
    assert isinstance(config.model, MDLConfig)
    return config.model


def steps_training(base: Training, plan: AblationPlan) -> Training:
    """The training that is evaluated with other numbers of steps."""
    return _changed(base, TRAINED_STEPS, plan.steps_of_training, {"model.n_inner_steps": plan.steps_of_training})


def zeta_sweep(config: Config, plan: AblationPlan) -> Sweep:
    """*global dep* with every weight of the dependency loss."""
    points = [
        Point(value=zeta, training=_named(f"{GLOBAL}-{ZETA}", zeta, config.replace({"model.global_penalty": zeta})))
        for zeta in plan.zetas
    ]
    return Sweep(what=VARIANTS, setting=ZETA, points=tuple(points))


def variant_sweep(base: Training, without: Config, global_dep: Training) -> Sweep:
    """The two variants and the model itself."""
    trainings = {WITHOUT: Training(name=WITHOUT, config=without), GLOBAL: global_dep, MDL: base}
    points = tuple(Point(value=name, training=training) for name, training in trainings.items())
    return Sweep(what=VARIANTS, setting=VARIANT, points=points, control=MDL)


def curve_sweeps(what: str, base: Training, plan: AblationPlan) -> tuple[Sweep, ...]:
    """The settings that are varied for anything but the variants."""
    if what == SPARSITY:
        return (_sparsity_sweep(base, plan),)
    if what == STEPS:
        return _evaluated_sweep(base, plan), _trained_sweep(base, plan)
    assert what == DEPTH
    return (_depth_sweep(base, plan),)


def _sparsity_sweep(base: Training, plan: AblationPlan) -> Sweep:
    best = mdl_settings(base.config).sparsity
    values = [best if factor == 1 else _rounded(best * factor) for factor in plan.sparsity_factors]
    points = tuple(Point(value=v, training=_changed(base, LAMBDA, v, {"model.sparsity": v})) for v in values)
    return Sweep(what=SPARSITY, setting=LAMBDA, points=points, control=best, control_is="tuned")


def _evaluated_sweep(base: Training, plan: AblationPlan) -> Sweep:
    training = steps_training(base, plan)
    points = tuple(Point(value=t, training=training, n_steps=t) for t in plan.evaluated_steps)
    return Sweep(
        what=STEPS, setting=EVALUATED_STEPS, points=points, control=plan.steps_of_training, control_is="trained"
    )


def _trained_sweep(base: Training, plan: AblationPlan) -> Sweep:
    points = tuple(
        Point(value=t, training=_changed(base, TRAINED_STEPS, t, {"model.n_inner_steps": t}))
        for t in plan.trained_steps
    )
    return Sweep(what=STEPS, setting=TRAINED_STEPS, points=points, control=PAPER_STEPS, control_is="paper")


def _depth_sweep(base: Training, plan: AblationPlan) -> Sweep:
    """The depths that are asked, and the tuned one where it is none of them."""
    width, n_tuned = hidden_width(base.config), len(mdl_settings(base.config).hidden) + 1
    trainings = {n: _changed(base, LAYERS, n, {"model.hidden": (width,) * (n - 1)}) for n in plan.layers}
    trainings.setdefault(n_tuned, base)
    points = tuple(Point(value=n, training=trainings[n]) for n in sorted(trainings))
    return Sweep(what=DEPTH, setting=LAYERS, points=points, control=PAPER_LAYERS, control_is="paper")


def hidden_width(config: Config) -> int:
    """How wide hidden layers are where their number is varied."""
    hidden = mdl_settings(config).hidden
    return hidden[0] if hidden else DEFAULT_WIDTH


def _changed(base: Training, setting: str, value: float, settings: Mapping[str, Any]) -> Training:
    """The tuned training with a setting changed; itself where that changes nothing."""
    config = base.config.replace(settings)
    return base if config == base.config else _named(setting, value, config)


def _named(setting: str, value: float, config: Config) -> Training:
    return Training(name=f"{setting}-{value:g}", config=config)


def short(value: Value) -> str:
    """A value as tables show it.

    Example:
        >>> short(2869.7), short("mdl")
        ('2870', 'mdl')
    """
    return value if isinstance(value, str) else f"{_rounded(value):g}"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
