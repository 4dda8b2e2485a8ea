import io
import time

import numpy as np
import polars as pl

from fielddep.encoding.vocabulary import MISSING, RARE, Vocabulary
from tests.oracle.encoder import count_values


def build(values: list[str | None], min_count: int = 1, *, keep_rare: bool = False) -> Vocabulary:
    return Vocabulary.from_counts(*count_values(pl.Series(values, dtype=pl.String)), min_count, keep_rare=keep_rare)


def test_ids_by_falling_count_then_text() -> None:
    vocabulary = build(["b", "a", "c", "c", None, "d", "d"])
    assert vocabulary.values.to_list() == ["c", "d", "a", "b"]
    assert vocabulary.counts.tolist() == [1, 0, 2, 2, 1, 1]
    assert vocabulary.counts.dtype == np.int64
    assert len(vocabulary.counts) == 6


def test_rare_values_share_one_id() -> None:
    vocabulary = build(["a"] * 3 + ["b"] * 2 + ["c"], min_count=3)
    assert vocabulary.values.to_list() == ["a"]
    assert vocabulary.counts.tolist() == [0, 3, 3]
    ids, n_unknown = vocabulary.encode(pl.Series(["c", "a", "new"]))
    assert ids.tolist() == [1, 2, 1]
    assert ids.dtype == np.int32
    assert n_unknown == 2


def test_kept_rare_values_are_not_unknown() -> None:
    vocabulary = build(["a", "a", "b"], min_count=2, keep_rare=True)
    ids, n_unknown = vocabulary.encode(pl.Series(["b", "a", "new"]))
    assert (ids.tolist(), n_unknown) == ([1, 2, 1], 1)
    assert vocabulary.unknown_rows(pl.Series(["b", None, "new"])).tolist() == [2]


def test_missing_id_only_where_training_had_missing_values() -> None:
    asked = pl.Series([None, "a"], dtype=pl.String)
    ids, n_unknown = build(["a", None]).encode(asked)
    assert (ids.tolist(), n_unknown) == ([0, 2], 0)
    ids, n_unknown = build(["a"]).encode(asked)
    assert (ids.tolist(), n_unknown) == ([1, 2], 0)


def test_counts_of_chunks_add_up() -> None:
    values, counts = pl.Series(["a", "b", "a"]), pl.Series([2, 4, 3])
    vocabulary = Vocabulary.from_counts(values, counts, n_missing=7, min_count=5)
    assert vocabulary.values.to_list() == ["a"]
    assert vocabulary.counts.tolist() == [7, 4, 5]


def test_decode_and_labels() -> None:
    vocabulary = build(["a", "a", "b", None])
    assert vocabulary.labels().to_list() == [MISSING, RARE, "a", "b"]


def test_arrow_round_trip() -> None:
    for keep_rare in (False, True):
        vocabulary = build(["ä" * 10_000, "b", "b", "c", "c", None], min_count=2, keep_rare=keep_rare)
        file = io.BytesIO()
        vocabulary.to_frame().write_ipc(file)
        again = Vocabulary.from_frame(pl.read_ipc(io.BytesIO(file.getvalue())), keep_rare=keep_rare)
        assert again.values.to_list() == vocabulary.values.to_list() == ["b", "c"]
        assert again.counts.tolist() == [1, 1, 2, 2]
        assert again.encode(pl.Series(["ä" * 10_000, "b", "x"]))[1] == (1 if keep_rare else 2)
        assert (again.rare is None) is not keep_rare


def test_long_value_is_kept() -> None:
    long = "x" * 10_000
    assert build([long, long + "y"]).encode(pl.Series([long + "y", long]))[0].tolist() == [3, 2]


def test_empty_vocabulary() -> None:
    vocabulary = build([])
    ids, n_unknown = vocabulary.encode(pl.Series(["a", None], dtype=pl.String))
    assert (ids.tolist(), n_unknown, len(vocabulary.counts)) == ([1, 1], 1, 2)


def test_a_million_rows_against_a_million_values_keep_their_order() -> None:
    n = 1_000_000
    values = pl.Series(np.arange(n)).cast(pl.String)
    vocabulary = Vocabulary.from_counts(values, pl.Series(np.arange(n, 0, -1)), 0, 1)
    asked = np.random.default_rng(0).integers(0, n, n)
    start = time.perf_counter()
    ids, n_unknown = vocabulary.encode(pl.Series(asked).cast(pl.String))
    assert time.perf_counter() - start < 10
    assert n_unknown == 0
    np.testing.assert_array_equal(ids, asked + 2)
