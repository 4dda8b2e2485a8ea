"""What the commands of experiments (search, compare, ablate) share: their settings, their rows, how they resume.

`fielddep search`: good settings of a model, chosen on validation rows within a budget.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import console, log, print_table
from fielddep.cli.data import RawOption
from fielddep.cli.options import INTERRUPTED, ConfigOption, SetOption, TargetOption, TaskOption, resume_command
from fielddep.cli.progress import progress
from fielddep.config.decode import parse_assignment
from fielddep.observer import Observer

if TYPE_CHECKING:
    from fielddep.experiments.folder import Experiment, NamedStore
    from fielddep.experiments.search import SearchResult

_DATA = ("data.", "split.")


def split_settings(
    set_: list[str] | None, target: str | None, task: str | None, found: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of data and split, and all others: those found in a file, overruled by those of the command line."""
    named = {"data.target": target, "data.task": task}
    given = {**(found or {}), **dict(map(parse_assignment, set_ or []))}
    given |= {path: value for path, value in named.items() if value is not None}
    data = {path: value for path, value in given.items() if path.startswith(_DATA)}
    return data, {path: value for path, value in given.items() if path not in data}


@contextlib.contextmanager
def experiment_rows(
    source: str, out: Path, kind: Experiment, *, settings: dict[str, Any], raw: Path | None, observer: Observer
) -> Iterator[NamedStore]:
    """Keep the folder of an experiment for this process, with the rows of the source; they are encoded once."""
    from fielddep.experiments.folder import STORE_FOLDER, open_source, working_in

    with working_in(out, kind):
        yield open_source(source, out / STORE_FOLDER, settings=settings, raw=raw, observer=observer)


@contextlib.contextmanager
def resume_hint(kept: str) -> Iterator[None]:
    """Tell what an interrupted command keeps, and how to resume it."""
    try:
        yield
    except KeyboardInterrupt:
        log(f"interrupted; {kept} are kept. Resume with\n  {resume_command()}")
        raise typer.Exit(INTERRUPTED) from None


SourceArgument = Annotated[
    str,
    typer.Argument(help="A store, a table (file, folder or glob), or a data set by name.", metavar="STORE|TABLE|NAME"),
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the search.", metavar="DIR")]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model", help="Model: those of fit, lightgbm, catboost, mdl-wo-dep, mdl-global-dep.", metavar="NAME"
    ),
]
TrialsOption = Annotated[int, typer.Option("--trials", help="Trials at most.", metavar="N")]
MinutesOption = Annotated[float | None, typer.Option("--minutes", help="Minutes at most.", metavar="M")]
RowsOption = Annotated[
    int | None, typer.Option("--rows", help="Tune on a random sample of so many training rows.", metavar="N", min=1)
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the search and its trainings. Default: train.seed.", metavar="N")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="CPU threads.", metavar="N", min=1)]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print the result and warnings only.")]


def search(
    source: SourceArgument,
    out: OutOption,
    model: ModelOption = "mdl",
    target: TargetOption = None,
    task: TaskOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    trials: TrialsOption = 30,
    minutes: MinutesOption = None,
    rows: RowsOption = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    raw: RawOption = None,
    quiet: QuietOption = False,
) -> None:
    """Search settings of a model on validation rows; the same command resumes a search.

    DIR/best.toml is what `fit --config` takes. Settings that are given, by --set or in --config, are not searched.
    """
    from fielddep.experiments.contenders import find_contender, read_settings
    from fielddep.experiments.folder import SEARCH
    from fielddep.experiments.search import search as run_search
    from fielddep.experiments.trials import Budget

    contender, budget = find_contender(model), Budget(trials=trials, minutes=minutes)
    found = {} if config is None else read_settings(config, contender)
    settings, fixed = split_settings(set_, target, task, found)
    own_seed = contender.config(fixed).train.seed  # refuses what is no setting before anything is read
    chosen_seed = own_seed if seed is None else seed
    if threads is not None:
        fixed["train.threads"] = threads
    with (
        resume_hint("finished trials"),
        progress(quiet) as observer,
        experiment_rows(source, out, SEARCH, settings=settings, raw=raw, observer=observer) as named,
    ):
        result = run_search(
            named.store, contender, out, budget=budget, given=fixed, seed=chosen_seed, n_rows=rows, observer=observer
        )
    print_search(result, out)


def print_search(result: SearchResult, out: Path) -> None:
    """The best settings and how they compare with the defaults."""
    from fielddep.experiments.search import BEST
    from fielddep.experiments.study import COMPLETE, FAILED, PRUNED

    best, first = result.best, result.records[0]
    rows = [[path, str(value)] for path, value in best.settings.items()] or [["-", "the defaults"]]
    print_table(["setting", "value"], rows, title=f"best of {len(result.records)} trials", texts=("value",))
    states = [record.state for record in result.records]
    counts = ", ".join(f"{states.count(state)} {state}" for state in (COMPLETE, PRUNED, FAILED) if state in states)
    default = "" if first.loss is None else f", {first.loss:.5f} with the defaults"
    stream = console()
    stream.print(f"validation loss {best.loss:.5f} (trial {best.number}){default}; {counts}", soft_wrap=True)
    stream.print(usage_of(result.config.model.name, out / BEST), soft_wrap=True)


def usage_of(model: str, best: Path) -> str:
    """What can be done with the best settings; `fit` trains no trees."""
    from fielddep.config.trees import TREE_CONFIGS

    if model not in TREE_CONFIGS:
        return f"train with it: fielddep fit ... --config {best}"
    return (
        f"compare with it: copy {best} to CONFIGS/{model}.toml, a folder of yours, then "
        f"fielddep compare ... --models mdl,{model} --configs CONFIGS"
    )
