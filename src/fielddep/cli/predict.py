"""`fielddep predict`: predictions for every row of a table or store, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import say
from fielddep.cli.options import (
    DeviceOption,
    ReadOption,
    RunArgument,
    SourceArgument,
    find_store,
    open_predictor,
    reading_of,
)
from fielddep.cli.writers import choose_writer, print_csv
from fielddep.errors import SchemaError

if TYPE_CHECKING:
    import polars as pl

    from fielddep.config import DataConfig
    from fielddep.data.encoder import UnknownReport
    from fielddep.predictor import Predictor

OutOption = Annotated[
    Path | None, typer.Option("--out", help="File, .csv or .parquet; default: CSV on stdout.", metavar="FILE")
]
KeepOption = Annotated[str, typer.Option("--keep", help="Columns of TABLE to copy, by comma.", metavar="COL,...")]


def predict(
    run: RunArgument,
    table: SourceArgument,
    out: OutOption = None,
    keep: KeepOption = "",
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Predict every row of TABLE with the model of RUN, in the order of the table."""
    from fielddep.files import write_atomically

    write = None if out is None else choose_writer(out)
    predictor = open_predictor(run, device)
    reports: list[UnknownReport] = []
    names = [name for name in keep.split(",") if name]
    frames = predicted_frames(predictor, table, reading_of(predictor.bundle, set_), names, reports)
    if out is None or write is None:
        print_csv(frames)
    else:
        write_atomically(out, lambda path: write(path, frames))
    say_unknown(reports[0])
    if out is not None:
        say(f"wrote {reports[0].n_rows:,} predictions to {out}")


def predicted_frames(
    predictor: Predictor, table: str, reading: DataConfig, keep: list[str], reports: list[UnknownReport]
) -> Iterator[pl.DataFrame]:
    """Kept columns and predictions, chunk by chunk; `reports` gets the report of all rows so far."""
    kept = _kept_columns(predictor, table, reading, keep) if keep else None
    for predicted, report in predictor.stream(find_store(table) or table, config=reading):
        reports[:] = [reports[0].merge(report)] if reports else [report]
        if kept is not None:
            beside = next(kept)
            _check_names(beside.columns, predicted.columns)
            predicted = beside.hstack(predicted)
        yield predicted


def say_unknown(report: UnknownReport) -> None:
    """The share of unknown and missing values of each field that has some."""
    for name, share in report.unknown_shares.items():
        missing = report.missing_shares[name]
        if share or missing:
            say(f"field {name}: {share:.2%} of the values are unknown, {missing:.2%} missing")
    if not any(report.unknown.values()):
        say("no unknown values")


def _kept_columns(predictor: Predictor, table: str, reading: DataConfig, keep: list[str]) -> Iterator[pl.DataFrame]:
    from fielddep.data.readers import read_table, stream_batches
    from fielddep.data.store.store import is_store
    from fielddep.data.target import nearest

    if is_store(table):
        raise SchemaError(
            f"--keep copies columns of a table, and {table} is a store, which holds none; leave it out, or give the "
            "table that the store was made from"
        )
    source = read_table(table, reading, has_target=False)
    columns = source.collect_schema().names()
    for name in keep:
        if name not in columns:
            raise SchemaError(f"--keep names {name!r}, which is no column; {nearest(name, columns)}")
    return stream_batches(source.select(keep), predictor.chunk_rows)


def _check_names(kept: list[str], predicted: list[str]) -> None:
    for name in kept:
        if name in predicted:
            raise SchemaError(
                f"--keep names {name!r}, which is also a column of the predictions; rename it in the table"
            )
