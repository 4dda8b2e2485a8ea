"""Is the control (MDL) better than the other models, beyond what seeds explain?

One-way ANOVA over all models, and Dunnett's one-sided tests of every model against the control, from the values of
single seeds or from means and standard deviations. The p values come from `joint_t`; `method="scipy"` takes them and
the ANOVA from `scipy.stats`, an independent calculation with a sampling error of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from fielddep.errors import UserError
from fielddep.experiments.joint_t import upper_tail
from fielddep.experiments.summary import Summary

Better = Literal["higher", "lower"]
Method = Literal["integral", "scipy"]


@dataclass(frozen=True, kw_only=True)
class DunnettRow:
    """A model against the control.

    Attributes:
        model: its name.
        estimate: mean of the model minus mean of the control.
        standard_error: of the estimate, from the variance pooled over all models; None where no test is possible.
        t: estimate / standard_error.
        p: chance of such a t or one further in the direction "worse than the control" if no model differed from it.
    """

    model: str
    estimate: float
    standard_error: float | None = None
    t: float | None = None
    p: float | None = None


@dataclass(frozen=True, kw_only=True)
class DunnettTable:
    """All models against one control, on one metric.

    Attributes:
        metric: name of the metric.
        better: whether a higher or a lower value is better.
        control: name of the model that all others are compared with.
        rows: one a model, in the order given.
        df: degrees of freedom of the pooled variance.
        anova_f: F of the one-way ANOVA over all models; None where no test is possible.
        anova_p: its p value.
        notes: why a test or a model is absent, and which models have runs that are all equal.
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
        """The p value of a model; None where it was not tested."""
        return next((row.p for row in self.rows if row.model == model), None)


def dunnett_table(
    values: Mapping[str, Sequence[float]],
    *,
    metric: str,
    better: Better,
    control: str = "mdl",
    method: Method = "integral",
) -> DunnettTable:
    """Test every model against the control, from one value a seed.

    Models may have different numbers of values; one without any is left out and noted. Equal runs, of a model that
    draws nothing by chance, are one observation: as several they would lower the pooled variance of all.

    Args:
        values: the metric of every finished run, by model.
        metric: name of the metric.
        better: "higher" for AUC, "lower" for losses; the alternative is that a model is worse than the control.
        control: name of the control.
        method: "integral" (exact, reproducible) or "scipy" (`scipy.stats.f_oneway` and `scipy.stats.dunnett`).

    Raises:
        UserError: when the control has no value, or a value is not a finite number.

    Example:
        >>> runs = {"fm": [0.70, 0.72, 0.71], "mdl": [0.80, 0.82, 0.81]}
        >>> [row] = dunnett_table(runs, metric="auc", better="higher").rows
        >>> f"{row.estimate:.3f} {row.standard_error:.5f} {row.t:.3f} {row.p:.6f}"
        '-0.100 0.00816 -12.247 0.000128'
    """
    if method not in ("integral", "scipy"):
        raise UserError(f"method must be 'integral' or 'scipy', given {method!r}")
    present = _observations({model: list(runs) for model, runs in values.items() if len(runs)})
    summaries = {model: Summary.of(runs) for model, runs in present.items()}
    table = dunnett_from_summary(summaries, metric=metric, better=better, control=control)
    if method == "scipy" and table.anova_f is not None:
        table = _by_scipy(table, present)
    absent = [f"{model} has no value of {metric} and is left out" for model in values if model not in present]
    equal = [
        f"the {len(values[model])} runs of {model} are equal and count as one"
        for model, observed in present.items()
        if len(observed) < len(values[model])
    ]
    return dataclasses.replace(table, notes=(*table.notes, *absent, *equal))


def dunnett_from_summary(
    summaries: Mapping[str, Summary], *, metric: str, better: Better, control: str = "mdl"
) -> DunnettTable:
    """Test every model against the control, from means, standard deviations and numbers of runs.

    Raises:
        UserError: when the control is not among the models, or `better` is neither word.
    """
    if better not in ("higher", "lower"):
        raise UserError(f"better must be 'higher' or 'lower', given {better!r}")
    if control not in summaries:
        raise UserError(
            f"expected runs of the control {control!r}, given runs of {', '.join(summaries) or 'no model'}; "
            "run the control too or name another"
        )
    others = {model: summary for model, summary in summaries.items() if model != control}
    df = sum(summary.n - 1 for summary in summaries.values())
    variance = _pooled_variance(summaries, df)
    reason = _why_untestable(others, df, variance)
    rows = tuple(
        DunnettRow(model=model, estimate=summary.mean - summaries[control].mean) for model, summary in others.items()
    )
    table = DunnettTable(metric=metric, better=better, control=control, rows=rows, df=df)
    if reason:
        return dataclasses.replace(table, notes=(reason,))
    f = _between_variance(summaries) / variance
    return dataclasses.replace(
        table,
        rows=tuple(_tested(row, summaries, table, variance) for row in rows),
        anova_f=f,
        anova_p=float(stats.f.sf(f, len(summaries) - 1, df)),
    )


def _tested(row: DunnettRow, summaries: Mapping[str, Summary], table: DunnettTable, variance: float) -> DunnettRow:
    """A row with its test."""
    n_control = summaries[table.control].n
    sizes = [summaries[other.model].n for other in table.rows]
    standard_error = math.sqrt(variance * (1 / summaries[row.model].n + 1 / n_control))
    t = row.estimate / standard_error
    worse = -t if table.better == "higher" else t
    p = upper_tail(worse, control_size=n_control, sizes=sizes, df=table.df)
    return dataclasses.replace(row, standard_error=standard_error, t=t, p=p)


def _pooled_variance(summaries: Mapping[str, Summary], df: int) -> float:
    return sum((summary.n - 1) * summary.sd**2 for summary in summaries.values()) / df if df else 0.0


def _between_variance(summaries: Mapping[str, Summary]) -> float:
    """Mean square between the models."""
    groups = list(summaries.values())
    grand = math.fsum(group.n * group.mean for group in groups) / sum(group.n for group in groups)
    return math.fsum(group.n * (group.mean - grand) ** 2 for group in groups) / (len(groups) - 1)


def _why_untestable(others: Mapping[str, Summary], df: int, variance: float) -> str | None:
    if not others:
        return "no test: there is no model beside the control"
    if df == 0:
        return "no test: every model has one run only; run at least two seeds"
    if variance == 0:
        return "no test: the runs of each model are all equal, so there is no spread to compare with"
    return None


def _observations(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Equal runs of a model as one, unless those of every model are equal."""
    if all(len(set(runs)) == 1 for runs in values.values()):
        return dict(values)
    return {model: runs[:1] if len(set(runs)) == 1 else runs for model, runs in values.items()}


def _by_scipy(table: DunnettTable, values: Mapping[str, Sequence[float]]) -> DunnettTable:
    """The same table with F and p from `scipy.stats`."""
    groups = [values[row.model] for row in table.rows]
    alternative = "less" if table.better == "higher" else "greater"
    # A fixed stream: scipy integrates by sampling, and a table must not change from call to call.
    found = stats.dunnett(*groups, control=values[table.control], alternative=alternative, rng=np.random.default_rng(0))
    anova = stats.f_oneway(*groups, values[table.control])
    rows = tuple(dataclasses.replace(row, p=float(p)) for row, p in zip(table.rows, found.pvalue, strict=True))
    return dataclasses.replace(table, rows=rows, anova_f=float(anova.statistic), anova_p=float(anova.pvalue))
