"""`fielddep evaluate`: metrics of a trained model on a table or store with the target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import log, print_metrics
from fielddep.cli.options import (
    DeviceOption,
    JsonOption,
    ReadOption,
    RunArgument,
    SourceArgument,
    find_bundle,
    find_store,
    open_predictor,
    reading_of,
)
from fielddep.config.data import DataConfig

if TYPE_CHECKING:
    from fielddep.artifacts.run import Run

PartOption = Annotated[
    str | None,
    typer.Option(
        "--part",
        help="Part of a store: train, validation, test or all. Default: test, or validation if there are no test rows.",
        metavar="PART",
    ),
]


def evaluate(
    run: RunArgument,
    table: SourceArgument,
    part: PartOption = None,
    as_json: JsonOption = False,
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Measure the model of RUN on TABLE.

    Uses all rows of a table, or one part of a store. If RUN was trained on the
    table, its held-out rows are shown first.
    """
    from fielddep.artifacts.predictor import default_part

    predictor = open_predictor(run, device)
    source = find_store(table) or table
    chosen = part or default_part(source, refit=predictor.bundle.config.train.refit)
    reading = reading_of(predictor.bundle, set_)
    metrics = predictor.evaluate(source, config=reading, part=chosen)
    trained_on = _run_trained_on(run, source, reading) if isinstance(source, str) else None
    if trained_on is not None:
        log(f"{run} was trained on {table}; only its held-out rows tell how good the model is")
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    elif trained_on is not None:
        held_out = [part for part in ("test", "validation") if part in trained_on.metrics][:1]
        columns = {f"{part} rows": trained_on.metrics[part] for part in held_out} | {"all rows": metrics}
        print_metrics(columns, title=f"{table}, target {predictor.target.name}")
    else:
        print_metrics({str(run): metrics}, title=f"{table}, {chosen} rows, target {predictor.target.name}")


def _run_trained_on(run: Path, table: str, reading: DataConfig) -> Run | None:
    """The run, if it was trained on this table; its metrics are those of held-out rows."""
    from fielddep.artifacts.run import Run
    from fielddep.report.build import training_table

    if find_bundle(run) == run:  # a bundle does not know its training table
        return None
    found = Run.open(run)
    return None if training_table(found, table, reading) is None else found
