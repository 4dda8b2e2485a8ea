"""`fielddep ablate`: the paper's ablations on one table, and what each part of the model adds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.compare import ConfigsOption, JobsOption, NoRetryOption, SearchOption
from fielddep.cli.console import console, print_grid
from fielddep.cli.options import QuietOption, RawOption, SetOption, TargetOption, TaskOption
from fielddep.cli.search import (
    MinutesOption,
    OutOption,
    RowsOption,
    SourceArgument,
    ThreadsOption,
    TrialsOption,
    experiment,
    split_settings,
)
from fielddep.errors import UserError

if TYPE_CHECKING:
    from fielddep.experiments.ablation.ablate import Answer

WhatOption = Annotated[
    str,
    typer.Option(
        "--what",
        help="variants, sparsity, steps or depth, several with commas, or all of these; or parts.",
        metavar="WHAT",
    ),
]
SeedsOption = Annotated[
    int | None,
    typer.Option("--seeds", help="Runs per setting. Default: 5 for variants and parts, otherwise 3.", metavar="N"),
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
    """Measure what each part of MDL contributes. The same command resumes.

    variants: MDL without dependencies, and with the same ones for all rows. sparsity: lambda. steps: steps of
    refinement, in training and afterwards. depth: layers of the network. parts: MDL without evidence, combinations,
    direct networks and so on; TABLE is encoded again with less evidence. MDL's settings come from mdl.toml in
    --configs, or else from a search. DIR gets figures, tables, pictures and a verdict on every claim of the paper.
    """
    from fielddep.experiments.ablation.ablate import ablate as run_ablation
    from fielddep.experiments.ablation.parts import part_stores
    from fielddep.experiments.ablation.plan import PARTS, AblationPlan, ablated_contenders, parse_questions
    from fielddep.experiments.folder import ABLATION
    from fielddep.experiments.plan import Budget, Plan
    from fielddep.experiments.study import import_optuna
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
        own_searches=False,
        given=fixed,
        search_rows=rows,
        threads=threads,
        n_jobs=jobs,
        keep_failed=no_retry,
    )
    plan = AblationPlan(questions=questions, runs=runs, seeds=seeds)
    with experiment(source, out, ABLATION, settings=settings, raw=raw, quiet=quiet) as (named, observer):
        stores = (
            part_stores(source, out, named.store, settings=settings, raw=raw, observer=observer)
            if PARTS in questions
            else {}
        )
        answers = run_ablation(named.dataset, named.store, out, plan, stores=stores, observer=observer)
    print_answers(answers, out)


def print_answers(answers: tuple[Answer, ...], out: Path) -> None:
    """Tables and verdicts, and where to find everything.

    Raises:
        UserError: no run succeeded.
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
        raise UserError(f"no run succeeded; see the reasons below the tables and in {out / LOGS}")
