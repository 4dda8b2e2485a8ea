"""`fielddep encode`: from tables of any size to a store that `fit`, `evaluate` and `predict` read in bounded memory."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, print_table, say
from fielddep.cli.options import (
    INTERRUPTED,
    ConfigOption,
    SetOption,
    TargetOption,
    TaskOption,
    build_config,
    refuse_store,
    said_again,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from fielddep.data.store.store import Store
    from fielddep.data.streaming.encode import Progress

STAGES = {"read": "reading", "split": "splitting", "learn": "learning the values", "encode": "writing the store"}

TablesArgument = Annotated[
    list[str], typer.Argument(help="The table: one or more files, folders or globs.", metavar="TABLE...")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the store.", metavar="STORE")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a store that is there.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with an unfinished store.")]
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
    from fielddep.data.store.store import Store
    from fielddep.data.streaming.encode import encode_store
    from fielddep.data.streaming.store_folder import STORE

    chosen = build_config(config, set_, {"data.target": target, "data.task": task})
    for table in tables:
        refuse_store(table, "encode")
    if STORE.check(out, force=force, resume=resume) == "finished" and resume:
        say(f"the store in {out} is finished; nothing is left to resume")
        print_store(Store.open(out), None)
        return
    started = time.perf_counter()
    try:
        with shown(quiet) as progress:
            store = encode_store(tables, chosen, out, force=force, resume=resume, progress=progress)
    except KeyboardInterrupt:
        options = {"--target": target, "--task": task, "--config": config}
        words = [*tables, *said_again(options, set_, {"--quiet": quiet})]
        say_unfinished(out, ["fielddep", "encode", *words])
        raise typer.Exit(INTERRUPTED) from None
    print_store(store, time.perf_counter() - started)


def print_store(store: Store, seconds: float | None) -> None:
    """What the store holds: its columns, rows, size and how long it took."""
    from fielddep.data.vocabulary import FIRST_ID

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
        f"{store.n_rows:,} rows ({parts}), {len(fields)} fields, {layout.n_ids_total:,} ids, {size / 1e6:,.1f} MB",
    ]
    if seconds is not None:
        lines.append(f"encoded in {seconds:.1f} s, {store.n_rows / seconds:,.0f} rows/s")
    for line in lines:
        console().print(line, soft_wrap=True)


@contextlib.contextmanager
def shown(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A live bar on a terminal; elsewhere a line for every stage; nothing if quiet."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    log = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[rows]}"))
    bar = Bar(*columns, TimeRemainingColumn(compact=True), console=log, disable=not log.is_terminal, transient=True)
    with bar:
        yield _Shower(bar, bar.add_task("", total=None, rows="")).show


class _Shower:
    """Tells of every stage once, and moves the bar within it."""

    def __init__(self, bar: Bar, task: TaskID) -> None:
        self.bar, self.task = bar, task
        self.stage = ""
        self.first_row, self.started = 0, 0.0

    def show(self, progress: Progress) -> None:
        if progress.stage != self.stage:
            self._begin(progress)
        seconds = max(time.perf_counter() - self.started, 1e-9)
        rate = (progress.n_rows - self.first_row) / seconds
        rows = f"{progress.n_rows:,} rows" + (f", {rate:,.0f} rows/s" if rate else "")
        total = None if progress.share is None else 1.0
        self.bar.update(self.task, total=total, completed=progress.share or 0.0, rows=rows)

    def _begin(self, progress: Progress) -> None:
        self.stage, self.first_row, self.started = progress.stage, progress.n_rows, time.perf_counter()
        title = STAGES[progress.stage]
        self.bar.reset(self.task, description=title)
        if self.bar.disable:
            say(title)


def say_unfinished(out: Path, command: list[str]) -> None:
    """What survives an interrupt, and how to go on.

    Args:
        out: folder of the store.
        command: the command that was interrupted, without the folder.
    """
    from fielddep.data.streaming.store_folder import STORE

    if STORE.state(out) != "unfinished":
        say("interrupted before the reading began; nothing was written")
        return
    say("interrupted; what was done up to the last checkpoint is kept. Go on with")
    say(f"  {shlex.join([*command, '--out', str(out), '--resume'])}")
