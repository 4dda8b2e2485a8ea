"""What rows hold, as text: from cells, and from ids."""

from __future__ import annotations

import polars as pl
import pytest

from fielddep.config import Config
from fielddep.data.encoder import TableEncoder
from fielddep.data.schema import infer_schema
from fielddep.explain.row_values import cell_texts, value_texts

NAMES = ("colour", "size", "price", "visits")
WHOLE = pl.DataFrame(
    {
        "colour": ["red", "blue"] * 50,
        "size": [float(n) for n in range(100)],
        "price": [float(n) for n in range(100)],
        "visits": list(range(100)),
        "y": [0, 1] * 50,
    }
)
GAPS = pl.concat(
    [WHOLE, pl.DataFrame({name: [None] * 20 for name in NAMES} | {"y": [0, 1] * 10})], how="vertical_relaxed"
)
ODD = pl.DataFrame(
    {
        "colour": ["red", "mauve", None, "5.0"],
        "size": ["1e9", "-1e9", "NA", "12.345678"],
        "price": ["12.345678", "-1e9", None, "3"],
        "visits": ["100", "21", "", "1e6"],
    }
)


def encoder_of(frame: pl.DataFrame) -> TableEncoder:
    config = Config().replace(
        {
            "data.target": "y",
            "data.crosses": "none",
            "data.kinds": dict.fromkeys(("size", "price", "visits"), "numerical"),
            "data.numeric": {"size": "scale", "price": "quantile", "visits": "log2"},
            "data.n_bins": 2,
        }
    )
    return TableEncoder.fit(frame, infer_schema(frame, config), config.data)


@pytest.mark.parametrize("frame", [WHOLE, GAPS], ids=["no missing values", "missing values"])
def test_cells_are_told_as_they_are(frame: pl.DataFrame) -> None:
    found = cell_texts(encoder_of(frame), ODD)
    assert found.to_dict(as_series=False) == {
        "colour": ["red", "mauve", "<missing>", "5"],
        "size": ["1e9", "-1e9", "<missing>", "12.345678"],
        "price": ["12.345678", "-1e9", "<missing>", "3"],
        "visits": ["100", "21", "<missing>", "1e6"],
    }
    typed = cell_texts(encoder_of(frame), WHOLE[[7]])
    assert typed.rows() == [("blue", "7", "7", "7")]


def test_ids_tell_what_they_can() -> None:
    encoder = encoder_of(GAPS)
    assert value_texts(encoder, encoder.encode(ODD)).to_dict(as_series=False) == {
        "colour": ["red", "<rare>", "<missing>", "<rare>"],
        "size": ["280.429 or more", "-181.429 or less", "<missing>", "12.3457"],
        "price": ["(-inf, 50)", "(-inf, 50)", "<missing>", "(-inf, 50)"],
        "visits": ["[98, 109)", "[21, 24)", "<missing>", "<rare>"],
    }


def test_what_ids_cannot_tell_apart_is_named_together() -> None:
    encoder = encoder_of(WHOLE)
    assert value_texts(encoder, encoder.encode(ODD)).to_dict(as_series=False) == {
        "colour": ["red", "<rare> or <missing>", "<rare> or <missing>", "<rare> or <missing>"],
        "size": ["280.429 or more", "-181.429 or less", "49.5 or <missing>", "12.3457"],
        "price": ["(-inf, 50)", "(-inf, 50)", "<missing>", "(-inf, 50)"],
        "visits": ["[98, 109)", "[21, 24)", "<rare> or <missing>", "<rare> or <missing>"],
    }


def test_no_rows() -> None:
    encoder = encoder_of(WHOLE)
    nothing = ODD.clear()
    assert value_texts(encoder, encoder.encode(nothing)).columns == list(NAMES)
    assert cell_texts(encoder, nothing).rows() == []
