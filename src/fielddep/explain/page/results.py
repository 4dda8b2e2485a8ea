"""Sections on how good the model is: metrics, learning, calibration, scores and importance."""

from __future__ import annotations

from collections.abc import Sequence

from fielddep.explain.page.figures import (
    MAX_BARS,
    calibration_figure,
    importance_figure,
    learning_figure,
    scores_figure,
)
from fielddep.explain.page.markup import Html, bullets, join, table, tag
from fielddep.explain.page.plots import Plots
from fielddep.explain.page.words import METRICS, count, in_order, luck, number
from fielddep.explain.report import CalibrationPoint, Histogram, ImportanceFacts, MeasuredFacts
from fielddep.explain.report_rows import percent
from fielddep.training.history import Evaluation

CALIBRATION = {
    "binary": (
        "Rows are grouped by their predicted probability. On the dashed line, what is given 30 % happens in 30 % of "
        "cases; above the line it happens more often than predicted, below it less often."
    ),
    "multiclass": (
        "Rows are grouped by the probability of their likeliest class. On the dashed line, a class given 80 % is right "
        "in 80 % of cases; below it the model is too sure of itself."
    ),
    "regression": (
        "Rows are grouped by their prediction; each point is the mean of a group. On the dashed line, predictions are "
        "right on average."
    ),
}
SCORES = {
    "binary": (
        "How the predicted probabilities of each class are spread. The less the two outlines overlap, the better the "
        "model tells the classes apart."
    ),
    "multiclass": (
        "How much probability the model gave to the class that a row turned out to be. The further to the right, the "
        "better."
    ),
    "regression": (
        "True and predicted values side by side. Predictions are usually drawn to the middle, the more so the less the "
        "fields tell."
    ),
}


def metrics_section(measured: MeasuredFacts) -> Html:
    """Every metric with its interval, beside the base rate."""
    rows = [
        [
            join([tag("b", METRICS[name].title), tag("small", f"{METRICS[name].better} is better")]),
            join([number(found.value), tag("small", luck(found))]),
            number(measured.base_rate[name]) if name in measured.base_rate else "-",
        ]
        for name, found in in_order(measured.metrics)
    ]
    header = ["metric", "this model and its 95 % interval", "base rate"]
    meanings = [join([tag("b", METRICS[n].title), f": {METRICS[n].meaning}"]) for n, _ in in_order(measured.metrics)]
    return join(
        [
            tag("p", _verdict(measured)),
            table(header, rows, numbers=(1, 2), name="metrics"),
            bullets(meanings, name="quiet"),
            tag("p", _origin(measured), class_="note"),
        ]
    )


def learning_section(history: Sequence[Evaluation], loss: str, plots: Plots) -> Html:
    """Loss over the training."""
    title = METRICS[loss].title
    figure = plots.add("learning", learning_figure(history, title), f"{title} of training and validation rows")
    caption = (
        "Lower is better. Where the validation line rises while the training line still falls, the model learns its "
        "training rows by heart; the parameters at the orange point, the lowest validation loss, are the ones kept."
    )
    return _captioned(figure, caption)


def calibration_section(points: Sequence[CalibrationPoint], task: str, plots: Plots) -> Html:
    """Predicted against observed."""
    figure = plots.add("calibration", calibration_figure(points, task=task), "predicted against observed")
    return _captioned(figure, f"{CALIBRATION[task]} Bars are 95 % intervals.")


def scores_section(histogram: Histogram, task: str, plots: Plots) -> Html:
    """How predictions are spread."""
    figure = plots.add("scores", scores_figure(histogram, task=task), "distribution of predictions")
    return _captioned(figure, SCORES[task])


def importance_section(facts: ImportanceFacts, plots: Plots) -> Html:
    """What shuffling each field costs."""
    title = METRICS[facts.metric].title
    caption = (
        f"How much the {title} rises when the values of one field are shuffled among the rows, so that it tells "
        "nothing any more. A long bar: the model relies on this field. Near zero: it could do without, or other fields "
        f"tell the same. Mean of {facts.n_repeats} shuffles of {count(facts.n_rows, 'row')}; thin lines are one "
        "standard deviation."
    )
    if len(facts.fields) > MAX_BARS:
        caption += f" The {MAX_BARS} most important of {len(facts.fields)} fields are shown."
    figure = plots.add("importance", importance_figure(facts), f"rise of the {title} by field")
    return _captioned(figure, caption)


def _captioned(figure: Html, caption: str) -> Html:
    return tag("figure", figure, tag("figcaption", caption))


def _verdict(measured: MeasuredFacts) -> str:
    """One sentence on the loss, beside that of the base rate."""
    name = next((name for name in ("logloss", "mse") if name in measured.metrics), None)
    if name is None or not measured.base_rate.get(name):
        return ""
    found, base, gain = measured.metrics[name], measured.base_rate[name], measured.gain
    title, change = METRICS[name].title, 1 - found.value / base
    if gain is not None and gain.low is not None and gain.high is not None and gain.low <= 0 <= gain.high:
        return (
            f"The {title} cannot be told from that of always predicting the base rate, {number(base)}: on other rows "
            f"like these it may be between {number(gain.high)} lower and {number(-gain.low)} higher. More rows, or "
            "fields that say more of the target, are needed."
        )
    if found.value > base:
        return f"The {title} is worse than that of always predicting the base rate, {number(base)}."
    return f"The {title} is {percent(change)} below that of always predicting the base rate, {number(base)}."


def _origin(measured: MeasuredFacts) -> str:
    told = (
        f"Measured on {measured.n_rows:,} {measured.rows}. The base rate is that of the {measured.base_of}. Intervals "
        "come from 1,000 bootstrap resamples of the rows; they tell of the luck of these rows, not of that of the "
        "training."
    )
    if measured.n_sampled < measured.n_rows:
        told += (
            f" Intervals, curves and explanations are taken from a random sample of {measured.n_sampled:,} rows, the "
            "intervals scaled to all rows."
        )
    if measured.rows == "validation rows":
        told += (
            " Validation rows also decided when to stop, so new rows may do a little worse; hold out test rows "
            "(split.test) to know."
        )
    return told
