"""What a report tells of the fields, and what it warns of."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fielddep.config import Config
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.schema import infer_schema
from fielddep.explain.report_data import data_facts, leaking_fields

N_ROWS = 400
RNG = np.random.default_rng(0)
NUMBER = RNG.normal(size=N_ROWS)
CLASS = (NUMBER > 0.2).astype(int)


def encoded(frame: pl.DataFrame, **settings: object) -> tuple[TableEncoder, EncodedTable]:
    config = Config().replace({"data.target": "y", "data.crosses": "none"} | settings)
    encoder = TableEncoder.fit(frame, infer_schema(frame, config), config.data)
    return encoder, encoder.encode(frame, with_target=True)


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
    assert leaking_fields(encoder, rows.take(rows.ids_RF[:0, 0].long())) == []


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
    colour, size, weight, visits = data_facts(encoder, encoder.encode(seen), rows="test rows").fields
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
    seen = encoder.encode(frame.head(10).with_columns(plain=pl.lit("new")))
    facts = data_facts(encoder, seen, rows="test rows", leaks=["plain"], warnings=["the split is odd"])
    assert facts.left_out == (("same", "it is constant"),)
    assert facts.leaks == ("plain",)
    assert facts.warnings == (
        ("", "the split is odd"),
        ("empty", "75 % of the training rows have no value"),
        ("scarce", "350 different values in 400 rows leave little to learn of each"),
        ("rare", "50 % of the training rows hold a value too rare to be learned on its own"),
        ("plain", "100 % of the test rows hold a value that training did not see, or too rarely"),
    )


def test_nothing_odd() -> None:
    encoder, rows = encoded(pl.DataFrame({"a": noise(5), "b": noise(3), "y": CLASS}))
    facts = data_facts(encoder, rows, rows="test rows")
    assert (facts.leaks, facts.left_out, facts.warnings) == ((), (), ())
