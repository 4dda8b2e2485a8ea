"""Ablation: the paper's questions to MDL on one table, answered by trainings, each in its own process.

    ablation.json       which rows it is about
    search/, configs/   how MDL's settings were found, and the settings of every training
    runs/NAME-N.json    the result of a training with seed N
    logs/               what the processes printed
    QUESTION.csv        one row per figure; .md, .tex and .png show them, QUESTION-claims.csv judges the paper's claims

Trainings with equal settings are run once, whichever questions they answer. An interrupted ablation resumes where it
stopped. A run that failed is recorded, loses no other, and is tried again by the next call.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fielddep.errors import SplitError, UserError
from fielddep.experiments.ablation.claims import Claim, claims_of
from fielddep.experiments.ablation.plan import (
    DEPTH,
    EVALUATED_STEPS,
    GLOBAL,
    LAMBDA,
    LAYERS,
    MDL,
    SPARSITY,
    STEPS,
    TRAINED_STEPS,
    VARIANT,
    VARIANTS,
    WITHOUT,
    ZETA,
    AblationPlan,
    Sweep,
    curve_sweeps,
    format_value,
    hidden_width,
    tuned,
    variant_sweep,
)
from fielddep.experiments.ablation.tables import draw, grids_of
from fielddep.experiments.ablation.trainings import SweepResult, Trainings, choose_zeta
from fielddep.experiments.compare import settings_note
from fielddep.experiments.folder import ABLATION, mark_folder, working_in
from fielddep.experiments.plan import LOGS, ModelSettings, Tuning
from fielddep.experiments.rendering import Grid
from fielddep.observer import Observer
from fielddep.store.store import Store
from fielddep.tables.files import write_text

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
    """The answer to one question.

    Attributes:
        question: the question.
        sweeps: the settings that were varied.
        claims: the paper's claims, judged.
    """

    question: str
    sweeps: tuple[SweepResult, ...]
    claims: tuple[Claim, ...]

    @property
    def grids(self) -> tuple[Grid, ...]:
        """All tables."""
        return tuple(grid for result in self.sweeps for grid in grids_of(result))


def write_answer(folder: Path, answer: Answer, plan: AblationPlan, store: Store) -> None:
    """Write all files of one question."""
    figures = pl.concat([result.to_frame() for result in answer.sweeps])
    write_text(folder / f"{answer.question}.csv", figures.write_csv())
    write_text(folder / f"{answer.question}-claims.csv", claims_csv(answer))
    write_text(folder / f"{answer.question}.tex", "\n".join(grid.to_latex() for grid in answer.grids))
    pictures = []
    for result in answer.sweeps:
        if result.sweep.setting in PICTURES and result.metrics:
            pictures.append(PICTURES[result.sweep.setting])
            draw(result, folder / pictures[-1])
    parts = [
        f"# {TITLES[answer.question]}: {answer.sweeps[0].dataset}\n",
        *(f"![{name}]({name})\n" for name in pictures),
        "\n".join(["Claims of the paper on these rows:\n", *(claim.to_markdown() for claim in answer.claims)]) + "\n",
        *(grid.to_markdown() for grid in answer.grids),
        "\n\n".join(reading_notes(answer, plan, store)) + "\n",
    ]
    write_text(folder / f"{answer.question}.md", "\n".join(parts))


def claims_csv(answer: Answer) -> str:
    """One line per claim."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", "what", "claim", "verdict", "numbers"])
    dataset = answer.sweeps[0].dataset
    writer.writerows([dataset, claim.question, claim.text, claim.verdict, claim.reason] for claim in answer.claims)
    return text.getvalue()


