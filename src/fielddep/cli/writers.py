"""Writing a stream of frames to a file or to stdout, one frame in memory at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fielddep.errors import UserError

if TYPE_CHECKING:
    import polars as pl

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
