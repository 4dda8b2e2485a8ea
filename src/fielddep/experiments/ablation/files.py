"""Files of an ablation: figures, tables, pictures and verdicts of one question, and what one must know to read them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fielddep.data.store.store import Store
from fielddep.experiments.ablation.claims import Claim
from fielddep.experiments.ablation.plan import DEPTH, MDL, SPARSITY, STEPS, VARIANTS, AblationPlan
from fielddep.experiments.ablation.plots import draw
from fielddep.experiments.ablation.points import (
    EVALUATED_STEPS,
    LAMBDA,
    LAYERS,
    TRAINED_STEPS,
    VARIANT,
    ZETA,
    Sweep,
    hidden_width,
    short,
)
from fielddep.experiments.ablation.results import SweepResult
from fielddep.experiments.ablation.tables import grids_of
from fielddep.experiments.comparison_files import settings_note
from fielddep.experiments.grid import Grid
from fielddep.files import write_text

PICTURES = {
    VARIANT: "variants.png",
    LAMBDA: "sparsity.png",
    EVALUATED_STEPS: "steps.png",
    TRAINED_STEPS: "steps-trained.png",
    LAYERS: "depth.png",
}
"""Picture of every setting that is drawn."""
TITLES = {
    VARIANTS: "Variants without refinement",
    SPARSITY: "Sparsity (lambda)",
    STEPS: "Steps of refinement (T)",
    DEPTH: "Depth of the network",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is known of one question.

    Attributes:
        what: the question.
        sweeps: the settings that were varied.
        claims: the paper's claims, judged.
    """

    what: str
    sweeps: tuple[SweepResult, ...]
    claims: tuple[Claim, ...]

    @property
    def grids(self) -> tuple[Grid, ...]:
        """All tables."""
        return tuple(grid for result in self.sweeps for grid in grids_of(result))


def write_answer(folder: Path, answer: Answer, plan: AblationPlan, store: Store) -> None:
    """Write all files of one question."""
    figures = pl.concat([result.to_frame() for result in answer.sweeps])
    write_text(folder / f"{answer.what}.csv", figures.write_csv())
    write_text(folder / f"{answer.what}-claims.csv", claims_csv(answer))
    write_text(folder / f"{answer.what}.tex", "\n".join(grid.to_latex() for grid in answer.grids))
    pictures = []
    for result in answer.sweeps:
        if result.sweep.setting in PICTURES and result.metrics:
            pictures.append(PICTURES[result.sweep.setting])
            draw(result, folder / pictures[-1])
    parts = [
        f"# {TITLES[answer.what]}: {answer.sweeps[0].dataset}\n",
        *(f"![{name}]({name})\n" for name in pictures),
        "\n".join(["Claims of the paper on these rows:\n", *(claim.to_markdown() for claim in answer.claims)]) + "\n",
        *(grid.to_markdown() for grid in answer.grids),
        "\n\n".join(reading_notes(answer, plan, store)) + "\n",
    ]
    write_text(folder / f"{answer.what}.md", "\n".join(parts))


def claims_csv(answer: Answer) -> str:
    """One line a claim."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", "what", "claim", "verdict", "numbers"])
    dataset = answer.sweeps[0].dataset
    writer.writerows([dataset, claim.what, claim.text, claim.verdict, claim.reason] for claim in answer.claims)
    return text.getvalue()


def reading_notes(answer: Answer, plan: AblationPlan, store: Store) -> list[str]:
    """How the figures came about."""
    notes = [settings_note(plan.runs) + " All else is equal."]
    n_fields, n_train_rows = store.layout.n_fields, store.n_rows_of["train"]
    if answer.what == VARIANTS:
        notes.append(_zeta_note(answer.sweeps, plan))
    if answer.what == SPARSITY:
        notes.append(
            "std of mu/lambda: the standard deviation over the fields of a row's mu(T)/lambda, averaged over rows; 0 "
            f"where all fields weigh the same, {math.sqrt(n_fields - 1) / n_fields:.3f} where one of the {n_fields} "
            "has all the weight."
        )
    if answer.what == STEPS:
        notes.append(
            f"Evaluated with other numbers of steps: the model was trained with T = {plan.steps_of_training}, its "
            "weights are the same throughout. Dependency loss: L(W(T), mu(T)) of a row, averaged over rows."
        )
    if answer.what == DEPTH:
        notes.append(_depth_note(answer.sweeps[0].sweep))
    if n_train_rows > plan.train_rows:
        notes.append(
            f"Figures of training rows are those of a random sample of {plan.train_rows:,} of {n_train_rows:,} rows."
        )
    commits = {run.commit for result in answer.sweeps for run in result.runs.values() if run.commit}
    return [*notes, VERDICT_NOTE, f"Source: {', '.join(sorted(commits))}."]


VERDICT_NOTE = (
    "Verdicts: a curve is judged seed by seed, and what is not the same in every seed is undecided; settings that are "
    "trained apart are judged by one-sided Dunnett tests in both directions (p < 0.05). One seed decides nothing."
)


def _depth_note(sweep: Sweep) -> str:
    width = hidden_width(sweep.points[-1].training.config)
    tuned = [f" The tuned network has {point.value}." for point in sweep.points if point.training.name == MDL]
    return f"Layers are linear layers, the output among them; hidden ones are {width} wide." + "".join(tuned)


def _zeta_note(sweeps: Sequence[SweepResult], plan: AblationPlan) -> str:
    chosen = next(result.sweep.control for result in sweeps if result.sweep.setting == ZETA)
    assert chosen is not None
    grid = ", ".join(f"{zeta:g}" for zeta in plan.zetas)
    edge = " (an end of the grid)" if chosen in (plan.zetas[0], plan.zetas[-1]) else ""
    return (
        f"global dep: task loss + zeta x dependency loss, W(0) alone given to the network; zeta = {short(chosen)}"
        f"{edge} had the lowest validation loss among {grid} (seed 0). w/o dep: neither inner loop nor dependency "
        "input."
    )
