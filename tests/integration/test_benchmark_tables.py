"""The figures of accuracy in the guide are those of the committed results, and nothing else."""

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


@pytest.mark.parametrize("page", [PROJECT / "docs" / "accuracy.md", ACCURACY / "README.md"])
def test_pages_quote_the_results(summary, page):
    text = page.read_text("utf-8")
    body = summary.texts(pl.read_csv(ACCURACY / "results.csv", infer_schema_length=None))[page]
    assert summary.insert(text, body) == text


def test_every_figure_has_its_origin():
    results = pl.read_csv(ACCURACY / "results.csv", infer_schema_length=None)
    columns = ["dataset", "model", "variant", "seed", "split", "metric", "value", "train_seconds", "commit"]
    assert results.columns[: len(columns)] == columns
    assert results.select(columns).null_count().sum_horizontal()[0] == 0
    keys = ["dataset", "model", "variant", "seed", "split", "metric"]
    assert results.select(keys).is_duplicated().sum() == 0


def rows(dataset: str, metric: str, values: dict[str, list[float]], variant: str = "tuned") -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"dataset": dataset, "model": model, "variant": variant, "seed": seed, "split": "test", "metric": metric,
             "value": value, "train_seconds": 1.0, "commit": "c"}
            for model, found in values.items()
            for seed, value in enumerate(found)
        ]
    )  # fmt: skip


def test_the_place_of_mdl_is_shown(summary):
    losses = {"mdl": [0.2, 0.3], "catboost": [0.1, 0.1], "fm": [0.4, 0.4]}
    found = summary.summarize(pl.concat([rows("d", "logloss", losses), rows("d", "auc", losses)]))
    expected = "- d: place 2 of 3 by logloss (0.2500 ± 0.0707); ahead of it: catboost 0.1000 ± 0.0000."
    assert summary.places(found) == expected
    first = summary.summarize(rows("d", "logloss", {**losses, "catboost": [0.9, 0.9]}))
    assert summary.places(first).endswith("place 1 of 3 by logloss (0.2500 ± 0.0707); next: fm 0.4000 ± 0.0000.")


def test_the_overview_has_a_line_a_model_and_the_best_in_bold(summary):
    tables = [
        rows("d", "logloss", {"mdl": [0.2], "fm": [0.4]}),
        rows("d", "auc", {"mdl": [0.9], "fm": [0.8]}),
        rows("ml-rating", "mse", {"fm": [0.7], "mdl": [0.71], "lr": [0.8]}),
        rows("d", "logloss", {"mdl": [0.5]}, variant="default"),
    ]
    lines = summary.overview(summary.summarize(pl.concat(tables))).splitlines()
    assert lines[0] == "| model | ml-rating: MSE | d: logloss / AUC |"
    # By their places on ml-rating, where there are most.
    assert lines[2:] == [
        "| fm | **0.7000** | 0.4000 / 0.8000 |",
        "| mdl | 0.7100 | **0.2000 / 0.9000** |",
        "| lr | 0.8000 |  |",
    ]


def test_published_figures_stand_next_to_ours(summary, tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "HERE", tmp_path)
    (tmp_path / "published.csv").write_text(
        "dataset,model,metric,value,source\nd,fm,auc,0.7,paper\nd,fm,auc,0.8,other\nd,fm,mse,0.5,paper\nd,lr,auc,0.6,paper\n"
        "d,fm,mse,0.4,other\n"
    )
    found = summary.summarize(pl.concat([rows("d", "auc", {"fm": [0.81, 0.83]}), rows("d", "mse", {"fm": [0.5]})]))
    assert summary.next_to_published(found).splitlines()[2:] == [
        "| d | fm | auc | 0.8200 ± 0.0141 | 0.8000 | other | +0.0200 |",
        "| d | fm | mse | 0.5000 | 0.4000 | other | +0.1000 |",
    ]


def test_threads_are_those_in_the_rows(summary):
    results = rows("d", "auc", {"mdl": [0.5, 0.6]})
    assert summary.threads(results, 1) == "1 thread, "
    assert summary.threads(results, None) == ""
    told = results.with_columns(threads=pl.Series([None, 2]))
    assert (summary.threads(told, 1), summary.threads(told, 2)) == ("1 or 2 threads, ", "2 threads, ")
    assert summary.threads(told, None) == ""


def test_mean_and_spread_by_hand(summary):
    results = pl.DataFrame(
        {
            "dataset": ["d"] * 4, "model": ["m"] * 4, "variant": ["tuned"] * 4, "seed": [0, 1, 0, 1],
            "split": ["test", "test", "validation", "validation"], "metric": ["auc"] * 4,
            "value": [0.5, 0.7, 0.1, 0.1], "train_seconds": [1.0, 2.0, 1.0, 2.0], "commit": ["c"] * 4,
        }
    )  # fmt: skip
    assert "| d | m | tuned |  | 0.6000 ± 0.1414 |  | 2 |" in summary.table(summary.summarize(results))


def test_defaults_with_evidence_stand_next_to_the_better_catboost(summary):
    def both(values, variant):
        test = rows("d", "logloss", values, variant)
        return pl.concat([test, test.with_columns(pl.lit("validation").alias("split"))])

    results = pl.concat(
        [
            both({"catboost": [0.50, 0.52, 0.51], "lightgbm": [0.6, 0.61, 0.6]}, "tuned"),
            both({"catboost": [0.40, 0.41, 0.42]}, "expert"),
            both({"mdl": [0.41, 0.42, 0.4], "blend": [0.30, 0.31, 0.29], "lightgbm-evidence": [0.5]}, "default"),
        ]
    )
    line = summary.with_evidence(results).splitlines()[-1]
    assert line.startswith("| d | 0.4100 ± 0.0100 (expert) | 0.4100 ± 0.0100 | 0.3000 ± 0.0100 | 0.5000 | 0.6033 ")
    assert "| +0.0 % (p = " in line and "| -26.8 % (p < .001) | 3 / 3 / 3 | 1 / 1 / 1 |" in line
    assert summary.with_evidence(results.filter(pl.col("model") != "blend")) == ""
