"""The steps of refinement of a row: a heat map with a control that goes through them, and the weights of the fields."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fielddep.explain.page.heat_figures import steps_figure
from fielddep.explain.page.markup import Html, empty_tag, tag
from fielddep.explain.page.plots import Plots, colour_scale
from fielddep.explain.page.weight_figure import MAX_NAMED, weights_figure
from fielddep.explain.page.words import count
from fielddep.explain.report import RefinementFacts, RowFacts, StepFacts


def steps_details(
    row: RowFacts, refinement: RefinementFacts, at: int, fields: Sequence[str], plots: Plots
) -> list[Html]:
    """Both figures, folded; nothing where no step was taken."""
    steps, shown = refinement.steps, refinement.shown
    if len(steps) == 1:
        return []
    titles = [f"W({t}), dependency loss {step.loss:.4g}" for t, step in enumerate(steps)]
    maps = steps_figure(
        [fields[f] for f in shown],
        [step.w for step in steps],
        values=[row.values[f] for f in shown],
        titles=titles,
    )
    lines = weights_figure(fields, [step.weights for step in steps], values=row.values)
    heat_map = plots.add(f"row-{at}-steps", maps | {"small": True}, f"dependencies of row {row.number} at one step")
    weights = plots.add(f"row-{at}-weights", lines, f"weight of every field of row {row.number} over the steps")
    figures = tag("div", _map_with_control(heat_map, titles, steps), _captioned(weights, len(fields)), class_="columns")
    summary = tag("summary", f"How it was refined, in {count(len(steps) - 1, 'step')}")
    return [tag("details", summary, figures, class_="steps")]


def _map_with_control(heat_map: Html, titles: Sequence[str], steps: Sequence[StepFacts]) -> Html:
    """The map of one step, at first the last, below the slider that chooses it."""
    last = str(len(steps) - 1)
    slider = empty_tag("input", type="range", min="0", max=last, value=last, aria_label="step of refinement")
    w_SFF = np.array([step.w for step in steps]) * (1 - np.eye(len(steps[0].w)))
    caption = (
        f"All steps on one scale: the largest entry is {np.abs(w_SFF).max():.2g}, and none moved away from W(0) by "
        f"more than {np.abs(w_SFF - w_SFF[0]).max():.2g}."
    )
    return tag(
        "figure",
        tag("p", tag("output", titles[-1]), class_="title"),
        tag("label", "W(0)", slider, f"W({last})", class_="step"),
        heat_map,
        colour_scale(),
        tag("figcaption", caption),
    )


def _captioned(weights: Html, n_fields: int) -> Html:
    caption = "The network sees the column of a field in W(T) times this weight. In colour: those that moved most."
    if n_fields > MAX_NAMED:
        caption += f" The {MAX_NAMED} of {n_fields} fields that moved most are named."
    return tag(
        "figure", tag("p", "Weight of every field, mu / lambda", class_="title"), weights, tag("figcaption", caption)
    )
