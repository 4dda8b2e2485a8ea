"""Claims of the paper's ablations, and whether the numbers of an ablation support them.

A claim holds, does not hold, or is undecided, by fixed rules. Evaluations of one model are judged seed by seed: what
all seeds agree on is decided. Settings with trainings of their own are judged by one-sided Dunnett tests in both
directions. One seed has no spread and decides nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fielddep.config.metrics import METRICS, Better, metric_title
from fielddep.experiments.ablation.plan import (
    EVALUATED_STEPS,
    GLOBAL,
    LAMBDA,
    LAYERS,
    TRAINED_STEPS,
    VARIANT,
    WITHOUT,
    Value,
    format_value,
)
from fielddep.experiments.ablation.trainings import DEPENDENCY_LOSS, MU_STD, PARTS, SweepResult
from fielddep.experiments.rendering import markdown_text, p_value
from fielddep.experiments.significance import DunnettTable, dunnett_table

Verdict = Literal["holds", "does not hold", "undecided"]
NEAR_STEPS = 1
"""A T that differs from the T of training by at most this is near it."""
IGNORED_SHARE, IGNORED_OF_RANGE = 0.01, 0.0001
"""A rise below these shares, of the value itself and of the range of the curve, is rounding. A fall from end to end
below the first does not count."""
EQUAL_SHARE = 0.0001
"""Losses that differ by less than this share are equal."""

NO_RUNS = "There are no finished runs to compare with"
AUC = "auc"
HELD_OUT = ("validation", "test")

Curves = Mapping[int, Sequence[float]]
"""A figure over the values of a setting, by seed."""
Judgement = tuple[Verdict, str]
"""A verdict and its reason."""


def _verdict(*, holds: bool, fails: bool) -> Verdict:
    return "holds" if holds else "does not hold" if fails else "undecided"


def judge_falling(curves: Mapping[str, Curves], xs: Sequence[Value]) -> Judgement:
    """Whether curves over the values `xs` of a setting fall all the way, in every seed and on every part.

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
        in_every_seed = any(map(all, rising.values()))
        return _verdict(holds=False, fails=in_every_seed), f"It rises on {where} ({ends})"
    each = [curve for by_seed in curves.values() for curve in by_seed.values()]
    if not all(curve[-1] < curve[0] - IGNORED_SHARE * abs(curve[0]) for curve in each):
        return "undecided", f"It changes by less than {IGNORED_SHARE:.0%} in some seed ({ends})"
    return "holds", f"It falls all the way in all {n_seeds} seeds ({ends})"


def _rises(curve: Sequence[float]) -> list[int]:
    """Places at which a curve goes up or stops being a number."""
    known = [y for y in curve if math.isfinite(y)]
    floor = IGNORED_OF_RANGE * (max(known) - min(known)) if known else 0.0
    pairs = enumerate(itertools.pairwise(curve))
    return [at for at, (y, after) in pairs if not after <= y + max(floor, IGNORED_SHARE * abs(y))]


def _ends(by_seed: Curves, xs: Sequence[Value]) -> str:
    """The mean over seeds at both ends, and at the lowest place in between."""
    means = _means(by_seed, len(xs))
    lowest = min(range(len(xs)), key=lambda at: _known(means[at]))
    return ", ".join(f"{means[at]:.3g} at {format_value(xs[at])}" for at in sorted({0, lowest, len(xs) - 1}))


def _where(part: str, rises: Sequence[Sequence[int]], xs: Sequence[Value]) -> str:
    places = sorted({at for found in rises for at in found})
    where = ", ".join(f"{format_value(xs[at])} to {format_value(xs[at + 1])}" for at in places)
    return f"{part} from {where} in {sum(map(bool, rises))} of {len(rises)} seeds"


def judge_near(curves: Curves, steps: Sequence[int], trained: int) -> Judgement:
    """Whether the curves of all seeds are lowest near a number of steps.

    Example:
        >>> judge_near({0: [3, 1, 2, 4], 1: [3, 2, 1, 4]}, [0, 4, 5, 10], 4)
        ('holds', 'Best T by seed: 4, 5; mean loss 1.5 at T = 4, 1.5 at the best T = 4')
    """
    if len(curves) < 2:
        return "undecided", _too_few(len(curves))
    best = [_lowest(curve, steps)[1] for curve in curves.values()]
    means = _means(curves, len(steps))
    least, where = _lowest(means, steps)
    at_trained = f"{means[steps.index(trained)]:.5g} at T = {trained}, " if trained in steps else ""
    reason = f"Best T by seed: {', '.join(map(str, best))}; mean loss {at_trained}{least:.5g} at the best T = {where}"
    gains = [_gain_near(curve, steps, trained) for curve in curves.values()]
    return _verdict(holds=min(gains) > EQUAL_SHARE, fails=max(gains) < -EQUAL_SHARE), reason


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
    """A loss; NaN is worse than any number."""
    return loss if math.isfinite(loss) else math.inf


