"""`fielddep search`: good settings of a model, chosen on validation rows within a budget.

Also what search, compare and ablate share: their settings, their rows and how they resume.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import console, print_table
from fielddep.cli.options import (
    ConfigOption,
    QuietOption,
    RawOption,
    SetOption,
    TargetOption,
    TaskOption,
    assigned,
    resume_hint,
)
from fielddep.cli.progress import progress
from fielddep.observer import Observer

if TYPE_CHECKING:
    from fielddep.experiments.folder import Experiment, NamedStore
    from fielddep.experiments.search import SearchResult

SourceArgument = Annotated[
    str,
    typer.Argument(help="Store, table (a file, folder or glob) or name of a data set.", metavar="STORE|TABLE|NAME"),
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for all results.", metavar="DIR")]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="Model: any of fit, or lightgbm, lightgbm-evidence, catboost, mdl-wo-dep, mdl-global-dep.",
        metavar="NAME",
    ),
]
TrialsOption = Annotated[int, typer.Option("--trials", help="Maximum number of trials per search.", metavar="N")]
MinutesOption = Annotated[float | None, typer.Option("--minutes", help="Maximum minutes per search.", metavar="M")]
RowsOption = Annotated[
    int | None, typer.Option("--rows", help="Tune on a random sample of the training rows.", metavar="N", min=1)
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the search and its trainings. Default: train.seed.", metavar="N")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="CPU threads per training.", metavar="N", min=1)]


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
    """Search for good settings of a model. The same command resumes.

    Settings are chosen on validation rows and written to DIR/best.toml, for `fit --config`. Settings given by --set or
    --config are not searched.
    """
    from fielddep.experiments.folder import SEARCH
    from fielddep.experiments.plan import Budget, find_contender, read_settings
    from fielddep.experiments.search import search as run_search

    contender, budget = find_contender(model), Budget(trials=trials, minutes=minutes)
    found = {} if config is None else read_settings(config, contender)
    settings, fixed = split_settings(set_, target, task, found)
    own_seed = contender.config(fixed).train.seed  # refuses unknown settings before anything is read
    if threads is not None:
        fixed["train.threads"] = threads
    with experiment(source, out, SEARCH, settings=settings, raw=raw, quiet=quiet) as (named, observer):
        result = run_search(
            named.store,
            contender,
            out,
            budget=budget,
            given=fixed,
            seed=own_seed if seed is None else seed,
            n_rows=rows,
            observer=observer,
        )
    print_search(result, out)


def split_settings(
    set_: list[str] | None, target: str | None, task: str | None, found: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of data and split, and all others: those found in a file, overridden by the command line."""
    given = {**(found or {}), **assigned(set_, {"data.target": target, "data.task": task})}
    data = {path: value for path, value in given.items() if path.startswith(("data.", "split."))}
    return data, {path: value for path, value in given.items() if path not in data}


@contextlib.contextmanager
def experiment(
    source: str, out: Path, kind: Experiment, *, settings: dict[str, Any], raw: Path | None, quiet: bool
) -> Iterator[tuple[NamedStore, Observer]]:
    """Lock the folder of an experiment and open the rows of its source, which are encoded only once."""
    from fielddep.experiments.folder import STORE_FOLDER, open_source, working_in

    with resume_hint(lambda: "what is finished is kept"), progress(quiet) as observer, working_in(out, kind):
        yield open_source(source, out / STORE_FOLDER, settings=settings, raw=raw, observer=observer), observer


def print_search(result: SearchResult, out: Path) -> None:
    """The best settings, compared with the defaults."""
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
    """How to use the best settings; `fit` does not train trees."""
    from fielddep.config import TREES

    if model not in TREES:
        return f"train with it: fielddep fit ... --config {best}"
    return (
        f"compare with it: copy {best} to CONFIGS/{model}.toml, then "
        f"fielddep compare ... --models mdl,{model} --configs CONFIGS"
    )
