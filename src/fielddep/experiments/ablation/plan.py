"""Plan of an ablation: which of the paper's questions are asked, with how many seeds, on which grids."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from fielddep.errors import UserError
from fielddep.experiments.contenders import Contender, find_contender
from fielddep.experiments.plan import Plan

ALL = "all"
VARIANTS, SPARSITY, STEPS, DEPTH = "variants", "sparsity", "steps", "depth"
DEFAULT_SEEDS = {VARIANTS: 5, SPARSITY: 3, STEPS: 3, DEPTH: 3}
"""Seeds by what is asked, where none are given: tests between variants need more than curves do."""
WHATS = tuple(DEFAULT_SEEDS)

WITHOUT, GLOBAL, MDL = "mdl-wo-dep", "mdl-global-dep", "mdl"
"""The paper's two variants, and the model itself."""
TRAIN_ROWS = 200_000


@dataclass(frozen=True, kw_only=True)
class AblationPlan:
    """What an ablation asks, and how.

    Attributes:
        whats: what is asked, of `WHATS`.
        runs: how settings are found and trainings are run; its number of seeds is not looked at.
        seeds: runs of every setting; None for `DEFAULT_SEEDS`.
        zetas: weights of the dependency loss that *global dep* may have; validation rows choose.
        sparsity_factors: lambda is varied by these factors of its tuned value.
        trained_steps: numbers of refinement steps (T) to train with.
        steps_of_training: T of the model that is evaluated with other numbers of steps.
        evaluated_steps: those numbers.
        layers: linear layers of the network, the output among them; the tuned number is added where it is missing.
        train_rows: training rows at most that are measured on, a random sample where there are more.

    Raises:
        UserError: for no seeds, or no rows to measure on.
    """

    whats: tuple[str, ...]
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
            raise UserError(f"an ablation needs at least one seed, given {self.seeds}")
        if self.train_rows < 1:
            raise UserError(f"an ablation measures on at least one training row, given {self.train_rows}")

    def n_seeds(self, what: str) -> int:
        """Runs of every setting of what is asked."""
        return DEFAULT_SEEDS[what] if self.seeds is None else self.seeds


def find_whats(text: str) -> tuple[str, ...]:
    """What is asked by a list such as "variants,steps"; "all" stands for everything.

    Raises:
        UserError: for an unknown word, or none at all.

    Example:
        >>> find_whats("depth,variants")
        ('variants', 'depth')
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in (*WHATS, ALL):
            near = difflib.get_close_matches(word.lower(), [*WHATS, ALL], n=1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"an ablation asks for {', '.join(WHATS)} or {ALL}, given {word!r}{advice}")
    if not words:
        raise UserError(f"an ablation asks for {', '.join(WHATS)} or {ALL}; given {text!r}")
    return tuple(what for what in WHATS if what in words or ALL in words)


def ablated_contenders(whats: Sequence[str]) -> tuple[Contender, ...]:
    """The models whose settings are needed."""
    names = (WITHOUT, GLOBAL, MDL) if VARIANTS in whats else (MDL,)
    return tuple(find_contender(name) for name in names)
