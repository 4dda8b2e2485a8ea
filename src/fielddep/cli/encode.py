"""`fielddep encode`: from tables of any size to a store that other commands read in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, log, print_table
from fielddep.cli.options import (
    ConfigOption,
    DataSetOption,
    ForceOption,
    QuietOption,
    ResumeOption,
    StoreOutOption,
    TargetOption,
    TaskOption,
    build_config,
    refuse_store,
    resume_hint,
)
from fielddep.cli.progress import progress
from fielddep.observer import Observer
from fielddep.wording import duration, format_bytes

if TYPE_CHECKING:
    from fielddep.store.store import Store

TablesArgument = Annotated[list[str], typer.Argument(help="Table: files, folders or globs.", metavar="TABLE")]


def encode(
    tables: TablesArgument,
    out: StoreOutOption,
    target: TargetOption = None,
    task: TaskOption = None,
    config: ConfigOption = None,
    set_: DataSetOption = None,
    force: ForceOption = False,
    resume: ResumeOption = False,
    quiet: QuietOption = False,
) -> None:
    """Encode a TABLE of any size into a STORE on disk.

    Other commands take the STORE in place of a TABLE, and read it in bounded memory.
    """
    from fielddep.store.build import build_store

    chosen = build_config(config, set_, {"data.target": target, "data.task": task})
    for table in tables:
        refuse_store(table, "encode")

    def build(observer: Observer) -> Store:
        return build_store(tables, chosen, out, force=force, resume=resume, observer=observer)

    make_store(build, out, force=force, resume=resume, quiet=quiet)


def make_store(
    build: Callable[[Observer], Store],
    out: Path,
    *,
    force: bool,
    resume: bool,
    quiet: bool,
    resumable: bool = True,
) -> None:
    """Build a store and print what it holds, unless it is already finished.

    Args:
        build: builds the store, reporting progress.
        out: its folder.
        force: replace a store.
        resume: keep a finished store.
        quiet: show no progress.
        resumable: whether an interrupted `build` can resume; otherwise it starts over.
    """
    from fielddep.store.folder import STORE
    from fielddep.store.store import Store

    if STORE.check(out, force=force, resume=resume) == "finished" and resume:
        log(f"the store in {out} is already finished")
        print_store(Store.open(out), None)
        return

    def kept() -> str:
        if not resumable:
            return "a data set built in memory starts over"
        return "the work up to the last checkpoint is kept" if STORE.state(out) == "unfinished" else ""

    started = time.perf_counter()
    with resume_hint(kept, "--resume" if resumable else "--force"), progress(quiet) as observer:
        store = build(observer)
    print_store(store, time.perf_counter() - started)


def print_store(store: Store, seconds: float | None) -> None:
    """Columns, rows and size of a store, and how long it took."""
    from fielddep.encoding.vocabulary import FIRST_ID

    layout, fields = store.layout, store.encoder.schema.fields
    kinds = [f"{f.kind} ({how})" if (how := f.numeric or f.separator) else f.kind for f in fields]
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
