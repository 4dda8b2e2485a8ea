"""`fielddep evaluate`: metrics of a trained model on a table or store with the target."""

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

    Uses all rows of a table, or one part of a store.
    """
    from fielddep.artifacts.predictor import default_part

    predictor = open_predictor(run, device)
    source = find_store(table) or table
    chosen = part or default_part(source)
    metrics = predictor.evaluate(source, config=reading_of(predictor.bundle, set_), part=chosen)
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
    else:
        print_metrics({str(run): metrics}, title=f"{table}, {chosen} rows, target {predictor.target.name}")
