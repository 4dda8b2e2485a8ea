"""`fielddep evaluate`: metrics of a trained model on a table or store that holds the target."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fielddep.cli.console import print_metrics
from fielddep.cli.options import (
    DeviceOption,
    JsonOption,
    ReadOption,
    RunArgument,
    SourceArgument,
    find_store,
    open_predictor,
    reading_of,
)

PartOption = Annotated[
    str, typer.Option("--part", help="Rows of a store: train, validation, test or all.", metavar="PART")
]


def evaluate(
    run: RunArgument,
    table: SourceArgument,
    part: PartOption = "all",
    as_json: JsonOption = False,
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Measure the model of RUN on all rows of TABLE, or on one part of a store."""
    predictor = open_predictor(run, device)
    metrics = predictor.evaluate(find_store(table) or table, config=reading_of(predictor.bundle, set_), part=part)
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    else:
        rows = "" if part == "all" else f", {part} rows"
        print_metrics({str(run): metrics}, title=f"{table}{rows}, target {predictor.target.name}")
