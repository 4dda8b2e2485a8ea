"""Sections of the page on how good the model is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fielddep.config.metrics import METRICS, in_order, loss_name
from fielddep.report.decisions import EVEN
from fielddep.report.facts import (
    CalibrationPoint,
    ClassFacts,
    Histogram,
    ImportanceFacts,
    MeasuredFacts,
    ThresholdFacts,
    ThresholdPoint,
)
from fielddep.report.figures import (
    MAX_BARS,
    calibration_figure,
    importance_figure,
    learning_figure,
    precision_recall_figure,
    roc_figure,
    scores_figure,
)
from fielddep.report.intervals import CALIBRATION_ERROR, N_RESAMPLES
from fielddep.report.markup import (
    Html,
    Plots,
    bullets,
    captioned,
    empty_tag,
    interval_text,
    join,
    metric_text,
    table,
    tag,
)
from fielddep.training.checkpoint import Evaluation
from fielddep.wording import amount, count, fixed, percent, shorten

CALIBRATION = {
    "binary": (
        "Rows are grouped by their predicted probability. On the dashed line, predictions of 30 % come true 30 % of "
        "the time. Above the line, the positive class is more frequent than predicted; below it, less frequent."
    ),
    "multiclass": (
        "Rows are grouped by the probability of their likeliest class. On the dashed line, predictions of 80 % are "
        "right 80 % of the time. Below the line, the model is overconfident."
    ),
    "regression": (
        "Rows are grouped by their prediction, and each point is the mean of a group. On the dashed line, predictions "
        "are right on average."
    ),
}
SCORES = {
    "binary": (
        "The predicted probabilities in each class. The less the two outlines overlap, the better the model tells the "
        "classes apart."
    ),
    "multiclass": "The probability that the model gave to the true class. Further right is better.",
    "regression": (
        "True and predicted values. Predictions usually lie closer to the mean than the truth, especially if the "
        "fields say little about the target."
    ),
}
THRESHOLD = (
    "A threshold turns probabilities into decisions. A high one picks few rows and is right more often; a low one "
    "finds more of the positive class. The dots on the curves follow the slider; on the dashed lines, rows are picked "
    "at random."
)
PRECISION = (
    "Precision: share of the rows predicted to have the class that do have it. Recall: share of the rows with the "
    "class that are found. F1: harmonic mean of the two."
)
MAX_CLASS = 24
"""Characters of a class."""


def metrics_section(measured: MeasuredFacts) -> Html:
    """Every metric with its interval, next to the base rate."""
    metrics = in_order(measured.metrics)
    rows = [
        [
            join([tag("b", METRICS[name].title), tag("small", f"{METRICS[name].better} is better")]),
            join([metric_text(found.value), tag("small", interval_text(found))]),
            metric_text(measured.base_rate[name]) if name in measured.base_rate else "-",
        ]
        for name, found in metrics.items()
    ]
    header = ["metric", "this model and its 95 % interval", "base rate"]
    meanings = [join([tag("b", METRICS[name].title), f": {METRICS[name].meaning}"]) for name in metrics]
    return join(
        [
            tag("p", _verdict(measured)),
            table(header, rows, numbers=(1, 2), name="metrics"),
            bullets(meanings, name="quiet"),
            tag("p", _origin(measured), class_="note"),
        ]
    )


def _verdict(measured: MeasuredFacts) -> str:
    """How the loss compares with that of the base rate."""
    name = next((name for name in map(loss_name, ("binary", "regression")) if name in measured.metrics), None)
    if name is None or not measured.base_rate.get(name):
        return ""
    value, base, gain = measured.metrics[name].value, measured.base_rate[name], measured.gain
    title = METRICS[name].title
    if gain is not None and gain.low is not None and gain.high is not None and gain.low <= 0 <= gain.high:
        return (
            f"The {title} may be no better than that of always predicting the base rate, {metric_text(base)}: on "
            f"similar rows it could be between {metric_text(gain.high)} lower and {metric_text(-gain.low)} higher. "
            "More rows would give a clearer answer; fields that say more about the target would help the model."
        )
    change = "worse" if value > base else f"{percent(1 - value / base)} lower"
    return f"The {title} is {change} than that of always predicting the base rate, {metric_text(base)}."


def _origin(measured: MeasuredFacts) -> str:
    constant = ""
    if CALIBRATION_ERROR in measured.base_rate:
        constant = "; its calibration error is small because a constant that is right on average is calibrated"
    text = (
        f"Measured on {measured.n_rows:,} {measured.rows}. The base rate is that of the {measured.base_of}{constant}. "
        f"Intervals come from {N_RESAMPLES:,} bootstrap resamples of the rows; they do not cover the randomness of "
        "training."
    )
    if measured.n_sampled < measured.n_rows:
        text += (
            f" Intervals, curves and explanations use a random sample of {measured.n_sampled:,} rows; the intervals "
            "are scaled to all rows."
        )
    if measured.rows == "validation rows":
        text += (
            " Validation rows also decided when to stop training, so expect slightly worse results on new rows. Hold "
            "out test rows (split.test) to measure them."
        )
    return text


def learning_section(history: Sequence[Evaluation], loss: str, plots: Plots) -> Html:
    """Loss during training."""
    title = METRICS[loss].title
    figure = plots.add("learning", learning_figure(history, title), f"{title} of training and validation rows")
    caption = (
        "Lower is better. If the validation line rises while the training line still falls, the model memorises its "
        "training rows. The dot marks the parameters that were kept, usually where the validation loss is lowest."
    )
    return captioned(figure, caption)


def calibration_section(points: Sequence[CalibrationPoint], task: str, plots: Plots) -> Html:
    """Predicted against observed."""
    figure = plots.add("calibration", calibration_figure(points, task=task), "predicted against observed")
    return captioned(figure, f"{CALIBRATION[task]} Bars are 95 % intervals.")


def scores_section(histogram: Histogram, task: str, plots: Plots) -> Html:
    """Distribution of the predictions."""
    return captioned(
        plots.add("scores", scores_figure(histogram, task=task), "distribution of predictions"), SCORES[task]
    )


def threshold_section(facts: ThresholdFacts, classes: Sequence[str], plots: Plots) -> Html:
    """Both curves, and the confusion matrix at the threshold that a slider selects; at first 50 %."""
    other, positive = (shorten(name, MAX_CLASS) for name in classes)
    states = [_decisions(facts, point, positive) for point in facts.points]
    start = [point.threshold for point in facts.points].index(EVEN)
    last, label = str(len(states) - 1), f"threshold of the probability of {positive}"
    slider = empty_tag("input", type="range", min="0", max=last, value=str(start), aria_label=label)
    title, cells = states[start]["title"], states[start]["cells"]
    roc = plots.add("roc", roc_figure(facts) | {"thresholds": states}, "ROC curve")
    precision = plots.add("precision-recall", precision_recall_figure(facts), "precision by recall")
    return join(
        [
            tag("p", THRESHOLD),
            tag("label", "low", slider, "high", class_="step"),
            tag("p", tag("output", title)),
            _matrix(cells[:4], other, positive),
            table(["precision", "recall", "F1", "accuracy"], [cells[4:]], numbers=range(4), name="decisions"),
            tag("p", f"{PRECISION} Accuracy: share of all rows predicted rightly.", class_="note"),
            tag(
                "div",
                captioned(roc, "ROC curve. Further up and left is better."),
                captioned(precision, "Precision by recall. Further up and right is better."),
                class_="columns even",
            ),
        ]
    )


def _decisions(facts: ThresholdFacts, point: ThresholdPoint, positive: str) -> dict[str, Any]:
    """What the page says of a threshold: a sentence, and the cells of both tables, row by row."""
    missed, spared = facts.positive - point.caught, facts.negative - point.false
    found = facts.quality(point)
    accuracy = (point.caught + spared) / (facts.positive + facts.negative)
    return {
        "title": f"Rows with a probability of at least {percent(point.threshold)} are predicted as {positive}.",
        "cells": [
            *map(amount, (point.caught, missed, point.false, spared)),
            *map(_quality_text, (found.precision, found.recall, found.f1, accuracy)),
        ],
    }


def _matrix(cells: Sequence[str], other: str, positive: str) -> Html:
    """The confusion matrix: true classes as lines, predicted ones as columns."""
    header = [tag("th", name, scope="col", class_="n") for name in (f"predicted {positive}", f"predicted {other}")]
    lines = [
        tag("tr", tag("th", f"truly {name}", scope="row"), *(tag("td", cell, class_="n") for cell in line))
        for name, line in ((positive, cells[:2]), (other, cells[2:]))
    ]
    body = [tag("thead", tag("tr", tag("td"), *header)), tag("tbody", *lines)]
    return tag("div", tag("table", *body, class_="decisions", aria_label="confusion matrix"), class_="scroll")


def classes_section(facts: Sequence[ClassFacts], n_classes: int) -> Html:
    """How well every class is recognised."""
    lines = [
        [
            tag("b", shorten(one.name, MAX_CLASS)),
            *map(_quality_text, (one.quality.precision, one.quality.recall, one.quality.f1)),
            amount(one.weight),
        ]
        for one in facts
    ]
    note = f"The likeliest class is predicted. {PRECISION}"
    if len(facts) < n_classes:
        note += f" The {len(facts)} most frequent of {n_classes:,} classes are shown."
    header = ["class", "precision", "recall", "F1", "rows"]
    return join([table(header, lines, numbers=range(1, 5), name="names"), tag("p", note, class_="note")])


def _quality_text(value: float | None) -> str:
    return "-" if value is None else fixed(value, 3)


def importance_section(facts: ImportanceFacts, plots: Plots) -> Html:
    """What shuffling each field costs."""
    title = METRICS[facts.metric].title
    caption = (
        f"How much the {title} rises when the values of one field are shuffled among the rows and so lose their "
        "meaning. The model relies on fields with long bars. A field with a bar near zero says little, or only what "
        f"other fields say too. Mean of {facts.n_repeats} shuffles of {count(facts.n_rows, 'row')}; thin lines show "
        "one standard deviation."
    )
    if len(facts.fields) > MAX_BARS:
        caption += f" The {MAX_BARS} most important of {len(facts.fields)} fields are shown."
    return captioned(plots.add("importance", importance_figure(facts), f"rise in {title} by field"), caption)
