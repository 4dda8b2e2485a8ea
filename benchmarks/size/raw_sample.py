"""Generated files in the exact format of Avazu's, Criteo's and KDD2012's, of any number of rows.

    python benchmarks/size/raw_sample.py criteo raw/criteo --rows 2000000

They let a recipe run end to end without the published files. Values follow Zipf's law over about as many different
values as in the published files. In Criteo's and KDD2012's format, a click depends on the values of some columns and on
the product of two of them; Avazu's is the synthetic click log. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from click_fields import hash_texts
from clicks import CHUNK_ROWS, click_chunks, zipf_ids
from fielddep.datasets import avazu, criteo, kdd2012
from fielddep.errors import ConfigError
from fielddep.tables.files import write_atomically
from raw_columns import CRITEO_CATEGORIES, CRITEO_COUNTS, KDD2012_COLUMNS, CountColumn, RawColumn

_FIRST_AVAZU_ID = 1_000_009_418_151_094_273
_MIX = np.uint64(0x9E37_79B9_7F4A_7C15)
_PRODUCT_EFFECT = 1.5
_CRITEO_BIAS, _KDD2012_BIAS = -1.3, -3.6
"""Scores of a row without effects; about 26 % and 4 % of the rows are clicked."""

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RawFormat:
    """How a raw file is written.

    Attributes:
        file: its name.
        delimiter: one character.
        header: whether the first line names the columns.
        chunks: its rows in order, from their number and a seed.
    """

    file: str
    delimiter: str
    header: bool
    chunks: Callable[[int, int], Iterator[pl.DataFrame]]


def write_raw_sample(name: str, folder: str | Path, n_rows: int, seed: int = 0) -> Path:
    """Write a generated raw file in bounded memory, and return its path.

    Args:
        name: avazu, criteo or kdd2012.
        folder: where the file goes, under its published name.
        n_rows: rows of the file.
        seed: the same seed gives the same bytes.

    Raises:
        ConfigError: the name is unknown, or a number is out of range.
        UserError: the disk is full, or the folder cannot be written.
    """
    if name not in RAW_FORMATS:
        raise ConfigError(f"expected one of {', '.join(RAW_FORMATS)}, given {name!r}")
    if n_rows < 1 or seed < 0:
        raise ConfigError(f"expected at least 1 row and a seed of at least 0; given {n_rows} rows and seed {seed}")
    made = RAW_FORMATS[name]
    path = Path(folder) / made.file

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for number, chunk in enumerate(made.chunks(n_rows, seed)):
                header = made.header and number == 0
                chunk.write_csv(file, separator=made.delimiter, include_header=header, quote_style="never")

    write_atomically(path, write)
    return path


def _avazu_chunks(n_rows: int, seed: int) -> Iterator[pl.DataFrame]:
    start = 0
    for chunk in click_chunks(n_rows, seed):
        ids = np.uint64(_FIRST_AVAZU_ID) + np.arange(start, start + chunk.height, dtype=np.uint64) * _MIX
        start += chunk.height
        yield chunk.with_columns(pl.Series("id", ids)).select(avazu.COLUMNS)


def _criteo_chunks(n_rows: int, seed: int) -> Iterator[pl.DataFrame]:
    for rng, n_chunk in _streams(n_rows, seed):
        counts = {column.name: _counts(column, n_chunk, rng) for column in CRITEO_COUNTS}
        texts, score = _categories(CRITEO_CATEGORIES, n_chunk, rng)
        label = _clicked(score + _CRITEO_BIAS, rng).astype(np.int8)
        yield pl.DataFrame({criteo.TARGET: label, **counts, **texts})


def _kdd2012_chunks(n_rows: int, seed: int) -> Iterator[pl.DataFrame]:
    for rng, n_chunk in _streams(n_rows, seed):
        texts, score = _categories(KDD2012_COLUMNS, n_chunk, rng)
        clicks = _clicked(score + _KDD2012_BIAS, rng) * rng.geometric(0.95, n_chunk)
        impressions = np.maximum(clicks, rng.geometric(0.8, n_chunk))
        yield pl.DataFrame({kdd2012.CLICKS: clicks, "impression": impressions, **texts})


def _streams(n_rows: int, seed: int) -> Iterator[tuple[np.random.Generator, int]]:
    """A random stream and the number of rows of every chunk."""
    for number, start in enumerate(range(0, n_rows, CHUNK_ROWS)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
        yield rng, min(CHUNK_ROWS, n_rows - start)


def _counts(column: CountColumn, n_rows: int, rng: np.random.Generator) -> pl.Series:
    """Counts as whole numbers; missing ones are null, written as an empty cell."""
    values = np.floor(np.exp(rng.normal(0.0, column.scale, n_rows))).astype(np.int64) + column.first
    return pl.Series(column.name, values).set(pl.Series(rng.random(n_rows) < column.missing), None)


def _categories(
    columns: tuple[RawColumn, ...], n_rows: int, rng: np.random.Generator
) -> tuple[dict[str, pl.Series], Floats]:
    """Texts of every column, and the score of every row: effects of values, and a product of the first two effects."""
    texts: dict[str, pl.Series] = {}
    effects: list[Floats] = []
    score = np.zeros(n_rows)
    for number, column in enumerate(columns):
        ids = zipf_ids(rng.random(n_rows), column.n_values).astype(np.int64)
        text = _texts(column, ids, number)
        texts[column.name] = text.set(pl.Series(rng.random(n_rows) < column.missing), None)
        if column.effect:
            effects.append(_effects(ids, number))
            score += column.effect * effects[-1]
    return texts, score + _PRODUCT_EFFECT * effects[0] * effects[1]


def _texts(column: RawColumn, ids: Numbers, number: int) -> pl.Series:
    if column.text == "hash":
        return hash_texts((ids + number * 0x01F3_5A77).astype(np.uint32)).alias(column.name)
    if column.text == "address":
        return pl.Series(column.name, (ids.astype(np.uint64) + np.uint64(1)) * _MIX)
    return pl.Series(column.name, ids + column.first)


def _effects(ids: Numbers, number: int) -> Floats:
    """A pseudo-random number from -1 to 1 for every id of a column."""
    mixed = (ids.astype(np.uint64) + np.uint64(1 + number * 0x0100_0000)) * _MIX
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58_476D_1CE4_E5B9)
    effects: Floats = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0
    return effects


def _clicked(score: Floats, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    clicked: npt.NDArray[np.bool_] = rng.random(len(score)) < 1 / (1 + np.exp(-score))
    return clicked


RAW_FORMATS = {
    "avazu": RawFormat(file="train", delimiter=",", header=True, chunks=_avazu_chunks),
    "criteo": RawFormat(file="train.txt", delimiter="\t", header=False, chunks=_criteo_chunks),
    "kdd2012": RawFormat(file="training.txt", delimiter="\t", header=False, chunks=_kdd2012_chunks),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RAW_FORMATS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_raw_sample(arguments.name, arguments.folder, arguments.rows, arguments.seed)


if __name__ == "__main__":
    main()
