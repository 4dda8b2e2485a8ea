"""Is the control (MDL) better than the other models, beyond what seeds explain?

A one-way ANOVA over all models, Dunnett's one-sided test of every model against the control, and Welch's test of the
same pairs, from the values of single seeds or from means and standard deviations.

Dunnett's test pools the variance of all models, so one model with a large spread hides the differences of all others.
Welch's test looks at the two models of a pair only. Both sets of p values allow for the number of comparisons:
Dunnett's by its distribution, Welch's by Holm's method.

The distribution behind Dunnett's test is that of the largest of several t statistics that share a control and a
variance. With group sizes n_i, control size n_0 and s^2 = chi2(df) / df, the statistics are

    T_i = (a_i Z_i + b_i Z_0) / s ,  b_i = sqrt(n_i / (n_i + n_0)) ,  a_i = sqrt(1 - b_i^2)

with independent standard normal Z. Given Z_0 and s they are independent, which leaves a double integral for any number
of groups. The trapezoidal rule converges exponentially for such smooth, quickly falling functions. Tails are summed
directly (never as one minus a probability), so a p value of 1e-60 is as exact as one of 0.05, and the same input gives
the same bits, unlike `scipy.stats.dunnett`, which draws samples.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import log_ndtr

from fielddep.config.metrics import Better
from fielddep.errors import UserError

LEVEL = 0.05
"""A p value below it is significant."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean and spread of `n` repeated runs; `sd` has n - 1 in the denominator, and is 0 for a single value.

    Raises:
        UserError: there are no values, the deviation is negative, or a number is not finite.
    """

    mean: float
    sd: float
    n: int

    def __post_init__(self) -> None:
        if self.n < 1 or not self.sd >= 0 or not math.isfinite(self.mean + self.sd):
            raise UserError(
                f"expected a finite mean, a deviation of at least 0 and one run, given {self}; drop failed runs"
            )

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summary of at least one value.

        Example:
            >>> Summary.of([1.0, 2.0, 3.0])
            Summary(mean=2.0, sd=1.0, n=3)
        """
        if not values or not all(map(math.isfinite, values)):
            raise UserError(f"expected finite values of at least one run, given {list(values)}; drop failed runs")
        # The statistics module sums exactly, so equal values have a deviation of exactly 0.
        sd = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(mean=statistics.fmean(values), sd=sd, n=len(values))


Array = npt.NDArray[np.float64]

# Normal densities beyond this are below the smallest float.
_REACH = 38.5
# Points per standard deviation of the narrowest feature; at 4 the error of the rule is about exp(-300).
_POINTS_PER_WIDTH = 4


def upper_tail(t: float, *, control_size: int, sizes: Sequence[int], df: int) -> float:
    """P(max_i T_i >= t) if no group differs from the control: Dunnett's one-sided p value of a statistic.

    Args:
        t: the statistic, positive in the direction of the alternative.
        control_size: observations of the control (n_0).
        sizes: observations of every other group (n_i), including the tested one.
        df: degrees of freedom of the pooled variance.

    Raises:
        UserError: there are no groups, an empty group or no degrees of freedom.

    Example:
        Two groups of five against a control of five; Dunnett (1955) gives 2.11 as the 5 % point.

        >>> round(upper_tail(2.11, control_size=5, sizes=[5, 5], df=12), 3)
        0.05
    """
    _check(t, control_size, sizes, df)
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    log_s, step = _log_scale_grid(t, df)
    tails = _normal_tail(t * np.exp(log_s), control_size, Counter(sizes))
    weights = np.exp(_log_density(log_s, df))
    return min(1.0, float(np.sum(weights * tails) * step))


def _check(t: float, control_size: int, sizes: Sequence[int], df: int) -> None:
    if math.isnan(t):
        raise UserError("expected a t statistic, given NaN; a group without spread or runs has none")
    if not sizes or min(control_size, df, *sizes) < 1:
        raise UserError(
            "Dunnett's test needs at least one group, one observation in each and one degree of freedom; "
            f"given {control_size=}, sizes={list(sizes)}, {df=}; run more seeds"
        )


def _log_scale_grid(t: float, df: int) -> tuple[Array, float]:
    """Points and step of log s that cover the bulk of s and the small s at which a large t is reached."""
    width = 1 / math.sqrt(2 * df)
    tail_peak = 0.5 * math.log(df / (df + t * t))
    low = tail_peak - 10 * width - 45 / df
    step = min(width / _POINTS_PER_WIDTH, 0.1)
    n_points = math.ceil((10 * width - low) / step) + 1
    grid: Array = low + step * np.arange(n_points, dtype=np.float64)
    return grid, step


