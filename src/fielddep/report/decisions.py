"""Decisions from predicted probabilities, right and wrong: at every threshold for two classes, by class for more.

Shape legend: R rows, C classes, N different scores, from the highest down.
"""

from __future__ import annotations

import numpy as np

from fielddep.explain.curves import ScoredRows
from fielddep.explain.rows import Floats
from fielddep.report.facts import ClassFacts, Quality, ThresholdFacts, ThresholdPoint

MAX_POINTS = 200
"""Thresholds at most."""
EVEN = 0.5
"""The threshold that picks the likelier of two classes; it is always among the points."""
MAX_CLASSES = 40
"""Classes at most; of more, the most frequent."""


def threshold_facts(scored: ScoredRows) -> ThresholdFacts | None:
    """Decisions of two classes at up to `MAX_POINTS` thresholds; None without rows of both classes.

    The points lie evenly along the ROC curve, so a rare class has as many as a frequent one.

    Raises:
        SchemaError: if the targets are unknown.
    """
    if scored.target.task != "binary":
        return None
    score_R, weight_R = scored.predictions()[:, 1], scored.weights()
    order_R = np.argsort(-score_R, kind="stable")
    is_last_R = np.r_[np.diff(score_R[order_R]) != 0, True]  # of the rows with the same score
    threshold_N = score_R[order_R][is_last_R]
    caught_N, false_N = (
        np.cumsum((weight_R * of_class_R)[order_R])[is_last_R] for of_class_R in (scored.truth(), 1 - scored.truth())
    )
    if not (caught_N[-1] > 0 and false_N[-1] > 0):
        return None
    points = {float(threshold_N[n]): n for n in _evenly(caught_N / caught_N[-1] + false_N / false_N[-1])}
    points[EVEN] = int((threshold_N >= EVEN).sum()) - 1  # -1 if no row scores as high
    return ThresholdFacts(
        positive=float(caught_N[-1]),
        negative=float(false_N[-1]),
        points=tuple(
            ThresholdPoint(
                threshold=threshold,
                caught=float(caught_N[n]) if n >= 0 else 0.0,
                false=float(false_N[n]) if n >= 0 else 0.0,
            )
            for threshold, n in sorted(points.items())
        ),
    )


def _evenly(way_N: Floats) -> list[int]:
    """Positions at about even distances along a way, including the first and the last."""
    wanted = np.linspace(way_N[0], way_N[-1], MAX_POINTS - 1)
    found: list[int] = np.unique(np.searchsorted(way_N, wanted)).tolist()
    return found


def class_facts(scored: ScoredRows) -> tuple[ClassFacts, ...]:
    """How well each of several classes is recognised if the likeliest is predicted; the most frequent first.

    Raises:
        SchemaError: if the targets are unknown.
    """
    if scored.target.task != "multiclass":
        return ()
    classes, weight_R = scored.target.classes, scored.weights()
    truth_R, likeliest_R = scored.truth().astype(np.int64), scored.predictions().argmax(axis=1)
    actual_C, predicted_C, right_C = (
        np.bincount(class_R, weights=w_R, minlength=len(classes))
        for class_R, w_R in (
            (truth_R, weight_R),
            (likeliest_R, weight_R),
            (truth_R, weight_R * (truth_R == likeliest_R)),
        )
    )
    return tuple(
        ClassFacts(
            name=str(classes[c]),
            weight=float(actual_C[c]),
            quality=Quality.of(right_C[c], predicted=predicted_C[c], actual=actual_C[c]),
        )
        for c in np.argsort(-actual_C, kind="stable")[:MAX_CLASSES]
    )
