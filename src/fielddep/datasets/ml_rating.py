"""ML-Rating: which rating, from 1 to 5, does a user give a movie? MovieLens 1M, with facts about the user."""

from __future__ import annotations

import numpy as np
import polars as pl

from fielddep.datasets.raw import RawFile, RawFiles, refuse_cells, split_lines
from fielddep.datasets.recipe import Facts, TableRecipe
from fielddep.datasets.sampling import random_split, with_split
from fielddep.errors import TableError

FIELDS = ("user", "gender", "age", "occupation", "zip", "movie")
TARGET = "rating"
RATINGS, USERS = "ratings.dat", "users.dat"


def build(files: RawFiles, seed: int) -> pl.DataFrame:
    """Ratings with their users, split 8:1:1 at random."""
    # The fourth column of the published file is the time, which is not a field.
    ratings = split_lines(files[RATINGS], "::", ("user", "movie", TARGET), ignored=1)
    refuse_cells(files[RATINGS], ratings, TARGET, "[1-5]", "a rating from 1 to 5")
    users = split_lines(files[USERS], "::", ("user", "gender", "age", "occupation", "zip"))
    _refuse_repeated(files, users)
    joined = ratings.join(users.drop("line"), on="user", how="left", maintain_order="left")
    unknown = joined.filter(pl.col("gender").is_null()).head(1)
    if len(unknown):
        raise TableError(
            f"{files[RATINGS]}, line {unknown['line'][0]}: expected a user of {files[USERS]}, found "
            f"{unknown['user'][0]!r}; are both files from one download?"
        )
    frame = joined.select(*FIELDS, pl.col(TARGET).cast(pl.Float64))
    return with_split(frame, random_split(frame.height, np.random.default_rng(seed)))


def _refuse_repeated(files: RawFiles, users: pl.DataFrame) -> None:
    twice = users.filter(~pl.col("user").is_first_distinct()).head(1)
    if len(twice):
        raise TableError(
            f"{files[USERS]}, line {twice['line'][0]}: expected every user once, found {twice['user'][0]!r} again; "
            "remove the line"
        )


RECIPE = TableRecipe(
    facts=Facts(
        name="ml-rating",
        title="MovieLens 1M: ratings of movies",
        task="regression",
        target=TARGET,
        fields=FIELDS,
        rows=1_000_209,
        parts=(800_167, 100_020, 100_022),
        positives=575_281,
        categories=13_215,
        page="https://grouplens.org/datasets/movielens/1m",
        terms="research only, no redistribution (GroupLens)",
        note="the paper counts 13,461 categories: movie numbers up to the largest, also those that nobody rated",
    ),
    versions=((RawFile(name=RATINGS, n_bytes=24_594_131), RawFile(name=USERS, n_bytes=134_368)),),
    archives=("ml-1m.zip",),
    build=build,
)
