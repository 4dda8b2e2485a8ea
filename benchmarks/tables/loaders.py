"""The tables of this benchmark, raw as a user would have them: no column is encoded, binned or dropped without need.

Published files are looked for in the folder that FIELDDEP_DATA names, else in `../shared/data` next to the project, and
are read from their zip archives. Other tables come with installed packages or are generated (`generated.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

import generated
from benchmarks.accuracy.tables import data_home
from fielddep.datasets import diabetes130, flights, ml_rating
from fielddep.datasets.raw import RawFile, RawFiles, find_raw_files, split_lines
from fielddep.datasets.sampling import group_split, random_split
from fielddep.encoding.split import PART_NAMES, Parts
from fielddep.errors import MissingExtraError, TableError, UserError

LIST_SEPARATOR = "|"
TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"
"""Timestamps such as 2013-01-01T10:00:00Z."""
FLIGHT_COLUMNS = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "distance")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table before it is read.

    Attributes:
        read: gives all columns, including the target and the column of groups.
        target: column to predict.
        task: binary, multiclass or regression.
        kind: what the table stands for, in one word.
        rows: number of rows.
        columns: number of columns that a model may use.
        about: what is predicted, and what a reader must know about the rows.
        group: column whose values stay in one part; it is no field.
        dates: columns of timestamps, as text.
        lists: columns of several values each, as text.
    """

    read: Callable[[], pl.DataFrame]
    target: str
    task: str
    kind: str
    rows: int
    columns: int
    about: str
    group: str | None = None
    dates: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that was read.

    Attributes:
        frame: fields and target.
        group_R: group of every row; None if rows are independent.
    """

    name: str
    source: Source
    frame: pl.DataFrame
    group_R: npt.NDArray[np.object_] | None = field(repr=False)

    @property
    def fields(self) -> list[str]:
        """The columns a model may use."""
        return [name for name in self.frame.columns if name != self.source.target]

    def parts(self, seed: int) -> Parts:
        """Part of every row, as an index into `PART_NAMES`: 8:1:1 at random, groups together."""
        rng = np.random.default_rng(seed)
        names = random_split(self.frame.height, rng) if self.group_R is None else group_split(self.group_R, rng)
        found: Parts = np.select([names == name for name in PART_NAMES], range(len(PART_NAMES))).astype(np.uint8)
        return found


def load(name: str) -> Table:
    """Read a table.

    Raises:
        UserError: the name is unknown, or the data is absent.
    """
    if name not in SOURCES:
        raise UserError(f"expected a table of the benchmark ({', '.join(SOURCES)}), given {name!r}")
    source = SOURCES[name]
    frame = source.read()
    group_R = None if source.group is None else frame[source.group].to_numpy()
    return Table(name=name, source=source, frame=frame.drop(source.group or []), group_R=group_R)


def sample(frame: pl.DataFrame, n_rows: int) -> pl.DataFrame:
    """Random rows in their order, the same every time."""
    return frame[np.sort(np.random.default_rng(0).permutation(frame.height)[:n_rows])]


def _find(archive: str, *names: str) -> RawFiles:
    """Published files, in the folder of the data or in its archive."""
    home = data_home()
    found = find_raw_files([RawFile(name=name, n_bytes=0) for name in names], home, archives=(archive,))
    missing = [name for name in names if name not in found]
    if missing:
        raise TableError(
            f"expected {', '.join(missing)} or {archive} in {home}, found neither; set FIELDDEP_DATA to their folder"
        )
    return found


def _published(name: str, archive: str) -> bytes:
    return _find(archive, name)[name].read()


def _csv(data: bytes, missing: str = "") -> pl.DataFrame:
    return pl.read_csv(data, null_values=["", missing], infer_schema_length=None)


def _table(name: str) -> pl.DataFrame:
    return _csv(_published(name, "tables.zip"))


def _adult() -> pl.DataFrame:
    return _csv(_published("adult.data", "tables.zip").replace(b", ", b",").strip(), missing="?")


def _diabetes130() -> pl.DataFrame:
    """Hospital stays; identifiers of codes stay numbers, as in the file."""
    frame = _csv(_published(diabetes130.FILE, "diabetes130.zip"), missing="?").drop("encounter_id")
    return frame.with_columns((pl.col(diabetes130.TARGET) == diabetes130.SOON).cast(pl.Int8))


def _ml_1m() -> pl.DataFrame:
    """Ratings with the columns of the user and the genres of the movie. Ids and codes are text: they count nothing."""
    files = _find("ml-1m.zip", ml_rating.RATINGS, ml_rating.USERS, "movies.dat")
    ratings = split_lines(files[ml_rating.RATINGS], "::", ("user", "movie", "rating"), ignored=1)
    users = split_lines(files[ml_rating.USERS], "::", ("user", "gender", "age", "occupation", "zip"))
    text = files["movies.dat"].read().decode("latin-1")
    cells = [line.split("::") for line in text.splitlines()]
    movies = pl.DataFrame({"movie": [c[0] for c in cells], "genres": [c[2] for c in cells]})
    joined = ratings.join(users, on="user", maintain_order="left").join(movies, on="movie", maintain_order="left")
    columns = ("user", "gender", "age", "occupation", "zip", "movie", "genres")
    return joined.select(*columns, pl.col("rating").cast(pl.Float64))


def _flights() -> pl.DataFrame:
    """Flights with the scheduled time as one column; what is known only after departure is dropped."""
    frame = flights.read_flights().filter(pl.col("arr_delay").is_not_null())
    late = (pl.col("arr_delay") > flights.LATE_AFTER_MINUTES).cast(pl.Int8).alias("late")
    return frame.select(*FLIGHT_COLUMNS, late)


def _sklearn(name: str) -> pl.DataFrame:
    """A table that comes with scikit-learn."""
    from sklearn import datasets

    options = {"scaled": False} if name == "diabetes" else {}
    found = getattr(datasets, f"load_{name}")(**options)
    columns = dict(zip(map(str, found.feature_names), found.data.T, strict=True))
    return pl.DataFrame({**columns, "target": found.target})


def _plotly(name: str) -> pl.DataFrame:
    """A table that comes with plotly."""
    try:
        files = metadata.files("plotly") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == f"{name}.csv.gz" and Path(str(file.locate())).is_file():
            return pl.read_csv(Path(str(file.locate())), infer_schema_length=None)
    raise MissingExtraError(f"{name} comes with plotly, which is not installed; pip install 'fielddep[report]'")


SOURCES = {
    "adult": Source(
        read=_adult, target="Salary", task="binary", kind="mixed", rows=32_561, columns=14,
        about="census 1994: is the income above 50,000?"
    ),
    "bank-marketing": Source(
        read=partial(_table, "bank-marketing.csv"), target="Class", task="binary", kind="mixed",
        rows=45_211, columns=16,
        about="phone calls of a bank: does the client sign?",
    ),
    "magic04": Source(
        read=partial(_table, "magic04.data"), target="class", task="binary", kind="numeric",
        rows=19_020, columns=10,
        about="showers of particles in a telescope: gamma or hadron?",
    ),
    "housing": Source(
        read=partial(_table, "housing.csv"), target="median_house_value", task="regression", kind="mixed",
        rows=20_640, columns=9,
        about="districts of California, 1990: the median value of a house",
    ),
    "diabetes130": Source(
        read=lambda: sample(_diabetes130(), 30_000), target="readmitted", task="binary", kind="mixed",
        rows=30_000, columns=47, group=diabetes130.PATIENT,
        about="hospital stays, a sample of 30,000: is the patient readmitted within 30 days? Split by patient",
    ),
    "ml-1m": Source(
        read=lambda: sample(_ml_1m(), 100_000), target="rating", task="regression", kind="lists", lists=("genres",),
        rows=100_000, columns=7,
        about="MovieLens 1M, a sample of 100,000 ratings: the rating",
    ),
    "flights": Source(
        read=lambda: sample(_flights(), 60_000), target="late", task="binary", kind="dates", dates=("time_hour",),
        rows=60_000, columns=7,
        about="flights out of New York in 2013, a sample of 60,000: more than 15 minutes late?",
    ),
    "digits": Source(
        read=partial(_sklearn, "digits"), target="target", task="multiclass", kind="multi-class",
        rows=1_797, columns=64,
        about="8 x 8 pixels: which digit?",
    ),
    "breast-cancer": Source(
        read=partial(_sklearn, "breast_cancer"), target="target", task="binary", kind="small",
        rows=569, columns=30,
        about="cells of a tumour: malignant or benign?",
    ),
    "wine": Source(
        read=partial(_sklearn, "wine"), target="target", task="multiclass", kind="small",
        rows=178, columns=13,
        about="chemistry of a wine: which of three growers?",
    ),
    "diabetes": Source(
        read=partial(_sklearn, "diabetes"), target="target", task="regression", kind="small",
        rows=442, columns=10,
        about="patients: the progression of diabetes after a year",
    ),
    "gapminder": Source(
        read=partial(_plotly, "gapminder"), target="lifeExp", task="regression", kind="small",
        rows=1_704, columns=9,
        about="countries every five years: life expectancy",
    ),
    "tips": Source(
        read=partial(_plotly, "tips"), target="tip", task="regression", kind="small",
        rows=244, columns=6,
        about="restaurant bills: the tip",
    ),
    "wide-numeric": Source(
        read=generated.wide_numeric, target="target", task="binary", kind="wide",
        rows=5_000, columns=300,
        about="generated: 300 numbers, 20 of them informative and 20 redundant",
    ),
    "wide-categorical": Source(
        read=generated.wide_categorical, target="target", task="binary", kind="wide",
        rows=5_000, columns=300,
        about="generated: 300 categories; effects of 20 columns and of 5 pairs",
    ),
    "numeric-100": Source(
        read=generated.numeric_100, target="target", task="binary", kind="numeric",
        rows=4_000, columns=100,
        about="generated: 100 numbers, 30 of them informative",
    ),
    "numeric-10": Source(
        read=generated.numeric_10, target="target", task="binary", kind="numeric",
        rows=15_000, columns=10,
        about="generated: 10 numbers, 8 of them informative, four clusters per class",
    ),
    "lists": Source(
        read=generated.lists, target="target", task="binary", kind="lists", lists=("items",),
        rows=20_000, columns=4,
        about="generated: up to 15 of 300 items, two categories and a number; effects add up",
    ),
}  # fmt: skip
"""Every table by its name."""
