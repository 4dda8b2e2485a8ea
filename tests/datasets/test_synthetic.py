"""Synthetic tables: shape, seeds, and that what is planted is there (and only that).

Whether a model finds the planted pair is not checked here.
"""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fielddep.datasets import synthetic
from fielddep.datasets.synthetic import CHUNK_ROWS, generate
from fielddep.errors import ConfigError
from tests.helpers import raises


def determined_share(frame: pl.DataFrame, source: str, dependent: str) -> float:
    """Share of rows whose dependent value is the most frequent one for their source value."""
    counts = frame.group_by(source, dependent).len().group_by(source).agg(pl.col("len").max())
    return float(counts["len"].sum()) / frame.height


def test_facts() -> None:
    table = generate(1_000, n_fields=4, n_values=7, dependencies=(("field_2", "field_0"),))
    assert table.frame.shape == (1_000, 5)
    assert table.fields == ("field_0", "field_1", "field_2", "field_3")
    assert table.frame.columns == [*table.fields, "target"]
    assert (table.target, table.planted) == ("target", (("field_2", "field_0"),))
    assert set(table.frame["field_1"]) == {f"v{i}" for i in range(7)}
    assert set(table.frame["target"]) == {0, 1}
    assert dict(table.frame.schema) == {**dict.fromkeys(table.fields, pl.String), "target": pl.Int8}


def test_regression_target_is_continuous() -> None:
    table = generate(1_000, task="regression")
    assert table.frame.schema["target"] == pl.Float64
    assert table.frame["target"].n_unique() == 1_000


def test_seed() -> None:
    assert_frame_equal(generate(500, seed=3).frame, generate(500, seed=3).frame)
    assert not generate(500, seed=3).frame.equals(generate(500, seed=4).frame)


def test_first_rows_do_not_depend_on_how_many_follow() -> None:
    long = generate(CHUNK_ROWS + 10, n_fields=3).frame
    assert_frame_equal(generate(100, n_fields=3).frame, long.head(100))
    assert_frame_equal(generate(CHUNK_ROWS + 3, n_fields=3).frame, long.head(CHUNK_ROWS + 3))
    assert not long.head(10).equals(long.tail(10))  # each chunk has its own random stream


def test_values_follow_zipf() -> None:
    frame = generate(60_000, n_fields=2, n_values=4, dependencies=(), skew=1.0).frame
    shares = frame["field_1"].value_counts(sort=True)
    assert shares["field_1"].to_list() == ["v0", "v1", "v2", "v3"]
    expected = np.array([12, 6, 4, 3]) / 25
    np.testing.assert_allclose(shares["count"] / frame.height, expected, atol=0.01)


def test_dependency_without_noise_is_a_function() -> None:
    table = generate(5_000, dependencies=(("field_3", "field_1"),), noise=0.0)
    assert determined_share(table.frame, "field_3", "field_1") == 1.0


def test_only_planted_pairs_depend_on_each_other() -> None:
    frame = generate(50_000, n_fields=5, n_values=20, dependencies=(("field_3", "field_1"),), noise=0.2).frame
    pairs = itertools.permutations(range(5), 2)
    shares = {(i, j): determined_share(frame, f"field_{i}", f"field_{j}") for i, j in pairs}
    assert 0.80 < shares.pop((3, 1)) < 0.85
    assert 0.80 < shares.pop((1, 3)) < 0.90
    assert max(shares.values()) < 0.2


def test_chain_whose_source_has_the_higher_number() -> None:
    chain = (("field_2", "field_1"), ("field_1", "field_0"))
    frame = generate(5_000, n_fields=3, dependencies=chain, noise=0.0).frame
    assert determined_share(frame, "field_2", "field_0") == 1.0


def test_target_tells_whether_the_dependency_holds() -> None:
    frame = generate(50_000, n_values=20, noise=0.2).frame
    usual = frame.group_by("field_0").agg(pl.col("field_1").mode().first().alias("usual"))
    holds = pl.col("field_1") == pl.col("usual")
    means = frame.join(usual, on="field_0").group_by(holds.alias("holds")).agg(pl.col("target").mean())
    rate = dict(means.rows())
    assert rate[True] > 0.6
    assert rate[False] < 0.2


def test_target_depends_on_interactions_of_fields() -> None:
    frame = generate(60_000, n_fields=3, n_values=4, dependencies=(), skew=0.0, task="regression").frame
    target = frame["target"].to_numpy()

    def explained(*fields: str) -> float:
        means = frame.select(pl.col("target").mean().over(fields))["target"].to_numpy()
        return float(means.var() / target.var())

    assert explained("field_0", "field_1") > explained("field_0") + explained("field_1") + 0.1
    assert explained("field_0", "field_2") < explained("field_0") + explained("field_2") + 0.01


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"n_rows": 0}, ("n_rows", 0)),
        ({"n_fields": 1}, ("n_fields", 1)),
        ({"n_values": 1}, ("n_values", 1)),
        ({"seed": -1}, ("seed", -1)),
        ({"noise": 1.5}, ("noise", 1.5)),
        ({"skew": float("nan")}, ("skew", "nan")),
        ({"task": "ranking"}, ("task", "'ranking'")),
        ({"dependencies": (("field_0", "field_9"),)}, ("field_0", "field_5", "'field_9'")),
        ({"dependencies": (("field_0", "field_0"),)}, ("circle", "field_0")),
        ({"dependencies": (("field_0", "field_1"), ("field_1", "field_0"))}, ("circle", "field_0", "field_1")),
        ({"dependencies": (("field_0", "field_2"), ("field_1", "field_2"))}, ("one source", "field_2")),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], facts: tuple[object, ...]) -> None:
    with raises(ConfigError, *facts):
        generate(**{"n_rows": 10, **settings})  # type: ignore[arg-type]  # wrong types are the point


def test_zipf_shares_end_at_one() -> None:
    assert synthetic._zipf(1_000_003, 0.7)[-1] == 1.0
