"""`fielddep data`: the data sets that there are recipes for, and stores made from their published files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import console, log, print_table
from fielddep.cli.encode import ForceOption, OutOption, QuietOption, ResumeOption, log_interrupted, print_store
from fielddep.cli.options import INTERRUPTED, SetOption, resume_command
from fielddep.cli.progress import progress
from fielddep.config.decode import parse_assignment
from fielddep.errors import ConfigError

if TYPE_CHECKING:
    from fielddep.datasets.recipe import Recipe

app = typer.Typer(
    help="Data sets: what there is, and stores made from the published files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[str, typer.Argument(help="A data set that `fielddep data list` shows.", metavar="NAME")]
RawOption = Annotated[
    Path | None,
    typer.Option("--raw", "--data-home", help="Folder of the published files; default: FIELDDEP_DATA.", metavar="DIR"),
]
CountsOption = Annotated[
    str, typer.Option("--counts-from", help="Rows whose values are counted: train or all.", metavar="ROWS")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the split and of sampled negatives.", metavar="N")]


@app.command("list")
def list_(raw: RawOption = None) -> None:
    """All data sets, and which of their files are available."""
    from fielddep.datasets import RECIPES

    rows = []
    for recipe in RECIPES.values():
        facts = recipe.facts
        numbers = [f"{facts.rows:,}", str(len(facts.fields))]
        rows.append([facts.name, facts.task, *numbers, _available(recipe, raw), facts.terms])
    texts = ("task", "available", "terms")
    print_table(["data set", "task", "rows", "fields", "available", "terms"], rows, texts=texts)


def _available(recipe: Recipe, raw: Path | None) -> str:
    lacking = recipe.missing_files(raw)
    return f"no: {', '.join(file.name for file in lacking)}" if lacking else "yes"


@app.command("info")
def info(name: NameArgument, raw: RawOption = None) -> None:
    """The facts of one data set, and where to get its files."""
    from fielddep.datasets import find_recipe

    recipe = find_recipe(name)
    facts = recipe.facts
    train, validation, test = facts.parts
    positives = "ratings of 4 and more" if facts.task == "regression" else "positives"
    counts = f"{facts.rows:,} ({train:,} train, {validation:,} validation, {test:,} test)"
    lines = {
        "task": f"{facts.task}, target {facts.target}",
        "rows": f"{counts}, {facts.positives:,} {positives}",
        "fields": f"{len(facts.fields)}: {', '.join(facts.fields)}",
        "categories": f"{facts.categories:,} with --counts-from all",
        "files": ", or instead ".join(", ".join(map(str, version)) for version in recipe.versions) or "none",
        "from": facts.page,
        "terms": facts.terms,
        "available": _available(recipe, raw),
        "note": facts.note,
    }
    stream = console()
    stream.print(f"{facts.name}: {facts.title}", style="bold", soft_wrap=True)
    for key, text in lines.items():
        if text:
            stream.print(f"  {key + ':':<12}{text}", soft_wrap=True)


@app.command("prepare")
def prepare(
    name: NameArgument,
    out: OutOption,
    raw: RawOption = None,
    counts_from: CountsOption = "train",
    seed: SeedOption = 0,
    set_: SetOption = None,
    force: ForceOption = False,
    resume: ResumeOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a STORE from the published files of a data set, prepared and split as the paper has it."""
    from fielddep.datasets import find_recipe
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store

    recipe = find_recipe(name)
    if STORE.check(out, force=force, resume=resume) == "finished" and resume:
        log(f"the store in {out} is finished; nothing is left to resume")
        print_store(Store.open(out), None)
        return
    chosen: dict[str, Any] = {"counts_from": counts_from, "seed": seed, "settings": _settings(set_)}
    started = time.perf_counter()
    try:
        with progress(quiet) as observer:
            store = recipe.prepare(raw, out, **chosen, force=force, resume=resume, observer=observer)
    except KeyboardInterrupt:
        _log_interrupted(recipe, out)
        raise typer.Exit(INTERRUPTED) from None
    print_store(store, time.perf_counter() - started)


def _log_interrupted(recipe: Recipe, out: Path) -> None:
    """How to resume; a table that is built in memory is quicker to build again."""
    from fielddep.datasets.recipe import StreamRecipe

    if isinstance(recipe, StreamRecipe):
        log_interrupted(out)
    else:
        log(f"interrupted; start over with\n  {resume_command('--force')}")


def _settings(assignments: list[str] | None) -> dict[str, Any]:
    values = dict(map(parse_assignment, assignments or []))
    for path in values:
        if not path.startswith(("data.", "split.")):
            raise ConfigError(f"a store is made with settings of data and split only; given {path}; set it in `fit`")
    return values
