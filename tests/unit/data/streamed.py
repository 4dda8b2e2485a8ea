"""What the tests of encoding in portions share: small portions, mixed tables, and the same encoding in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.config import Config
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.schema import infer_schema
from fielddep.data.store.store import Store
from fielddep.data.streaming import delimited_rows, interned, reading_pass, row_stream, split_marks
from fielddep.data.streaming import encode as streaming
from fielddep.data.target import infer_target

SMALL = {
    (streaming, "SHARD_ROWS"): 512,
    (streaming, "BLOCK_ROWS"): 64,
    (split_marks, "BLOCK_ROWS"): 64,
    (interned, "SPAN_ROWS"): 128,
    (streaming, "SPAN_ROWS"): 128,
    (delimited_rows, "BLOCK_BYTES"): 2500,
    (row_stream, "CHUNK_ROWS"): 90,
    (reading_pass, "CHECKPOINT_ROWS"): 200,
}


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of a few rows, so that a small table needs many of each."""
    for (module, name), size in SMALL.items():
        monkeypatch.setattr(module, name, size)


def mixed_frame(n_rows: int = 1500, seed: int = 0) -> pl.DataFrame:
    """Fields of every kind with missing values, weights, and three targets that depend on two of the fields."""
    rng = np.random.default_rng(seed)
    colour, shape = rng.integers(0, 5, n_rows), rng.integers(0, 7, n_rows)
    noise = rng.normal(size=n_rows)
    words = np.array([f"w{i}" for i in range(300)])[(300 * rng.random(n_rows) ** 3).astype(int)]
    price = np.exp(rng.normal(size=n_rows) * 2).round(3)
    return pl.DataFrame(
        {
            "colour": np.array(["red", "green", "blue", "True", "5.0"])[colour],
            "shape": pl.Series(shape * 3 + 100),
            "word": pl.Series(words).set(pl.Series(rng.random(n_rows) < 0.05), None),
            "price": pl.Series(price).set(pl.Series(rng.random(n_rows) < 0.04), None),
            "height": noise.round(2),
            "visits": rng.poisson(40, n_rows) + 0.5,
            "constant": ["x"] * n_rows,
            "row": np.arange(n_rows),
            "weight": rng.choice([0.5, 1.0, 2.0], n_rows),
            "good": (((colour + shape) % 2) ^ (rng.random(n_rows) < 0.1)).astype(int),
            "grade": np.array(["a", "b", "c"])[(colour + shape) % 3],
            "amount": (colour * 1.5 - shape + noise).round(4),
        }
    )


def in_memory(table: pl.DataFrame, config: Config, parts: np.ndarray) -> tuple[TableEncoder, EncodedTable]:
    """Encoder and rows as a fit in memory on the same training rows has them."""
    train = table.filter(pl.Series(parts == 0))
    assert config.data.target is not None
    target = infer_target(table[config.data.target], config.data.task, config.data.missing_values)
    schema = replace(infer_schema(train, config), target=target)
    encoder = TableEncoder.fit(train, schema, config.data, count_table=table)
    return encoder, encoder.encode(table, with_target=True, handle_unknown="rare")


def assert_as_in_memory(store: Store, table: pl.DataFrame) -> None:
    """The store's encoder and rows are those of a fit in memory; only means and scales may differ by rounding."""
    encoder, rows = in_memory(table, store.config, store.parts(0, store.n_rows))
    assert_same_encoder(store.encoder, encoder)
    found = store.read(0, store.n_rows)
    torch.testing.assert_close(found.ids_RF, rows.ids_RF, rtol=0, atol=0)
    torch.testing.assert_close(found.numbers_RN, rows.numbers_RN, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.target_R, rows.target_R, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.weight_R, rows.weight_R, rtol=0, atol=0)
    assert found.layout == rows.layout


def assert_same_encoder(found: TableEncoder, expected: TableEncoder) -> None:
    """Equal but for the rounding of means and scales."""
    assert found.vocabulary_frame().equals(expected.vocabulary_frame())
    a, b = found.to_json(), expected.to_json()
    for state in (a, b):
        target = state["schema"]["target"]
        numbers = {"target": target} | state["numeric"]
        state["rounded"] = {(n, k): v.pop(k) for n, v in numbers.items() for k in ("mean", "std", "scale") if k in v}
    assert a.pop("rounded") == pytest.approx(b.pop("rounded"), rel=1e-12)
    assert a == b


def write_csv(table: pl.DataFrame, path: Path) -> Path:
    """The table as a CSV file."""
    table.write_csv(path)
    return path
