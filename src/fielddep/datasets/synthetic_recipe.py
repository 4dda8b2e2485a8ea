"""The recipe of the synthetic table: no files needed, and the dependency that is planted in it is known."""

from __future__ import annotations

import numpy as np
import polars as pl

from fielddep.datasets.base import TableRecipe
from fielddep.datasets.facts import Facts
from fielddep.datasets.raw_files import Found
from fielddep.datasets.sampling import part_sizes, random_split, with_split
from fielddep.datasets.synthetic import TARGET, field_names, generate

N_ROWS, N_FIELDS = 100_000, 6


def build(found: Found, seed: int) -> pl.DataFrame:
    """Generated rows, shared out 8:1:1 at random."""
    frame = generate(N_ROWS, N_FIELDS, seed=seed).frame
    return with_split(frame, random_split(N_ROWS, np.random.default_rng(seed)))


RECIPE = TableRecipe(
    facts=Facts(
        name="synthetic",
        title="generated rows in which field_1 is a noisy function of field_0",
        task="binary",
        target=TARGET,
        fields=field_names(N_FIELDS),
        rows=N_ROWS,
        parts=part_sizes(N_ROWS),
        positives=54_673,
        categories=300,
        page="generated, no files needed",
        terms="none",
        note="positives are those of seed 0",
    ),
    build=build,
)
