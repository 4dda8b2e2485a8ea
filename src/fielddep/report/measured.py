"""How good a model is on rows with known targets, and a few of them explained: the third part of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.rows import EncodedRows, RowSample, sample_rows
from fielddep.explain.curves import ScoredRows, calibration_curve, n_score_bins, score_distribution, score_rows
from fielddep.explain.dependencies import Explanation, FieldDependencies, explain_rows, learns_dependencies
from fielddep.explain.evidence import combination_name, rank_evidence, row_evidence, uses_evidence
from fielddep.explain.hiding import hide_fields, refines, unrefined
from fielddep.explain.importance import permutation_importance
from fielddep.explain.members import row_members
from fielddep.explain.rows import Floats
from fielddep.report.decisions import class_facts, threshold_facts
from fielddep.report.facts import (
    CalibrationPoint,
    EvidenceFacts,
    Histogram,
    ImportanceFacts,
    MeasuredFacts,
    RefinementEffect,
    RefinementFacts,
    RowFacts,
    SeenFacts,
    StepFacts,
    six_digits,
)
from fielddep.report.intervals import GAIN, bootstrap_intervals, row_metrics
from fielddep.wording import amount, percent

MAX_SHOWN = 12
"""Fields in the heat maps of a row at most; of more, those with the strongest dependencies."""
MAX_SEEN, MAX_RANKED = 5, 15
"""Combinations of fields at most: of a row, and in the ranking."""
RIGHT, WRONG, UNSURE, RANDOM = "right", "wrong", "unsure", "random"

Choice = tuple[str, int]
"""Why a row was chosen, and its position."""


def _explained_rows(
    bundle: Bundle, rows: EncodedRows, scored: ScoredRows, numbers: npt.NDArray[np.int64]
) -> tuple[RowFacts, ...]:
    """Choose a few rows and explain them; `numbers` are their row numbers."""
    chosen = choose_rows(scored)
    table = rows.take(np.array([row for _, row in chosen], dtype=np.int64))
    effects = hide_fields(bundle, table)
    found = explain_rows(bundle, table) if learns_dependencies(bundle) else None
    evidence = row_evidence(bundle, table, n_strongest=MAX_SEEN).rows if uses_evidence(bundle) else None
    members = row_members(bundle, table)
    return tuple(
        RowFacts(
            why=why,
            number=int(numbers[row]),
            predicted=_predicted(scored, row),
            truth=_label(scored, float(scored.truth()[row])),
            values=tuple(map(str, effects.values.row(at))),
            effects=tuple(effects.plotted_RF[at].tolist()),
            refinement=None if found is None else _refinement(found, at),
            seen=() if evidence is None else tuple(SeenFacts(text=str(s), effect=s.effect) for s in evidence[at]),
            members="" if members is None else members.text(at),
        )
        for at, (why, row) in enumerate(chosen)
    )


def _refinement(found: Explanation, row: int) -> RefinementFacts:
    """All dependencies of the last step, and those between the fields shown for every step."""
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
    """One tuple per source, without digits that are noise of float32."""
    return tuple(tuple(six_digits(line)) for line in table.matrix_FF.tolist())


def choose_rows(scored: ScoredRows, *, seed: int = 0) -> list[Choice]:
    """Positions of up to five different rows: two clearly right, two clearly wrong, one at random.

    Two classes: the rows of each class with the best and the worst probability. A prediction is right if it gives the
    true class more probability than its share of the rows, because a rare class may never reach 1/2. If even the worst
    row is right, it is called unsure. More classes: the most confident right and wrong predictions, for different
    classes if possible. Numbers: good predictions far from the mean, and the worst errors.
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
        share = 0.5 if meant_R.all() else meant_R.mean()  # a share of 1 could not be exceeded
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


def _highest(values_R: Floats, meant_R: npt.NDArray[np.bool_]) -> list[int]:
    """The first position of the largest value among the rows meant; empty if there are none."""
    return [int(np.where(meant_R, values_R, -np.inf).argmax())] if meant_R.any() else []


def _predicted(scored: ScoredRows, row: int) -> str:
    values: Sequence[float] = np.atleast_1d(scored.predictions()[row]).tolist()
    if scored.target.task == "regression":
        return amount(values[0])
    followed = 1 if scored.target.task == "binary" else int(np.argmax(values))
    return f"{percent(values[followed])} for {_label(scored, followed)}"


def _label(scored: ScoredRows, value: float) -> str:
    return amount(value) if scored.target.task == "regression" else str(scored.target.classes[int(value)])


REFINEMENT_ROWS = 10_000
"""Rows that are predicted with and without refinement, at most."""
IMPORTANCE_ROWS = 10_000
IMPORTANCE_REPEATS = 3
IMPORTANCE_PREDICTIONS = 300_000
"""Predictions for the importance of all fields together, at most."""
MIN_IMPORTANCE_ROWS = 500
FEW_CLASSES = 6
"""Up to this many classes, each has a histogram of its own."""


