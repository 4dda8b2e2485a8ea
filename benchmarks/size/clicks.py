"""A synthetic click log of any length, like the Avazu table: 22 fields, two million values, planted dependencies.

    python benchmarks/size/clicks.py clicks.csv --rows 40000000

Values follow Zipf's law (exponent 1); the hours are equally frequent. Some fields are noisy functions of others
(`CLICK_DEPENDENCIES`). The score of a click is a sum of products of the latent factors of pairs of fields
(`CLICK_INTERACTIONS`), minus a penalty for each planted dependency that is broken in the row. The mean of the factors
is not zero, so single fields say something about the click, but not most of it.

Rows are drawn in chunks, each with its own random stream, so memory is bounded and the first rows do not depend on how
many follow.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

from click_fields import CLICK_DEPENDENCIES, CLICK_FIELDS, CLICK_INTERACTIONS, field_sizes, value_texts
from fielddep.errors import ConfigError
from fielddep.tables.files import write_atomically

CLICK_TARGET = "click"
CLICK_PROBABILITY = "click_probability"
N_CATEGORIES = 2_018_012
"""Values of all fields; about 99 % of them occur in forty million rows."""
CHUNK_ROWS = 65_536
"""Rows of a chunk of `click_chunks`; the last may be shorter."""

_N_FACTORS = 2
_FACTOR_MEAN = 0.5
_INTERACTION_SCALE = 1.5
_CONSISTENCY_SCALE = 1.5
_NAMES = tuple(field.name for field in CLICK_FIELDS)


@dataclass(frozen=True, kw_only=True)
class _World:
    """What all chunks share.

    Attributes:
        sizes: values of each field.
        maps: for each dependent field, the id that each id of its source implies.
        factors: latent factors (values, factors) of the fields that interact.
        bias: added to every score, so that the mean probability is the click rate.
    """

    sizes: dict[str, int]
    maps: dict[str, np.ndarray]
    factors: dict[str, np.ndarray]
    bias: float


def click_chunks(
    n_rows: int,
    seed: int = 0,
    *,
    n_categories: int = N_CATEGORIES,
    click_rate: float = 0.17,
    with_probability: bool = False,
) -> Iterator[pl.DataFrame]:
    """A click log as frames of `CHUNK_ROWS` rows, one after another, in bounded memory.

    Settings are checked before the first frame is drawn.

    Args:
        n_rows: total number of rows.
        seed: the same seed gives the same rows.
        n_categories: values of all fields together; fewer make the largest fields smaller.
        click_rate: mean probability of a click.
        with_probability: adds the true probability of a click as `click_probability`; no model can order the rows
            better.

    Raises:
        ConfigError: a number is out of range.

    Example:
        >>> chunk = next(click_chunks(100, n_categories=1_000))
        >>> chunk.shape, chunk.columns[:4], chunk.columns[-1]
        ((100, 23), ['hour', 'C1', 'banner_pos', 'site_id'], 'click')
    """
    _check(n_rows, seed, click_rate)
    world = _make_world(seed, field_sizes(n_categories), click_rate)
    texts = {field.name: value_texts(field, world.sizes[field.name]) for field in CLICK_FIELDS}
    starts = range(0, n_rows, CHUNK_ROWS)
    chunks = (_draw_chunk(world, texts, seed, number) for number, _ in enumerate(starts))
    columns = [*_NAMES, CLICK_TARGET, *([CLICK_PROBABILITY] if with_probability else [])]
    return (frame.select(columns).head(n_rows - start) for start, frame in zip(starts, chunks, strict=True))


def write_clicks_csv(
    path: str | Path, n_rows: int, seed: int = 0, *, n_categories: int = N_CATEGORIES, click_rate: float = 0.17
) -> None:
    """Write the rows of `click_chunks` to a CSV file: about 140 bytes per row, the same bytes for the same seed.

    Raises:
        ConfigError: a number is out of range.
        UserError: the disk is full, or the folder cannot be written.
    """
    chunks = click_chunks(n_rows, seed, n_categories=n_categories, click_rate=click_rate)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            _write_chunks(chunks, file)

    write_atomically(Path(path), write)


def _write_chunks(chunks: Iterator[pl.DataFrame], file: IO[bytes]) -> None:
    for number, chunk in enumerate(chunks):
        # No value holds a comma or a quote, and looking for them would take longer than writing.
        chunk.write_csv(file, include_header=number == 0, quote_style="never")


def _make_world(seed: int, sizes: tuple[int, ...], click_rate: float) -> _World:
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    size_of = dict(zip(_NAMES, sizes, strict=True))
    maps = {
        dependent: zipf_ids(rng.random(size_of[source]), size_of[dependent])
        for source, dependent, _ in CLICK_DEPENDENCIES
    }
    interacting = dict.fromkeys(name for pair in CLICK_INTERACTIONS for name in pair)
    factors = {
        name: rng.standard_normal((size_of[name], _N_FACTORS), dtype=np.float32) + np.float32(_FACTOR_MEAN)
        for name in interacting
    }
    world = _World(sizes=size_of, maps=maps, factors=factors, bias=0.0)
    bias = _find_bias(_score(world, *_draw_ids(world, rng)), click_rate)
    return _World(sizes=size_of, maps=maps, factors=factors, bias=bias)


def _draw_chunk(world: _World, texts: dict[str, pl.Series], seed: int, number: int) -> pl.DataFrame:
    """A complete chunk, even if the table ends within it, so that the number of rows changes nothing."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    ids, broken = _draw_ids(world, rng)
    probability = _sigmoid(_score(world, ids, broken) + world.bias)
    click = rng.random(CHUNK_ROWS) < probability
    columns = {name: texts[name].gather(ids[name]) for name in _NAMES}
    return pl.DataFrame({**columns, CLICK_TARGET: click.astype(np.int8), CLICK_PROBABILITY: probability})


