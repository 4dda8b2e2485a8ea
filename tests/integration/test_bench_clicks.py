"""The synthetic click log: shape, seeds, streaming, bytes, and that what is planted is there.

Whether MDL learns the target is not checked here; that more than single fields tell it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from sklearn.metrics import roc_auc_score

from fielddep.errors import ConfigError, UserError
from tests.helpers import raises

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "size"))
from click_fields import (
    CLICK_DEPENDENCIES,
    CLICK_FIELDS,
    CLICK_INTERACTIONS,
    ClickField,
    field_sizes,
    value_texts,
)
from clicks import CHUNK_ROWS, N_CATEGORIES, click_chunks, write_clicks_csv

NAMES = [field.name for field in CLICK_FIELDS]


def clicks(n_rows: int, seed: int = 0, n_categories: int = 20_000, **settings: bool) -> pl.DataFrame:
    return pl.concat(click_chunks(n_rows, seed, n_categories=n_categories, **settings))


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    return clicks(300_000, with_probability=True)


def test_facts(log: pl.DataFrame) -> None:
    assert len(NAMES) == 22
    assert log.columns == [*NAMES, "click", "click_probability"]
    types = {**dict.fromkeys(NAMES, pl.String), "click": pl.Int8, "click_probability": pl.Float64}
    assert dict(log.schema) == types
    assert set(log["click"]) == {0, 1}
    assert clicks(10).columns == [*NAMES, "click"]


def test_texts_look_like_avazu(log: pl.DataFrame) -> None:
    hashes = [field.name for field in CLICK_FIELDS if field.text == "hash"]
    numbers = [field.name for field in CLICK_FIELDS if field.text == "number"]
    assert len(hashes) == 9
    assert log.select(pl.col(hashes).str.contains(r"^[0-9a-f]{8}$").all()).row(0) == (True,) * 9
    assert log.select(pl.col(numbers).str.contains(r"^\d{1,6}$").all()).row(0) == (True,) * 12
    assert set(log["hour"]) == {f"1410{day}{hour:02}" for day in range(21, 31) for hour in range(24)}


@pytest.mark.parametrize("field", CLICK_FIELDS, ids=NAMES)
def test_no_two_values_share_a_text(field: ClickField) -> None:
    texts = value_texts(field, min(field.n_values, 1_000_000))
    assert texts.n_unique() == len(texts) == min(field.n_values, 1_000_000)


def test_sizes_keep_small_fields_and_cut_the_largest() -> None:
    sizes = dict(zip(NAMES, field_sizes(N_CATEGORIES), strict=True))
    assert sum(sizes.values()) == N_CATEGORIES
    cut = [field.name for field in CLICK_FIELDS if sizes[field.name] < field.n_values]
    assert cut == ["device_id", "device_ip"]
    assert abs(sizes["device_id"] - sizes["device_ip"]) <= 1


@pytest.mark.parametrize("n_categories", [44, 45, 1_000, 20_001, 9_449_445])
def test_sizes_add_up(n_categories: int) -> None:
    sizes = field_sizes(n_categories)
    assert sum(sizes) == n_categories
    assert min(sizes) >= 2
    assert all(size <= field.n_values for size, field in zip(sizes, CLICK_FIELDS, strict=True))


def test_seed() -> None:
    assert_frame_equal(clicks(500, seed=3), clicks(500, seed=3))
    assert not clicks(500, seed=3).equals(clicks(500, seed=4))


def test_first_rows_do_not_depend_on_how_many_follow() -> None:
    long = clicks(CHUNK_ROWS + 10)
    assert_frame_equal(clicks(100), long.head(100))
    assert_frame_equal(clicks(CHUNK_ROWS + 3), long.head(CHUNK_ROWS + 3))
    assert not long.head(10).equals(long.tail(10))


def test_chunks_have_one_size() -> None:
    heights = [chunk.height for chunk in click_chunks(2 * CHUNK_ROWS + 5, n_categories=100)]
    assert heights == [CHUNK_ROWS, CHUNK_ROWS, 5]
    assert next(click_chunks(10**12, n_categories=100)).height == CHUNK_ROWS


def test_probability_changes_no_other_column(log: pl.DataFrame) -> None:
    assert_frame_equal(clicks(1_000), log.head(1_000).drop("click_probability"))


def test_csv_holds_the_chunks(tmp_path: Path) -> None:
    path = tmp_path / "new" / "clicks.csv"
    n_rows = CHUNK_ROWS + 100
    write_clicks_csv(path, n_rows, seed=2, n_categories=5_000)
    read = pl.read_csv(path, schema_overrides=dict.fromkeys(NAMES, pl.String)).cast({"click": pl.Int8})
    assert_frame_equal(read, clicks(n_rows, seed=2, n_categories=5_000))
    again = tmp_path / "again.csv"
    write_clicks_csv(again, n_rows, seed=2, n_categories=5_000)
    assert again.read_bytes() == path.read_bytes()
    assert 130 < path.stat().st_size / n_rows < 150


def test_csv_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_clicks_csv(tmp_path / "file" / "clicks.csv", 10, n_categories=100)
    with pytest.raises(ConfigError, match="n_rows"):
        write_clicks_csv(tmp_path / "clicks.csv", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_all_values_occur_and_follow_zipf(log: pl.DataFrame) -> None:
    n_seen = sum(log[name].n_unique() for name in NAMES)
    assert 0.98 * 20_000 < n_seen <= 20_000
    shares = log["site_id"].value_counts(sort=True)["count"].head(4) / log.height
    size = field_sizes(20_000)[NAMES.index("site_id")]
    expected = np.log(np.arange(2, 6) / np.arange(1, 5)) / np.log(size + 1)
    np.testing.assert_allclose(shares, expected, atol=0.003)


def test_hours_are_equally_frequent(log: pl.DataFrame) -> None:
    counts = log["hour"].value_counts()["count"]
    assert counts.min() > 0.85 * log.height / 240
    assert counts.max() < 1.15 * log.height / 240


def test_click_rate(log: pl.DataFrame) -> None:
    assert log["click"].mean() == pytest.approx(0.17, abs=0.005)
    rare = next(click_chunks(60_000, n_categories=1_000, click_rate=0.02))
    assert rare["click"].mean() == pytest.approx(0.02, abs=0.003)


def test_probability_is_true(log: pl.DataFrame) -> None:
    tenth = (pl.col("click_probability") * 10).floor()
    tenths = log.group_by(tenth.alias("tenth")).agg(pl.len(), pl.col("click", "click_probability").mean())
    tenths = tenths.filter(pl.col("len") > 2_000)
    assert tenths.height >= 6
    np.testing.assert_allclose(tenths["click"], tenths["click_probability"], atol=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_best_possible_auc(seed: int) -> None:
    frame = next(click_chunks(60_000, seed, with_probability=True))
    assert roc_auc_score(frame["click"], frame["click_probability"]) > 0.80


def usual(log: pl.DataFrame, source: str, dependent: str) -> pl.DataFrame:
    """Rows of frequent source values, each with whether its dependent value is the most frequent for its source."""
    counts = log.group_by(source, dependent).len().sort("len", source, dependent, descending=True)
    best = counts.group_by(source).agg(pl.col(dependent).first().alias("usual"), pl.col("len").sum())
    holds = (pl.col(dependent) == pl.col("usual")).alias("holds")
    return log.join(best.filter(pl.col("len") >= 200), on=source).with_columns(holds)


@pytest.mark.parametrize(("source", "dependent", "noise"), CLICK_DEPENDENCIES)
def test_planted_dependencies_hold_at_the_stated_rate(
    log: pl.DataFrame, source: str, dependent: str, noise: float
) -> None:
    rows = usual(log, source, dependent)
    # A value drawn at random may happen to be the implied one.
    by_chance = noise * float(log[dependent].value_counts(normalize=True)["proportion"].max())
    assert 1 - noise - 0.01 < rows["holds"].mean() < 1 - noise + by_chance + 0.02


def test_a_source_stands_before_its_dependents() -> None:
    assert all(NAMES.index(source) < NAMES.index(dependent) for source, dependent, _ in CLICK_DEPENDENCIES)
    assert len({dependent for _, dependent, _ in CLICK_DEPENDENCIES}) == len(CLICK_DEPENDENCIES)


@pytest.mark.parametrize(("source", "dependent", "noise"), CLICK_DEPENDENCIES)
def test_a_broken_dependency_costs_clicks(log: pl.DataFrame, source: str, dependent: str, noise: float) -> None:
    rate = dict(usual(log, source, dependent).group_by("holds").agg(pl.col("click").mean()).rows())
    assert rate[False] < 0.8 * rate[True]


def explained(log: pl.DataFrame, *fields: str) -> float:
    """Share of the variance of the true score that the values of some fields explain, by means of groups."""
    probability = pl.col("click_probability")
    score = log.select(*fields, (probability / (1 - probability)).log().alias("score"))
    means = score.select(pl.col("score").mean().over(fields))["score"].to_numpy()
    return float(means.var() / score["score"].to_numpy().var())


@pytest.mark.parametrize("pair", [("hour", "site_category"), ("C20", "app_category"), ("device_conn_type", "C17")])
def test_pairs_tell_more_than_their_fields(log: pl.DataFrame, pair: tuple[str, str]) -> None:
    assert pair in CLICK_INTERACTIONS
    assert explained(log, *pair) > explained(log, pair[0]) + explained(log, pair[1]) + 0.01


def test_field_without_a_part_tells_nothing(log: pl.DataFrame) -> None:
    assert explained(log, "C1") < 0.001
    assert explained(log, "C1", "banner_pos") < explained(log, "banner_pos") + 0.001


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"n_rows": 0}, ("n_rows", 0)),
        ({"seed": -1}, ("seed", -1)),
        ({"n_categories": 43}, ("n_categories", 43)),
        ({"n_categories": 10**7}, ("n_categories", 10000000)),
        ({"click_rate": 1.0}, ("click_rate", 1.0)),
        ({"click_rate": float("nan")}, ("click_rate", "nan")),
    ],
)
def test_bad_settings_are_refused_before_any_row(settings: dict[str, object], facts: tuple[object, ...]) -> None:
    with raises(ConfigError, *facts):
        click_chunks(**{"n_rows": 10, **settings})  # type: ignore[arg-type]  # wrong values are the point
