"""The figures in the README are those of the committed results, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polars as pl
import pytest

PROJECT = Path(__file__).parents[2]
ACCURACY = PROJECT / "benchmarks" / "accuracy"


@pytest.fixture(scope="module")
def summary():
    spec = importlib.util.spec_from_file_location("summary", ACCURACY / "summary.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [PROJECT / "README.md", ACCURACY / "README.md"])
def test_readme_quotes_the_results(summary, page):
    text = page.read_text("utf-8")
    assert summary.insert(text, summary.text(pl.read_csv(ACCURACY / "results.csv"))) == text


def test_every_figure_has_its_origin():
    results = pl.read_csv(ACCURACY / "results.csv")
    columns = ["dataset", "model", "variant", "seed", "split", "metric", "value", "train_seconds", "commit"]
    assert results.columns == columns
    assert results.null_count().sum_horizontal()[0] == 0
    keys = ["dataset", "model", "variant", "seed", "split", "metric"]
    assert results.select(keys).is_duplicated().sum() == 0


def test_mean_and_spread_by_hand(summary):
    results = pl.DataFrame(
        {
            "dataset": ["d"] * 4, "model": ["m"] * 4, "variant": ["tuned"] * 4, "seed": [0, 1, 0, 1],
            "split": ["test", "test", "validation", "validation"], "metric": ["auc"] * 4,
            "value": [0.5, 0.7, 0.1, 0.1], "train_seconds": [1.0, 2.0, 1.0, 2.0], "commit": ["c"] * 4,
        }
    )  # fmt: skip
    assert "| d | m | tuned |  | 0.6000 ± 0.1414 |  | 2 |" in summary.table(summary.summarize(results))
