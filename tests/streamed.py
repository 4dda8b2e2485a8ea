"""What the tests of learning and encoding share: small chunks, mixed tables, and the oracle's opinion of a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.config.settings import Config
from fielddep.encoding.coded import Sizes
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.interning import code_table
from fielddep.encoding.learn import learn_encoder
from fielddep.encoding.schema import check_column_names, target_name
from fielddep.store import build as building
from fielddep.store.store import Store
from fielddep.tables import delimited, json_lines, row_stream
from tests.oracle.encoder import learn_rows

SMALL_SIZES = Sizes(chunk_rows=128, part_rows=64, shard_rows=512, checkpoint_rows=200)
SMALL = {
    (building, "SIZES"): SMALL_SIZES,
    (delimited, "CHUNK_BYTES"): 2500,
    (json_lines, "CHUNK_BYTES"): 2500,
    (row_stream, "CHUNK_ROWS"): 90,
}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few rows, so that a small table needs many."""
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


def learned(table: pl.DataFrame, config: Config, parts: np.ndarray | None = None) -> Encoder:
    """The encoder of a table whose training rows are those of part 0, or all rows."""
    target_name(table.columns, config)
    check_column_names(table.columns, config)
    known = np.zeros(len(table), dtype=np.uint8) if parts is None else parts
    coded = code_table(table, config)
    return learn_encoder(coded, config, lambda start, stop: known[start:stop], int((known == 0).sum()))


def assert_as_oracle(store: Store, table: pl.DataFrame) -> None:
    """The store's encoder and rows are those of the oracle; only means and scales may differ by rounding."""
    encoder, rows = learn_rows(table, store.config, store.parts(0, store.n_rows))
    assert_same_encoder(store.encoder, encoder)
    found = store.read(0, store.n_rows)
    torch.testing.assert_close(found.ids_RF, rows.ids_RF, rtol=0, atol=0)
    torch.testing.assert_close(found.numbers_RN, rows.numbers_RN, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.target_R, rows.target_R, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.weight_R, rows.weight_R, rtol=0, atol=0)
    assert replace(found.layout, evidence=(), evidence_width=0) == rows.layout


def assert_same_encoder(found: Encoder, expected: Encoder) -> None:
    """Equal but for the rounding of means and scales."""
    assert found.vocabulary_frame().equals(expected.vocabulary_frame())
    a, b = found.to_json(), expected.to_json()
    for state in (a, b):
        state.pop("evidence", None)  # `learn_encoder` does not count it
        target = state["schema"]["target"]
        numbers = {"target": target} | state["numeric"]
        state["rounded"] = {(n, k): v.pop(k) for n, v in numbers.items() for k in ("mean", "std", "scale") if k in v}
    assert a.pop("rounded") == pytest.approx(b.pop("rounded"), rel=1e-12)
    assert a == b


def write_csv(table: pl.DataFrame, path: Path) -> Path:
    """The table as a CSV file."""
    table.write_csv(path)
    return path
