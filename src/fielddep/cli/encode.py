"""`fielddep encode`: from tables of any size to a store that `fit`, `evaluate` and `predict` read in bounded memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, log, print_table
from fielddep.cli.options import (
    INTERRUPTED,
    ConfigOption,
    SetOption,
    TargetOption,
    TaskOption,
    build_config,
    refuse_store,
    resume_command,
)
from fielddep.cli.progress import progress
from fielddep.wording import duration, format_bytes

if TYPE_CHECKING:
    from fielddep.store.store import Store

TablesArgument = Annotated[
    list[str], typer.Argument(help="The table: one or more files, folders or globs.", metavar="TABLE...")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the store.", metavar="STORE")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a store that is there.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume an interrupted encoding.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print the summary and warnings only.")]


def encode(
    tables: TablesArgument,
    out: OutOption,
    target: TargetOption = None,
    task: TaskOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    force: ForceOption = False,
    resume: ResumeOption = False,
    quiet: QuietOption = False,
) -> None:
    """Encode a TABLE of any size into a STORE, which fit, evaluate and predict take in place of a table."""
    from fielddep.store.build import build_store
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store

    chosen = build_config(config, set_, {"data.target": target, "data.task": task})
    for table in tables:
        refuse_store(table, "encode")
    if STORE.check(out, force=force, resume=resume) == "finished" and resume:
        log(f"the store in {out} is finished; nothing is left to resume")
        print_store(Store.open(out), None)
        return
    started = time.perf_counter()
    try:
        with progress(quiet) as observer:
            store = build_store(tables, chosen, out, force=force, resume=resume, observer=observer)
    except KeyboardInterrupt:
        log_interrupted(out)
        raise typer.Exit(INTERRUPTED) from None
    print_store(store, time.perf_counter() - started)


def print_store(store: Store, seconds: float | None) -> None:
    """What the store holds: its columns, rows, size and how long it took."""
    from fielddep.encoding.vocabulary import FIRST_ID

    layout, fields = store.layout, store.encoder.schema.fields
    kinds = [f"{f.kind} ({f.numeric})" if f.numeric else f.kind for f in fields]
    kinds += ["cross"] * len(layout.crosses)
    rows = [
        [name, kind, "-" if "scale" in kind else f"{n_ids - FIRST_ID:,}"]
        for name, kind, n_ids in zip(layout.names, kinds, layout.n_ids, strict=True)
    ]
    print_table(["field", "kind", "values"], rows, title=f"store {store.folder}", texts=("kind",))
    target = store.encoder.schema.target
    assert target is not None
    classes = f", {len(target.classes)} classes" if target.classes else ""
    parts = ", ".join(f"{n:,} {part}" for part, n in store.n_rows_of.items())
    size = sum(path.stat().st_size for path in store.folder.iterdir() if path.is_file())
    lines = [
        f"target {target.name}: {target.task}{classes}",
        f"{store.n_rows:,} rows ({parts}), {len(fields)} fields, {layout.n_ids_total:,} ids, {format_bytes(size)}",
    ]
    if seconds is not None:
        lines.append(f"encoded in {duration(seconds)}, {store.n_rows / seconds:,.0f} rows/s")
    for line in lines:
        console().print(line, soft_wrap=True)


def log_interrupted(out: Path) -> None:
    """What survives an interrupt, and how to resume."""
    from fielddep.store.folder import STORE

    if STORE.state(out) != "unfinished":
        log("interrupted before the reading began; nothing was written")
        return
    log("interrupted; what was done up to the last checkpoint is kept. Resume with")
    log(f"  {resume_command('--resume')}")
