"""`fielddep evaluate`: metrics of a trained model on a table that holds the target."""

from __future__ import annotations

import json

import typer

from fielddep.cli.console import print_metrics
from fielddep.cli.options import (
    DeviceOption,
    JsonOption,
    ReadOption,
    RunArgument,
    TableArgument,
    open_predictor,
    reading_of,
)


def evaluate(
    run: RunArgument,
    table: TableArgument,
    as_json: JsonOption = False,
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Measure the model of RUN on all rows of TABLE."""
    predictor = open_predictor(run, device)
    metrics = predictor.evaluate(table, config=reading_of(predictor.bundle, set_))
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    else:
        print_metrics({str(run): metrics}, title=f"{table}, target {predictor.target.name}")
