"""Plan of an ablation: which of the paper's questions are asked, and which trainings answer them.

Equal settings are one training, whichever questions it answers: MDL with its tuned settings is a variant, a lambda, a T
and a depth at once, and is trained once per seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fielddep.config.mdl import MDLConfig
from fielddep.config.settings import Config
from fielddep.errors import UserError
from fielddep.experiments.plan import ALL, Contender, Plan, find_contender
from fielddep.wording import did_you_mean

VARIANTS, SPARSITY, STEPS, DEPTH, PARTS = "variants", "sparsity", "steps", "depth", "parts"
DEFAULT_SEEDS = {VARIANTS: 5, SPARSITY: 3, STEPS: 3, DEPTH: 3, PARTS: 5}
"""Seeds by question if none are given: differences between variants need more than curves do."""
QUESTIONS = (VARIANTS, SPARSITY, STEPS, DEPTH)
"""The paper's questions; the parts of the model are another one."""
WITHOUT, GLOBAL, MDL = "mdl-wo-dep", "mdl-global-dep", "mdl"
"""The paper's two variants, and the model itself."""
VARIANT, ZETA, LAMBDA, PART = "variant", "zeta", "sparsity", "part"
EVALUATED_STEPS, TRAINED_STEPS, LAYERS = "evaluated_steps", "trained_steps", "layers"
DEFAULT_WIDTH = 100
"""Width of hidden layers if the tuned network has none."""
DIGITS = 3
"""Digits of a lambda that is not the tuned one."""
PAPER_STEPS, PAPER_LAYERS = 4, 3
"""The best T to train with and the best depth in the paper's appendix."""
TRAIN_ROWS = 200_000

Value = str | float | int


@dataclass(frozen=True, kw_only=True)
class AblationPlan:
    """The questions of an ablation, and how they are answered.

    Attributes:
        questions: some of `QUESTIONS`, or `PARTS`.
        runs: how settings are found and trainings are run; its number of seeds is ignored.
        seeds: runs of every setting; None for `DEFAULT_SEEDS`.
        zetas: weights of the dependency loss for *global dep*; validation rows choose one.
        sparsity_factors: multiples of the tuned lambda.
        trained_steps: numbers of refinement steps (T) to train with.
        steps_of_training: T of the model that is evaluated with other numbers of steps.
        evaluated_steps: those numbers.
        layers: linear layers of the network, output included; the tuned number is added if it is missing.
        train_rows: training rows to measure on at most, drawn at random.

    Raises:
        UserError: there are no seeds, or no rows to measure on.
    """

    questions: tuple[str, ...]
    runs: Plan
    seeds: int | None = None
    zetas: tuple[float, ...] = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
    sparsity_factors: tuple[float, ...] = tuple(10 ** (k / 2) for k in range(-3, 4))
    trained_steps: tuple[int, ...] = (0, 1, 2, 4, 6, 8)
    steps_of_training: int = 4
    evaluated_steps: tuple[int, ...] = tuple(range(11))
    layers: tuple[int, ...] = (2, 3, 4)
    train_rows: int = TRAIN_ROWS

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise UserError(f"expected at least one seed, given {self.seeds}")
        if self.train_rows < 1:
            raise UserError(f"expected at least one training row to measure on, given {self.train_rows}")

    def n_seeds(self, question: str) -> int:
        """Runs of every setting of a question."""
        return DEFAULT_SEEDS[question] if self.seeds is None else self.seeds


