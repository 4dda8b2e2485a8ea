"""The two tables of `next_to_rivals.py`, as Parquet files with the part of every row in the column `part`.

    python benchmarks/size/rival_tables.py clicks clicks.parquet --rows 4000000
    python benchmarks/size/rival_tables.py classes classes.parquet --rows 34000

Facts are printed as JSON: fields, classes, and the log loss of predicting the shares of the training rows.

clicks    the click log of `clicks.py`
classes   75 classes, such as the teams that a request may belong to, and 12 categorical fields. Class c has a share
          proportional to 1 / (c + 5). The values of a field follow Zipf's law; with a probability of its own (.1 to
          .4), a row has one of three values that its class prefers instead. Given the class, fields are independent:
          no combination of fields says more than its parts, so the table favours no model that looks for some.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from clicks import CLICK_TARGET, click_chunks, zipf_ids

N_CLASSES = 75
FIELD_SIZES = (2000, 800, 400, 300, 200, 150, 100, 80, 40, 25, 12, 6)
PREFERENCE = (0.1, 0.4)
"""Smallest and largest probability that a field has a value that the class prefers."""
N_PREFERRED = 3
PART, PARTS = "part", ("train", "validation", "test")
SHARES = (0.8, 0.1, 0.1)
TARGETS = {"clicks": CLICK_TARGET, "classes": "team"}


def class_table(n_rows: int, seed: int = 0) -> pl.DataFrame:
    """The table of 75 classes.

    Example:
        >>> class_table(10).columns[-2:]
        ['field11', 'team']
    """
    rng = np.random.default_rng(seed)
    share = 1 / (np.arange(N_CLASSES) + 5)
    team = rng.choice(N_CLASSES, size=n_rows, p=share / share.sum())
    columns: dict[str, np.ndarray] = {}
    for number, size in enumerate(FIELD_SIZES):
        preferred = rng.integers(size, size=(N_CLASSES, N_PREFERRED))
        likely = preferred[team, rng.integers(N_PREFERRED, size=n_rows)]
        is_likely = rng.random(n_rows) < rng.uniform(*PREFERENCE)
        columns[f"field{number}"] = np.where(is_likely, likely, zipf_ids(rng.random(n_rows), size))
    texts = {name: pl.Series(ids).cast(pl.String).str.pad_start(4, "v") for name, ids in columns.items()}
    return pl.DataFrame({**texts, TARGETS["classes"]: pl.Series(team).cast(pl.String).str.pad_start(4, "t")})


def click_table(n_rows: int, seed: int = 0) -> pl.DataFrame:
    """The click log, all fields as text."""
    return pl.concat(click_chunks(n_rows, seed))


TABLES: dict[str, Callable[[int, int], pl.DataFrame]] = {"clicks": click_table, "classes": class_table}


def with_parts(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Parts drawn at random, 8:1:1."""
    drawn = np.random.default_rng((seed, 1)).choice(len(PARTS), size=frame.height, p=SHARES)
    return frame.with_columns(pl.Series(PART, np.array(PARTS)[drawn]))


def facts_of(frame: pl.DataFrame, target: str) -> dict[str, float]:
    """Fields, classes, and the log loss of the shares of the training rows on test rows."""
    train, test = (frame.filter(pl.col(PART) == part)[target] for part in ("train", "test"))
    shares = dict(train.value_counts(normalize=True).iter_rows())
    losses = [-np.log(max(shares.get(value, 0.0), 1e-15)) for value in test.to_list()]
    return {
        "n_fields": frame.width - 2,
        "n_classes": frame[target].n_unique(),
        "base_logloss": float(np.mean(losses)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    frame = with_parts(TABLES[given.name](given.rows, given.seed), given.seed)
    frame.write_parquet(given.path)
    print(json.dumps(facts_of(frame, TARGETS[given.name])))


if __name__ == "__main__":
    main()
