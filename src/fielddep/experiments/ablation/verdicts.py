"""Verdicts on claims, by rules that look at nothing but numbers: a claim holds, does not hold, or is undecided.

Curves are compared seed by seed: what is so in every seed is decided, what differs from seed to seed is not. Settings
that are trained apart are compared by one-sided Dunnett tests in both directions. One seed decides nothing, as it has
no spread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from fielddep.experiments.ablation.points import Value, short
from fielddep.experiments.formatting import p_value
from fielddep.experiments.significance import DunnettTable

Verdict = Literal["holds", "does not hold", "undecided"]
LEVEL = 0.05
NEAR_STEPS = 1
"""How far from the T of training a T is still near to it."""
IGNORED_SHARE, IGNORED_OF_RANGE = 0.01, 0.0001
"""A rise by less than these shares, of the value itself and of a curve's whole range, is not counted: where a curve is
flat it is rounding. A fall by less than the first, from end to end, is none."""
EQUAL_SHARE = 0.0001
"""Losses that differ by less than this share of them are equal."""

Curves = Mapping[int, Sequence[float]]
"""A figure over the values of a setting, by seed."""


def judge_falling(curves: Mapping[str, Curves], xs: Sequence[Value]) -> tuple[Verdict, str]:
    """Whether curves fall all the way, in every seed and on every part: curves by part, and what they run over.

    Example:
        >>> judge_falling({"test": {0: [3, 2, 1], 1: [5, 4, 2]}}, [1, 10, 100])
        ('holds', 'It falls all the way in all 2 seeds (test: 4 at 1, 1.5 at 100)')
    """
    n_seeds = min(len(by_seed) for by_seed in curves.values())
    if n_seeds < 2:
        return "undecided", _too_few(n_seeds)
    ends = "; ".join(f"{part}: {_ends(by_seed, xs)}" for part, by_seed in curves.items())
    rises = {part: [_rises(curve) for curve in by_seed.values()] for part, by_seed in curves.items()}
    rising = {part: found for part, found in rises.items() if any(found)}
    if rising:
        where = "; ".join(_where(part, found, xs) for part, found in rising.items())
        in_every_seed = any(all(found) for found in rising.values())
        return ("does not hold" if in_every_seed else "undecided"), f"It rises on {where} ({ends})"
    if not all(_falls(curve) for by_seed in curves.values() for curve in by_seed.values()):
        return "undecided", f"It changes by less than {IGNORED_SHARE:.0%} in some seed ({ends})"
    return "holds", f"It falls all the way in all {n_seeds} seeds ({ends})"


def _rises(curve: Sequence[float]) -> list[int]:
    """Places at which a curve goes up, or is no number any more."""
    known = [y for y in curve if math.isfinite(y)]
    floor = IGNORED_OF_RANGE * (max(known) - min(known)) if known else 0.0
    pairs = enumerate(itertools.pairwise(curve))
    return [at for at, (y, after) in pairs if not after <= y + max(floor, IGNORED_SHARE * abs(y))]


def _falls(curve: Sequence[float]) -> bool:
    return curve[-1] < curve[0] - IGNORED_SHARE * abs(curve[0])


def _ends(by_seed: Curves, xs: Sequence[Value]) -> str:
    first, last = (_mean([curve[at] for curve in by_seed.values()]) for at in (0, -1))
    return f"{first:.3g} at {short(xs[0])}, {last:.3g} at {short(xs[-1])}"


def _where(part: str, rises: Sequence[Sequence[int]], xs: Sequence[Value]) -> str:
    places = sorted({at for found in rises for at in found})
    spans = ", ".join(f"{short(xs[at])} to {short(xs[at + 1])}" for at in places)
    return f"{part} from {spans} in {sum(map(bool, rises))} of {len(rises)} seeds"


def judge_near(curves: Curves, steps: Sequence[int], trained: int) -> tuple[Verdict, str]:
    """Whether curves by seed have their lowest value near a number of steps.

    Example:
        >>> judge_near({0: [3, 1, 2, 4], 1: [3, 2, 1, 4]}, [0, 4, 5, 10], 4)
        ('holds', 'Best T by seed: 4, 5; mean loss 1.5 at T = 4, 1.5 at the best T = 4')
    """
    if len(curves) < 2:
        return "undecided", _too_few(len(curves))
    best = [_lowest(curve, steps)[1] for curve in curves.values()]
    means = [_mean([curve[at] for curve in curves.values()]) for at in range(len(steps))]
    least, where = _lowest(means, steps)
    at_trained = f"{means[steps.index(trained)]:.5g} at T = {trained}, " if trained in steps else ""
    reason = f"Best T by seed: {', '.join(map(str, best))}; mean loss {at_trained}{least:.5g} at the best T = {where}"
    gains = [_gain_near(curve, steps, trained) for curve in curves.values()]
    if all(gain > EQUAL_SHARE for gain in gains):
        return "holds", reason
    return ("does not hold" if all(gain < -EQUAL_SHARE for gain in gains) else "undecided"), reason


def _gain_near(curve: Sequence[float], steps: Sequence[int], trained: int) -> float:
    """How much lower the lowest loss near the T of training is than the lowest elsewhere, as a share of it."""
    is_near = [abs(step - trained) <= NEAR_STEPS for step in steps]
    near = min((_known(y) for y, inside in zip(curve, is_near, strict=True) if inside), default=math.inf)
    far = min((_known(y) for y, inside in zip(curve, is_near, strict=True) if not inside), default=math.inf)
    if math.isinf(near) or math.isinf(far):
        return 0.0 if near == far else math.inf if math.isinf(far) else -math.inf
    return (far - near) / max(abs(near), abs(far), math.ulp(0))


def _lowest(curve: Sequence[float], steps: Sequence[int]) -> tuple[float, int]:
    return min(zip(map(_known, curve), steps, strict=True), key=lambda pair: pair[0])


def _known(loss: float) -> float:
    """A loss; what is no number is worse than any."""
    return loss if math.isfinite(loss) else math.inf


def judge_worse(tests: tuple[DunnettTable, DunnettTable] | None, others: Sequence[str]) -> tuple[Verdict, str]:
    """Whether all others are worse than the control: tests of "worse" and of "better"."""
    if tests is None:
        return "undecided", "There are no finished runs to compare with"
    worse, superior = tests
    rows = [row for row in worse.rows if row.model in others]
    if worse.anova_f is None or len(rows) < len(others):
        return "undecided", "; ".join(worse.notes) or "Not all settings have finished runs"
    reason = "; ".join(
        f"{row.model} minus {worse.control}: {row.estimate:+.3g} "
        f"(p of worse {_p(worse, row.model)}, of better {_p(superior, row.model)})"
        for row in rows
    )
    if all(_is_significant(worse, row.model) for row in rows):
        return "holds", reason
    return ("does not hold" if any(_is_significant(superior, row.model) for row in rows) else "undecided"), reason


def _is_significant(tests: DunnettTable, model: str) -> bool:
    p = tests.p(model)
    return p is not None and p < LEVEL


def _p(tests: DunnettTable, model: str) -> str:
    p = tests.p(model)
    return p_value(p) if p is None or p < 0.001 else f"{p:.3f}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _too_few(n_seeds: int) -> str:
    return "One seed has no spread; run at least two" if n_seeds == 1 else "There are no finished runs of all settings"