def judge_together(curves: Mapping[str, tuple[Curves, Curves]], steps: Sequence[int]) -> Judgement:
    """Whether logloss and 1 - AUC are lowest at the same number of steps, in every seed and on every part.

    Example:
        >>> judge_together({"test": ({0: [3, 1, 2], 1: [3, 1, 2]}, {0: [3, 2, 1], 1: [3, 2, 1]})}, [0, 4, 6])
        ('does not hold', 'Best T for logloss and for AUC (test: 4 and 6, by seed 4 and 6, 4 and 6)')
    """
    n_seeds = min(len(by_seed) for pair in curves.values() for by_seed in pair)
    if n_seeds < 2:
        return "undecided", _too_few(n_seeds)
    found = [[_meet(losses[seed], errors[seed]) for seed in losses] for losses, errors in curves.values()]
    reason = "; ".join(f"{part}: {_lowest_places(*pair, steps)}" for part, pair in curves.items())
    reason = f"Best T for logloss and for AUC ({reason})"
    return _verdict(holds=all(map(all, found)), fails=not all(map(any, found))), reason


def _meet(losses: Sequence[float], errors: Sequence[float]) -> bool:
    """Whether both curves are lowest at some common place, up to rounding."""
    return bool(_lowest_at(losses) & _lowest_at(errors))


def _lowest_at(curve: Sequence[float]) -> set[int]:
    known = [_known(y) for y in curve]
    return {at for at, y in enumerate(known) if y <= min(known) * (1 + EQUAL_SHARE)}


def _lowest_places(losses: Curves, errors: Curves, steps: Sequence[int]) -> str:
    pairs = [(_means(losses, len(steps)), _means(errors, len(steps))), *((losses[s], errors[s]) for s in losses)]
    texts = [" and ".join(str(_lowest(curve, steps)[1]) for curve in pair) for pair in pairs]
    return f"{texts[0]}, by seed {', '.join(texts[1:])}"


Tests = tuple[DunnettTable, DunnettTable]
"""Tests of "worse than the control" and of "better"."""


def judge_levelling(first: Tests | None, last: Tests | None) -> Judgement:
    """Whether a loss falls as a setting grows, and does not rise again, by tests against both ends."""
    if first is None or last is None or last[0].anova_f is None:
        return "undecided", _why_untested(first, last)
    worse, superior = last
    smallest, best = first[0].control, _best_row(superior)
    reason = f"{_difference(worse, smallest)}; {_difference(superior, best)}"
    rises = superior.is_significant(best)
    return _verdict(holds=worse.is_significant(smallest) and not rises, fails=rises), reason


def judge_valley(first: Tests | None, last: Tests | None) -> Judgement:
    """Whether a loss first falls and then rises as a setting grows, by tests against both ends."""
    if first is None or last is None or last[0].anova_f is None:
        return "undecided", _why_untested(first, last)
    ends = (first, last)
    reason = "; ".join(_difference(superior, _best_row(superior)) for _, superior in ends)
    valley = all(superior.is_significant(_best_row(superior)) for _, superior in ends)
    inside = [row.model for row in last[0].rows if row.model != first[0].control]
    no_valley = any(all(worse.is_significant(value) for value in inside) for worse, _ in ends)
    return _verdict(holds=valley, fails=no_valley), reason


def _why_untested(*ends: Tests | None) -> str:
    return "; ".join(dict.fromkeys(note for end in ends if end is not None for note in end[0].notes)) or NO_RUNS


def _best_row(superior: DunnettTable) -> str:
    """The value that is most clearly better than the control."""
    return min(superior.rows, key=lambda row: 1.0 if row.p is None else row.p).model


def _difference(tests: DunnettTable, model: str) -> str:
    [row] = [row for row in tests.rows if row.model == model]
    return f"{model} minus {tests.control}: {row.estimate:+.3g} (p {_p(tests, model)})"


def judge_worse(tests: Tests | None, others: Sequence[str]) -> Judgement:
    """Whether all others are worse than the control."""
    if tests is None:
        return "undecided", NO_RUNS
    worse, superior = tests
    rows = [row for row in worse.rows if row.model in others]
    if worse.anova_f is None or len(rows) < len(others):
        return "undecided", "; ".join(worse.notes) or "Not all settings have finished runs"
    reason = "; ".join(
        f"{row.model} minus {worse.control}: {row.estimate:+.3g} "
        f"(p of worse {_p(worse, row.model)}, of better {_p(superior, row.model)})"
        for row in rows
    )
    all_worse = all(worse.is_significant(row.model) for row in rows)
    return _verdict(holds=all_worse, fails=any(superior.is_significant(row.model) for row in rows)), reason


def _p(tests: DunnettTable, model: str) -> str:
    p = tests.p(model)
    return p_value(p) if p is None or p < 0.001 else f"{p:.3f}"


def _means(curves: Curves, n: int) -> list[float]:
    """Means over seeds at every value of the setting."""
    return [math.fsum(curve[at] for curve in curves.values()) / len(curves) for at in range(n)]


