"""ML-Tag: does a user give a movie this tag? From the public files of the NFM paper, or from MovieLens' own tags.

The public files hold two negatives per positive. From MovieLens' tags (`tags.csv`, `tags.dat`) they are sampled: the
same user and movie with tags that the user did not give it. Only the public files have the rows that the facts state.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from fielddep.datasets.raw import RawFile, RawFiles, delimited_table, read_libfm, split_lines
from fielddep.datasets.recipe import Facts, TableRecipe
from fielddep.datasets.sampling import add_unassigned_negatives, random_split, with_split

FIELDS = ("user", "movie", "tag")
TARGET = "tagged"
LIBFM = ("ml-tag.train.libfm", "ml-tag.validation.libfm", "ml-tag.test.libfm")
PART = "ml-tag.part.libfm"
TAGS_CSV, TAGS_DAT = "tags.csv", "tags.dat"
_CSV_COLUMNS = {"userId": "user", "movieId": "movie", "tag": "tag"}


def build(files: RawFiles, seed: int) -> pl.DataFrame:
    """Tags and negatives, split 8:1:1 at random."""
    rng = np.random.default_rng(seed)
    if TAGS_CSV in files or TAGS_DAT in files:
        frame = add_unassigned_negatives(_tags(files), ("user", "movie"), "tag", TARGET, rng)
    else:
        frame = read_libfm([files[name] for name in (*LIBFM, PART) if name in files], TARGET, FIELDS)
    return with_split(frame, random_split(frame.height, rng))


def _tags(files: RawFiles) -> pl.DataFrame:
    """User, movie and tag from MovieLens' own file, without repeats."""
    if TAGS_CSV in files:
        tags = delimited_table(files[TAGS_CSV], ",", tuple(_CSV_COLUMNS)).rename(_CSV_COLUMNS)
    else:
        tags = split_lines(files[TAGS_DAT], "::", (*FIELDS, "time"))
    return tags.select(FIELDS).unique(maintain_order=True)


RECIPE = TableRecipe(
    facts=Facts(
        name="ml-tag",
        title="MovieLens: tags that users give movies",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=2_006_859,
        parts=(1_605_487, 200_685, 200_687),
        positives=668_953,
        categories=90_445,
        page="https://github.com/hexiangnan/neural_factorization_machine/tree/master/data/ml-tag (.libfm) or "
        "https://grouplens.org/datasets/movielens (tags.csv, tags.dat)",
        terms="research only, no redistribution (GroupLens)",
        note="rows, positives and categories are those of the .libfm files",
    ),
    versions=(
        tuple(
            RawFile(name=name, n_bytes=size)
            for name, size in zip(LIBFM, (36_200_000, 10_300_000, 5_200_000), strict=True)
        ),
        (RawFile(name=TAGS_CSV, n_bytes=38_800_000),),
        (RawFile(name=TAGS_DAT, n_bytes=3_600_000),),
    ),
    archives=("ml-tag.zip",),
    build=build,
)

PART_RECIPE = TableRecipe(
    facts=dataclasses.replace(
        RECIPE.facts,
        name="ml-tag-part",
        title="a tenth of ML-Tag",
        rows=200_686,
        parts=(160_548, 20_068, 20_070),
        positives=66_850,
        categories=75_217,
        note="figures are not comparable with those of ml-tag",
    ),
    versions=((RawFile(name=PART, n_bytes=5_168_594),),),
    archives=("ml-tag-part.zip",),
    build=build,
)
