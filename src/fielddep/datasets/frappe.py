"""Frappe: will a user use an app in a context?

From the original log of uses (`frappe.csv`), each use is a positive and gets two negatives: the same context with apps
that the user never used. Or from the three public files of the NFM paper, made in the same way, joined and split again.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fielddep.datasets.raw import RawFile, RawFiles, delimited_table, read_libfm
from fielddep.datasets.recipe import Facts, TableRecipe
from fielddep.datasets.sampling import add_unused_negatives, random_split, with_split

FIELDS = ("user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city")
TARGET = "used"
LOG = "frappe.csv"
LIBFM = ("frappe.train.libfm", "frappe.validation.libfm", "frappe.test.libfm")


def build(files: RawFiles, seed: int) -> pl.DataFrame:
    """Uses and negatives, split 8:1:1 at random."""
    rng = np.random.default_rng(seed)
    if LOG in files:
        log = delimited_table(files[LOG], "\t", FIELDS).select(FIELDS)
        frame = add_unused_negatives(log, "user", "item", TARGET, rng)
    else:
        frame = read_libfm([files[name] for name in LIBFM], TARGET, FIELDS)
    return with_split(frame, random_split(frame.height, rng))


RECIPE = TableRecipe(
    facts=Facts(
        name="frappe",
        title="Frappe: use of apps in context",
        task="binary",
        target=TARGET,
        fields=FIELDS,
        rows=288_609,
        parts=(230_887, 28_860, 28_862),
        positives=96_203,
        categories=5_382,
        page="https://www.baltrunas.info/context-aware (frappe.csv) or "
        "https://github.com/hexiangnan/neural_factorization_machine/tree/master/data/frappe (.libfm)",
        terms="research only, no redistribution; acknowledge Baltrunas et al. 2015",
        note="two negatives per positive, sampled with the seed if made from frappe.csv",
    ),
    versions=(
        (RawFile(name=LOG, n_bytes=6_313_241),),
        tuple(
            RawFile(name=name, n_bytes=size)
            for name, size in zip(LIBFM, (14_600_000, 4_163_044, 2_081_389), strict=True)
        ),
    ),
    archives=("frappe.zip",),
    build=build,
)
