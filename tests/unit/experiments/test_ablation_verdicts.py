"""Verdicts: what must be so for a claim to hold, not to hold, or to be undecided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from fielddep.experiments.ablation.verdicts import judge_falling, judge_near, judge_worse
from fielddep.experiments.significance import dunnett_table

NAN = math.nan


@pytest.mark.parametrize(
    ("curves", "verdict", "said"),
    [
        ([[3, 2, 1], [5, 4, 2]], "holds", "in all 2 seeds (test: 4 at 0, 1.5 at 2)"),
        ([[3, 1, 2], [5, 2, 4]], "does not hold", "rises on test from 1 to 2 in 2 of 2 seeds"),
        ([[3, 4, 1], [5, 2, 4]], "does not hold", "rises on test from 0 to 1, 1 to 2 in 2 of 2 seeds"),
        ([[3, 2, 1], [5, 2, 4]], "undecided", "rises on test from 1 to 2 in 1 of 2 seeds"),
        ([[3, 2, NAN], [5, 2, NAN]], "does not hold", "from 1 to 2 in 2 of 2 seeds"),
        ([[NAN, NAN, NAN], [NAN, NAN, NAN]], "does not hold", "rises on test"),
        ([[3, 1, 1.009], [5, 1, 1.009]], "holds", "falls all the way"),  # a rise below 1 % is not counted
        ([[3, 1, 1.02], [5, 1, 1.02]], "does not hold", "rises"),
        ([[100, 1, 1.5], [100, 1, 1.5]], "does not hold", "rises"),  # however far it fell before
        ([[1, 1e-6, 2e-6], [1, 1e-6, 2e-6]], "holds", "falls"),  # rounding, beside where it came from
        ([[1, 1, 1], [1, 1, 1]], "undecided", "changes by less than 1%"),
        ([[1, 0.995, 0.992], [2, 1, 0]], "undecided", "changes by less than 1%"),
        ([[3, 2, 1]], "undecided", "One seed has no spread"),
        ([], "undecided", "no finished runs"),
    ],
)
def test_falling(curves: Sequence[Sequence[float]], verdict: str, said: str) -> None:
    found, reason = judge_falling({"test": dict(enumerate(curves))}, [0, 1, 2])
    assert found == verdict
    assert said in reason


def test_all_parts_must_fall() -> None:
    falling, rising = {0: [2, 1], 1: [2, 1]}, {0: [1, 2], 1: [1, 2]}
    assert judge_falling({"train": falling, "test": falling}, [0, 1])[0] == "holds"
    verdict, reason = judge_falling({"train": falling, "test": rising}, [0, 1])
    assert verdict == "does not hold"
    assert "rises on test from 0 to 1" in reason


@pytest.mark.parametrize(
    ("curves", "verdict", "best"),
    [
        ({0: [3, 2, 1, 2], 1: [3, 1, 2, 2]}, "holds", "4, 3"),
        ({0: [3, 2, 1, 2], 1: [1, 2, 2, 2]}, "undecided", "4, 0"),
        ({0: [1, 2, 2, 2], 1: [3, 2, 2, 1]}, "does not hold", "0, 9"),
        ({0: [1, 1.00001, 1, 1], 1: [1, 1, 1.00001, 1]}, "undecided", "0, 0"),  # no difference worth the name
        ({0: [NAN, 2, 1, NAN], 1: [NAN, 2, 1, NAN]}, "holds", "4, 4"),
        ({0: [1, NAN, NAN, 2], 1: [1, NAN, NAN, 2]}, "does not hold", "0, 0"),
    ],
)
def test_lowest_near_the_steps_of_training(curves: Mapping[int, list[float]], verdict: str, best: str) -> None:
    found, reason = judge_near(curves, [0, 3, 4, 9], 4)
    assert found == verdict
    assert reason.startswith(f"Best T by seed: {best};")


def test_one_seed_does_not_decide_where_the_lowest_is() -> None:
    assert judge_near({0: [3, 2, 1, 2]}, [0, 3, 4, 9], 4) == ("undecided", "One seed has no spread; run at least two")


def worse_and_better(values: Mapping[str, list[float]]) -> tuple[str, str]:
    tests = tuple(dunnett_table(values, metric="logloss", better=b, control="mdl") for b in ("lower", "higher"))
    return judge_worse((tests[0], tests[1]), [name for name in values if name != "mdl"])


SMALL, LARGE = [0.300, 0.301, 0.302], [0.400, 0.401, 0.402]


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        ({"a": LARGE, "b": LARGE, "mdl": SMALL}, "holds", "a minus mdl: +0.1 (p of worse "),
        ({"a": LARGE, "b": SMALL, "mdl": SMALL}, "undecided", "b minus mdl: +0 "),
        ({"a": LARGE, "b": SMALL, "mdl": LARGE}, "does not hold", "b minus mdl: -0.1 "),
        ({"a": [0.4], "mdl": [0.3]}, "undecided", "one run only"),
        ({"a": [], "b": LARGE, "mdl": SMALL}, "undecided", "a has no value"),
    ],
)
def test_worse_than_the_control(values: Mapping[str, list[float]], verdict: str, said: str) -> None:
    found, reason = worse_and_better(values)
    assert found == verdict
    assert said in reason


def test_nothing_is_worse_than_what_did_not_run() -> None:
    assert judge_worse(None, ["a"]) == ("undecided", "There are no finished runs to compare with")
