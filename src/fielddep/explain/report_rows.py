"""Rows worth a look: those that a model is most and least surely right or wrong about, and one drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.data.target import amount_text
from fielddep.explain.dependencies import Explanation, FieldDependencies, explain_rows, learns_dependencies
from fielddep.explain.field_table import Array
from fielddep.explain.hiding import hide_fields
from fielddep.explain.report import RefinementFacts, RowFacts, StepFacts
from fielddep.explain.report_json import six_digits
from fielddep.explain.scores import ScoredRows

MAX_SHOWN = 16
"""Fields at most in the heat maps of a row; with more, those of the strongest dependencies."""
RIGHT, WRONG, UNSURE, RANDOM = "right", "wrong", "unsure", "random"

Choice = tuple[str, int]
"""Why a row was chosen, and its position."""


def explained_rows(
    bundle: Bundle,
    rows: EncodedTable,
    scored: ScoredRows,
    numbers: npt.NDArray[np.int64],
    *,
    seed: int = 0,
) -> tuple[RowFacts, ...]:
    """Choose a handful of rows and explain them.

    Args:
        bundle: any model; dependencies are told of one that has learned them.
        rows: rows with targets.
        scored: their predictions.
        numbers: what the rows are called, counted from 0.
        seed: seed of the row drawn at random.
    """
    chosen = choose_rows(scored, seed=seed)
    table = rows.take(torch.tensor([row for _, row in chosen], dtype=torch.int64))
    effects = hide_fields(bundle, table)
    gains_RF = effects.effect_RF if effects.logit_effect_RF is None else effects.logit_effect_RF
    found = explain_rows(bundle, table) if learns_dependencies(bundle) else None
    told = []
    for at, (why, row) in enumerate(chosen):
        told.append(
            RowFacts(
                why=why,
                number=int(numbers[row]),
                predicted=_predicted(scored, row),
                truth=_label(scored, float(scored.truth()[row])),
                values=tuple(map(str, effects.values.row(at))),
                effects=tuple(gains_RF[at].tolist()),
                refinement=None if found is None else _refinement(found, at),
            )
        )
    return tuple(told)


def _refinement(found: Explanation, row: int) -> RefinementFacts:
    """Of the last step all dependencies, of the others those between the fields that are shown."""
    refined = found.refined(row)
    shown = refined.strongest_fields(MAX_SHOWN)
    steps = [
        StepFacts(
            loss=float(found.loss_RSF[row, step].sum()),
            weights=tuple(six_digits((found.mu_RSF[row, step] / found.sparsity).tolist())),
            w=_lines(found.at_step(step, row).part(shown)),
        )
        for step in range(found.mu_RSF.shape[1])
    ]
    return RefinementFacts(dependencies=_lines(refined), shown=tuple(shown), steps=tuple(steps))


def _lines(table: FieldDependencies) -> tuple[tuple[float, ...], ...]:
    """One tuple a source, without the digits that are noise of float32."""
    return tuple(tuple(six_digits(line)) for line in table.matrix_FF.tolist())


def choose_rows(scored: ScoredRows, *, seed: int = 0) -> list[Choice]:
    """Positions of up to five different rows: two surely right, two surely wrong, one at random.

    Of two classes, the row of each class with the best and with the worst probability. Right is a row that the model
    gives its own class more probability than its share of the rows, as a rare class would never reach 1/2; where the
    worst row is right too, it is an unsure one. Of more classes, the surest of the right and of the wrong predictions,
    of different classes where there are any. Of numbers, predictions far from the mean that came true, and the worst
    errors.
    """
    candidates = {"binary": _of_two, "multiclass": _of_many, "regression": _of_numbers}[scored.target.task](scored)
    order = np.random.default_rng(seed).permutation(len(scored)).tolist()
    chosen: list[Choice] = []
    for why, row in [*candidates, *((RANDOM, row) for row in order[: len(candidates) + 1])]:
        taken = [row for _, row in chosen]
        if row not in taken and not (why == RANDOM and any(w == RANDOM for w, _ in chosen)):
            chosen.append((why, row))
    return chosen


def _of_two(scored: ScoredRows) -> list[Choice]:
    positive_R, truth_R = scored.predictions()[:, 1], scored.truth() > 0.5
    found: list[Choice] = []
    for own_R, meant_R in ((positive_R, truth_R), (1 - positive_R, ~truth_R)):
        share = 0.5 if meant_R.all() else meant_R.mean()  # all rows are no share to compare with
        for best, worst in zip(_highest(own_R, meant_R), _highest(-own_R, meant_R), strict=True):
            if best != worst and own_R[best] > share:
                found.append((RIGHT, best))
            if own_R[worst] < share:
                found.append((WRONG, worst))
            elif best != worst:
                found.append((UNSURE, worst))
    return sorted(found, key=lambda choice: (RIGHT, WRONG, UNSURE).index(choice[0]))


def _of_many(scored: ScoredRows) -> list[Choice]:
    values_RC, truth_R = scored.predictions(), scored.truth()
    likeliest_R, confidence_R = values_RC.argmax(axis=1), values_RC.max(axis=1)
    found: list[Choice] = []
    for why, meant_R in ((RIGHT, likeliest_R == truth_R), (WRONG, likeliest_R != truth_R)):
        first = _highest(confidence_R, meant_R)
        found += [(why, row) for row in first]
        for row in first:
            others_R = meant_R & (likeliest_R != likeliest_R[row])
            found += [(why, other) for other in _highest(confidence_R, others_R)]
    return found


def _of_numbers(scored: ScoredRows) -> list[Choice]:
    values_R = scored.predictions()
    error_R = values_R - scored.truth()
    close_R = np.abs(error_R) <= np.quantile(np.abs(error_R), 0.1)
    any_R = np.ones_like(close_R)
    best = _highest(values_R, close_R) + _highest(-values_R, close_R)
    worst = _highest(error_R, any_R) + _highest(-error_R, any_R)
    return [*((RIGHT, r) for r in best), *((WRONG, r) for r in worst)]


def _highest(values_R: Array, meant_R: npt.NDArray[np.bool_]) -> list[int]:
    """The first position of the largest value of those meant; none where none is."""
    return [int(np.where(meant_R, values_R, -np.inf).argmax())] if meant_R.any() else []


def _predicted(scored: ScoredRows, row: int) -> str:
    values: Sequence[float] = np.atleast_1d(scored.predictions()[row]).tolist()
    if scored.target.task == "regression":
        return amount_text(values[0])
    followed = 1 if scored.target.task == "binary" else int(np.argmax(values))
    return f"{percent(values[followed])} for {_label(scored, followed)}"


def _label(scored: ScoredRows, value: float) -> str:
    return amount_text(value) if scored.target.task == "regression" else str(scored.target.classes[int(value)])


def percent(share: float) -> str:
    """A share with as many digits as it needs to be neither 0 nor 100 % unless it is.

    Example:
        >>> percent(0.25), percent(0.9996), percent(0.00012), percent(1.0)
        ('25 %', '99.96 %', '0.01 %', '100 %')
    """
    distance = min(share, 1 - share)
    for digits in range(7):
        if distance == 0 or round(100 * distance, digits) >= 10**-digits:
            return f"{100 * share:.{digits}f} %"
    return f"{100 * share:.6f} %"
