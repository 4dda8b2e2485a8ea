"""The tables of the accuracy benchmark: recipes of `fielddep.datasets` with seed 0, each with a fixed three-way split.

The raw files are looked for in the folder that FIELDDEP_DATA names, else in `../shared/data` next to the project.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fielddep.config.settings import Config
from fielddep.datasets import find_recipe, load_table
from fielddep.datasets.recipe import DATA_HOME
from fielddep.datasets.sampling import SPLIT
from fielddep.encoding.split import PART_NAMES
from fielddep.errors import UserError
from fielddep.training.prepare import Prepared, prepare

__all__ = ["NAMES", "PART_NAMES", "BenchTable", "data_home", "load"]

SEED = 0
NAMES = ("frappe", "ml-rating", "flights", "diabetes130", "ml-tag-part")


@dataclass(frozen=True, kw_only=True)
class BenchTable:
    """A table of the benchmark.

    Attributes:
        frame: fields and target, in the order of the source.
        target: column to predict: Int8 0/1 (binary) or Float64 (regression).
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

    def encoded(self, config: Config) -> Prepared:
        """The rows of all parts, encoded for the model in the settings; other rows are dropped."""
        is_used = np.isin(self.split.astype(str), PART_NAMES)
        parts = np.array([PART_NAMES.index(part) for part in self.split[is_used]], dtype=np.uint8)
        frame = self.frame.filter(pl.Series(is_used)).select(*self.fields, self.target)
        kinds = {name: "categorical" for name in self.fields if frame.schema[name] == pl.String}
        chosen = config.replace({"data.target": self.target, "data.task": self.task, "data.kinds": kinds})
        return prepare(frame, chosen, parts=parts)


def load(name: str, home: Path | None = None) -> BenchTable:
    """Build one table.

    Args:
        name: one of `NAMES`.
        home: folder of the raw files; default: FIELDDEP_DATA, else `../shared/data` next to the project.

    Raises:
        UserError: the name is unknown, or a file is absent or incomplete.
    """
    if name not in NAMES:
        raise UserError(f"expected a table of the benchmark ({', '.join(NAMES)}), given {name!r}")
    facts = find_recipe(name).facts
    table = load_table(name, data_home() if home is None else home, seed=SEED)
    return BenchTable(
        name=name,
        frame=table.drop(SPLIT),
        target=facts.target,
        task=facts.task,
        split=table[SPLIT].to_numpy().astype("<U10"),
        fields=facts.fields,
    )


def data_home() -> Path:
    """Folder of the raw files."""
    given = os.environ.get(DATA_HOME)
    return Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"
