"""`fielddep fit`: from a table or store to a trained, saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, log, print_metrics
from fielddep.cli.options import (
    INTERRUPTED,
    ConfigOption,
    ModelOption,
    SetOption,
    SourceArgument,
    TargetOption,
    TaskOption,
    build_config,
    build_store_config,
    find_store,
    resume_command,
)
from fielddep.cli.progress import progress
from fielddep.config.settings import Config
from fielddep.observer import Observer, Observers

if TYPE_CHECKING:
    from fielddep.artifacts.run import Run
    from fielddep.store.store import Store
    from fielddep.training.prepare import Prepared


OutOption = Annotated[Path, typer.Option("--out", help="Folder of the run.", metavar="RUN")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the training; split.seed is its own setting.", metavar="N")
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="Torch device, such as cuda.", metavar="DEVICE")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a run that is there.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint.")]
BoardOption = Annotated[bool, typer.Option("--tensorboard", help="Write events for TensorBoard into RUN.")]
ReportOption = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html into RUN.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print results and warnings only.")]


def fit(
    table: SourceArgument,
    out: OutOption,
    target: TargetOption = None,
    task: TaskOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    seed: SeedOption = None,
    device: DeviceOption = None,
    force: ForceOption = False,
    resume: ResumeOption = False,
    tensorboard: BoardOption = False,
    report: ReportOption = True,
    quiet: QuietOption = False,
) -> None:
    """Train on TABLE and keep everything in RUN: settings, history, metrics, the model and a report."""
    named = {
        "data.target": target,
        "data.task": task,
        "model.name": model,
        "train.seed": seed,
        "train.device": device,
    }
    store = find_store(table)
    chosen = build_config(config, set_, named) if store is None else build_store_config(store, config, set_, named)
    flow = {"force": force, "resume": resume, "tensorboard": tensorboard, "report": report, "quiet": quiet}
    try:
        run = run_fit(table, chosen, out, store=store, **flow)
    except KeyboardInterrupt:
        log_interrupted(out)
        raise typer.Exit(INTERRUPTED) from None
    print_run(run)


def run_fit(
    table: str,
    config: Config,
    out: Path,
    *,
    store: Store | None = None,
    force: bool = False,
    resume: bool = False,
    tensorboard: bool = False,
    report: bool = True,
    quiet: bool = False,
) -> Run:
    """Read the table, or take the store that it is, and train, with log and progress bar on stderr unless `quiet`."""
    from fielddep.artifacts.run import Run, check_folder
    from fielddep.cli.report import report_fit
    from fielddep.tables.row_stream import read_table

    if check_folder(out, force=force, resume=resume) == "finished" and resume:
        log(f"the run in {out} is finished; nothing is left to resume")
        return Run.open(out)
    rows = read_table(table, config.data) if store is None else store
    with progress(quiet) as bar:
        observer = bar if quiet else Observers(PreparedLog(table, config), bar)
        run = Run.train(
            rows, config, out, force=force, resume=resume, observer=observer, tensorboard=tensorboard, name=table
        )
    if report:
        report_fit(run, table=table, quiet=quiet)
    return run


class PreparedLog(Observer):
    """Logs what was read, how it is split, and what was decided from it."""

    def __init__(self, table: str, asked: Config) -> None:
        self.table, self.asked = table, asked

    def on_prepared(self, prepared: Prepared) -> None:
        """Log what is known before the training."""
        log_prepared(self.table, self.asked, prepared)


def log_prepared(table: str, asked: Config, prepared: Prepared) -> None:
    """What was read, how it is split, and what was decided from it."""
    from fielddep.encoding.vocabulary import FIRST_ID

    schema = prepared.encoder.schema
    sizes = {name: len(prepared.parts.get(name, ())) for name in ("train", "validation", "test")}
    log(f"read {table}: {sum(sizes.values()):,} rows, {len(schema.fields)} fields")
    for field, field_encoder in zip(schema.fields, prepared.encoder.field_encoders, strict=True):
        numeric = f" ({field.numeric})" if field.numeric else ""
        unit = "bins" if field.numeric else "values"
        size = "" if field.numeric == "scale" else f", {len(field_encoder.counts) - FIRST_ID:,} {unit}"
        log(f"  {field.name}: {field.kind}{numeric}{size}")
    if prepared.encoder.crosses:
        log(f"  crosses of two fields: {', '.join(prepared.encoder.layout.names[len(schema.fields) :])}")
    classes = f", {len(prepared.target.classes)} classes" if prepared.target.classes else ""
    log(f"target {prepared.target.name}: {prepared.target.task}{classes}")
    log("rows: " + ", ".join(f"{size:,} {name}" for name, size in sizes.items()))
    before, now = asked.to_dict(), prepared.config.to_dict()
    decided = [f"{s}.{k} = {v}" for s, settings in now.items() for k, v in settings.items() if before[s].get(k) != v]
    if decided:
        log(f"decided from the data: {', '.join(decided)}")


def print_run(run: Run) -> None:
    """Metrics next to those of the base rate, how fast it was, and where the run is."""
    metrics = run.metrics
    part = "test" if "test" in metrics else "validation"
    print_metrics({"model": metrics[part], "base rate": metrics[f"{part}_base_rate"]}, title=f"{part} rows")
    rate = run.history[-1].rows_per_s
    console().print(f"trained at {rate:,.0f} rows/s, saved in {run.folder}", soft_wrap=True)


def log_interrupted(out: Path) -> None:
    """What survives an interrupt, and how to resume."""
    from fielddep.artifacts.run import CHECKPOINT, run_state
    from fielddep.training.checkpoint import CheckpointFolder

    if run_state(out) != "unfinished":
        log("interrupted before the training began; nothing was written")
        return
    reached = CheckpointFolder(out / CHECKPOINT).path.exists()
    log(f"interrupted; {'the last checkpoint is kept' if reached else 'there is no checkpoint yet'}. Resume with")
    log(f"  {resume_command('--resume')}")