def _log_density(log_s: Array, df: int) -> Array:
    """Log density of log s, s^2 = chi2(df) / df."""
    half = df / 2
    constant = math.log(2) + half * math.log(half) - math.lgamma(half)
    density: Array = constant + df * log_s - half * np.exp(2 * log_s)
    return density


def _normal_tail(x: Array, control_size: int, counts: Counter[int]) -> Array:
    """P(max_i (a_i Z_i + b_i Z_0) >= x) for every x; groups of equal size are treated at once."""
    a = {size: math.sqrt(control_size / (size + control_size)) for size in counts}
    step = min(0.25, min(a.values()) / _POINTS_PER_WIDTH)
    n_half = math.ceil(_REACH / step)
    z: Array = step * np.arange(-n_half, n_half + 1, dtype=np.float64)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return np.array([float(np.sum(density * _any_above(v, z, a, counts))) * step for v in x])


def _any_above(x: float, z: Array, a: dict[int, float], counts: Counter[int]) -> Array:
    """P(some a_i Z_i + b_i z >= x) at every z."""
    log_below = np.zeros_like(z)
    for size, n_groups in counts.items():
        b = math.sqrt(1 - a[size] ** 2)
        log_below += n_groups * log_ndtr((x - b * z) / a[size])
    above: Array = -np.expm1(log_below)
    return above


@dataclass(frozen=True, kw_only=True)
class Welch:
    """Welch's one-sided test of a model against the control.

    Attributes:
        t: difference of the means over its standard error, from the spreads of the two models only.
        df: degrees of freedom by Welch and Satterthwaite.
        p: probability of a t at least as far in the direction "worse than the control" if both were equal.
        p_holm: p adjusted for the number of tested models by Holm's method.
    """

    t: float
    df: float
    p: float
    p_holm: float


@dataclass(frozen=True, kw_only=True)
class DunnettRow:
    """A model against the control.

    Attributes:
        model: its name.
        estimate: mean of the model minus mean of the control.
        standard_error: of the estimate, from the variance pooled over all models; None if no test is possible.
        t: estimate / standard_error.
        p: probability of a t at least as far in the direction "worse than the control" if no model differed from it.
        welch: the same comparison by Welch's test; None if one of the two has a single run, or neither has a spread.
    """

    model: str
    estimate: float
    standard_error: float | None = None
    t: float | None = None
    p: float | None = None
    welch: Welch | None = None


@dataclass(frozen=True, kw_only=True)
class DunnettTable:
    """All models against one control, on one metric.

    Attributes:
        control: name of the model that all others are compared with.
        rows: one per model, in the order given.
        df: degrees of freedom of the pooled variance.
        anova_f: F of the one-way ANOVA over all models; None if no test is possible.
        anova_p: its p value.
        notes: why a test or a model is missing, and which models have equal runs.
        dataset: name of the data, for the caption.
    """

    metric: str
    better: Better
    control: str
    rows: tuple[DunnettRow, ...]
    df: int
    anova_f: float | None = None
    anova_p: float | None = None
    notes: tuple[str, ...] = ()
    dataset: str | None = None

    def p(self, model: str) -> float | None:
        """The p value of a model; None if it was not tested."""
        return next((row.p for row in self.rows if row.model == model), None)

    def is_significant(self, model: str) -> bool:
        """Whether a model is worse than the control beyond chance."""
        p = self.p(model)
        return p is not None and p < LEVEL


def dunnett_table(
    values: Mapping[str, Sequence[float]], *, metric: str, better: Better, control: str = "mdl"
) -> DunnettTable:
    """Test whether every model is worse than the control, from one value per finished run.

    Models may have different numbers of values; one without any is skipped and noted.

    Raises:
        UserError: the control has no value, or a value is not a finite number.

    Example:
        >>> runs = {"fm": [0.70, 0.72, 0.71], "mdl": [0.80, 0.82, 0.81]}
        >>> [row] = dunnett_table(runs, metric="auc", better="higher").rows
        >>> f"{row.estimate:.3f} {row.standard_error:.5f} {row.t:.3f} {row.p:.6f}"
        '-0.100 0.00816 -12.247 0.000128'
    """
    summaries = {model: Summary.of(runs) for model, runs in values.items() if len(runs)}
    table = dunnett_from_summary(summaries, metric=metric, better=better, control=control)
    absent = tuple(f"{model} has no value of {metric} and is skipped" for model in values if model not in summaries)
    return dataclasses.replace(table, notes=(*table.notes, *absent))


