"""`fielddep data`: data sets with recipes, and stores made from their published files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fielddep.cli.console import PlainCommand, console, print_table
from fielddep.cli.encode import make_store
from fielddep.cli.options import (
    DataSetOption,
    ForceOption,
    QuietOption,
    RawOption,
    ResumeOption,
    StoreOutOption,
    assigned,
)
from fielddep.errors import ConfigError
from fielddep.observer import Observer

if TYPE_CHECKING:
    from fielddep.datasets.recipe import Recipe
    from fielddep.store.store import Store

app = typer.Typer(
    help="List published data sets, and turn them into stores.", no_args_is_help=True, rich_markup_mode=None
)

NameArgument = Annotated[str, typer.Argument(help="Data set, as shown by `fielddep data list`.", metavar="NAME")]
CountsOption = Annotated[
    str, typer.Option("--counts-from", help="Rows whose values are counted: train or all.", metavar="ROWS")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the split and of sampled negatives.", metavar="N")]


@app.command("list", cls=PlainCommand)
def list_(raw: RawOption = None) -> None:
    """List all data sets, and which of their files are available."""
    from fielddep.datasets import RECIPES

    rows = []
    for recipe in RECIPES.values():
        facts = recipe.facts
        numbers = [f"{facts.rows:,}", str(len(facts.fields))]
        rows.append([facts.name, facts.task, *numbers, _available(recipe, raw), facts.terms])
    texts = ("task", "available", "terms")
    print_table(["data set", "task", "rows", "fields", "available", "terms"], rows, texts=texts)


def _available(recipe: Recipe, raw: Path | None) -> str:
    missing = recipe.missing_files(raw)
    return f"no: {', '.join(file.name for file in missing)}" if missing else "yes"


@app.command("info", cls=PlainCommand)
def info(name: NameArgument, raw: RawOption = None) -> None:
    """Show the facts of a data set, and where to get its files."""
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
        "files": recipe.file_names or "none",
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


@app.command("prepare", cls=PlainCommand)
def prepare(
    name: NameArgument,
    out: StoreOutOption,
    raw: RawOption = None,
    counts_from: CountsOption = "train",
    seed: SeedOption = 0,
    set_: DataSetOption = None,
    force: ForceOption = False,
    resume: ResumeOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a STORE from the published files of a data set.

    Rows are prepared and split as in the paper.
    """
    from fielddep.datasets import find_recipe
    from fielddep.datasets.recipe import StreamRecipe

    recipe = find_recipe(name)
    chosen: dict[str, Any] = {"counts_from": counts_from, "seed": seed, "settings": assigned(set_)}
    for path in chosen["settings"]:
        if not path.startswith(("data.", "split.")):
            raise ConfigError(f"expected settings of data and split, given {path}. Set it in `fielddep fit` instead")

    def build(observer: Observer) -> Store:
        return recipe.prepare(raw, out, **chosen, force=force, resume=resume, observer=observer)

    resumable = isinstance(recipe, StreamRecipe)
    make_store(build, out, force=force, resume=resume, quiet=quiet, resumable=resumable)
