"""Crosses: ids of joint values, and a search that finds planted ones and nothing in noise."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fielddep.config.settings import Config
from fielddep.encoding import crosses as cross_search
from fielddep.encoding.crosses import Cross, PairCounts, cross_name, pair_codes
from fielddep.encoding.encoder import Encoder
from fielddep.errors import SchemaError
from tests.helpers import raises
from tests.oracle.encoder import find_pairs, fit_cross
from tests.streamed import learned

IDS = np.array([[2, 2], [2, 2], [2, 3], [3, 2], [3, 2], [3, 2], [0, 3], [1, 1]], dtype=np.int32)
N_IDS = (4, 4)


def test_pairs_are_kept_by_count():
    cross = fit_cross(IDS, N_IDS, (0, 1), min_count=2)
    assert cross.codes.tolist() == [3 * 4 + 2, 2 * 4 + 2]
    assert cross.counts.tolist() == [0, 3, 3, 2]
    assert cross.encode(IDS).tolist() == [3, 3, 1, 2, 2, 2, 1, 1]
    assert cross.encode(IDS).dtype == np.int32


def test_an_unseen_pair_is_rare():
    cross = fit_cross(IDS, N_IDS, (0, 1), min_count=1)
    assert cross.counts.tolist() == [0, 0, 3, 2, 1, 1, 1]
    assert cross.encode(np.array([[3, 3], [2, 0], [3, 2]], dtype=np.int32)).tolist() == [1, 1, 2]


def test_a_cross_that_keeps_no_pair():
    cross = fit_cross(IDS, N_IDS, (0, 1), min_count=100)
    assert cross.encode(IDS).tolist() == [1] * 8
    assert cross.counts.tolist() == [0, 8]
    again = Cross.from_frame(cross.to_frame(), (0, 1), 4)
    assert again.encode(IDS).tolist() == [1] * 8


def test_round_trip_through_a_frame():
    rng = np.random.default_rng(0)
    ids = np.stack([rng.integers(0, 40, 3000), rng.integers(0, 60, 3000)], axis=1).astype(np.int32)
    cross = fit_cross(ids, (40, 60), (0, 1), min_count=2)
    frame = cross.to_frame()
    assert frame.columns == ["value", "id", "count"]
    assert frame["count"].sum() == 3000
    again = Cross.from_frame(frame.sample(fraction=1.0, shuffle=True, seed=0), (0, 1), 60)
    assert again.codes.tolist() == cross.codes.tolist()
    assert again.encode(ids).tolist() == cross.encode(ids).tolist()
    assert (
        again.counts.tolist()
        == cross.counts.tolist()
        == np.bincount(cross.encode(ids), minlength=len(again.counts)).tolist()
    )


def test_codes_are_one_to_one_and_do_not_overflow():
    large = 100_000
    ids = np.array([[large - 1, large - 1], [0, large - 1], [large - 1, 0]], dtype=np.int32)
    codes = pair_codes(ids, (0, 1), large)
    assert codes.tolist() == [(large - 1) * large + large - 1, large - 1, (large - 1) * large]
    assert cross_name("a", "b") == "a x b"


# --- the search -----------------------------------------------------------------------------------------------

SEEDS = range(8)


def noise_fields(rng: np.random.Generator, n_rows: int, n_fields: int = 6, n_values: int = 8) -> np.ndarray:
    return rng.integers(2, 2 + n_values, (n_rows, n_fields)).astype(np.int32)


def search(ids: np.ndarray, target: np.ndarray, seed: int = 0) -> list[tuple[int, int]]:
    return find_pairs(ids, (10,) * ids.shape[1], target.astype(np.float64), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_xor_is_the_first_found(seed):
    rng = np.random.default_rng(seed)
    ids = noise_fields(rng, 2000)
    target = ((ids[:, 1] + ids[:, 4]) % 2) ^ (rng.random(2000) < 0.3)
    assert search(ids, target, seed) == [(1, 4)]


@pytest.mark.parametrize("seed", SEEDS)
def test_two_planted_pairs_are_both_found(seed):
    rng = np.random.default_rng(seed)
    ids = noise_fields(rng, 4000)
    target = 2.0 * ((ids[:, 0] + ids[:, 3]) % 2) + (ids[:, 1] + ids[:, 2]) % 2 + rng.normal(size=4000)
    found = search(ids, target, seed)
    assert found[0] == (0, 3)
    assert set(found) == {(0, 3), (1, 2)}


@pytest.mark.parametrize("seed", SEEDS)
def test_pure_noise_has_no_cross(seed):
    rng = np.random.default_rng(seed)
    ids = noise_fields(rng, 2000)
    assert search(ids, rng.integers(0, 2, 2000), seed) == []
    assert search(ids, rng.normal(size=2000), seed) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_additive_effects_have_no_cross(seed):
    rng = np.random.default_rng(seed)
    ids = noise_fields(rng, 3000)
    effects = rng.normal(size=(6, 10))
    target = sum(effects[f, ids[:, f]] for f in range(6)) + rng.normal(size=3000)
    assert search(ids, target, seed) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interaction_of_classes_is_found(seed):
    rng = np.random.default_rng(seed)
    ids = noise_fields(rng, 3000)
    clean = (ids[:, 2] + ids[:, 5]) % 4
    target = np.where(rng.random(3000) < 0.3, rng.integers(0, 4, 3000), clean)
    assert search(ids, target, seed)[0] == (2, 5)


def test_what_is_not_looked_at():
    rng = np.random.default_rng(0)
    ids = noise_fields(rng, 500)
    target = (ids[:, 0] + ids[:, 1]) % 2
    assert find_pairs(ids, (10_000,) * 6, target.astype(float)) == []
    assert search(ids, np.ones(500)) == []
    assert find_pairs(ids[:, :1], (10,), target.astype(float)) == []


def test_a_long_table_is_sampled(monkeypatch):
    rng = np.random.default_rng(0)
    ids = noise_fields(rng, 6000)
    target = ((ids[:, 1] + ids[:, 4]) % 2).astype(float)
    monkeypatch.setattr(cross_search, "MAX_SEARCH_ROWS", 2000)
    seen: list[int] = []
    real = cross_search._without_main_effects
    monkeypatch.setattr(cross_search, "_without_main_effects", lambda i, n, o: seen.append(len(i)) or real(i, n, o))
    assert find_pairs(ids, (10,) * 6, target) == [(1, 4)]
    assert seen == [2000]


# --- in the encoder -------------------------------------------------------------------------------------------


def encoder_of(frame: pl.DataFrame, **settings: object) -> Encoder:
    config = Config().replace({"data.target": "y", **{f"data.{k}": v for k, v in settings.items()}})
    return learned(frame, config)


FRAME = pl.DataFrame(
    {"a": ["x", "y"] * 200, "b": ["p", "p", "q", "q"] * 100, "c": ["u"] * 200 + ["v"] * 200, "y": [0, 1, 1, 0] * 100}
)


def test_crosses_are_columns_behind_the_fields():
    encoder = encoder_of(FRAME, crosses=[["b", "a"]])
    layout = encoder.layout
    assert layout.names == ("a", "b", "c", "a x b")
    assert (layout.n_fields, layout.n_columns, layout.crosses) == (3, 4, ((0, 1),))
    ids = encoder.encode(pl.DataFrame({"a": ["x", "x", "new"], "b": ["p", None, "p"], "c": ["u", "v", "u"]}))[0].ids_RF
    assert ids[0, 3] >= 2
    assert ids[1:, 3].tolist() == [1, 1]


def test_auto_finds_and_none_does_not_look():
    assert [(c.left, c.right) for c in encoder_of(FRAME, crosses="auto").crosses] == [(0, 1)]
    assert encoder_of(FRAME, crosses="none").crosses == ()


def test_crosses_that_cannot_be():
    with raises(SchemaError, "'bb'", "'b'"):
        encoder_of(FRAME, crosses=[["a", "bb"]])
    with raises(SchemaError, "two different fields", "['a', 'a']"):
        encoder_of(FRAME, crosses=[["a", "a"]])
    with raises(SchemaError, "two different fields"):
        encoder_of(FRAME, crosses=[["a", "b", "c"]])


@pytest.mark.parametrize("sizes", [(5, 7), (300, 400)])
@pytest.mark.parametrize("largest_table", [1 << 22, 500])
def test_pairs_counted_in_chunks_give_the_same_cross(
    sizes: tuple[int, int], largest_table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fielddep.encoding.crosses.MAX_TABLE", largest_table)
    rng = np.random.default_rng(0)
    ids_RF = np.stack([(size * rng.random(2000) ** 4).astype(np.int32) for size in sizes], axis=1)
    counter = PairCounts(sizes, (0, 1))
    for start in range(0, 2000, 300):
        counter.add(ids_RF[start : start + 300])
    found, expected = counter.cross(2), fit_cross(ids_RF, sizes, (0, 1), 2)
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.counts.tolist() == expected.counts.tolist()


@pytest.mark.parametrize("largest_table", [1 << 22, 399, 1])
def test_merged_pair_counts_are_those_of_all_rows(largest_table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fielddep.encoding.crosses.MAX_TABLE", largest_table)
    ids_RF = (20 * np.random.default_rng(0).random((3000, 2)) ** 2).astype(np.int32)
    counters = [PairCounts((20, 20), (0, 1)) for _ in range(4)]
    for chunk, counter in enumerate([0, 0, 0, 1, 2, 2]):  # the last has no rows at all
        counters[counter].add(ids_RF[500 * chunk : 500 * (chunk + 1)])
    merged = counters[3].merge(counters[0]).merge(counters[1].merge(counters[2]))
    before = counters[0].cross(1).counts.sum()
    merged.add(ids_RF[:7])
    found, expected = merged.cross(2), fit_cross(np.concatenate([ids_RF, ids_RF[:7]]), (20, 20), (0, 1), 2)
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    assert before == counters[0].cross(1).counts.sum() == 1500  # merging and adding to the result change no operand


def test_ids_by_table_and_by_search_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ids_RF, others = rng.integers(0, 9, (500, 2), dtype=np.int32), rng.integers(0, 30, (500, 2), dtype=np.int32)
    by_table = fit_cross(ids_RF, (30, 30), (0, 1), 5).encode(others)
    monkeypatch.setattr("fielddep.encoding.crosses.MAX_TABLE", 1)
    by_search = fit_cross(ids_RF, (30, 30), (0, 1), 5).encode(others)
    assert by_table.tolist() == by_search.tolist()
    assert by_table.dtype == by_search.dtype == np.int32
    assert len(set(by_table.tolist())) > 5
