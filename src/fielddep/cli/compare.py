"""`fielddep compare`: tuned models with several seeds on the same rows, tested for significance."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, log, print_grid
from fielddep.cli.options import QuietOption, RawOption, SetOption, TargetOption, TaskOption
from fielddep.cli.search import (
    OutOption,
    SourceArgument,
    ThreadsOption,
    TrialsOption,
    experiment,
    split_settings,
)
from fielddep.errors import UserError

if TYPE_CHECKING:
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.tables import ComparisonTable

ModelsOption = Annotated[
    str, typer.Option("--models", help="Models, such as mdl,fm,lightgbm, or all.", metavar="NAMES")
]
SeedsOption = Annotated[int, typer.Option("--seeds", help="Runs per model.", metavar="N")]
ConfigsOption = Annotated[
    Path | None, typer.Option("--configs", help="Folder with settings as MODEL.toml.", metavar="DIR")
]
SearchOption = Annotated[
    bool, typer.Option("--search/--no-search", help="Search for settings first, or use the defaults.")
]
RowsOption = Annotated[
    str | None,
    typer.Option(
        "--rows",
        help="Tune on a random sample of the training rows: N for all models, MODEL=N for one, separated by commas.",
        metavar="N",
    ),
]
ControlOption = Annotated[
    str | None,
    typer.Option("--control", help="Model that the others are tested against. Default: mdl.", metavar="NAME"),
]
SearchMinutesOption = Annotated[
    float | None, typer.Option("--search-minutes", help="Maximum minutes per search.", metavar="M")
]
MinutesOption = Annotated[
    float | None,
    typer.Option("--minutes", help="Minutes after which no training starts; a later call continues.", metavar="M"),
]
JobsOption = Annotated[int, typer.Option("--jobs", help="Runs at the same time.", metavar="N", min=1)]
NoRetryOption = Annotated[bool, typer.Option("--no-retry", help="Do not repeat failed searches and runs.")]


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
    search_minutes: SearchMinutesOption = None,
    minutes: MinutesOption = None,
    rows: RowsOption = None,
    control: ControlOption = None,
    threads: ThreadsOption = None,
    jobs: JobsOption = 1,
    raw: RawOption = None,
    no_retry: NoRetryOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare tuned models on the same rows. The same command resumes.

    Settings come from MODEL.toml in --configs, or else from a search with the same budget for every model. --set takes
    settings of data and split for the encoding, and of train for every model. Models from earlier calls stay in the
    tables of DIR as long as their settings and budget are the same.
    """
    from fielddep.experiments.compare import check_control
    from fielddep.experiments.compare import compare as run_comparison
    from fielddep.experiments.folder import COMPARISON
    from fielddep.experiments.plan import Budget, Plan, find_contenders
    from fielddep.experiments.study import import_optuna

    settings, fixed = split_settings(set_, target, task)
    if search and configs is None:
        import_optuna()  # fails before anything is read if the extra is missing
    log_skipped_models(models)
    contenders = find_contenders(models)
    search_rows, rows_by_model = parse_rows(rows, {contender.name for contender in contenders})
    plan = Plan(
        contenders=contenders,
        n_seeds=seeds,
        budget=Budget(trials=trials, minutes=search_minutes) if search else None,
        configs=configs,
        given=fixed,
        search_rows=search_rows,
        rows_by_model=rows_by_model,
        threads=threads,
        n_jobs=jobs,
        keep_failed=no_retry,
        minutes=minutes,
    )
    check_control(control, out, plan)
    log_no_tests(control, out, plan)
    with experiment(source, out, COMPARISON, settings=settings, raw=raw, quiet=quiet) as (named, observer):
        table = run_comparison(named.dataset, named.store, out, plan, control=control, observer=observer)
    print_comparison(table, out)


def parse_rows(text: str | None, models: Collection[str]) -> tuple[int | None, dict[str, int]]:
    """Rows that searches use: those of all models, and those of single ones.

    Raises:
        UserError: something is neither a whole number nor one for a searched model.

    Example:
        >>> parse_rows("500000,catboost=100000", ["mdl", "catboost"])
        (500000, {'catboost': 100000})
    """
    of_all: int | None = None
    of_model: dict[str, int] = {}
    for word in filter(None, map(str.strip, (text or "").split(","))):
        model, is_named, number = map(str.strip, word.rpartition("="))
        if not number.isdecimal() or (is_named and model not in models):
            raise UserError(
                f"expected --rows as N, or as MODEL=N with a model of {', '.join(sorted(models))}; given {word!r}"
            )
        if is_named:
            of_model[model] = int(number)
        else:
            of_all = int(number)
    return of_all, of_model


def log_skipped_models(models: str) -> None:
    """Log which models `all` skips because their trees are not installed."""
    from fielddep.config import MODEL_CONFIGS
    from fielddep.experiments.plan import ALL
    from fielddep.training.trees import is_installed

    absent = [name for name in MODEL_CONFIGS if not is_installed(name)]
    if ALL in models.split(",") and absent:
        log(f"skipped, not installed: {', '.join(absent)}; pip install 'fielddep[trees]'")


def log_no_tests(control: str | None, out: Path, plan: Plan) -> None:
    """Log before hours of training that there will be no tests, because the control is missing."""
    from fielddep.experiments.compare import CONTROL, compared_models

    names = compared_models(out, plan)
    if control is None and CONTROL not in names and len(names) > 1:
        log(f"no tests without {CONTROL}; --control {names[0]} tests the other models against {names[0]}")


def print_comparison(table: ComparisonTable, out: Path) -> None:
    """The table, and where to find everything.

    Raises:
        UserError: no run succeeded.
    """
    from fielddep.experiments.plan import LOGS
    from fielddep.experiments.rendering import comparison_grid

    print_grid(comparison_grid(table))
    console().print(f"results, tables and tests are in {out}", soft_wrap=True)
    if not any(row.n_finished for row in table.rows):
        raise UserError(f"no run succeeded; see the reasons below the table and in {out / LOGS}")
