"""Claims of the paper, and what the numbers of an ablation say of them."""

from __future__ import annotations

from dataclasses import dataclass

from fielddep.experiments.ablation.plan import GLOBAL, WITHOUT
from fielddep.experiments.ablation.points import EVALUATED_STEPS, LAMBDA, LAYERS, TRAINED_STEPS, VARIANT, short
from fielddep.experiments.ablation.results import PARTS, SweepResult, finite
from fielddep.experiments.ablation.run import DEPENDENCY_LOSS, MU_STD
from fielddep.experiments.ablation.verdicts import Verdict, judge_falling, judge_near, judge_worse
from fielddep.experiments.grid import markdown_text
from fielddep.experiments.model_rows import METRICS
from fielddep.experiments.rendering import metric_label
from fielddep.experiments.significance import Better, DunnettTable, dunnett_table


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper and what became of it here.

    Attributes:
        what: what was asked.
        text: the claim.
        verdict: whether it holds.
        reason: the numbers that say so.
    """

    what: str
    text: str
    verdict: Verdict
    reason: str

    def to_markdown(self) -> str:
        """One item of a list."""
        return f"- **{self.verdict}**: {markdown_text(self.text)}. {markdown_text(self.reason)}."


def claims_of(result: SweepResult) -> tuple[Claim, ...]:
    """The paper's claims on a setting; none where no run was successful."""
    setting = result.sweep.setting
    if not result.metrics:
        return ()
    if setting == VARIANT:
        return _variant_claims(result)
    if setting == LAMBDA:
        return (_falls(result, MU_STD, "small lambda gives sparse mu: the std of mu/lambda falls as lambda grows"),)
    if setting == EVALUATED_STEPS:
        loss = result.metrics[0]
        near = _best_near(result, loss, f"the validation {metric_label(loss)} is best near the T of training")
        return _falls(result, DEPENDENCY_LOSS, "the dependency loss falls with T"), near
    if setting in (TRAINED_STEPS, LAYERS):
        unit = "steps" if setting == TRAINED_STEPS else "layers"
        return (_paper_is_best(result, unit),)
    return ()


def _falls(result: SweepResult, metric: str, text: str) -> Claim:
    """Does a figure fall from value to value of the setting, on all parts?"""
    curves = {part: result.curves(part, metric) for part in PARTS}
    xs = [point.value for point in result.sweep.points]
    verdict, reason = judge_falling(curves, xs)
    return Claim(what=result.sweep.what, text=text, verdict=verdict, reason=reason)


def _best_near(result: SweepResult, metric: str, text: str) -> Claim:
    """Is the loss of validation rows lowest near the T of training?"""
    trained = result.sweep.control
    assert isinstance(trained, int)
    steps = [int(point.value) for point in result.sweep.points]
    curves = result.curves("validation", metric)
    verdict, reason = judge_near(curves, steps, trained)
    return Claim(what=result.sweep.what, text=f"{text} ({trained})", verdict=verdict, reason=reason)


def _variant_claims(result: SweepResult) -> tuple[Claim, ...]:
    """Is each variant worse than the model, in each metric?"""
    names = {WITHOUT: "w/o dep", GLOBAL: "global dep"}
    claims = []
    for metric in result.metrics:
        tests = _tests(result, "test", metric)
        for variant, name in names.items():
            verdict, reason = judge_worse(tests, [variant])
            text = f"{name} is worse than MDL ({metric_label(metric)}, test rows)"
            claims.append(Claim(what=result.sweep.what, text=text, verdict=verdict, reason=reason))
    return tuple(claims)


def _paper_is_best(result: SweepResult, unit: str) -> Claim:
    """Is the paper's best value best here, on validation rows?"""
    metric, control = result.metrics[0], result.sweep.control
    tests = _tests(result, "validation", metric)
    others = [short(point.value) for point in result.sweep.points if point.value != control]
    verdict, reason = judge_worse(tests, others)
    text = f"{control} {unit} are best to train with ({metric_label(metric)}, validation rows)"
    return Claim(what=result.sweep.what, text=text, verdict=verdict, reason=reason)


def _tests(result: SweepResult, part: str, metric: str) -> tuple[DunnettTable, DunnettTable] | None:
    """Dunnett's tests of "worse than the control" and of "better"; None where the control has no figures."""
    values = {short(point.value): finite(result.values(point.value, part, metric)) for point in result.sweep.points}
    assert result.sweep.control is not None
    control = short(result.sweep.control)
    if not values.get(control):
        return None
    better = METRICS[metric]
    other: Better = "lower" if better == "higher" else "higher"
    worse, superior = (dunnett_table(values, metric=metric, better=b, control=control) for b in (better, other))
    return worse, superior
