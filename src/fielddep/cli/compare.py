"""`fielddep compare`: models with tuned settings and several seeds on the same rows, tested for significance."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import METRICS, console, say
from fielddep.cli.data import RawOption
from fielddep.cli.experiment import experiment_rows, going_on, split_settings
from fielddep.cli.grids import print_grid
from fielddep.cli.options import SetOption, TargetOption, TaskOption
from fielddep.cli.search import SourceArgument
from fielddep.errors import UserError
from fielddep.experiments.lookers import ComparisonLooker

if TYPE_CHECKING:
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.results import RunResult
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
KeepOption = Annotated[bool, typer.Option("--keep-failed", help="Do not try again what failed.")]
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
    keep_failed: KeepOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare models on the same rows; go on where an earlier call stopped.

    Settings come from DIR/MODEL.toml of --configs, else from a search with the same budget for every model. --set takes
    settings of data and split for the encoding, and of train for every model. DIR holds all results and tables; models
    that were run in it before stay in the tables as long as their settings and budget are those of this call.
    """
    from fielddep.experiments.comparison import check_control
    from fielddep.experiments.contenders import find_contenders
    from fielddep.experiments.plan import Plan
    from fielddep.experiments.study import import_optuna
    from fielddep.experiments.trial_loop import Budget

    settings, fixed = split_settings(set_, target, task)
    if search and configs is None:
        import_optuna()  # an absent extra is told before anything is read
    say_left_out(models)
    contenders = find_contenders(models)
    search_rows, slow_rows = parse_rows(rows, {contender.model for contender in contenders})
    plan = Plan(
        contenders=contenders,
        n_seeds=seeds,
        budget=Budget(trials=trials, minutes=minutes) if search else None,
        configs=configs,
        given=fixed,
        search_rows=search_rows,
        slow_rows=slow_rows,
        threads=threads,
        n_jobs=jobs,
        keep_failed=keep_failed,
    )
    check_control(control, out, plan)
    say_untested(control, out, plan)
    options: dict[str, object] = {"--models": models, "--seeds": seeds, "--target": target, "--task": task}
    options |= {"--configs": configs, "--trials": trials, "--minutes": minutes, "--rows": rows}
    options |= {"--control": control, "--threads": threads, "--jobs": jobs, "--raw": raw}
    flags = {"--no-search": not search, "--keep-failed": keep_failed, "--quiet": quiet}
    words = ["compare", source, "--out", str(out)]
    with going_on(words, "the runs that are done", options, set_, flags):
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


def say_left_out(models: str) -> None:
    """Tell which trees are not among all models, as their library is not installed."""
    from fielddep.experiments.contenders import ALL
    from fielddep.experiments.tree_configs import TREE_CONFIGS
    from fielddep.experiments.trees import installed_trees

    absent = [name for name in TREE_CONFIGS if name not in installed_trees()]
    if ALL in models.split(",") and absent:
        say(f"left out, as not installed: {', '.join(absent)}; pip install 'fielddep[trees]'")


def say_untested(control: str | None, out: Path, plan: Plan) -> None:
    """Tell at the start that there will be no tests, as the control takes no part."""
    from fielddep.experiments.comparison import CONTROL, compared_models

    names = compared_models(out, plan)
    if control is None and CONTROL not in names and len(names) > 1:
        say(f"no model will be tested against another, as {CONTROL} takes no part; --control {names[0]} tests them")


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
    from fielddep.experiments.comparison import compare as run_comparison
    from fielddep.experiments.experiment_folder import COMPARISON

    looker = ComparisonLog(quiet=quiet)
    with (
        experiment_rows(source, out, COMPARISON, settings=settings, raw=raw, quiet=quiet) as named,
        looker.bar,
    ):
        return run_comparison(named.dataset, named.store, out, plan, control=control, looker=looker)


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


class ComparisonLog(ComparisonLooker):
    """A line a search or run, and on a terminal a live bar.

    Args:
        quiet: whether to show nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        log = console(stderr=True)
        self.quiet = quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=log,
            disable=quiet or not log.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None)

    def on_plan(self, what: str, n_todo: int, n_done: int) -> None:
        """Say how much there is to do."""
        self.bar.reset(self.task, total=n_todo + n_done, completed=n_done, description=what)
        self._say(f"{n_todo} {what} to do" + (f", {n_done} are done" if n_done else ""))

    def on_begin(self, title: str) -> None:
        """Show what is under way."""
        self.bar.update(self.task, description=title)

    def on_searched(self, title: str, failure: str | None) -> None:
        """Say how a search ended."""
        self.bar.advance(self.task)
        self._say(f"{title}: {'done' if failure is None else f'failed: {failure}'}")

    def on_run(self, result: RunResult) -> None:
        """Say what a run gave."""
        self.bar.advance(self.task)
        title = f"{result.model} seed {result.seed}"
        if result.error is not None:
            self._say(f"{title}: failed: {result.error}")
            return
        test = result.metrics["test"]
        figures = ", ".join(f"{name} {test[name]:.4f}" for name in METRICS if name in test)
        self._say(f"{title}: {figures} ({result.train_seconds:.0f} s)")

    def _say(self, line: str) -> None:
        if not self.quiet:
            say(line)
