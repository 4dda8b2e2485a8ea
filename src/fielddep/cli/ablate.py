"""`fielddep ablate`: the paper's ablations on one table: variants, sparsity, steps of refinement, depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.compare import (
    ConfigsOption,
    JobsOption,
    MinutesOption,
    NoRetryOption,
    QuietOption,
    SearchOption,
    ThreadsOption,
    TrialsOption,
)
from fielddep.cli.console import console, print_grid
from fielddep.cli.data import RawOption
from fielddep.cli.options import SetOption, TargetOption, TaskOption
from fielddep.cli.progress import progress
from fielddep.cli.search import RowsOption, SourceArgument, experiment_rows, resume_hint, split_settings
from fielddep.errors import UserError

if TYPE_CHECKING:
    from fielddep.experiments.ablation.ablate import AblationPlan, Answer

OutOption = Annotated[Path, typer.Option("--out", help="Folder of the ablation.", metavar="DIR")]
WhatOption = Annotated[
    str, typer.Option("--what", help="variants, sparsity, steps, depth, several of them, or all.", metavar="WHAT")
]
SeedsOption = Annotated[
    int | None, typer.Option("--seeds", help="Runs of each setting. Default: 5 of a variant, else 3.", metavar="N")
]

SHOWN_PARTS = ("validation", "test")
"""What a terminal has room for; the files have the training rows too."""


def ablate(
    source: SourceArgument,
    out: OutOption,
    what: WhatOption = "all",
    seeds: SeedsOption = None,
    target: TargetOption = None,
    task: TaskOption = None,
    set_: SetOption = None,
    configs: ConfigsOption = None,
    search: SearchOption = True,
    trials: TrialsOption = 30,
    minutes: MinutesOption = None,
    rows: RowsOption = None,
    threads: ThreadsOption = None,
    jobs: JobsOption = 1,
    raw: RawOption = None,
    no_retry: NoRetryOption = False,
    quiet: QuietOption = False,
) -> None:
    """Ask the paper's questions of MDL: what do its parts do here? The same command resumes.

    MDL's settings come from DIR/mdl.toml of --configs, else from a search. variants: MDL without dependencies, and with
    global ones. sparsity: lambda. steps: evaluated and trained with other T. depth: layers of the network. DIR gets
    figures, tables, pictures, and a verdict on every claim.
    """
    from fielddep.experiments.ablation.plan import AblationPlan, ablated_contenders, parse_questions
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.study import import_optuna
    from fielddep.experiments.trials import Budget
    from fielddep.explain.plots import import_matplotlib

    questions = parse_questions(what)
    settings, fixed = split_settings(set_, target, task)
    import_matplotlib()  # fails before anything is read if the extra is missing
    if search and configs is None:
        import_optuna()
    runs = Plan(
        contenders=ablated_contenders(questions),
        budget=Budget(trials=trials, minutes=minutes) if search else None,
        configs=configs,
        given=fixed,
        search_rows=rows,
        threads=threads,
        n_jobs=jobs,
        keep_failed=no_retry,
    )
    plan = AblationPlan(questions=questions, runs=runs, seeds=seeds)
    with resume_hint("finished runs"):
        answers = run_ablation(source, out, plan, settings=settings, raw=raw, quiet=quiet)
    print_answers(answers, out)


def run_ablation(
    source: str, out: Path, plan: AblationPlan, *, settings: dict[str, Any], raw: Path | None, quiet: bool
) -> tuple[Answer, ...]:
    """Encode the source where that is not done yet, and run what is left of the plan."""
    from fielddep.experiments.ablation.ablate import ablate as run
    from fielddep.experiments.folder import ABLATION

    with (
        progress(quiet) as observer,
        experiment_rows(source, out, ABLATION, settings=settings, raw=raw, observer=observer) as named,
    ):
        return run(named.dataset, named.store, out, plan, observer=observer)


def print_answers(answers: tuple[Answer, ...], out: Path) -> None:
    """Tables and verdicts, and where everything is.

    Raises:
        UserError: no run was successful.
    """
    from fielddep.experiments.ablation.tables import grids_of
    from fielddep.experiments.plan import LOGS

    for answer in answers:
        for result in answer.sweeps:
            print_grid(grids_of(result, SHOWN_PARTS)[0])
        for claim in answer.claims:
            console().print(f"{claim.verdict}: {claim.text}. {claim.reason}.", soft_wrap=True)
    console().print(f"figures, tables, pictures and verdicts are in {out}", soft_wrap=True)
    if not any(result.metrics for answer in answers for result in answer.sweeps):
        raise UserError(f"no run was successful; the reasons stand below the tables and in {out / LOGS}")
