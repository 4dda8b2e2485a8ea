"""`fielddep describe`: what a table holds, before anything is trained."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from fielddep.cli.console import console, print_table
from fielddep.cli.options import (
    ConfigOption,
    DataSetOption,
    JsonOption,
    TableArgument,
    TargetOption,
    build_config,
    refuse_store,
)
from fielddep.wording import amount

if TYPE_CHECKING:
    from fielddep.encoding.describe import TableDescription, TargetSummary

MAX_CLASSES = 10


def describe(
    table: TableArgument,
    target: TargetOption = None,
    config: ConfigOption = None,
    set_: DataSetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the columns of TABLE: kinds, values and warnings."""
    from fielddep.encoding.describe import describe as describe_table
    from fielddep.tables.row_stream import read_table

    refuse_store(table, "describe")
    chosen = build_config(config, set_, {"data.target": target})
    found = describe_table(read_table(table, chosen.data), chosen)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        print_description(table, found)


def print_description(name: str, found: TableDescription) -> None:
    """A table of the columns, and a line about the target."""
    rows = [
        [
            column.name,
            f"{column.kind} ({column.separator})" if column.separator else column.kind,
            column.reason if column.kind != "left out" else "",
            f"{column.n_distinct:,}",
            f"{column.missing_share:.1%}",
            ", ".join(f"{value} ({count:,})" for value, count in column.examples),
            "; ".join(column.warnings),
        ]
        for column in found.columns
    ]
    header = ["column", "kind", "why", "values", "missing", "examples", "warnings"]
    title = f"{name}: {found.n_rows:,} rows, {len(found.columns)} columns"
    print_table(header, rows, title=title, texts=("kind", "why", "examples", "warnings"))
    if found.target is not None:
        console().print(_target_line(found.target), soft_wrap=True)


def _target_line(target: TargetSummary) -> str:
    if target.mean is not None and target.std is not None:
        return f"target {target.name}: regression, mean {amount(target.mean)}, standard deviation {amount(target.std)}"
    shares = [f"{label} {share:.1%}" for label, share in zip(target.classes, target.shares, strict=True)]
    more = f" and {len(shares) - MAX_CLASSES} more" if len(shares) > MAX_CLASSES else ""
    return f"target {target.name}: {target.task}, " + ", ".join(shares[:MAX_CLASSES]) + more