def _draw_ids(world: _World, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ids of each field, and for each dependent field the rows in which its value is not the implied one."""
    sources = {dependent: (source, noise) for source, dependent, noise in CLICK_DEPENDENCIES}
    ids: dict[str, np.ndarray] = {}
    broken: dict[str, np.ndarray] = {}
    for field in CLICK_FIELDS:
        name, uniform = field.name, rng.random(CHUNK_ROWS)
        size = world.sizes[name]
        ids[name] = (uniform * size).astype(np.int32) if field.text == "hour" else zipf_ids(uniform, size)
        if name in sources:
            source, noise = sources[name]
            implied = world.maps[name][ids[source]]
            ids[name] = np.where(rng.random(CHUNK_ROWS) < noise, ids[name], implied)
            broken[name] = ids[name] != implied
    return ids, broken


def _score(world: _World, ids: dict[str, np.ndarray], broken: dict[str, np.ndarray]) -> np.ndarray:
    products = np.zeros(CHUNK_ROWS, dtype=np.float32)
    for a, b in CLICK_INTERACTIONS:
        products += np.einsum("ij,ij->i", world.factors[a][ids[a]], world.factors[b][ids[b]])
    scale = _INTERACTION_SCALE / np.sqrt(_N_FACTORS * len(CLICK_INTERACTIONS))
    n_broken = np.sum(list(broken.values()), axis=0)
    return np.asarray(scale * products.astype(np.float64) - _CONSISTENCY_SCALE * n_broken)


def zipf_ids(uniform: np.ndarray, n_values: int) -> np.ndarray:
    """Ids with Zipf-like shares: id i has the share log((i + 2) / (i + 1)) / log(n_values + 1)."""
    ids = np.exp(uniform * np.log(n_values + 1)).astype(np.int32) - 1
    # Rounding may put the last id out of range.
    return np.asarray(np.minimum(ids, n_values - 1))


def _find_bias(score: np.ndarray, click_rate: float) -> float:
    """What to add to the scores so that the mean probability is the click rate, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(50):
        middle = (low + high) / 2
        if _sigmoid(score + middle).mean() < click_rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _sigmoid(score: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-score)))


def _check(n_rows: int, seed: int, click_rate: float) -> None:
    if n_rows < 1:
        raise ConfigError(f"n_rows must be at least 1; given {n_rows}")
    if seed < 0:
        raise ConfigError(f"seed must be at least 0; given {seed}")
    if not 0 < click_rate < 1:
        raise ConfigError(f"click_rate must be between 0 and 1; given {click_rate}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--categories", type=int, default=N_CATEGORIES)
    arguments = parser.parse_args()
    write_clicks_csv(arguments.path, arguments.rows, arguments.seed, n_categories=arguments.categories)


if __name__ == "__main__":
    main()
