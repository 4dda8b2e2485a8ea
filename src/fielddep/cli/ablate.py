"""`fielddep ablate`: the paper's ablations on one table: variants, sparsity, steps of refinement, depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.compare import (
    ComparisonLog,
    ConfigsOption,
    JobsOption,
    KeepOption,
    MinutesOption,
    QuietOption,
    SearchOption,
    ThreadsOption,
    TrialsOption,
)
from fielddep.cli.console import console
from fielddep.cli.data import RawOption
from fielddep.cli.experiment import experiment_rows, going_on, split_settings
from fielddep.cli.grids import print_grid
from fielddep.cli.options import SetOption, TargetOption, TaskOption
from fielddep.cli.search import RowsOption, SourceArgument
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
    keep_failed: KeepOption = False,
    quiet: QuietOption = False,
) -> None:
    """Ask the paper's questions of MDL: what do its parts do here? Go on where an earlier call stopped.

    MDL's settings come from DIR/mdl.toml of --configs, else from a search. variants: MDL without dependencies, and with
    global ones. sparsity: lambda. steps: evaluated and trained with other T. depth: layers of the network. DIR gets
    figures, tables, pictures, and a verdict on every claim.
    """
    from fielddep.experiments.ablation.plan import AblationPlan, ablated_contenders, find_whats
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.study import import_optuna
    from fielddep.experiments.trial_loop import Budget
    from fielddep.explain.plot_canvas import import_matplotlib

    whats = find_whats(what)
    settings, fixed = split_settings(set_, target, task)
    import_matplotlib()  # an absent extra is told before anything is read
    if search and configs is None:
        import_optuna()
    runs = Plan(
        contenders=ablated_contenders(whats),
        budget=Budget(trials=trials, minutes=minutes) if search else None,
        configs=configs,
        given=fixed,
        search_rows=rows,
        threads=threads,
        n_jobs=jobs,
        keep_failed=keep_failed,
    )
    plan = AblationPlan(whats=whats, runs=runs, seeds=seeds)
    options: dict[str, object] = {"--what": what, "--seeds": seeds, "--target": target, "--task": task}
    options |= {"--configs": configs, "--trials": trials, "--minutes": minutes, "--rows": rows}
    options |= {"--threads": threads, "--jobs": jobs, "--raw": raw}
    flags = {"--no-search": not search, "--keep-failed": keep_failed, "--quiet": quiet}
    words = ["ablate", source, "--out", str(out)]
    with going_on(words, "the runs that are done", options, set_, flags):
        answers = run_ablation(source, out, plan, settings=settings, raw=raw, quiet=quiet)
    print_answers(answers, out)


def run_ablation(
    source: str, out: Path, plan: AblationPlan, *, settings: dict[str, Any], raw: Path | None, quiet: bool
) -> tuple[Answer, ...]:
    """Encode the source where that is not done yet, and run what is left of the plan."""
    from fielddep.experiments.ablation.ablate import ablate as run
    from fielddep.experiments.experiment_folder import ABLATION

    looker = ComparisonLog(quiet=quiet)
    with (
        experiment_rows(source, out, ABLATION, settings=settings, raw=raw, quiet=quiet) as named,
        looker.bar,
    ):
        return run(named.dataset, named.store, out, plan, looker=looker)


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