def _too_few(n_seeds: int) -> str:
    return "One seed has no spread; run at least two" if n_seeds == 1 else "There are no finished runs of all settings"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper, the question it answers, and whether it holds, with the numbers as the reason."""

    question: str
    text: str
    verdict: Verdict
    reason: str

    def to_markdown(self) -> str:
        """A list item."""
        return f"- **{self.verdict}**: {markdown_text(self.text)}. {markdown_text(self.reason)}."


def claims_of(result: SweepResult) -> tuple[Claim, ...]:
    """The paper's claims on a setting; none if no run was successful."""
    judges: dict[str, Callable[[SweepResult], list[Judged]]] = {
        VARIANT: _variant_claims,
        LAMBDA: _lambda_claims,
        EVALUATED_STEPS: _evaluation_claims,
        TRAINED_STEPS: partial(_paper_is_best, unit="steps"),
        LAYERS: partial(_paper_is_best, unit="layers"),
    }
    judge = judges.get(result.sweep.setting)
    if judge is None or not result.metrics:
        return ()
    return tuple(
        Claim(question=result.sweep.question, text=text, verdict=verdict, reason=reason)
        for text, (verdict, reason) in judge(result)
    )


Judged = tuple[str, Judgement]
"""A claim, its verdict and the reason."""


def _lambda_claims(result: SweepResult) -> list[Judged]:
    """Does lambda change mu and the loss as in the paper's curves?"""
    loss, xs = result.metrics[0], _values(result)
    curves = {part: result.curves(part, MU_STD) for part in PARTS}
    claims: list[Judged] = [
        ("small lambda gives sparse mu: the std of mu/lambda falls as lambda grows", judge_falling(curves, xs))
    ]
    for part in PARTS:
        first, last = (_tests(result, part, loss, control=format_value(end)) for end in (xs[0], xs[-1]))
        rows, shape, judge = (
            ("training", "levels off", judge_levelling) if part == "train" else (part, "rises", judge_valley)
        )
        text = f"as lambda grows the {rows} {metric_title(loss)} falls, then {shape}"
        claims.append((text, judge(first, last)))
    return claims


def _evaluation_claims(result: SweepResult) -> list[Judged]:
    """What happens to a trained model that is evaluated with other numbers of steps?"""
    trained, loss, steps = result.sweep.control, result.metrics[0], [int(value) for value in _values(result)]
    assert isinstance(trained, int)
    title = metric_title(loss)
    claims: list[Judged] = [
        (
            "the dependency loss falls with T",
            judge_falling({part: result.curves(part, DEPENDENCY_LOSS) for part in PARTS}, steps),
        ),
        (f"the training {title} falls with T", judge_falling({"train": result.curves("train", loss)}, steps)),
        (
            f"the validation {title} is best near the T of training ({trained})",
            judge_near(result.curves("validation", loss), steps, trained),
        ),
    ]
    if AUC in result.metrics:
        pairs = {part: (result.curves(part, loss), _errors(result.curves(part, AUC))) for part in HELD_OUT}
        claims.append((f"{title} and AUC are best at the same T", judge_together(pairs, steps)))
    return claims


def _errors(curves: Curves) -> Curves:
    """1 - AUC, so that lower is better."""
    return {seed: [1 - y for y in curve] for seed, curve in curves.items()}


def _variant_claims(result: SweepResult) -> list[Judged]:
    """Is each variant worse than the model, and the second worse than the first, in each metric?"""
    names = {WITHOUT: "w/o dep", GLOBAL: "global dep"}
    claims: list[Judged] = []
    for metric in result.metrics:
        where = f"({metric_title(metric)}, test rows)"
        tests = _tests(result, "test", metric)
        claims += [
            (f"{name} is worse than MDL {where}", judge_worse(tests, [variant])) for variant, name in names.items()
        ]
        both = _tests(result, "test", metric, control=WITHOUT, among=(WITHOUT, GLOBAL))
        claims.append((f"global dep is worse than w/o dep {where}", judge_worse(both, [GLOBAL])))
    return claims


def _paper_is_best(result: SweepResult, unit: str) -> list[Judged]:
    """Is the paper's best value best here, on validation rows?"""
    metric, control = result.metrics[0], result.sweep.control
    others = [format_value(value) for value in _values(result) if value != control]
    text = f"{control} {unit} are best to train with ({metric_title(metric)}, validation rows)"
    return [(text, judge_worse(_tests(result, "validation", metric), others))]


def _values(result: SweepResult) -> list[Value]:
    return [point.value for point in result.sweep.points]


def _tests(
    result: SweepResult, part: str, metric: str, *, control: str | None = None, among: Sequence[str] | None = None
) -> Tests | None:
    """Dunnett's tests of some values (`among`; default: all) against a control (default: that of the sweep).

    None if the control has no figures.
    """
    figures = {format_value(value): found for value, found in result.finite(part, metric).items()}
    if control is None:
        assert result.sweep.control is not None
        control = format_value(result.sweep.control)
    if not figures.get(control):
        return None
    taking_part = {value: found for value, found in figures.items() if among is None or value in among}
    better = METRICS[metric].better
    other: Better = "lower" if better == "higher" else "higher"
    worse, superior = (dunnett_table(taking_part, metric=metric, better=b, control=control) for b in (better, other))
    return worse, superior
