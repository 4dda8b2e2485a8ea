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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from fielddep.errors import UserError
from fielddep.experiments.ablation.claims import Claim, claims_of
from fielddep.experiments.ablation.parts import MEANINGS, parts_sweep, skipped_parts
from fielddep.experiments.ablation.plan import (
    DEPTH,
    EVALUATED_STEPS,
    GLOBAL,
    LAMBDA,
    LAYERS,
    MDL,
    PARTS,
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
from fielddep.experiments.ablation.trainings import SweepResult, Trainings
from fielddep.experiments.compare import require_test_rows, settings_note
from fielddep.experiments.folder import ABLATION, mark_folder, working_in
from fielddep.experiments.plan import LOGS, Workspace
from fielddep.experiments.rendering import Grid
from fielddep.experiments.results import csv_text
from fielddep.experiments.search import Tuning
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
    PARTS: "What each part adds",
}
VERDICT_NOTE = (
    "Verdicts: a curve is judged seed by seed, and what is not the same in every seed is undecided; settings that are "
    "trained apart are judged by one-sided Dunnett tests in both directions (p < 0.05). One seed decides nothing."
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one question: the settings that were varied."""

    question: str
    sweeps: tuple[SweepResult, ...]

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """The paper's claims, judged."""
        return tuple(claim for result in self.sweeps for claim in claims_of(result))

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """All tables."""
        return tuple(grid for result in self.sweeps for grid in grids_of(result))


def ablate(
    dataset: str,
    store: Store,
    folder: str | Path,
    plan: AblationPlan,
    *,
    stores: Mapping[str, Store] | None = None,
    observer: Observer | None = None,
) -> tuple[Answer, ...]:
    """Search, train and measure whatever is missing, and write tables, pictures and verdicts.

    `stores` has the same rows with less evidence (`part_stores`), for the question of the parts.

    Raises:
        UserError: the folder holds something else or is in use, the store has no test rows, or settings cannot be
            found or read.
    """
    folder = Path(folder)
    require_test_rows(store, "an ablation")
    work = Workspace(dataset=dataset, store=store, folder=folder, plan=plan.runs, observer=observer or Observer())
    with working_in(folder, ABLATION):
        mark_folder(folder, dataset, store.sha256, ABLATION)
        answers = _answers(work, plan, stores or {})
        for answer in answers:
            write_answer(folder, answer, plan, store)
    return answers


def _answers(work: Workspace, plan: AblationPlan, stores: Mapping[str, Store]) -> tuple[Answer, ...]:
    """Run everything, and sort it by question."""
    chosen = Tuning(work=work).run()
    mdl = chosen[MDL]
    if mdl.failure is not None:
        raise UserError(f"the search for settings of MDL failed: {mdl.failure}. Its log is in {work.folder / LOGS}")
    trainings = Trainings(work=work, plan=plan, base=tuned(mdl.config), settings=mdl.name, stores=stores)
    sweeps: dict[str, tuple[Sweep, ...]] = {}
    zetas: tuple[SweepResult, ...] = ()
    for question in plan.questions:
        if question == VARIANTS:
            zeta, global_dep = trainings.choose_zeta(chosen[GLOBAL])
            zetas = (zeta,)
            sweeps[question] = (variant_sweep(trainings.base, chosen[WITHOUT].config, global_dep),)
        elif question == PARTS:
            sweeps[question] = (parts_sweep(trainings.base, chosen[WITHOUT].config, work.store.layout, stores),)
        else:
            sweeps[question] = curve_sweeps(question, trainings.base, plan)
    runs = trainings.run([sweep for found in sweeps.values() for sweep in found])
    answers = []
    for question, found in sweeps.items():
        n_seeds = plan.n_seeds(question)
        results = [SweepResult(dataset=work.dataset, sweep=sweep, runs=runs, n_seeds=n_seeds) for sweep in found]
        answers.append(Answer(question=question, sweeps=(*results, *(zetas if question == VARIANTS else ()))))
    return tuple(answers)


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
        *_listed_claims(answer),
        *(grid.to_markdown() for grid in answer.grids),
        "\n\n".join(reading_notes(answer, plan, store)) + "\n",
    ]
    write_text(folder / f"{answer.question}.md", "\n".join(parts))


def _listed_claims(answer: Answer) -> list[str]:
    if not answer.claims:
        return []
    return ["\n".join(["Claims of the paper on these rows:\n", *(one.to_markdown() for one in answer.claims)]) + "\n"]


def claims_csv(answer: Answer) -> str:
    """One line per claim."""
    dataset = answer.sweeps[0].dataset
    lines = [[dataset, claim.question, claim.text, claim.verdict, claim.reason] for claim in answer.claims]
    return csv_text(["dataset", "what", "claim", "verdict", "numbers"], lines)


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
    if answer.question == PARTS:
        notes.append(_parts_note(answer.sweeps[0].sweep))
    if n_train_rows > plan.train_rows:
        notes.append(
            f"Figures of training rows are those of a random sample of {plan.train_rows:,} of {n_train_rows:,} rows."
        )
    commits = {run.commit for result in answer.sweeps for run in result.runs.values() if run.commit}
    verdicts = [VERDICT_NOTE] if answer.claims else []
    return [*notes, *verdicts, f"Source: {', '.join(sorted(commits))}."]


def _parts_note(sweep: Sweep) -> str:
    skipped = skipped_parts(sweep)
    meant = "; ".join(f"{value}: {meaning}" for value, meaning in MEANINGS.items() if value not in skipped)
    absent = f" Not asked of these rows: {', '.join(skipped)}." if skipped else ""
    return (
        f"Change: the loss of a variant over that of the full model with the same seed, in per cent, mean and standard "
        f"deviation over seeds; above zero, the part helps. {meant}.{absent}"
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
