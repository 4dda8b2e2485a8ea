"""`fielddep fit`: from a table or store to a trained, saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, log, print_metrics
from fielddep.cli.options import (
    ConfigOption,
    ForceOption,
    ModelOption,
    QuietOption,
    ResumeOption,
    RunOutOption,
    SetOption,
    SourceArgument,
    TargetOption,
    TaskOption,
    build_config,
    build_store_config,
    find_store,
    resume_hint,
)
from fielddep.cli.progress import progress
from fielddep.config.settings import Config
from fielddep.observer import Observer, Observers

if TYPE_CHECKING:
    from fielddep.artifacts.run import Run
    from fielddep.store.store import Store
    from fielddep.training.prepare import Prepared

SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the training; the split has split.seed.", metavar="N")
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="Torch device, such as cuda.", metavar="DEVICE")]
BoardOption = Annotated[bool, typer.Option("--tensorboard", help="Write events for TensorBoard to RUN.")]
ReportOption = Annotated[bool, typer.Option("--report/--no-report", help="Write RUN/report.html.")]


def fit(
    table: SourceArgument,
    out: RunOutOption,
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
    """Train a model on TABLE and save it in RUN.

    RUN holds the model, its settings, history and metrics, and a report.
    """
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
    with resume_hint(lambda: _kept(out), "--resume"):
        run = run_fit(table, chosen, out, store=store, **flow)
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
    """Train on a table, or on the store that it is, with log and progress bar on stderr unless `quiet`."""
    from fielddep.artifacts.run import RUN, Run
    from fielddep.cli.report import report_fit
    from fielddep.tables.row_stream import read_table

    if RUN.check(out, force=force, resume=resume) == "finished" and resume:
        log(f"the run in {out} is already finished")
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
    """Logs before training what was read, how it is split, and which settings follow from it."""

    def __init__(self, table: str, asked: Config) -> None:
        self.table, self.asked = table, asked

    def on_prepared(self, prepared: Prepared) -> None:
        """Log fields, target, parts and settings."""
        from fielddep.encoding.vocabulary import FIRST_ID

        schema = prepared.encoder.schema
        sizes = {name: len(prepared.parts.get(name, ())) for name in ("train", "validation", "test")}
        log(f"read {self.table}: {sum(sizes.values()):,} rows, {len(schema.fields)} fields")
        for field, field_encoder in zip(schema.fields, prepared.encoder.field_encoders, strict=True):
            how = field.numeric or field.separator
            detail = f" ({how})" if how else ""
            unit = "bins" if field.numeric else "values"
            size = "" if field.numeric == "scale" else f", {len(field_encoder.counts) - FIRST_ID:,} {unit}"
            log(f"  {field.name}: {field.kind}{detail}{size}")
        if prepared.encoder.related is not None:
            log(f"  related to each other: the {len(prepared.encoder.related)} fields that say most about the target")
        if prepared.encoder.crosses:
            log(f"  crosses of two fields: {', '.join(prepared.encoder.layout.names[len(schema.fields) :])}")
        if prepared.encoder.evidence is not None:
            found = prepared.encoder.evidence.combinations
            joint = [" x ".join(schema.field_names[f] for f in fields) for fields in found if len(fields) > 1]
            log(f"  evidence of {len(found)} combinations" + (f": {', '.join(joint[:5])}, ..." if joint else ""))
        classes = f", {len(prepared.target.classes)} classes" if prepared.target.classes else ""
        log(f"target {prepared.target.name}: {prepared.target.task}{classes}")
        log("rows: " + ", ".join(f"{size:,} {name}" for name, size in sizes.items()))
        self._log_decided(prepared.config)

    def _log_decided(self, config: Config) -> None:
        before, now = self.asked.to_dict(), config.to_dict()
        decided = [
            f"{section}.{key} = {_as_set(value)}"
            for section, settings in now.items()
            for key, value in settings.items()
            if before[section].get(key) != value
        ]
        if decided:
            log(f"decided from the data: {', '.join(decided)}")


def _as_set(value: object) -> str:
    """A setting as `--set` takes it, without the noise of binary fractions."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def print_run(run: Run) -> None:
    """Metrics next to those of the base rate, the speed, and where the run is."""
    metrics = run.metrics
    part = "test" if "test" in metrics else "validation"
    title = f"{part} rows" + (", before the refit" if part == "validation" and run.config.train.refit else "")
    print_metrics({"model": metrics[part], "base rate": metrics[f"{part}_base_rate"]}, title=title)
    rate = run.history[-1].rows_per_s
    console().print(f"trained at {rate:,.0f} rows/s, saved in {run.folder}", soft_wrap=True)


def _kept(out: Path) -> str:
    """What an interrupted training keeps."""
    from fielddep.artifacts.run import CHECKPOINT, RUN
    from fielddep.training.checkpoint import CheckpointFolder

    if RUN.state(out) != "unfinished":
        return ""
    folder = out / CHECKPOINT
    parts = (path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()
    has_checkpoint = any(CheckpointFolder(place).path.exists() for place in (folder, *parts))
    return "the last checkpoint is kept" if has_checkpoint else "there is no checkpoint yet"
