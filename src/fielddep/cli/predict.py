"""Writing a stream of frames to a file or to stdout, one frame in memory at a time.

`fielddep predict`: predictions for every row of a table or store, in bounded memory.
"""

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
    from fielddep.config.settings import DataConfig
    from fielddep.encoding.encoder import UnknownReport

Write = Callable[[Path, "Iterator[pl.DataFrame]"], None]


def choose_writer(path: Path) -> Write:
    """The writer for a file's name.

    Raises:
        UserError: for another ending than .csv and .parquet.
    """
    writers: dict[str, Write] = {".csv": write_csv, ".parquet": write_parquet, ".pq": write_parquet}
    if path.suffix.lower() not in writers:
        raise UserError(f"predictions are written to a .csv or .parquet file; given {path}; change its ending")
    return writers[path.suffix.lower()]


def write_csv(path: Path, frames: Iterator[pl.DataFrame]) -> None:
    """Append frame after frame to a CSV file, the first with column names."""
    with path.open("wb") as file:
        for number, frame in enumerate(frames):
            file.write(frame.write_csv(include_header=number == 0).encode())


def write_parquet(path: Path, frames: Iterator[pl.DataFrame]) -> None:
    """Write one row group a frame."""
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
    """Write CSV to stdout as it comes."""
    for number, frame in enumerate(frames):
        sys.stdout.write(frame.write_csv(include_header=number == 0))
        sys.stdout.flush()


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
    """Kept columns and predictions, chunk by chunk; `reports` gets the report of all rows so far."""
    kept = _kept_columns(predictor, table, reading, keep) if keep else None
    for predicted, report in predictor.stream(find_store(table) or table, config=reading):
        reports[:] = [reports[0].merge(report)] if reports else [report]
        if kept is not None:
            inputs = next(kept)
            _check_names(inputs.columns, predicted.columns)
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
            f"--keep copies columns of a table, and {table} is a store, which holds none; leave it out, or give the "
            "table that the store was made from"
        )
    source = open_rows(table, reading, has_target=False)
    columns = source.schema.names()
    for name in keep:
        if name not in columns:
            raise SchemaError(f"--keep names {name!r}, which is no column; {did_you_mean(name, columns)}")
    return source.frames(keep, predictor.chunk_rows)


def _check_names(kept: list[str], predicted: list[str]) -> None:
    for name in kept:
        if name in predicted:
            raise SchemaError(
                f"--keep names {name!r}, which is also a column of the predictions; rename it in the table"
            )
