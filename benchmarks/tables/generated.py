"""Generated tables: wide, numeric, and with lists of items. Each is the same every time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

TARGET = "target"
N_ITEMS = 300
Floats = npt.NDArray[np.float64]


def wide_numeric() -> pl.DataFrame:
    """5,000 rows of 300 numbers."""
    return _classification(5_000, 300, n_informative=20, n_redundant=20, n_clusters_per_class=2)


def numeric_100() -> pl.DataFrame:
    """4,000 rows of 100 numbers."""
    return _classification(4_000, 100, n_informative=30)


def numeric_10() -> pl.DataFrame:
    """15,000 rows of 10 numbers whose interactions matter."""
    return _classification(15_000, 10, n_informative=8, n_redundant=2, n_clusters_per_class=4)


def _classification(n_rows: int, n_columns: int, **shape: int) -> pl.DataFrame:
    from sklearn.datasets import make_classification

    numbers, target = make_classification(n_rows, n_columns, class_sep=1.0, flip_y=0.01, random_state=0, **shape)
    columns = {f"x{at}": column for at, column in enumerate(numbers.T)}
    return pl.DataFrame({**columns, TARGET: target.astype(np.int8)})


def wide_categorical() -> pl.DataFrame:
    """5,000 rows of 300 categories with 2 to 12 values each; 20 columns and 5 pairs of others have effects."""
    rng, n_rows = np.random.default_rng(0), 5_000
    sizes = rng.integers(2, 13, size=300)
    codes = [rng.integers(size, size=n_rows) for size in sizes]
    score = np.zeros(n_rows)
    for at in range(20):
        score += rng.normal(size=sizes[at])[codes[at]] * 0.7
    for first in range(20, 30, 2):
        effects = rng.normal(size=(sizes[first], sizes[first + 1]))
        score += effects[codes[first], codes[first + 1]]
    columns = {f"c{at}": [f"v{code}" for code in codes[of]] for at, of in enumerate(rng.permutation(len(sizes)))}
    return pl.DataFrame({**columns, TARGET: _drawn(score, rng)})


def lists() -> pl.DataFrame:
    """20,000 rows with a list of 0 to 15 items, two categories and a number, whose effects add up."""
    rng, n_rows = np.random.default_rng(0), 20_000
    effects = rng.normal(size=N_ITEMS) * 0.6
    shares = 1 / np.arange(5, N_ITEMS + 5)
    drawn = [rng.choice(N_ITEMS, size=n, replace=False, p=shares / shares.sum()) for n in rng.integers(16, size=n_rows)]
    shop, weekday = rng.integers(12, size=n_rows), rng.integers(7, size=n_rows)
    spent = rng.gamma(2.0, 20.0, size=n_rows)
    score = np.array([effects[items].sum() for items in drawn])
    score += rng.normal(size=12)[shop] * 0.5 + rng.normal(size=7)[weekday] * 0.5 + np.log(spent / 40)
    frame = {
        "items": ["|".join(f"item{item}" for item in items) or None for items in drawn],
        "shop": [f"shop{code}" for code in shop],
        "weekday": [f"day{code}" for code in weekday],
        "spent": spent.round(2),
    }
    return pl.DataFrame({**frame, TARGET: _drawn(score, rng)})


def _drawn(score: Floats, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """0 or 1, drawn with the logistic of the centred score."""
    return (rng.random(len(score)) < 1 / (1 + np.exp(score.mean() - score))).astype(np.int8)