def parse_questions(text: str) -> tuple[str, ...]:
    """The questions in a list such as "variants,steps"; "all" stands for every question of the paper.

    Raises:
        UserError: a question is unknown, or the list is empty.

    Example:
        >>> parse_questions("depth,variants")
        ('variants', 'depth')
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in (*DEFAULT_SEEDS, ALL):
            advice = did_you_mean(word, [*DEFAULT_SEEDS, ALL], what="questions")
            raise UserError(f"an ablation has no question {word!r}; {advice}")
    if not words:
        raise UserError(f"expected {', '.join(DEFAULT_SEEDS)} or {ALL}, given {text!r}")
    wanted = {*words, *(QUESTIONS if ALL in words else ())}
    return tuple(question for question in DEFAULT_SEEDS if question in wanted)


def ablated_contenders(questions: Sequence[str]) -> tuple[Contender, ...]:
    """The models whose settings are needed."""
    names = [MDL]
    if VARIANTS in questions:
        names = [WITHOUT, GLOBAL, MDL]
    elif PARTS in questions:
        names = [WITHOUT, MDL]
    return tuple(map(find_contender, names))


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings to train with, their name in files, and the name of the rows if they are not those of all others."""

    name: str
    config: Config
    rows: str = ""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of a setting.

    Attributes:
        value: the value.
        training: the training with this value.
        n_steps: refinement steps of the evaluation; None: as many as in training.
        form: another way to evaluate the training; empty: as it is.
    """

    value: Value
    training: Training
    n_steps: int | None = None
    form: str = ""

    def figure(self, metric: str) -> str:
        """Name of a metric among the figures of a run."""
        form = self.form if self.n_steps is None else str(self.n_steps)
        return f"{metric}@{form}" if form else metric


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A setting that is varied.

    Attributes:
        question: the question that it answers.
        setting: what is varied.
        points: its values.
        control: the value that the others are compared with.
        control_is: why, in one word.
    """

    question: str
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
        UserError: the settings have no refinement.
    """
    dependencies = mdl_settings(config).dependencies
    if dependencies != "refined":
        raise UserError(
            f"an ablation needs settings of {MDL} with model.dependencies = 'refined', given {dependencies!r}; drop "
            "that setting"
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
    trainings = {
        zeta: Training(name=f"{GLOBAL}-{ZETA}-{zeta:g}", config=config.replace({"model.global_penalty": zeta}))
        for zeta in plan.zetas
    }
    return Sweep(question=VARIANTS, setting=ZETA, points=_points(trainings))


def variant_sweep(base: Training, without: Config, global_dep: Training) -> Sweep:
    """The two variants and the model itself."""
    trainings = {WITHOUT: Training(name=WITHOUT, config=without), GLOBAL: global_dep, MDL: base}
    return Sweep(question=VARIANTS, setting=VARIANT, points=_points(trainings), control=MDL)


def curve_sweeps(question: str, base: Training, plan: AblationPlan) -> tuple[Sweep, ...]:
    """The settings that are varied for a question other than that of the variants."""
    if question == SPARSITY:
        return (_sparsity_sweep(base, plan),)
    if question == STEPS:
        return _evaluated_sweep(base, plan), _trained_sweep(base, plan)
    assert question == DEPTH
    return (_depth_sweep(base, plan),)


def _sparsity_sweep(base: Training, plan: AblationPlan) -> Sweep:
    best = mdl_settings(base.config).sparsity
    values = [best if factor == 1 else _rounded(best * factor) for factor in plan.sparsity_factors]
    points = _points(_varied(base, LAMBDA, values, lambda value: {"model.sparsity": value}))
    return Sweep(question=SPARSITY, setting=LAMBDA, points=points, control=best, control_is="tuned")


def _evaluated_sweep(base: Training, plan: AblationPlan) -> Sweep:
    training = steps_training(base, plan)
    points = tuple(Point(value=t, training=training, n_steps=t) for t in plan.evaluated_steps)
    return Sweep(
        question=STEPS, setting=EVALUATED_STEPS, points=points, control=plan.steps_of_training, control_is="trained"
    )


def _trained_sweep(base: Training, plan: AblationPlan) -> Sweep:
    points = _points(_varied(base, TRAINED_STEPS, plan.trained_steps, lambda t: {"model.n_inner_steps": t}))
    return Sweep(question=STEPS, setting=TRAINED_STEPS, points=points, control=PAPER_STEPS, control_is="paper")


def _depth_sweep(base: Training, plan: AblationPlan) -> Sweep:
    """The depths of the plan and the tuned one."""
    width, n_tuned = hidden_width(base.config), len(mdl_settings(base.config).hidden) + 1
    trainings = _varied(base, LAYERS, plan.layers, lambda n: {"model.hidden": (width,) * (n - 1)})
    trainings.setdefault(n_tuned, base)
    points = _points({n: trainings[n] for n in sorted(trainings)})
    return Sweep(question=DEPTH, setting=LAYERS, points=points, control=PAPER_LAYERS, control_is="paper")


def hidden_width(config: Config) -> int:
    """Width of hidden layers when their number is varied."""
    hidden = mdl_settings(config).hidden
    return hidden[0] if hidden else DEFAULT_WIDTH


def _points(trainings: Mapping[Any, Training]) -> tuple[Point, ...]:
    return tuple(Point(value=value, training=training) for value, training in trainings.items())


def _varied(
    base: Training, setting: str, values: Iterable[Any], settings: Callable[[Any], Mapping[str, Any]]
) -> dict[Any, Training]:
    return {value: _changed(base, setting, value, settings(value)) for value in values}


def _changed(base: Training, setting: str, value: float, settings: Mapping[str, Any]) -> Training:
    """The tuned training with a setting changed; the tuned training itself if nothing changes."""
    config = base.config.replace(settings)
    return base if config == base.config else Training(name=f"{setting}-{value:g}", config=config)


def format_value(value: Value) -> str:
    """A value as tables show it.

    Example:
        >>> format_value(2869.7), format_value("mdl")
        ('2870', 'mdl')
    """
    return value if isinstance(value, str) else f"{_rounded(value):g}"


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
