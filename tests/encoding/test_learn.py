"""`learn_encoder` against the oracle: columns of every type, in memory and in chunks, give the same encoder and ids.

What this does not catch: errors of `values.canonical` and `Vocabulary`, which both sides use.
"""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.config.settings import Config
from fielddep.encoding.coded import MemoryCells, Sizes
from fielddep.encoding.column_tables import ColumnTables
from fielddep.encoding.interning import code_table
from fielddep.encoding.learn import RowCounts, count_codes, learn_encoder
from tests.oracle.encoder import learn_rows
from tests.streamed import assert_same_encoder

UTC = dt.UTC
TYPES: dict[str, tuple[pl.DataType, st.SearchStrategy[object]]] = {
    "text": (pl.String(), st.text(max_size=3) | st.sampled_from(["5.0", "5", "TRUE", "NA", "2024-01-31 05:00"])),
    "category": (pl.Categorical(), st.sampled_from(["b", "a", "1.0"])),
    "enum": (pl.Enum(["z", "a", "7"]), st.sampled_from(["z", "a", "7"])),
    "boolean": (pl.Boolean(), st.booleans()),
    "int8": (pl.Int8(), st.integers(-128, 127)),
    "uint64": (pl.UInt64(), st.integers(0, 2**64 - 1)),
    "int128": (pl.Int128(), st.integers(-(2**100), 2**100)),
    "float32": (pl.Float32(), st.floats(width=32, allow_infinity=False) | st.sampled_from([-0.0, 0.1, 1e-45])),
    "float64": (pl.Float64(), st.floats(-1e300, 1e300) | st.sampled_from([-0.0, 0.0, float("nan"), 5e-324])),
    "decimal": (pl.Decimal(20, 4), st.decimals(-(10**9), 10**9, places=4, allow_nan=False)),
    "date": (pl.Date(), st.dates()),
    "naive": (pl.Datetime("us"), st.datetimes()),
    "zoned": (
        pl.Datetime("ms", "Europe/Paris"),
        st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    "nanoseconds": (pl.Datetime("ns"), st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))),
    "time": (pl.Time(), st.times()),
    "duration": (pl.Duration("us"), st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5))),
    "nothing": (pl.Null(), st.none()),
}
SMALL = Sizes(chunk_rows=7)


@st.composite
def tables(draw: st.DrawFn, name: str) -> pl.DataFrame:
    dtype, values = TYPES[name]
    few = draw(st.lists(values, min_size=1, max_size=6))
    cells = draw(st.lists(st.none() | st.sampled_from(few) | values, min_size=8, max_size=30))
    rows = range(len(cells))
    columns = {"x": pl.Series(cells, dtype=dtype, strict=False), "other": pl.Series([f"v{i % 3}" for i in rows])}
    return pl.DataFrame({**columns, "y": pl.Series([i % 2 for i in rows])})


def check(table: pl.DataFrame, config: Config, sizes: Sizes = SMALL) -> None:
    parts = np.array([0, 0, 0, 0, 1, 0, 2], dtype=np.uint8)[np.arange(len(table)) % 7]
    expected, rows = learn_rows(table, config, parts)
    coded = code_table(table, config, sizes)
    found = learn_encoder(coded, config, lambda start, stop: parts[start:stop], int((parts == 0).sum()))
    assert_same_encoder(found, expected)
    with ThreadPoolExecutor(2) as threads:
        arrays = ColumnTables(coded, found).arrays(0, len(table), threads)
    assert arrays["ids"].tolist() == rows.ids_RF.tolist()
    assert np.allclose(arrays["numbers"], rows.numbers_RN, rtol=1e-6, atol=1e-6)
    assert np.allclose(arrays["target"], rows.target_R, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_columns_of_every_type(name: str, data: st.DataObject) -> None:
    kinds = {"x": "categorical"}
    check(
        data.draw(tables(name)),
        Config().replace({"data.target": "y", "data.fields": ["x", "other"], "data.kinds": kinds}),
    )


@pytest.mark.parametrize("numeric", ["scale", "quantile", "log2"])
@pytest.mark.parametrize("name", ["int8", "uint64", "int128", "float32", "decimal", "boolean"])
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_numbers_of_every_type(name: str, numeric: str, data: st.DataObject) -> None:
    chosen = {"data.fields": ["x", "other"], "data.kinds": {"x": "numerical"}, "data.numeric": numeric}
    check(data.draw(tables(name)), Config().replace({"data.target": "y", **chosen}))


def test_dates_that_python_does_not_know() -> None:
    far = pl.Series([-5_000_000, 0, 4_000_000, None] * 6, dtype=pl.Int32).cast(pl.Date)
    table = pl.DataFrame({"x": far, "other": ["a", "b", "c"] * 8, "y": [0, 1] * 12})
    check(table, Config().replace({"data.target": "y"}))


TARGETS = {
    "boolean": pl.Series([True, False] * 14),
    "enum": pl.Series(["b", "a"] * 14, dtype=pl.Enum(["b", "a"])),
    "category": pl.Series(["b", "a", "c", "a"] * 7, dtype=pl.Categorical),
    "texts of numbers": pl.Series(["1.0", "0"] * 14),
    "single": pl.Series(np.linspace(0, 1, 28), dtype=pl.Float32),
    "decimal": pl.Series([Decimal(i) / 8 for i in range(28)], dtype=pl.Decimal(10, 3)),
    "whole": pl.Series(range(28), dtype=pl.Int16),
    "dates": pl.Series([dt.date(2024, 1, 1), dt.date(2024, 1, 2)] * 14),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_of_every_type(name: str) -> None:
    table = pl.DataFrame({"x": ["a", "b", "c", "d"] * 7, "z": ["a", "b"] * 14, "y": TARGETS[name]})
    check(table, Config().replace({"data.target": "y"}))


def test_merged_counts_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.integers(0, 90, 500), "z": rng.choice(["a", None], 500), "y": [0, 1] * 250})
    kinds = {"x": "categorical"}
    table = code_table(frame, Config().replace({"data.target": "y", "data.kinds": kinds}), Sizes(chunk_rows=70))
    parts = rng.integers(0, 3, 500).astype(np.uint8)

    def counts_of(first: int, last: int) -> RowCounts:
        cells = MemoryCells()
        cells.append([table.codes(name, first, last) for name in table.columns])
        return count_codes(replace(table, cells=cells), lambda start, stop: parts[first:last][start:stop])

    merged = counts_of(0, 90).merge(counts_of(90, 91)).merge(counts_of(91, 500))
    for name in frame.columns:
        codes = table.codes(name, 0, 500)
        n_codes = len(table.columns[name].values)
        assert merged.all[name].tolist() == np.bincount(codes, minlength=n_codes).tolist()
        assert merged.train[name].tolist() == np.bincount(codes[parts == 0], minlength=n_codes).tolist()