def measured_facts(
    bundle: Bundle,
    sample: RowSample,
    *,
    rows: str,
    metrics: Mapping[str, float],
    base_rate: Mapping[str, float],
    base_of: str,
    base_C: torch.Tensor,
) -> MeasuredFacts:
    """Metrics with intervals, curves, importance and explained rows.

    Args:
        bundle: any model.
        sample: rows with targets, not empty.
        rows: which rows these are, in words.
        metrics: metrics of all rows, not only of the sample.
        base_rate: the same metrics if the base rate is always predicted.
        base_of: the rows that have this base rate, in words.
        base_C: logits that predict the base rate.
    """
    table = sample.rows
    scored = score_rows(bundle, table)
    intervals = bootstrap_intervals(scored, values=metrics, base_C=base_C, n_rows=sample.n_seen)
    gain = intervals.pop(GAIN, None)
    return MeasuredFacts(
        rows=rows,
        n_rows=sample.n_seen,
        n_sampled=len(table),
        metrics=intervals,
        base_rate={name: value for name, value in base_rate.items() if name != "loss"},
        base_of=base_of,
        gain=gain,
        calibration=_calibration(scored),
        scores=_histogram(scored),
        importance=_importance(bundle, table),
        examples=_explained_rows(bundle, table, scored, sample.numbers),
        thresholds=threshold_facts(scored),
        classes=class_facts(scored),
        refinement=_refinement_effect(bundle, table),
        evidence=_evidence(bundle, table),
    )


def _calibration(scored: ScoredRows) -> tuple[CalibrationPoint, ...]:
    if not scored.weights().sum() > 0:
        return ()
    curve = calibration_curve(scored).to_frame()
    return tuple(CalibrationPoint(**line) for line in curve.iter_rows(named=True))


def _histogram(scored: ScoredRows) -> Histogram | None:
    """Distribution of predictions: by class, or next to the true numbers."""
    if not scored.weights().sum() > 0:
        return None
    return _number_histogram(scored) if scored.target.task == "regression" else _score_histogram(scored)


def _score_histogram(scored: ScoredRows) -> Histogram:
    """Probabilities by class, or of all classes together if there are many."""
    spread = score_distribution(scored)
    if len(spread.classes) <= FEW_CLASSES:
        names, share_CN = [str(label) for label in spread.classes], spread.share_CN
    else:
        total_N = spread.weight_CN.sum(axis=0)
        names, share_CN = ["all classes"], total_N[np.newaxis] / total_N.sum()
    shares = tuple((name, tuple(share_N.tolist())) for name, share_N in zip(names, share_CN, strict=True))
    return Histogram(edges=tuple(spread.edges.tolist()), shares=shares)


def _number_histogram(scored: ScoredRows) -> Histogram:
    """Predicted and true numbers in the same bins, without the outermost 1 %."""
    groups = {"true values": scored.truth(), "predicted values": scored.predictions()}
    low, high = np.quantile(np.concatenate(list(groups.values())), [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, n_score_bins(len(scored)) + 1)
    weights = scored.weights()
    shares = tuple(
        (name, tuple((np.histogram(values, bins=edges, weights=weights)[0] / weights.sum()).tolist()))
        for name, values in groups.items()
    )
    return Histogram(edges=tuple(edges.tolist()), shares=shares)


def _importance(bundle: Bundle, table: EncodedRows) -> ImportanceFacts | None:
    n_rows = IMPORTANCE_PREDICTIONS // (IMPORTANCE_REPEATS * len(bundle.encoder.field_encoders))
    rows = sample_rows([table], min(IMPORTANCE_ROWS, max(MIN_IMPORTANCE_ROWS, n_rows))).rows
    if rows.weight_R is not None and not rows.weight_R.sum() > 0:
        return None
    found = permutation_importance(bundle, rows, n_repeats=IMPORTANCE_REPEATS)
    metric = found.metrics[0]
    numbers = zip(found.names, found.mean_F(metric).tolist(), found.std_F(metric).tolist(), strict=True)
    return ImportanceFacts(
        metric=metric,
        n_rows=found.n_rows,
        n_repeats=IMPORTANCE_REPEATS,
        fields=tuple(sorted(numbers, key=lambda entry: -entry[1])),
    )


def _refinement_effect(bundle: Bundle, table: EncodedRows) -> RefinementEffect | None:
    """Predictions and losses with and without refinement; None for a model that does not refine."""
    rows = sample_rows([table], REFINEMENT_ROWS).rows
    if not refines(bundle) or (rows.weight_R is not None and not rows.weight_R.sum() > 0):
        return None
    both = [score_rows(one, rows) for one in (bundle, unrefined(bundle))]
    loss_R, without_R = (next(iter(row_metrics(scored).values())).numpy() for scored in both)  # the loss comes first
    values, others = (scored.predictions().reshape(len(rows), -1) for scored in both)
    followed_R1 = values.argmax(axis=1)[:, np.newaxis]
    change_R = np.abs(np.take_along_axis(values - others, followed_R1, axis=1))[:, 0]
    change, loss, loss_without = (
        float(np.average(one_R, weights=both[0].weights())) for one_R in (change_R, loss_R, without_R)
    )
    return RefinementEffect(n_rows=len(rows), change=change, loss=loss, loss_without=loss_without)


def _evidence(bundle: Bundle, table: EncodedRows) -> EvidenceFacts | None:
    if not uses_evidence(bundle):
        return None
    found = rank_evidence(bundle, table)
    ranked = zip(map(combination_name, found.combinations), six_digits(found.effect_K.tolist()), strict=True)
    shown = tuple(ranked)[:MAX_RANKED]
    return EvidenceFacts(n_rows=found.n_rows, n_combinations=len(found.combinations), combinations=shown)
