"""The figures of speed in the guide are those of the committed CSV file, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polars as pl
import pytest

PROJECT = Path(__file__).parents[2]
SPEED = PROJECT / "benchmarks" / "speed"


@pytest.fixture(scope="module")
def summary():
    spec = importlib.util.spec_from_file_location("speed_summary", SPEED / "summary.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_quotes_the_results(summary):
    page = summary.PAGE.read_text("utf-8")
    assert summary.filled(page) == page


def test_every_figure_has_its_origin():
    results = pl.read_csv(SPEED / "results.csv")
    assert results.select("shape", "what", "program").is_duplicated().sum() == 0
    assert results.select("threads", "machine", "commit").null_count().sum_horizontal()[0] == 0
    assert {"frappe", "ml-rating", "avazu", "criteo", "kdd2012"} <= set(results["shape"])
    assert {"train", "predict", "row"} <= set(results["what"])


def test_ratio_by_hand(summary):
    rows = [
        {
            "shape": shape,
            "what": what,
            "program": program,
            "rows_per_s": rate,
            "p50_ms": 1.0,
            "p99_ms": 2.0,
            "peak_mb": 5.0,
        }
        for shape in summary.SHAPES
        for what in ("train", "predict", "row")
        for program, rate in (("fielddep", 600.0), ("fielddep-plain", 50.0), ("textbook", 12.0))
    ]
    table = summary._shape_table(pl.DataFrame(rows))
    assert "| 600 | 50 | 12 | 50x | 600 | 1.0 / 2.0 ms | 5 MB, textbook 5 MB |" in table
