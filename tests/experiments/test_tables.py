"""The numbers of a comparison: who takes part, who is best, who is beaten, and what is said of failures."""

from __future__ import annotations

import math
import re

import pytest

from fielddep.errors import UserError
from fielddep.experiments.rendering import comparison_grid
from fielddep.experiments.results import RunResult
from fielddep.experiments.significance import Summary, dunnett_table
from fielddep.experiments.tables import ComparisonTable
from tests.experiments.runs import runs

FM, LR, MDL = [0.70, 0.72, 0.71], [0.80, 0.83, 0.81], [0.80, 0.82, 0.81]


def names(table: ComparisonTable) -> list[str]:
    return [row.name for row in table.rows]


def best(table: ComparisonTable) -> set[str]:
    """Models whose first figure is bold."""
    return {row[0].text for row in comparison_grid(table).rows if row[1].bold}


def test_rows_tests_and_best() -> None:
    table = ComparisonTable.of(runs("mdl", MDL) + runs("fm", FM) + runs("lr", LR))
    assert names(table) == ["fm", "lr", "mdl"]
    assert (table.dataset, table.metrics, table.costs, table.notes) == ("toy", ("auc",), (), ())
    assert table.rows[0].metrics == {"auc": Summary.of(FM)}
    expected = dunnett_table({"mdl": MDL, "fm": FM, "lr": LR}, metric="auc", better="higher")
    assert table.tests["auc"].rows == expected.rows
    assert table.tests["auc"].dataset == "toy"
    assert best(table) == {"lr"}
    assert table.beaten("auc") == {"fm"}
    assert table.p("auc", "fm") == expected.p("fm")
    assert table.p("auc", "mdl") is None
    assert table.p("mse", "fm") is None


def test_a_model_that_may_be_worse_by_chance_is_not_beaten() -> None:
    results = runs("mdl", MDL) + runs("fm", [0.79, 0.80, 0.81])
    p = ComparisonTable.of(results).p("auc", "fm")
    assert p is not None and 0.05 < p < 0.2
    assert ComparisonTable.of(results).beaten("auc") == set()


def test_lower_is_better_for_losses() -> None:
    losses = {"fm": [0.52, 0.50, 0.51], "mdl": [0.42, 0.40, 0.41]}
    results = [
        RunResult(dataset="toy", model=model, seed=seed, metrics={"test": {"mse": value, "loss": value}})
        for model, values in losses.items()
        for seed, value in enumerate(values)
    ]
    table = ComparisonTable.of(results)
    assert table.metrics == ("mse",)
    assert best(table) == {"mdl"}
    assert table.beaten("mse") == {"fm"}


def test_equal_means_are_both_best() -> None:
    assert best(ComparisonTable.of(runs("fm", MDL) + runs("mdl", MDL))) == {"fm", "mdl"}


def test_models_are_compared_on_test_rows() -> None:
    run = RunResult(dataset="toy", model="mdl", seed=0, metrics={"test": {"auc": 0.7}, "validation": {"auc": 0.8}})
    assert ComparisonTable.of([run]).rows[0].metrics["auc"].mean == 0.7


def test_costs_of_finished_runs() -> None:
    results = [
        RunResult(dataset="toy", model="mdl", seed=0, train_seconds=10.0, n_parameters=5),
        RunResult(dataset="toy", model="mdl", seed=1, train_seconds=14.0, n_parameters=5),
        RunResult(dataset="toy", model="mdl", seed=2, train_seconds=900.0, error="stopped"),
    ]
    table = ComparisonTable.of(results)
    assert table.costs == ("n_parameters", "train_seconds")
    assert table.rows[0].costs["train_seconds"] == Summary.of([10.0, 14.0])
    assert (table.rows[0].n_runs, table.rows[0].n_finished) == (3, 2)


def test_failures_do_not_spoil_the_others() -> None:
    results = runs("saint", ["no memory"] * 3) + runs("fm", [*FM, "NaN loss"]) + runs("mdl", MDL)
    table = ComparisonTable.of(results)
    assert table.tests["auc"].rows == ComparisonTable.of(runs("fm", FM) + runs("mdl", MDL)).tests["auc"].rows
    saint, fm = table.notes
    assert all(fact in saint for fact in ("saint", "3 of 3", "0, 1, 2", "no memory"))
    assert all(fact in fm for fact in ("fm", "1 of 4", "seed 3", "NaN loss"))
    assert [(row.name, row.n_finished) for row in table.rows] == [("saint", 0), ("fm", 3), ("mdl", 3)]


@pytest.mark.parametrize(
    ("results", "notes"),
    [
        (runs("fm", FM), ["auc: no test.*mdl"]),
        (runs("fm", FM) + runs("mdl", ["gone"]), ["mdl: 1 of 1.*seed 0.*gone", "auc: no test.*mdl"]),
        (runs("fm", [0.7]) + runs("mdl", [0.8]), ["auc: no test.*one run"]),
        (runs("mdl", MDL), ["auc: no test.*control"]),
        (runs("mdl", ["gone"]), ["mdl: 1 of 1.*seed 0.*gone"]),
    ],
    ids=["control absent", "control failed", "one seed", "control only", "nothing finished"],
)
def test_what_cannot_be_tested_is_noted(results: list[RunResult], notes: list[str]) -> None:
    table = ComparisonTable.of(results)
    assert len(table.notes) == len(notes)
    assert all(re.match(pattern, note) for pattern, note in zip(notes, table.notes, strict=True))
    assert not table.beaten("auc")


def test_a_reason_shared_by_metrics_is_told_once() -> None:
    metrics = {"test": {"logloss": 0.5, "auc": 0.7}}
    results = [RunResult(dataset="toy", model=model, seed=0, metrics=metrics) for model in ("fm", "mdl")]
    [note] = ComparisonTable.of(results).notes
    assert note.startswith("logloss, auc: no test")


def test_a_metric_that_is_no_number_is_left_out() -> None:
    table = ComparisonTable.of(runs("fm", [*FM, math.nan]) + runs("mdl", MDL))
    assert table.rows[0].metrics["auc"] == Summary.of(FM)
    [note] = table.notes
    assert all(fact in note for fact in ("fm", "auc", "seed 3"))


def test_several_settings_of_a_model_are_rows_of_their_own() -> None:
    results = (
        runs("fm", FM, settings="tuned") + runs("mdl", LR, settings="default") + runs("mdl", MDL, settings="tuned")
    )
    assert names(ComparisonTable.of(results, control="mdl (tuned)")) == ["fm", "mdl (default)", "mdl (tuned)"]
    with pytest.raises(UserError, match=r"mdl \(default\), mdl \(tuned\)"):
        ComparisonTable.of(results)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([], "no runs"),
        (runs("mdl", MDL) + runs("mdl", MDL, dataset="other"), "toy, other"),
        (runs("mdl", MDL) + runs("mdl", MDL), "mdl.*seed 0"),
    ],
)
def test_refusals(results: list[RunResult], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ComparisonTable.of(results)
