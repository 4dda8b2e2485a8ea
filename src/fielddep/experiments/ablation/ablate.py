"""Ablation: the paper's questions to MDL on one table, answered by trainings that each have a process of their own.

    ablation.json       which rows it is about
    search/, configs/   how MDL's settings were found, and what every training had
    runs/NAME-N.json    what a training with seed N gave
    logs/               what the processes printed
    WHAT.csv            one row a figure; WHAT.md, .tex and .png show them, WHAT-claims.csv judges the paper's claims

Trainings with equal settings are run once, whatever was asked. What is done is kept: an ablation that was interrupted
goes on where it stopped. A run that failed is recorded, loses no other, and is tried again by the next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fielddep.data.store.store import Store
from fielddep.errors import SplitError, UserError
from fielddep.experiments.ablation.claims import claims_of
from fielddep.experiments.ablation.files import Answer, write_answer
from fielddep.experiments.ablation.plan import GLOBAL, MDL, VARIANTS, WITHOUT, AblationPlan
from fielddep.experiments.ablation.points import Sweep, curve_sweeps, tuned, variant_sweep
from fielddep.experiments.ablation.results import SweepResult
from fielddep.experiments.ablation.trainings import Trainings, choose_zeta
from fielddep.experiments.experiment_folder import ABLATION, mark_folder, working_in
from fielddep.experiments.lookers import ComparisonLooker
from fielddep.experiments.plan import LOGS
from fielddep.experiments.tuning import Chosen, Tuning

__all__ = ["AblationPlan", "Answer", "ablate"]


def ablate(
    dataset: str, store: Store, folder: str | Path, plan: AblationPlan, *, looker: ComparisonLooker | None = None
) -> tuple[Answer, ...]:
    """Search, train and measure whatever was not done yet, and write tables, pictures and verdicts.

    Args:
        dataset: what the rows are called.
        store: the rows.
        folder: where everything is kept.
        plan: what is asked.
        looker: told of searches and runs.

    Raises:
        UserError: the folder holds something else, another process works in it, the store has no test rows, or
            settings cannot be found or read.
    """
    folder, looker = Path(folder), looker or ComparisonLooker()
    if not store.n_rows_of["test"]:
        raise SplitError(
            f"an ablation measures on test rows, {store.folder} has none; encode anew with split.test above 0"
        )
    with working_in(folder, ABLATION):
        mark_folder(folder, dataset, store.sha256, ABLATION)
        answers = _answers(*_trainings(dataset, store, folder, plan, looker))
        for answer in answers:
            write_answer(folder, answer, plan, store)
    return answers


def _trainings(
    dataset: str, store: Store, folder: Path, plan: AblationPlan, looker: ComparisonLooker
) -> tuple[Trainings, Mapping[str, Chosen]]:
    """How trainings are run, and the settings of the models."""
    chosen = Tuning(store=store, folder=folder, plan=plan.runs, looker=looker).run()
    if chosen[MDL].failure is not None:
        raise UserError(f"the search of MDL's settings failed: {chosen[MDL].failure}; its log is in {folder / LOGS}")
    trainings = Trainings(
        dataset=dataset,
        store=store,
        folder=folder,
        plan=plan,
        base=tuned(chosen[MDL].config),
        settings=chosen[MDL].name,
        looker=looker,
    )
    return trainings, chosen


def _answers(trainings: Trainings, chosen: Mapping[str, Chosen]) -> tuple[Answer, ...]:
    """Run everything, and put it together by question."""
    plan, sweeps = trainings.plan, dict[str, tuple[Sweep, ...]]()
    zetas: tuple[SweepResult, ...] = ()
    for what in plan.whats:
        if what == VARIANTS:
            found, global_dep = choose_zeta(trainings, chosen[GLOBAL])
            zetas = (found,)
            sweeps[what] = (variant_sweep(trainings.base, chosen[WITHOUT].config, global_dep),)
        else:
            sweeps[what] = curve_sweeps(what, trainings.base, plan)
    runs = trainings.run([sweep for found in sweeps.values() for sweep in found])
    answers = []
    for what, of_what in sweeps.items():
        results = tuple(
            SweepResult(dataset=trainings.dataset, sweep=sweep, runs=runs, n_seeds=plan.n_seeds(what))
            for sweep in of_what
        )
        claims = tuple(claim for result in results for claim in claims_of(result))
        answers.append(Answer(what=what, sweeps=results + (zetas if what == VARIANTS else ()), claims=claims))
    return tuple(answers)