def dunnett_from_summary(
    summaries: Mapping[str, Summary], *, metric: str, better: Better, control: str = "mdl"
) -> DunnettTable:
    """Test every model against the control, from means, standard deviations and numbers of runs.

    Equal runs, of a model without randomness, count as one observation: as several they would lower the pooled
    variance.

    Raises:
        UserError: the control is not among the models, or `better` is neither word.
    """
    if better not in ("higher", "lower"):
        raise UserError(f"better must be 'higher' or 'lower', given {better!r}")
    if control not in summaries:
        raise UserError(
            f"expected runs of the control {control!r}, given runs of {', '.join(summaries) or 'no model'}; "
            "run the control too or name another"
        )
    observed = _observations(summaries)
    df = sum(summary.n - 1 for summary in observed.values())
    variance = sum((summary.n - 1) * summary.sd**2 for summary in observed.values()) / df if df else 0.0
    rows = tuple(
        DunnettRow(model=model, estimate=summary.mean - summaries[control].mean)
        for model, summary in summaries.items()
        if model != control
    )
    table = DunnettTable(metric=metric, better=better, control=control, rows=rows, df=df)
    reason = _why_untestable(rows, df, variance)
    if reason:
        return dataclasses.replace(table, notes=(reason,))
    f = _between_variance(observed) / variance
    tests = _welch_tests(table, summaries)
    return dataclasses.replace(
        table,
        rows=tuple(
            dataclasses.replace(_tested(row, observed, table, variance), welch=tests.get(row.model)) for row in rows
        ),
        anova_f=f,
        anova_p=float(stats.f.sf(f, len(observed) - 1, df)),
        notes=tuple(
            f"the {summary.n} runs of {model} are equal and count as one"
            for model, summary in summaries.items()
            if observed[model].n < summary.n
        ),
    )


def _observations(summaries: Mapping[str, Summary]) -> dict[str, Summary]:
    """Equal runs of a model as one, unless every model has equal runs."""
    if all(summary.sd == 0 for summary in summaries.values()):
        return dict(summaries)
    return {
        model: dataclasses.replace(summary, n=1) if summary.sd == 0 else summary for model, summary in summaries.items()
    }


def _tested(row: DunnettRow, summaries: Mapping[str, Summary], table: DunnettTable, variance: float) -> DunnettRow:
    """A row with its test."""
    n_control = summaries[table.control].n
    sizes = [summaries[other.model].n for other in table.rows]
    standard_error = math.sqrt(variance * (1 / summaries[row.model].n + 1 / n_control))
    t = row.estimate / standard_error
    p = upper_tail(_worse(t, table), control_size=n_control, sizes=sizes, df=table.df)
    return dataclasses.replace(row, standard_error=standard_error, t=t, p=p)


def _worse(t: float, table: DunnettTable) -> float:
    """A statistic that is positive in the direction "worse than the control"."""
    return -t if table.better == "higher" else t


def _welch_tests(table: DunnettTable, summaries: Mapping[str, Summary]) -> dict[str, Welch]:
    """Welch's tests, by model, that are possible."""
    control = summaries[table.control]
    found = {row.model: _welch(row, summaries[row.model], control, table) for row in table.rows}
    tests = {model: test for model, test in found.items() if test is not None}
    adjusted = holm([test.p for test in tests.values()])
    return {
        model: dataclasses.replace(test, p_holm=p) for (model, test), p in zip(tests.items(), adjusted, strict=True)
    }


def _welch(row: DunnettRow, model: Summary, control: Summary, table: DunnettTable) -> Welch | None:
    """The unadjusted test. Several equal runs are a constant: only the other model has a variance."""
    parts = [(summary.sd**2 / summary.n, summary.n - 1) for summary in (model, control)]
    variance = sum(part for part, _ in parts)
    if min(model.n, control.n) < 2 or variance == 0:
        return None
    t = row.estimate / math.sqrt(variance)
    df = variance**2 / sum(part**2 / n for part, n in parts)
    p = float(stats.t.sf(_worse(t, table), df))
    return Welch(t=t, df=df, p=p, p_holm=p)


def holm(ps: Sequence[float]) -> list[float]:
    """P values adjusted for their number by Holm's method.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(ps, kind="stable")
    adjusted = np.empty(len(ps))
    adjusted[order] = np.maximum.accumulate(np.arange(len(ps), 0, -1) * np.asarray(ps)[order])
    return [float(p) for p in np.minimum(adjusted, 1.0)]


def _between_variance(summaries: Mapping[str, Summary]) -> float:
    """Mean square between the models."""
    groups = list(summaries.values())
    grand = math.fsum(group.n * group.mean for group in groups) / sum(group.n for group in groups)
    return math.fsum(group.n * (group.mean - grand) ** 2 for group in groups) / (len(groups) - 1)


def _why_untestable(rows: Sequence[DunnettRow], df: int, variance: float) -> str | None:
    if not rows:
        return "no test: there is no model next to the control"
    if df == 0:
        return "no test: every model has one run only; run at least two seeds"
    if variance == 0:
        return "no test: the runs of each model are all equal, so there is no spread to compare with"
    return None
