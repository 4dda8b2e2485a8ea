"""`fielddep compare`: models with tuned settings and several seeds on the same rows, tested for significance."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import console, log, print_grid
from fielddep.cli.data import RawOption
from fielddep.cli.options import SetOption, TargetOption, TaskOption
from fielddep.cli.progress import progress
from fielddep.cli.search import SourceArgument, experiment_rows, resume_hint, split_settings
from fielddep.errors import UserError

if TYPE_CHECKING:
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.tables import ComparisonTable

OutOption = Annotated[Path, typer.Option("--out", help="Folder of the comparison.", metavar="DIR")]
ModelsOption = Annotated[
    str, typer.Option("--models", help="Models, such as mdl,fm,lightgbm; all: every one.", metavar="NAMES")
]
SeedsOption = Annotated[int, typer.Option("--seeds", help="Runs of each model.", metavar="N")]
ConfigsOption = Annotated[
    Path | None, typer.Option("--configs", help="Folder of settings that were found before.", metavar="DIR")
]
SearchOption = Annotated[bool, typer.Option("--search/--no-search", help="Search settings first, or use defaults.")]
TrialsOption = Annotated[int, typer.Option("--trials", help="Trials of each search at most.", metavar="N")]
MinutesOption = Annotated[float | None, typer.Option("--minutes", help="Minutes of each search at most.", metavar="M")]
RowsOption = Annotated[
    str | None,
    typer.Option(
        "--rows",
        help="Tune on a random sample of so many training rows: N for all models, MODEL=N for a slow one; several with "
        "commas.",
        metavar="N",
    ),
]
ControlOption = Annotated[
    str | None,
    typer.Option("--control", help="Model that the others are tested against. Default: mdl.", metavar="NAME"),
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="CPU threads of each run.", metavar="N", min=1)]
JobsOption = Annotated[int, typer.Option("--jobs", help="Runs at a time.", metavar="N", min=1)]
NoRetryOption = Annotated[bool, typer.Option("--no-retry", help="Do not repeat failed searches and runs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print the table and warnings only.")]


def compare(
    source: SourceArgument,
    out: OutOption,
    models: ModelsOption = "all",
    seeds: SeedsOption = 5,
    target: TargetOption = None,
    task: TaskOption = None,
    set_: SetOption = None,
    configs: ConfigsOption = None,
    search: SearchOption = True,
    trials: TrialsOption = 30,
    minutes: MinutesOption = None,
    rows: RowsOption = None,
    control: ControlOption = None,
    threads: ThreadsOption = None,
    jobs: JobsOption = 1,
    raw: RawOption = None,
    no_retry: NoRetryOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare models on the same rows; the same command resumes a comparison.

    Settings come from DIR/MODEL.toml of --configs, else from a search with the same budget for every model. --set takes
    settings of data and split for the encoding, and of train for every model. DIR holds all results and tables; models
    that were run in it before stay in the tables as long as their settings and budget are those of this call.
    """
    from fielddep.experiments.compare import check_control
    from fielddep.experiments.contenders import find_contenders
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.study import import_optuna
    from fielddep.experiments.trials import Budget

    settings, fixed = split_settings(set_, target, task)
    if search and configs is None:
        import_optuna()  # fails before anything is read if the extra is missing
    log_skipped_models(models)
    contenders = find_contenders(models)
    search_rows, rows_by_model = parse_rows(rows, {contender.model for contender in contenders})
    plan = Plan(
        contenders=contenders,
        n_seeds=seeds,
        budget=Budget(trials=trials, minutes=minutes) if search else None,
        configs=configs,
        given=fixed,
        search_rows=search_rows,
        rows_by_model=rows_by_model,
        threads=threads,
        n_jobs=jobs,
        keep_failed=no_retry,
    )
    check_control(control, out, plan)
    log_no_tests(control, out, plan)
    with resume_hint("finished runs"):
        table = run_plan(source, out, plan, settings=settings, raw=raw, control=control, quiet=quiet)
    print_comparison(table, out)


def parse_rows(text: str | None, models: Collection[str]) -> tuple[int | None, dict[str, int]]:
    """Rows that searches use: of all models, and of single ones.

    Raises:
        UserError: for anything but whole numbers and models that are searched.

    Example:
        >>> parse_rows("500000,catboost=100000", ["mdl", "catboost"])
        (500000, {'catboost': 100000})
    """
    of_all: int | None = None
    of_model: dict[str, int] = {}
    for word in filter(None, (part.strip() for part in (text or "").split(","))):
        model, is_named, number = word.rpartition("=")
        if not number.strip().isdecimal() or (is_named and model.strip() not in models):
            raise UserError(
                f"expected --rows as N, or as MODEL=N with a model of {', '.join(sorted(models))}; given {word!r}"
            )
        if is_named:
            of_model[model.strip()] = int(number)
        else:
            of_all = int(number)
    return of_all, of_model


def log_skipped_models(models: str) -> None:
    """Tell which trees are not among all models, as their library is not installed."""
    from fielddep.config.trees import TREE_CONFIGS
    from fielddep.experiments.contenders import ALL
    from fielddep.training.trees import installed_trees

    absent = [name for name in TREE_CONFIGS if name not in installed_trees()]
    if ALL in models.split(",") and absent:
        log(f"skipped, not installed: {', '.join(absent)}; pip install 'fielddep[trees]'")


def log_no_tests(control: str | None, out: Path, plan: Plan) -> None:
    """Tell at the start that there will be no tests, as the control takes no part."""
    from fielddep.experiments.compare import CONTROL, compared_models

    names = compared_models(out, plan)
    if control is None and CONTROL not in names and len(names) > 1:
        log(f"no model will be tested against another, as {CONTROL} takes no part; --control {names[0]} tests them")


def run_plan(
    source: str,
    out: Path,
    plan: Plan,
    *,
    settings: dict[str, Any],
    raw: Path | None,
    control: str | None,
    quiet: bool,
) -> ComparisonTable:
    """Encode the source where that is not done yet, and run what is left of the plan."""
    from fielddep.experiments.compare import compare as run_comparison
    from fielddep.experiments.folder import COMPARISON

    with (
        progress(quiet) as observer,
        experiment_rows(source, out, COMPARISON, settings=settings, raw=raw, observer=observer) as named,
    ):
        return run_comparison(named.dataset, named.store, out, plan, control=control, observer=observer)


def print_comparison(table: ComparisonTable, out: Path) -> None:
    """The table, and where everything is.

    Raises:
        UserError: there is nothing in it.
    """
    from fielddep.experiments.plan import LOGS
    from fielddep.experiments.rendering import comparison_grid

    print_grid(comparison_grid(table))
    console().print(f"results, tables and tests are in {out}", soft_wrap=True)
    if not any(row.n_finished for row in table.rows):
        raise UserError(f"no run was successful; the reasons stand below the table and in {out / LOGS}")
