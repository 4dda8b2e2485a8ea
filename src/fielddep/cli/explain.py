"""`fielddep explain`: which fields explain which, in a model, in chosen rows and over a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import log
from fielddep.cli.explain_tables import print_model, print_nearest, print_overview, print_rows
from fielddep.cli.options import DeviceOption, ReadOption, RunArgument, find_store, reading_of
from fielddep.errors import UserError

if TYPE_CHECKING:
    from fielddep.artifacts.bundle import Bundle
    from fielddep.config.settings import DataConfig
    from fielddep.explain.curves import LearningCurve
    from fielddep.explain.overview import OverviewFolder
    from fielddep.explain.rows import PickedRows

FILE_SUFFIXES = (".png", ".svg", ".pdf", ".json", ".csv", ".html")

TableArgument = Annotated[
    str | None,
    typer.Argument(help="A table or store with the rows; without it the model alone is explained.", metavar="TABLE"),
]
RowsOption = Annotated[
    str, typer.Option("--rows", help="Rows of TABLE, counted from 0, such as 0,7,12 or 0-4.", metavar="N,N-N,...")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for all numbers (CSV, JSON) and pictures (PNG).", metavar="DIR")
]
ImportanceOption = Annotated[
    bool | None,
    typer.Option(
        "--importance/--no-importance",
        help="Measure importance, calibration and scores. Default: where TABLE holds the target.",
        show_default=False,
    ),
]
GroupsOption = Annotated[
    int, typer.Option("--groups", help="Groups of rows with similar dependencies; 0: none.", min=0, metavar="N")
]
SampleOption = Annotated[
    int,
    typer.Option(
        "--sample",
        help="Rows of TABLE at most for importance and groups, drawn by chance; 0: none.",
        min=0,
        metavar="N",
    ),
]
NearOption = Annotated[
    list[str] | None, typer.Option("--near", help="Show the values most like this one.", metavar="FIELD=VALUE")
]
PartOption = Annotated[
    str | None,
    typer.Option(
        "--part", help="Part of a store to sample: train, validation, test or all. Default: test.", metavar="PART"
    ),
]


def explain(
    run: RunArgument,
    table: TableArgument = None,
    rows: RowsOption = "0",
    out: OutOption = None,
    importance: ImportanceOption = None,
    groups: GroupsOption = 4,
    sample: SampleOption = 10_000,
    near: NearOption = None,
    part: PartOption = None,
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Show which fields explain which, and what each is worth: in the model, in rows of TABLE, and over TABLE."""
    from fielddep.explain.overview import OverviewFolder

    numbers = parse_rows(rows)
    check_options(out, importance, sample)
    bundle = load_bundle(run, device)
    folder = None if out is None else OverviewFolder(out)
    explain_values(bundle, near or [], folder)
    explain_model(bundle, run, folder, alone=table is None and not near)
    if table is not None:
        wanted = Wanted(numbers=numbers, n_sample=sample, importance=importance, n_groups=groups, part=part)
        explain_table(bundle, table, wanted, reading_of(bundle, set_), folder)
    if folder is not None:
        log(f"wrote {len(folder.written)} files to {folder.folder}")
        if not folder.draws:
            log("for pictures install Matplotlib: pip install 'fielddep[plot]'")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked about a table."""

    numbers: tuple[int, ...]
    n_sample: int
    importance: bool | None
    n_groups: int
    part: str | None


def explain_values(bundle: Bundle, asked: list[str], folder: OverviewFolder | None) -> None:
    """The values most like those that `--near` names."""
    from fielddep.explain.neighbours import nearest_values

    found = []
    for text in asked:
        field, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"--near wants FIELD=VALUE, such as colour=red; given {text!r}")
        found.append(nearest_values(bundle, field, value or None))
    print_nearest(found)
    if folder is not None and found:
        folder.write_nearest(found)


def explain_model(bundle: Bundle, run: Path, folder: OverviewFolder | None, *, alone: bool) -> None:
    """W(0), shown where nothing else is asked for, and how the training went."""
    from fielddep.explain.dependencies import global_dependencies, learns_dependencies

    learned = learns_dependencies(bundle)
    if alone and (learned or folder is None):
        print_model(global_dependencies(bundle))  # refuses a model that has none
    if folder is not None:
        folder.write_model(global_dependencies(bundle) if learned else None, _learning_of(run))


def explain_table(
    bundle: Bundle, table: str, wanted: Wanted, reading: DataConfig, folder: OverviewFolder | None
) -> None:
    """The chosen rows, and a sample of all rows."""
    from fielddep.explain.dependencies import global_dependencies, learns_dependencies
    from fielddep.explain.overview import overview_rows, overview_table
    from fielddep.explain.rows import pick_rows

    picked = pick_rows(
        bundle,
        find_store(table) or table,
        wanted.numbers,
        config=reading,
        n_sample=wanted.n_sample,
        with_target=wanted.importance,
        part=wanted.part,
    )
    chosen = overview_rows(bundle, picked.chosen, wanted.numbers, values=picked.values)
    out = None if folder is None else folder.folder
    print_rows(chosen, out)
    if folder is not None:
        folder.write_rows(chosen, global_dependencies(bundle) if learns_dependencies(bundle) else None)
    if picked.sample is None:
        return
    _log_sample(picked, table)
    found = overview_table(bundle, picked.sample, n_groups=wanted.n_groups)
    print_overview(found, out)
    if folder is not None:
        folder.write_table(found)


def parse_rows(text: str) -> tuple[int, ...]:
    """Numbers of rows from a text such as 0,7,12-14, each once, in the order given.

    Raises:
        UserError: for anything else, and for more rows than `overview_rows` takes.
    """
    from fielddep.explain.overview import MAX_CHOSEN

    numbers: dict[int, None] = {}
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", piece)
        if match is None:
            raise UserError(f"--rows wants numbers and ranges by comma, such as 0,7,12 or 0-4; given {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"--rows wants ranges that rise, such as 0-4; given {piece.strip()!r}")
        numbers |= dict.fromkeys(range(first, min(last, first + MAX_CHOSEN) + 1))
        if len(numbers) > MAX_CHOSEN:
            raise UserError(f"--rows takes at most {MAX_CHOSEN:,} rows, each explained on its own; given {text!r}")
    return tuple(numbers)


def check_options(out: Path | None, importance: bool | None, sample: int) -> None:
    """Refuse what cannot be meant, before anything is computed."""
    if out is not None and (out.is_file() or out.suffix.lower() in FILE_SUFFIXES):
        raise UserError(f"--out is a folder, as many files are written; given {out}")
    if importance and sample == 0:
        raise UserError("--importance is measured on a sample of rows; given --sample 0; leave out one of the two")


def load_bundle(run: Path, device: str) -> Bundle:
    """The model of a run on a device."""
    from fielddep.artifacts.bundle import Bundle
    from fielddep.artifacts.run import resolve_bundle

    return Bundle.load(resolve_bundle(run), device=device)


def _learning_of(run: Path) -> LearningCurve | None:
    """How a training went; a bundle alone does not know."""
    from fielddep.artifacts.run import Run, run_state
    from fielddep.explain.curves import learning_curve

    return learning_curve(Run.open(run).history) if run_state(run) == "finished" else None


def _log_sample(picked: PickedRows, table: str) -> None:
    assert picked.sample is not None
    n_sample, n_rows = len(picked.sample), picked.n_rows
    rows = f"all {n_rows:,} rows" if n_sample == n_rows else f"a sample of {n_sample:,} of {n_rows:,} rows"
    part = "" if picked.part == "all" else f" ({picked.part})"
    without = "" if picked.sample.target_R is not None else "; no importance, because the target is not read"
    log(f"over {rows} of {table}{part}{without}")
