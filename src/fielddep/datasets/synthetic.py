"""Synthetic categorical tables with planted dependencies, so that it is known what a model should find.

Values of a field follow Zipf's law. A planted pair (source, dependent) makes the dependent field a function of the
source, broken at random in a share of the rows. The target depends on products of latent factors of neighbouring
fields, and on whether each planted dependency holds in the row, just as a city that does not match its postcode makes
an order suspicious. No single field determines the target.

Rows are drawn in chunks, each with its own random stream, so the first rows do not depend on how many follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from fielddep.datasets.raw import RawFiles
from fielddep.datasets.recipe import Facts, TableRecipe
from fielddep.datasets.sampling import part_sizes, random_split, with_split
from fielddep.errors import ConfigError

TARGET = "target"
CHUNK_ROWS = 65_536
"""Rows that share a random stream."""

_N_FACTORS = 3
_CONSISTENCY_SCALE = 4.0


@dataclass(frozen=True, kw_only=True)
class SyntheticTable:
    """A generated table and the truth about it.

    Attributes:
        frame: text columns `field_0`, `field_1`, ... and the target, Int8 0/1 (binary) or Float64 (regression).
        planted: pairs (source, dependent): the dependent is a noisy function of the source.
        target: name of the target column.
        fields: names of the fields.
    """

    frame: pl.DataFrame
    planted: tuple[tuple[str, str], ...]
    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _World:
    """What all chunks share.

    Attributes:
        shares: cumulative Zipf shares of the values, the same for every field.
        sources: source of every field, -1 for an independent one.
        order: fields such that a source comes before its dependents.
        maps: for each dependent field, its value for each value of its source.
        factors: latent factors of shape (fields, values, factors).
    """

    shares: np.ndarray
    sources: tuple[int, ...]
    order: tuple[int, ...]
    maps: dict[int, np.ndarray]
    factors: np.ndarray
    noise: float
    task: str


def generate(
    n_rows: int,
    n_fields: int = 6,
    n_values: int = 50,
    seed: int = 0,
    dependencies: tuple[tuple[str, str], ...] = (("field_0", "field_1"),),
    *,
    noise: float = 0.2,
    skew: float = 0.5,
    task: Literal["binary", "regression"] = "binary",
) -> SyntheticTable:
    """Generate a table.

    Args:
        n_rows: rows of the table.
        n_fields: fields, named `field_0`, `field_1`, ...
        n_values: values that a field can take.
        seed: the same seed gives the same table.
        dependencies: planted pairs (source, dependent); a field has at most one source, chains are fine.
        noise: share of the rows in which a dependent field is drawn like an independent one.
        skew: exponent of Zipf's law; 0 makes all values equally frequent.
        task: "binary" or "regression".

    Raises:
        ConfigError: a number is out of range, or a dependency cannot be planted.

    Example:
        >>> table = generate(100, n_fields=3, n_values=10)
        >>> table.frame.shape, table.planted
        ((100, 4), (('field_0', 'field_1'),))
    """
    _check(n_rows, n_fields, n_values, seed, noise, skew, task)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    sources = _sources(field_names(n_fields), dependencies)
    world = _World(
        shares=_zipf(n_values, skew),
        sources=sources,
        order=_order(sources),
        maps={f: rng.permutation(n_values) for f, source in enumerate(sources) if source >= 0},
        factors=rng.standard_normal((n_fields, n_values, _N_FACTORS), dtype=np.float32),
        noise=noise,
        task=task,
    )
    starts = range(0, n_rows, CHUNK_ROWS)
    chunks = [_chunk(world, seed, number, min(CHUNK_ROWS, n_rows - s)) for number, s in enumerate(starts)]
    return SyntheticTable(
        frame=pl.concat(chunks), planted=tuple(dependencies), target=TARGET, fields=field_names(n_fields)
    )


def field_names(n_fields: int) -> tuple[str, ...]:
    """Names of the fields of a generated table."""
    return tuple(f"field_{i}" for i in range(n_fields))


def _chunk(world: _World, seed: int, number: int, n_rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    n_fields = len(world.sources)
    # One line of numbers per row, so that a shorter chunk is a prefix of a longer one.
    uniform = rng.random((n_rows, 2 * n_fields + 1))
    ids = np.searchsorted(world.shares, uniform[:, :n_fields], side="right")
    score = np.zeros(n_rows)
    for field in world.order:
        source = world.sources[field]
        if source >= 0:
            implied = world.maps[field][ids[:, source]]
            kept = uniform[:, n_fields + field] >= world.noise
            ids[:, field] = np.where(kept, implied, ids[:, field])
            holds = ids[:, field] == implied
            score += _CONSISTENCY_SCALE * (holds - (1 - world.noise))
    score += _interactions(world, ids)
    columns = {name: pl.Series(ids[:, i]).cast(pl.String) for i, name in enumerate(field_names(n_fields))}
    frame = pl.DataFrame(columns).select(("v" + pl.all()).name.keep())
    return frame.with_columns(pl.Series(TARGET, _target(score, uniform[:, -1], world.task)))


def _interactions(world: _World, ids: np.ndarray) -> np.ndarray:
    """Scaled sum of the products of latent factors of neighbouring fields."""
    n_fields = ids.shape[1]
    total = np.zeros(len(ids))
    for f in range(n_fields - 1):
        total += np.einsum("ij,ij->i", world.factors[f, ids[:, f]], world.factors[f + 1, ids[:, f + 1]])
    return np.asarray(total * (1 / np.sqrt(_N_FACTORS * (n_fields - 1))))


def _target(score: np.ndarray, uniform: np.ndarray, task: str) -> np.ndarray:
    if task == "regression":
        return np.asarray(score + (uniform - 0.5))
    return np.asarray(uniform < 1 / (1 + np.exp(-score)), dtype=np.int8)


def _zipf(n_values: int, skew: float) -> np.ndarray:
    weights = np.arange(1, n_values + 1, dtype=np.float64) ** -skew
    shares: np.ndarray = np.cumsum(weights) / weights.sum()
    # Rounding may leave the sum below 1, and a uniform number could then fall past the last value.
    shares[-1] = 1.0
    return shares


def _sources(names: tuple[str, ...], dependencies: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
    sources = [-1] * len(names)
    for source, dependent in dependencies:
        for name in (source, dependent):
            if name not in names:
                raise ConfigError(f"expected a field from {names[0]} to {names[-1]}, given {name!r}")
        if sources[names.index(dependent)] >= 0:
            raise ConfigError(f"a field can depend on only one source, given two for {dependent!r}; remove one")
        sources[names.index(dependent)] = names.index(source)
    return tuple(sources)


def _order(sources: tuple[int, ...]) -> tuple[int, ...]:
    placed: list[int] = []
    while len(placed) < len(sources):
        ready = [f for f, s in enumerate(sources) if f not in placed and (s < 0 or s in placed)]
        if not ready:
            circle = [f"field_{f}" for f in range(len(sources)) if f not in placed]
            raise ConfigError(f"dependencies must not run in a circle, given one among {circle}; remove one")
        placed += ready
    return tuple(placed)


def _check(n_rows: int, n_fields: int, n_values: int, seed: int, noise: float, skew: float, task: str) -> None:
    counts = {"n_rows": (n_rows, 1), "n_fields": (n_fields, 2), "n_values": (n_values, 2), "seed": (seed, 0)}
    for name, (value, smallest) in counts.items():
        if value < smallest:
            raise ConfigError(f"{name} must be at least {smallest}; given {value}")
    if not 0 <= noise <= 1:
        raise ConfigError(f"noise must be from 0 to 1; given {noise}")
    if not skew >= 0:
        raise ConfigError(f"skew must be at least 0; given {skew}")
    if task not in ("binary", "regression"):
        raise ConfigError(f"task must be binary or regression; given {task!r}")


N_ROWS, N_FIELDS = 100_000, 6


def build(files: RawFiles, seed: int) -> pl.DataFrame:
    """Generated rows, split 8:1:1 at random."""
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