def reading_notes(answer: Answer, plan: AblationPlan, store: Store) -> list[str]:
    """How the figures were made."""
    notes = [settings_note(plan.runs) + " All else is equal."]
    n_fields, n_train_rows = store.layout.n_fields, store.n_rows_of["train"]
    if answer.question == VARIANTS:
        notes.append(_zeta_note(answer.sweeps, plan))
    if answer.question == SPARSITY:
        notes.append(
            "std of mu/lambda: the standard deviation over the fields of a row's mu(T)/lambda, averaged over rows; 0 "
            f"where all fields weigh the same, {math.sqrt(n_fields - 1) / n_fields:.3f} where one of the {n_fields} "
            "has all the weight."
        )
    if answer.question == STEPS:
        notes.append(
            f"Evaluated with other numbers of steps: the model was trained with T = {plan.steps_of_training}, its "
            "weights are the same throughout. Dependency loss: L(W(T), mu(T)) of a row, averaged over rows."
        )
    if answer.question == DEPTH:
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
        "global dep: task loss + zeta x dependency loss, W(0) alone given to the network; "
        f"zeta = {format_value(chosen)}{edge} had the lowest validation loss among {grid} (seed 0). "
        "w/o dep: neither inner loop nor dependency input."
    )


__all__ = ["AblationPlan", "Answer", "ablate"]


def ablate(
    dataset: str, store: Store, folder: str | Path, plan: AblationPlan, *, observer: Observer | None = None
) -> tuple[Answer, ...]:
    """Search, train and measure whatever was not done yet, and write tables, pictures and verdicts.

    Args:
        dataset: name of the rows.
        store: the rows.
        folder: where everything is kept.
        plan: the questions.
        observer: notified of searches and runs.

    Raises:
        UserError: the folder holds something else, another process works in it, the store has no test rows, or
            settings cannot be found or read.
    """
    folder, observer = Path(folder), observer or Observer()
    if not store.n_rows_of["test"]:
        raise SplitError(
            f"an ablation measures on test rows, but {store.folder} has none; encode again with split.test above 0"
        )
    with working_in(folder, ABLATION):
        mark_folder(folder, dataset, store.sha256, ABLATION)
        answers = _answers(*_trainings(dataset, store, folder, plan, observer))
        for answer in answers:
            write_answer(folder, answer, plan, store)
    return answers


def _trainings(
    dataset: str, store: Store, folder: Path, plan: AblationPlan, observer: Observer
) -> tuple[Trainings, Mapping[str, ModelSettings]]:
    """How trainings are run, and the settings of the models."""
    chosen = Tuning(store=store, folder=folder, plan=plan.runs, observer=observer).run()
    if chosen[MDL].failure is not None:
        raise UserError(f"the search for settings of MDL failed: {chosen[MDL].failure}. Its log is in {folder / LOGS}")
    trainings = Trainings(
        dataset=dataset,
        store=store,
        folder=folder,
        plan=plan,
        base=tuned(chosen[MDL].config),
        settings=chosen[MDL].name,
        observer=observer,
    )
    return trainings, chosen


def _answers(trainings: Trainings, chosen: Mapping[str, ModelSettings]) -> tuple[Answer, ...]:
    """Run everything, and put it together by question."""
    plan, sweeps = trainings.plan, dict[str, tuple[Sweep, ...]]()
    zetas: tuple[SweepResult, ...] = ()
    for question in plan.questions:
        if question == VARIANTS:
            chosen_zeta, global_dep = choose_zeta(trainings, chosen[GLOBAL])
            zetas = (chosen_zeta,)
            sweeps[question] = (variant_sweep(trainings.base, chosen[WITHOUT].config, global_dep),)
        else:
            sweeps[question] = curve_sweeps(question, trainings.base, plan)
    runs = trainings.run([sweep for found in sweeps.values() for sweep in found])
    answers = []
    for question, found in sweeps.items():
        results = tuple(
            SweepResult(dataset=trainings.dataset, sweep=sweep, runs=runs, n_seeds=plan.n_seeds(question))
            for sweep in found
        )
        claims = tuple(claim for result in results for claim in claims_of(result))
        answers.append(
            Answer(question=question, sweeps=results + (zetas if question == VARIANTS else ()), claims=claims)
        )
    return tuple(answers)
