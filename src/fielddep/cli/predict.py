"""`fielddep predict`: predictions for every row of a table or store, one chunk in memory at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import log
from fielddep.cli.options import (
    DeviceOption,
    ReadOption,
    RunArgument,
    SourceArgument,
    find_store,
    open_predictor,
    reading_of,
)
from fielddep.errors import SchemaError, UserError
from fielddep.wording import did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from fielddep.artifacts.predictor import Predictor
    from fielddep.config.data import DataConfig
    from fielddep.encoding.unknown import UnknownReport

Write = Callable[[Path, "Iterator[pl.DataFrame]"], None]

OutOption = Annotated[
    Path | None, typer.Option("--out", help=".csv or .parquet file. Default: CSV on stdout.", metavar="FILE")
]
KeepOption = Annotated[
    str, typer.Option("--keep", help="Columns of TABLE to copy, separated by commas.", metavar="COL,...")
]


def predict(
    run: RunArgument,
    table: SourceArgument,
    out: OutOption = None,
    keep: KeepOption = "",
    set_: ReadOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Predict every row of TABLE with the model of RUN.

    Predictions are in the order of the rows.
    """
    from fielddep.tables.files import write_atomically

    write = None if out is None else choose_writer(out)
    predictor = open_predictor(run, device)
    reports: list[UnknownReport] = []
    names = [name for name in keep.split(",") if name]
    frames = predicted_frames(predictor, table, reading_of(predictor.bundle, set_), names, reports)
    if out is None or write is None:
        print_csv(frames)
    else:
        write_atomically(out, lambda path: write(path, frames))
    log_unknown(reports[0])
    if out is not None:
        log(f"wrote {reports[0].n_rows:,} predictions to {out}")


def predicted_frames(
    predictor: Predictor, table: str, reading: DataConfig, keep: list[str], reports: list[UnknownReport]
) -> Iterator[pl.DataFrame]:
    """Kept columns and predictions, chunk by chunk; `reports` gets one report on all rows so far."""
    kept = _kept_columns(predictor, table, reading, keep) if keep else None
    for predicted, report in predictor.stream(find_store(table) or table, config=reading):
        reports[:] = [reports[0].merge(report)] if reports else [report]
        if kept is not None:
            inputs = next(kept)
            clash = [name for name in inputs.columns if name in predicted.columns]
            if clash:
                raise SchemaError(f"--keep names {clash[0]!r}, which the predictions have too; rename it in the table")
            predicted = inputs.hstack(predicted)
        yield predicted


def log_unknown(report: UnknownReport) -> None:
    """The share of unknown and missing values of each field that has some."""
    for name, share in report.unknown_shares.items():
        missing = report.missing_shares[name]
        if share or missing:
            log(f"field {name}: {share:.2%} of the values are unknown, {missing:.2%} missing")
    if not any(report.unknown.values()):
        log("no unknown values")


def _kept_columns(predictor: Predictor, table: str, reading: DataConfig, keep: list[str]) -> Iterator[pl.DataFrame]:
    from fielddep.store.store import is_store
    from fielddep.tables.row_stream import open_rows

    if is_store(table):
        raise SchemaError(
            f"--keep copies columns of a table, but {table} is a store. Drop --keep, or give the table it was encoded "
            "from"
        )
    source = open_rows(table, reading, has_target=False)
    columns = source.schema.names()
    for name in keep:
        if name not in columns:
            raise SchemaError(f"--keep names {name!r}, which is not a column; {did_you_mean(name, columns)}")
    return source.frames(keep, predictor.chunk_rows)


def choose_writer(path: Path) -> Write:
    """The writer for a file, by its suffix."""
    writers: dict[str, Write] = {".csv": write_csv, ".parquet": write_parquet, ".pq": write_parquet}
    if path.suffix.lower() not in writers:
        raise UserError(f"expected a .csv or .parquet file for the predictions, given {path}; change its suffix")
    return writers[path.suffix.lower()]


def write_csv(path: Path, frames: Iterator[pl.DataFrame]) -> None:
    """Write frames one after another, column names first."""
    with path.open("wb") as file:
        for number, frame in enumerate(frames):
            file.write(frame.write_csv(include_header=number == 0).encode())


def write_parquet(path: Path, frames: Iterator[pl.DataFrame]) -> None:
    """Write one row group per frame."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for frame in frames:
            arrow = frame.to_arrow()
            writer = writer or pq.ParquetWriter(path, arrow.schema)
            writer.write_table(arrow)
    finally:
        if writer is not None:
            writer.close()


def print_csv(frames: Iterator[pl.DataFrame]) -> None:
    """Write CSV to stdout, flushed after every frame."""
    for number, frame in enumerate(frames):
        sys.stdout.write(frame.write_csv(include_header=number == 0))
        sys.stdout.flush()
