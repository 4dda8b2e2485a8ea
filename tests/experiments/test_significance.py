"""Dunnett's tests against scipy, published tables, hand-made cases and the tables of the paper's appendix.

The paper's p values come from R's multcomp, which samples: two of its figures are out of order (Frappe, AUC: FM has
the smaller |t| and the smaller p), and below 1e-7 they are right in their order of size at best. So what is checked
here is agreement within that error, and equal decisions.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fielddep.errors import UserError
from fielddep.experiments.significance import (
    DunnettTable,
    Summary,
    dunnett_from_summary,
    dunnett_table,
    holm,
    upper_tail,
)

CONTROL = "Ours"
NOT_SIGNIFICANT = {("Frappe", "Logloss", "FM"), ("Frappe", "Logloss", "RaFM")}


def paper_tables() -> dict[str, list[dict[str, str]]]:
    tables: dict[str, list[dict[str, str]]] = {}
    with Path(__file__).with_name("paper_dunnett.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            tables.setdefault(f"{row['dataset']}-{row['metric']}-table{row['table']}", []).append(row)
    return tables


PAPER = paper_tables()


def better(metric: str) -> str:
    return "higher" if metric.lower() == "auc" else "lower"


def unit(printed: str) -> float:
    """One unit of the last printed digit."""
    mantissa, exponent = printed.split("E")
    return 10.0 ** (int(exponent) - len(mantissa.partition(".")[2]))


def printed_p(row: dict[str, str], table: list[dict[str, str]]) -> float:
    sizes = [int(other["n"]) for other in table if other["model"] != CONTROL]
    [control] = [int(other["n"]) for other in table if other["model"] == CONTROL]
    worse = -float(row["t"]) if row["metric"] == "AUC" else float(row["t"])
    return upper_tail(worse, control_size=control, sizes=sizes, df=sum(sizes) + control - len(sizes) - 1)


def baselines(table: list[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in table if row["model"] != CONTROL]


def test_the_paper_has_nineteen_tables() -> None:
    assert len(PAPER) == 19
    assert sorted({len(baselines(table)) for table in PAPER.values()}) == [7, 10]


@pytest.mark.parametrize("name", PAPER)
def test_paper_t_is_estimate_over_standard_error(name: str) -> None:
    for row in baselines(PAPER[name]):
        estimate, error, t = (float(row[key]) for key in ("estimate", "standard_error", "t"))
        rounding = sum(unit(row[key]) / 2 / abs(float(row[key])) for key in ("estimate", "standard_error", "t"))
        assert estimate / error == pytest.approx(t, rel=1.01 * rounding), row


# The deviations printed for ML-Tag's AUC repeat those of KDD2012 for the models of table 4.
@pytest.mark.parametrize("name", [name for name, table in PAPER.items() if table[0]["sd"]])
def test_paper_standard_errors_follow_from_its_deviations(name: str) -> None:
    table = PAPER[name]
    summaries = {
        row["model"]: Summary(mean=float(row["estimate"] or 0), sd=float(row["sd"]), n=int(row["n"])) for row in table
    }
    metric = table[0]["metric"]
    found = dunnett_from_summary(summaries, metric=metric, better=better(metric), control=CONTROL)
    for ours, printed in zip(found.rows, baselines(table), strict=True):
        assert ours.standard_error == pytest.approx(
            float(printed["standard_error"]), abs=unit(printed["standard_error"])
        )
        assert ours.estimate == float(printed["estimate"])
        assert ours.t == pytest.approx(float(printed["t"]), rel=1.5e-3)


@pytest.mark.parametrize("name", PAPER)
def test_paper_p_values_follow_from_its_t(name: str) -> None:
    for row in baselines(PAPER[name]):
        ours, printed = printed_p(row, PAPER[name]), float(row["p"])
        if printed < 1e-11:
            assert ours < 1e-11, row
            continue
        factor = 1.2 if printed > 2e-5 else 4 if printed > 1e-7 else 100
        assert printed / factor < ours < printed * factor, row
        assert abs(ours - printed) < 1.1e-4, row


@pytest.mark.parametrize("name", PAPER)
def test_paper_decisions(name: str) -> None:
    for row in baselines(PAPER[name]):
        expected = (row["dataset"], row["metric"], row["model"]) not in NOT_SIGNIFICANT
        assert (printed_p(row, PAPER[name]) < 0.05) == expected, row


# One-sided 5 % points of Dunnett (1955), for 1, 2, 3, 4, 5 and 9 groups beside the control.
@pytest.mark.parametrize(
    ("df", "points"),
    [
        (5, {1: 2.02, 2: 2.44, 3: 2.68, 4: 2.85, 5: 2.98, 9: 3.30}),
        (10, {1: 1.81, 2: 2.15, 3: 2.34, 4: 2.47, 5: 2.56, 9: 2.81}),
        (20, {1: 1.72, 2: 2.03, 3: 2.19, 4: 2.30, 5: 2.39, 9: 2.60}),
    ],
)
def test_published_critical_values(df: int, points: dict[int, float]) -> None:
    for n_groups, point in points.items():
        tails = [upper_tail(point + shift, control_size=5, sizes=[5] * n_groups, df=df) for shift in (-0.005, 0.005)]
        assert tails[0] > 0.05 > tails[1], (n_groups, tails)


@pytest.mark.parametrize("df", [1, 2, 8, 44, 500, 20_000])
@pytest.mark.parametrize("t", [-40.0, -3.0, 0.0, 0.5, 2.0, 8.0, 30.0])
def test_one_group_is_students_t(t: float, df: int) -> None:
    assert upper_tail(t, control_size=3, sizes=[7], df=df) == pytest.approx(stats.t.sf(t, df), rel=1e-10)


@pytest.mark.parametrize(("t", "p"), [(math.inf, 0.0), (-math.inf, 1.0)])
def test_infinite_statistics(t: float, p: float) -> None:
    assert upper_tail(t, control_size=5, sizes=[5], df=8) == p


@settings(deadline=None, max_examples=40)
@given(
    t=st.floats(-5, 60),
    step=st.floats(0.01, 5),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    control=st.integers(1, 40),
    df=st.integers(1, 300),
)
def test_between_the_single_test_and_bonferroni(t: float, step: float, sizes: list[int], control: int, df: int) -> None:
    p = upper_tail(t, control_size=control, sizes=sizes, df=df)
    single = float(stats.t.sf(t, df))
    # Close to t = 0 scipy itself is exact to 3e-9 only.
    assert single * (1 - 1e-8) <= p <= min(1.0, len(sizes) * single * (1 + 1e-8))
    assert upper_tail(t + step, control_size=control, sizes=sizes, df=df) < p or p > 1 - 1e-9
    assert upper_tail(t, control_size=control, sizes=sizes[::-1], df=df) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [{"t": math.nan}, {"sizes": []}, {"sizes": [5, 0]}, {"control_size": 0}, {"df": 0}],
)
def test_tail_refuses_what_has_no_distribution(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"given|NaN"):
        upper_tail(**({"t": 1.0, "control_size": 5, "sizes": [5], "df": 8} | wrong))


GROUPS = {
    "equal": {"a": [0.71, 0.74, 0.72], "b": [0.75, 0.73, 0.77], "mdl": [0.76, 0.75, 0.78]},
    "unequal": {"a": [0.74, 0.75], "b": [0.75], "c": [0.75, 0.73, 0.77, 0.76], "mdl": [0.76, 0.75, 0.78, 0.74, 0.77]},
    "small control": {"a": [0.74, 0.75, 0.71, 0.72], "b": [0.75, 0.76, 0.77], "mdl": [0.76, 0.75]},
    "two models": {"a": [0.74, 0.75, 0.71], "mdl": [0.76, 0.75, 0.77]},
}


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("name", GROUPS)
def test_agrees_with_scipy(name: str, direction: str) -> None:
    ours = dunnett_table(GROUPS[name], metric="m", better=direction)
    *groups, control = GROUPS[name].values()
    anova = stats.f_oneway(*groups, control)
    assert (ours.anova_f, ours.anova_p) == pytest.approx((anova.statistic, anova.pvalue), rel=1e-9)
    alternative = "less" if direction == "higher" else "greater"
    # scipy integrates by sampling; a fixed stream gives the same p values in every run of the test.
    found = stats.dunnett(*groups, control=control, alternative=alternative, rng=np.random.default_rng(0))
    assert [row.p for row in ours.rows] == pytest.approx(list(found.pvalue), abs=2e-4)
    assert [row.t for row in ours.rows] == pytest.approx(list(found.statistic), rel=1e-9)


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("name", GROUPS)
def test_welch_agrees_with_scipy(name: str, direction: str) -> None:
    alternative = "less" if direction == "higher" else "greater"
    tested = dunnett_table(GROUPS[name], metric="m", better=direction).rows
    raw = []
    for row in tested:
        values = GROUPS[name][row.model]
        if len(values) < 2:
            assert row.welch is None
            continue
        assert row.welch is not None
        found = stats.ttest_ind(values, GROUPS[name]["mdl"], equal_var=False, alternative=alternative)
        assert (row.welch.t, row.welch.df) == pytest.approx((found.statistic, found.df), rel=1e-9)
        assert row.welch.p == pytest.approx(found.pvalue, rel=1e-9)
        raw.append(row.welch)
    adjusted = holm([test.p for test in raw])
    assert [test.p_holm for test in raw] == adjusted
    assert all(test.p <= test.p_holm <= 1 for test in raw)


def test_a_wide_spread_elsewhere_hides_a_difference_from_dunnett_but_not_from_welch() -> None:
    values = {"fm": [0.107, 0.108, 0.106], "wild": [0.1, 0.2, 0.3], "mdl": [0.100, 0.101, 0.102]}
    fm, _ = dunnett_table(values, metric="logloss", better="lower").rows
    assert fm.p is not None and fm.p > 0.3
    assert fm.welch is not None and fm.welch.p_holm < 0.01


def test_welch_takes_equal_runs_as_a_constant() -> None:
    trees, fm = dunnett_table(
        {"trees": [0.7] * 3, "fm": [0.7], "mdl": [0.80, 0.82, 0.81]}, metric="auc", better="higher"
    ).rows
    assert trees.welch is not None and fm.welch is None
    expected = stats.ttest_1samp([0.80, 0.82, 0.81], 0.7, alternative="greater")
    assert (trees.welch.t, trees.welch.df, trees.welch.p) == pytest.approx(
        (-expected.statistic, 2, expected.pvalue), rel=1e-9
    )


@pytest.mark.parametrize(
    ("ps", "expected"),
    [([], []), ([0.2], [0.2]), ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]), ([0.5, 0.6], [1.0, 1.0])],
)
def test_holm(ps: list[float], expected: list[float]) -> None:
    assert holm(ps) == pytest.approx(expected)


def test_by_hand() -> None:
    table = dunnett_table({"fm": [1, 2, 3], "mdl": [2, 4, 6], "lr": [4, 5, 6]}, metric="mse", better="lower")
    assert [row.model for row in table.rows] == ["fm", "lr"]
    assert (table.df, table.control, table.metric, table.notes) == (6, "mdl", "mse", ())
    # Pooled variance (2 + 8 + 2) / 6 = 2, between the models 14 / 2 = 7.
    assert table.anova_f == pytest.approx(3.5)
    assert table.anova_p == pytest.approx((6 / 13) ** 3)
    assert [row.estimate for row in table.rows] == [-2, 1]
    assert [row.standard_error for row in table.rows] == pytest.approx([math.sqrt(4 / 3)] * 2)
    assert [row.t for row in table.rows] == pytest.approx([-math.sqrt(3), math.sqrt(3) / 2])
    assert table.p("lr") == upper_tail(table.rows[1].t, control_size=3, sizes=[3, 3], df=6)
    assert table.p("mdl") is None


def test_direction() -> None:
    values = {"worse": [0.7, 0.71, 0.72], "mdl": [0.8, 0.81, 0.82], "better": [0.9, 0.91, 0.92]}
    higher = dunnett_table(values, metric="auc", better="higher")
    lower = dunnett_table(values, metric="loss", better="lower")
    assert higher.p("worse") == pytest.approx(lower.p("better"), rel=1e-9)
    assert higher.p("better") == pytest.approx(lower.p("worse"), rel=1e-9)
    assert higher.p("worse") < 1e-3 < 0.999 < higher.p("better")


def test_two_models_are_a_one_sided_t_test() -> None:
    values = GROUPS["two models"]
    expected = stats.ttest_ind(values["a"], values["mdl"], alternative="less").pvalue
    assert dunnett_table(values, metric="auc", better="higher").p("a") == pytest.approx(expected, rel=1e-9)


def test_from_summary_equals_from_values() -> None:
    summaries = {model: Summary.of(values) for model, values in GROUPS["unequal"].items()}
    arguments = {"metric": "auc", "better": "higher"}
    assert dunnett_from_summary(summaries, **arguments) == dunnett_table(GROUPS["unequal"], **arguments)


def untested(values: dict[str, list[float]]) -> DunnettTable:
    table = dunnett_table(values, metric="auc", better="higher")
    assert (table.anova_f, table.anova_p) == (None, None)
    assert all((row.standard_error, row.t, row.p, row.welch) == (None,) * 4 for row in table.rows)
    return table


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"fm": [0.75], "mdl": [1.0]}, "one run"),
        ({"fm": [0.1, 0.1, 0.1], "mdl": [0.35, 0.35]}, "equal"),
        ({"mdl": [0.7, 0.8]}, "control"),
    ],
)
def test_no_test_is_said_not_raised(values: dict[str, list[float]], note: str) -> None:
    table = untested(values)
    [said] = table.notes
    assert said.startswith("no test") and note in said
    assert [row.estimate for row in table.rows] == pytest.approx([-0.25] * (len(values) - 1))


def test_a_model_without_spread_among_others() -> None:
    table = dunnett_table({"fm": [0.5, 0.5], "mdl": [0.6, 0.8]}, metric="auc", better="higher")
    # One observation beside two: pooled variance .02 / 1, standard error sqrt(.02 * (1/1 + 1/2)).
    assert table.rows[0].standard_error == pytest.approx(0.03**0.5)
    assert table.rows[0].t == pytest.approx(-0.2 / 0.03**0.5)


def test_a_model_without_runs_is_left_out() -> None:
    with_empty = dunnett_table(GROUPS["equal"] | {"saint": []}, metric="auc", better="higher")
    without = dunnett_table(GROUPS["equal"], metric="auc", better="higher")
    assert with_empty.rows == without.rows
    [note] = with_empty.notes
    assert "saint" in note and "auc" in note


@pytest.mark.parametrize(
    ("values", "arguments", "message"),
    [
        ({"fm": [0.7, 0.8]}, {}, "'mdl'.*fm"),
        ({"fm": [0.7, 0.8], "mdl": []}, {}, "'mdl'"),
        ({"fm": [0.7, math.nan], "mdl": [0.7, 0.8]}, {}, "finite.*nan"),
        ({"mdl": [0.7]}, {"better": "up"}, "'higher'.*'lower'.*'up'"),
    ],
)
def test_refusals(values: dict[str, list[float]], arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dunnett_table(values, **({"metric": "auc", "better": "higher"} | arguments))


@pytest.mark.parametrize("wrong", [{"n": 0}, {"sd": -0.1}, {"sd": math.nan}, {"mean": math.inf}])
def test_summary_refuses_what_is_none(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"mean=.*sd=.*n="):
        Summary(**({"mean": 0.5, "sd": 0.1, "n": 5} | wrong))


def test_summary_of_one_value_and_of_equal_values() -> None:
    assert Summary.of([0.1]) == Summary(mean=0.1, sd=0.0, n=1)
    assert Summary.of([0.1, 0.1, 0.1]).sd == 0.0


def test_equal_runs_are_one_observation() -> None:
    """As several they would lower the pooled variance, and with it all p values."""
    runs = {"trees": [0.7, 0.7, 0.7], "fm": [0.70, 0.72, 0.71], "mdl": [0.80, 0.82, 0.81]}
    table = dunnett_table(runs, metric="auc", better="higher")
    [note] = table.notes
    assert "3" in note and "trees" in note
    once = dunnett_table({**runs, "trees": [0.7]}, metric="auc", better="higher")
    assert [row.p for row in table.rows] == pytest.approx([row.p for row in once.rows], rel=1e-9)
    assert (table.df, once.notes) == (once.df, ())
    assert table.anova_p == pytest.approx(once.anova_p, rel=1e-9)
    assert table.df == 4


@pytest.mark.parametrize("model", ["trees", "mdl"])
def test_equal_runs_do_not_hide_that_nothing_differs_by_chance(model: str) -> None:
    runs = {"trees": [0.7, 0.7], "mdl": [0.8, 0.8], model: [0.9, 0.9]}
    [note] = dunnett_table(runs, metric="auc", better="higher").notes
    assert note.startswith("no test") and "equal" in note
