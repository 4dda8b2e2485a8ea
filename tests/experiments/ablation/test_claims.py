"""Verdicts: what must be so for a claim to hold, not to hold, or to be undecided."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from fielddep.experiments.ablation.claims import (
    judge_falling,
    judge_levelling,
    judge_near,
    judge_together,
    judge_valley,
    judge_worse,
)
from fielddep.experiments.significance import DunnettTable, dunnett_table

NAN = math.nan


@pytest.mark.parametrize(
    ("curves", "verdict", "said"),
    [
        ([[3, 2, 1], [5, 4, 2]], "holds", "test: 4 at 0, 1.5 at 2"),
        ([[3, 1, 2], [5, 2, 4]], "does not hold", "test from 1 to 2 in 2 of 2"),
        ([[3, 4, 1], [5, 2, 4]], "does not hold", "test from 0 to 1, 1 to 2 in 2 of 2"),
        ([[3, 2, 1], [5, 2, 4]], "undecided", "test from 1 to 2 in 1 of 2"),
        ([[3, 2, NAN], [5, 2, NAN]], "does not hold", "from 1 to 2 in 2 of 2"),
        ([[NAN, NAN, NAN], [NAN, NAN, NAN]], "does not hold", "test from"),
        ([[3, 1, 1.009], [5, 1, 1.009]], "holds", "test: 4 at 0"),  # a rise below 1 % is not counted
        ([[3, 1, 1.02], [5, 1, 1.02]], "does not hold", "1 to 2"),
        ([[100, 1, 1.5], [100, 1, 1.5]], "does not hold", "1 to 2"),  # however far it fell before
        ([[1, 1e-6, 2e-6], [1, 1e-6, 2e-6]], "holds", "test: 1 at 0"),  # rounding, beside where it came from
        ([[1, 1, 1], [1, 1, 1]], "undecided", "1%"),
        ([[1, 0.995, 0.992], [2, 1, 0]], "undecided", "1%"),
        ([[3, 2, 1]], "undecided", "One seed"),
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
    assert "test from 0 to 1" in reason


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
    assert f"seed: {best};" in reason


def test_one_seed_does_not_decide_where_the_lowest_is() -> None:
    verdict, reason = judge_near({0: [3, 2, 1, 2]}, [0, 3, 4, 9], 4)
    assert verdict == "undecided" and "seed" in reason


def dunnett_of(values: Mapping[str, list[float]], control: str) -> tuple[DunnettTable, DunnettTable]:
    """Tests of "worse than the control" and of "better"."""
    worse, better = (dunnett_table(values, metric="m", better=b, control=control) for b in ("lower", "higher"))
    return worse, better


def worse_and_better(values: Mapping[str, list[float]]) -> tuple[str, str]:
    return judge_worse(dunnett_of(values, "mdl"), [name for name in values if name != "mdl"])


SMALL, LARGE = [0.300, 0.301, 0.302], [0.400, 0.401, 0.402]


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        ({"a": LARGE, "b": LARGE, "mdl": SMALL}, "holds", "a minus mdl: +0.1 (p of worse "),
        ({"a": LARGE, "b": SMALL, "mdl": SMALL}, "undecided", "b minus mdl: +0 "),
        ({"a": LARGE, "b": SMALL, "mdl": LARGE}, "does not hold", "b minus mdl: -0.1 "),
        ({"a": [0.4], "mdl": [0.3]}, "undecided", "one run"),
        ({"a": [], "b": LARGE, "mdl": SMALL}, "undecided", "a "),
    ],
)
def test_worse_than_the_control(values: Mapping[str, list[float]], verdict: str, said: str) -> None:
    found, reason = worse_and_better(values)
    assert found == verdict
    assert said in reason


def test_nothing_is_worse_than_what_did_not_run() -> None:
    assert judge_worse(None, ["a"])[0] == "undecided"


def lows(*places: float) -> list[list[float]]:
    """Curves of 0, 4 and 6 steps, one a seed, lowest at the place of each."""
    return [[1 + abs(steps - place) for steps in (0, 4, 6)] for place in places]


@pytest.mark.parametrize(
    ("losses", "errors", "verdict", "said"),
    [
        (lows(4, 4), lows(4, 4), "holds", "4 and 4, by seed 4 and 4, 4 and 4"),
        (lows(4, 6), lows(4, 6), "holds", "by seed 4 and 4, 6 and 6"),  # wherever it is
        (lows(4, 4), lows(6, 6), "does not hold", "4 and 6, by seed 4 and 6, 4 and 6"),
        (lows(4, 4), lows(6, 4), "undecided", "by seed 4 and 6, 4 and 4"),
        ([[2, 1, 1.00005]] * 2, lows(6, 6), "holds", "by seed 4 and 6"),  # as low at 6, but for rounding
        ([[2, 1, NAN]] * 2, [[2, NAN, 1]] * 2, "does not hold", "4 and 6"),
        (lows(4), lows(4), "undecided", "One seed"),
    ],
)
def test_best_at_the_same_steps(
    losses: Sequence[Sequence[float]], errors: Sequence[Sequence[float]], verdict: str, said: str
) -> None:
    pair = (dict(enumerate(losses)), dict(enumerate(errors)))
    found, reason = judge_together({"test": pair}, [0, 4, 6])
    assert found == verdict
    assert said in reason


def test_both_parts_must_have_their_best_at_the_same_steps() -> None:
    same, apart = (dict(enumerate(lows(4, 4))), dict(enumerate(lows(6, 6))))
    verdict, _ = judge_together({"validation": (same, same), "test": (same, apart)}, [0, 4, 6])
    assert verdict == "does not hold"


def around(*means: float) -> dict[str, list[float]]:
    """Three runs of each value of a setting."""
    return {str(at): [mean - 0.001, mean, mean + 0.001] for at, mean in enumerate(means)}


@pytest.mark.parametrize(
    ("means", "levels", "valley"),
    [
        ((0.5, 0.4, 0.3, 0.3), "holds", "undecided"),  # levels off; nothing says whether it would rise
        ((0.5, 0.3, 0.3, 0.4), "does not hold", "holds"),
        ((0.5, 0.4, 0.3, 0.2), "holds", "does not hold"),  # falls to the end
        ((0.2, 0.3, 0.4, 0.5), "does not hold", "does not hold"),
        ((0.3, 0.5, 0.5, 0.3), "undecided", "does not hold"),  # a hill
        ((0.3, 0.3, 0.3, 0.3), "undecided", "undecided"),
    ],
)
def test_shapes(means: Sequence[float], levels: str, valley: str) -> None:
    first, last = (dunnett_of(around(*means), end) for end in ("0", "3"))
    assert judge_levelling(first, last)[0] == levels
    assert judge_valley(first, last)[0] == valley


@pytest.mark.parametrize("judge", [judge_levelling, judge_valley])
def test_a_shape_of_single_runs_or_of_none_is_undecided(judge: Callable[..., tuple[str, str]]) -> None:
    once = {value: runs[:1] for value, runs in around(0.5, 0.3, 0.4).items()}
    assert judge(dunnett_of(once, "0"), dunnett_of(once, "2"))[0] == "undecided"
    assert judge(None, dunnett_of(around(0.5, 0.3), "0"))[0] == "undecided"
