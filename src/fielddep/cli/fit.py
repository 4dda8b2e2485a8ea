"""`fielddep fit`: from a table or store to a trained, saved model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, print_metrics, say
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
    said_again,
)
from fielddep.config import Config

if TYPE_CHECKING:
    from fielddep.data.store.store import Store
    from fielddep.fitting import TrainingData
    from fielddep.run import Run
    from fielddep.training.callbacks import Callback


OutOption = Annotated[Path, typer.Option("--out", help="Folder of the run.", metavar="RUN")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the training; split.seed is its own setting.", metavar="N")
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="Torch device, such as cuda.", metavar="DEVICE")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a run that is there.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
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
        options: dict[str, object] = {"--target": target, "--task": task, "--model": model, "--config": config}
        options |= {"--seed": seed, "--device": device}
        flags = {"--tensorboard": tensorboard, "--no-report": not report, "--quiet": quiet, "--resume": True}
        say_interrupted(out, ["fielddep", "fit", table, "--out", str(out), *said_again(options, set_, flags)])
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
    from fielddep.cli.report import report_fit
    from fielddep.data.readers import collect, read_table
    from fielddep.run import Run, check_folder, train_run
    from fielddep.training.callbacks import EvaluationLog, ProgressBar

    if check_folder(out, force=force, resume=resume) == "finished" and resume:
        say(f"the run in {out} is finished; nothing is left to resume")
        return Run.open(out)
    rows = collect(read_table(table, config.data)) if store is None else store
    log = console(stderr=True)
    lookers_on: list[Callback] = [] if quiet else [ProgressBar(log), EvaluationLog(log)]
    known: list[TrainingData] = []

    def on_prepared(prepared: TrainingData) -> None:
        known.append(prepared)
        if not quiet:
            say_prepared(table, config, prepared)

    run = train_run(
        rows,
        config,
        out,
        force=force,
        resume=resume,
        callbacks=lookers_on,
        tensorboard=tensorboard,
        source=table,
        on_prepared=on_prepared,
    )
    if report:
        report_fit(run, known[0], table=table, quiet=quiet)
    return run


def say_prepared(table: str, asked: Config, prepared: TrainingData) -> None:
    """What was read, how it is split, and what was decided from it."""
    from fielddep.data.vocabulary import FIRST_ID

    schema = prepared.encoder.schema
    sizes = {name: len(prepared.parts.get(name, ())) for name in ("train", "validation", "test")}
    say(f"read {table}: {sum(sizes.values()):,} rows, {len(schema.fields)} fields")
    for field, coder in zip(schema.fields, prepared.encoder.coders, strict=True):
        numeric = f" ({field.numeric})" if field.numeric else ""
        unit = "bins" if field.numeric else "values"
        size = "" if field.numeric == "scale" else f", {len(coder.counts) - FIRST_ID:,} {unit}"
        say(f"  {field.name}: {field.kind}{numeric}{size}")
    if prepared.encoder.crosses:
        say(f"  crosses of two fields: {', '.join(prepared.encoder.layout.names[len(schema.fields) :])}")
    classes = f", {len(prepared.target.classes)} classes" if prepared.target.classes else ""
    say(f"target {prepared.target.name}: {prepared.target.task}{classes}")
    say("rows: " + ", ".join(f"{size:,} {name}" for name, size in sizes.items()))
    before, now = asked.to_dict(), prepared.config.to_dict()
    decided = [f"{s}.{k} = {v}" for s, settings in now.items() for k, v in settings.items() if before[s].get(k) != v]
    if decided:
        say(f"decided from the data: {', '.join(decided)}")


def print_run(run: Run) -> None:
    """Metrics beside those of the base rate, how fast it was, and where the run is."""
    metrics = run.metrics
    part = "test" if "test" in metrics else "validation"
    print_metrics({"model": metrics[part], "base rate": metrics[f"{part}_base_rate"]}, title=f"{part} rows")
    rate = run.history[-1].rows_per_s
    console().print(f"trained at {rate:,.0f} rows/s, saved in {run.folder}", soft_wrap=True)


def say_interrupted(out: Path, command: list[str]) -> None:
    """What survives an interrupt, and how to go on."""
    from fielddep.run import CHECKPOINT, run_state
    from fielddep.training.checkpoint import CheckpointFolder

    if run_state(out) != "unfinished":
        say("interrupted before the training began; nothing was written")
        return
    reached = CheckpointFolder(out / CHECKPOINT).path.exists()
    say(f"interrupted; {'the last checkpoint is kept' if reached else 'no evaluation was reached yet'}. Go on with")
    say(f"  {shlex.join(command)}")
