"""Facts and warnings about the fields in a report."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import EncodedRows
from fielddep.report.data import data_facts, leaking_fields
from tests.streamed import learned

N_ROWS = 400
RNG = np.random.default_rng(0)
NUMBER = RNG.normal(size=N_ROWS)
CLASS = (NUMBER > 0.2).astype(int)


def encoded(frame: pl.DataFrame, **settings: object) -> tuple[Encoder, EncodedRows]:
    config = Config().replace({"data.target": "y", "data.crosses": "none"} | settings)
    encoder = learned(frame, config)
    return encoder, encoder.encode(frame, with_target=True)[0]


def noise(n_values: int) -> list[str]:
    return [f"v{v}" for v in RNG.integers(0, n_values, N_ROWS)]


@pytest.mark.parametrize("numeric", ["quantile", "scale"])
@pytest.mark.parametrize(
    ("target", "leaks"),
    [
        (CLASS, ["copy", "measured"]),
        ((NUMBER > 0.2).astype(int) + (NUMBER > 1), ["measured"]),
        (np.exp(NUMBER).round(9), ["measured"]),
        (RNG.integers(0, 2, N_ROWS), []),
        (RNG.normal(size=N_ROWS), []),
    ],
    ids=["two classes", "three classes", "number", "chance classes", "chance numbers"],
)
def test_fields_that_determine_the_target(numeric: str, target: np.ndarray, leaks: list[str]) -> None:
    frame = pl.DataFrame(
        {
            "plain": noise(5),
            "copy": [f"c{c}" for c in CLASS],
            "measured": NUMBER,
            "other": RNG.normal(size=N_ROWS),
            "y": target,
        }
    )
    encoder, rows = encoded(frame, **{"data.numeric": numeric, "data.n_bins": 32})
    assert leaking_fields(encoder, rows) == leaks


def test_a_field_that_nearly_determines_the_target_is_none() -> None:
    flipped = CLASS.copy()
    flipped[:3] = 1 - flipped[:3]
    encoder, rows = encoded(pl.DataFrame({"a": noise(5), "copy": [f"c{c}" for c in flipped], "y": CLASS}))
    assert leaking_fields(encoder, rows) == []


def test_no_rows_no_leak() -> None:
    encoder, rows = encoded(pl.DataFrame({"a": noise(5), "b": noise(3), "y": CLASS}))
    assert leaking_fields(encoder, rows.take(slice(0))) == []


def test_facts_of_every_kind_of_field() -> None:
    frame = pl.DataFrame(
        {
            "colour": ["red"] * 200 + ["blue"] * 100 + [None] * 99 + ["odd"],
            "size": np.arange(N_ROWS) % 100 + 0.5,
            "weight": np.arange(N_ROWS) % 200 + 0.25,
            "visits": np.arange(N_ROWS) % 90,
            "y": CLASS,
        }
    )
    settings = {
        "data.min_count": {"colour": 2},
        "data.kinds": {"size": "numerical", "weight": "numerical", "visits": "numerical"},
        "data.numeric": {"size": "quantile", "weight": "scale", "visits": "log2"},
    }
    encoder, rows = encoded(frame, **settings)
    seen = frame.head(10).with_columns(colour=pl.Series(["red"] * 7 + ["new"] * 2 + [None]))
    colour, size, weight, visits = data_facts(encoder, encoder.encode(seen)[0], rows="test rows").fields
    assert (colour.kind, colour.n_values) == ("category", 2)
    assert (colour.missing, colour.rare, colour.unknown) == (99 / 400, 1 / 400, 0.2)
    assert colour.frequent == (("red", 0.5), ("blue", 0.25))
    assert colour.example == "red"
    assert (size.kind, size.n_values, size.frequent, size.unknown) == ("number, in bins", 8, (), 0.0)
    assert 40 < float(size.example or "nan") < 60
    assert (weight.kind, weight.n_values, weight.example) == ("number", None, "99.75")
    assert (visits.kind, visits.example) == ("count, in bins", "1")
    assert [value for value, _ in visits.frequent] == ["[70, 79)", "[79, 88)", "[62, 70)"]
    assert len(rows) == N_ROWS


def test_warnings() -> None:
    frame = pl.DataFrame(
        {
            "empty": [None] * 300 + ["x", "y"] * 50,
            "same": ["s"] * N_ROWS,
            "scarce": [f"u{n % 350}" for n in range(N_ROWS)],
            "rare": ["often"] * 200 + [f"r{n}" for n in range(200)],
            "plain": noise(4),
            "y": CLASS,
        }
    )
    encoder, _ = encoded(frame, **{"data.min_count": {"rare": 3}})
    seen, _ = encoder.encode(frame.head(10).with_columns(plain=pl.lit("new")))
    facts = data_facts(encoder, seen, rows="test rows", leaks=["plain"], warnings=["the split is odd"])
    ((name, reason),) = facts.skipped
    assert name == "same" and "constant" in reason
    assert facts.leaks == ("plain",)
    assert facts.warnings[0] == ("", "the split is odd")
    expected = {"empty": "75 %.*training", "scarce": "350 .*400", "rare": "50 %.*training", "plain": "100 %.*test rows"}
    assert [name for name, _ in facts.warnings[1:]] == list(expected)
    assert all(re.search(expected[name], text) for name, text in facts.warnings[1:])


def test_nothing_odd() -> None:
    encoder, rows = encoded(pl.DataFrame({"a": noise(5), "b": noise(3), "y": CLASS}))
    facts = data_facts(encoder, rows, rows="test rows")
    assert (facts.leaks, facts.skipped, facts.warnings) == ((), (), ())
