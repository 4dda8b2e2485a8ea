"""Evidence: counts, folds, statements, what is chosen, and what must not leak."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fielddep.encoding.choosing import MAX_FIELDS, choose_combinations
from fielddep.encoding.counting import Counted, CountedRows, count_all, count_combination
from fielddep.encoding.evidence import UNIT, Evidence, compact, joint_keys, statements
from fielddep.encoding.learn_evidence import N_FOLDS, learn_evidence
from fielddep.encoding.ragged import Ragged
from fielddep.native import forced


def in_memory(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.empty(shape, dtype=dtype)


def some_rows(n_rows: int = 400, *, task: str = "binary", seed: int = 0, **changes: Any) -> CountedRows:
    """Random rows of three fields, and targets that follow the first two."""
    rng = np.random.default_rng(seed)
    n_ids = (5, 7, 3)
    columns = [rng.integers(n, size=n_rows).astype(np.int32) for n in n_ids]
    score = (columns[0] + columns[1]) % 2 + 0.3 * rng.normal(size=n_rows)
    target: np.ndarray = (score > 0.5).astype(np.float32)
    if task == "multiclass":
        target = (columns[0] % 3).astype(np.int64)
    if task == "regression":
        target = ((score - score.mean()) / score.std()).astype(np.float32)
    given: dict[str, Any] = {
        "columns": columns,
        "n_ids": n_ids,
        "measured": (),
        "target_R": target,
        "weight_R": None,
        "parts_R": rng.choice([0, 0, 0, 1, 2], size=n_rows).astype(np.uint8),
        "folds_R": rng.integers(N_FOLDS, size=n_rows).astype(np.uint8),
        "in_order": False,
        "task": task,
        "n_outputs": 3 if task == "multiclass" else 1,
    }
    return CountedRows(**{**given, **changes})


def told_by_hand(rows: CountedRows, fields: tuple[int, ...], row: int) -> tuple[float, list[float]]:
    """Rows and sums that one row may be told of, by a loop."""
    n, sums = 0.0, [0.0] * rows.n_outputs
    cell = [rows.columns[f][row] for f in fields]
    for other in range(len(rows)):
        if rows.parts_R[other] or [rows.columns[f][other] for f in fields] != cell:
            continue
        if rows.parts_R[row] == 0:
            hidden = (
                rows.folds_R[other] >= rows.folds_R[row]
                if rows.in_order
                else (rows.folds_R[other] == rows.folds_R[row])
            )
            if hidden:
                continue
        weight = 1.0 if rows.weight_R is None else float(rows.weight_R[other])
        n += weight
        at = int(rows.target_R[other]) if rows.task == "multiclass" else 0
        sums[at] += weight if rows.task == "multiclass" else weight * float(rows.target_R[other])
    return n, sums


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("fields", [(1,), (0, 2), (0, 1, 2)])
def test_a_row_is_told_what_other_folds_say(task: str, in_order: bool, fields: tuple[int, ...]) -> None:
    rows = some_rows(150, task=task, in_order=in_order)
    counted = count_combination(rows, fields)
    for row in range(0, 150, 7):
        n, sums = told_by_hand(rows, fields, row)
        assert counted.n_V[row] == n
        assert counted.s_VC[row] == pytest.approx(sums, abs=150 * UNIT)


def test_weights_count_as_rows() -> None:
    weights = np.random.default_rng(1).integers(0, 4, size=100).astype(np.float32)
    rows = some_rows(100, weight_R=weights)
    counted = count_combination(rows, (0, 1))
    for row in range(0, 100, 5):
        n, sums = told_by_hand(rows, (0, 1), row)
        assert (counted.n_V[row], counted.s_VC[row, 0]) == (n, sums[0])


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_few_rows_say_nothing_and_are_not_kept(task: str, in_order: bool, weighted: bool) -> None:
    weights = np.random.default_rng(1).integers(0, 3, size=150).astype(np.float32) if weighted else None
    rows, fields = some_rows(150, task=task, in_order=in_order, weight_R=weights, min_rows=4), (0, 1)
    counted, all_cells = count_combination(rows, fields), count_combination(replace(rows, min_rows=0.0), fields).cells
    kept = all_cells.n_G >= 4
    assert 0 < kept.sum() < len(all_cells)
    assert np.array_equal(counted.cells.keys_G, all_cells.keys_G[kept])
    assert np.array_equal(counted.cells.n_G, all_cells.n_G[kept])
    assert np.array_equal(counted.cells.s_GC, all_cells.s_GC[kept])
    told = [told_by_hand(rows, fields, row) for row in range(150)]
    assert {0 < n < 4 for n, _ in told} == {False, True}
    for row, (n, sums) in enumerate(told):
        assert counted.n_V[row] == (n if n >= 4 else 0)
        assert counted.s_VC[row] == pytest.approx(sums if n >= 4 else [0.0] * rows.n_outputs, abs=150 * UNIT)


def test_a_value_of_few_rows_is_told_like_an_unseen_one() -> None:
    first = np.array([1] * 30 + [2] * 3 + [3] * 7, dtype=np.int32)
    parts = np.array([0] * 30 + [0] * 3 + [1] * 7, dtype=np.uint8)
    rows = some_rows(40, columns=[first], n_ids=(4,), parts_R=parts, min_rows=4)
    evidence, said = learn_evidence(rows, in_memory, [(0,)], 0)
    assert evidence.cells[0].keys_G.tolist() == [1]
    encoded = evidence.encode(np.array([[1], [2], [3]], dtype=np.int32), {})
    assert encoded[0].any() and encoded[1].tobytes() == encoded[2].tobytes() == said[0, 35].tobytes()
    assert not said[0, 30:].any()


def test_few_rows_of_a_value_in_lists_say_nothing() -> None:
    lists = Ragged.of([[2, 3], [3, 2], [2], [4, 2], [2, 4]])
    parts = np.array([0, 0, 0, 0, 2], dtype=np.uint8)
    target = np.array([1, 0, 1, 0, 1], dtype=np.float32)
    given = {"columns": [lists], "n_ids": (6,), "target_R": target, "parts_R": parts, "folds_R": np.arange(5)}
    counted = count_combination(some_rows(5, **given, min_rows=3), (0,))
    assert counted.cells.keys_G.tolist() == [2] and counted.cells.n_G.tolist() == [4]
    assert counted.n_V.tolist() == [3, 0, 0, 3, 3, 0, 3, 4, 0]


def test_a_sample_has_cells_of_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair whose cells have 40 rows in the table and 4 in the sample is found with 20 as the least."""
    monkeypatch.setattr("fielddep.encoding.choosing.MIN_SEARCH_ROWS", 1000)
    monkeypatch.setattr("fielddep.encoding.choosing.MAX_SEARCH_ROWS", 1000)
    rng = np.random.default_rng(3)
    columns = [rng.integers(16, size=10_000).astype(np.int32) for _ in range(4)]
    target = ((columns[1] + columns[3]) % 2).astype(np.float32)
    given = {"columns": columns, "n_ids": (16,) * 4, "target_R": target, "parts_R": np.zeros(10_000, dtype=np.uint8)}
    assert choose_combinations(some_rows(10_000, **given, min_rows=20), 3)[4] == (1, 3)


def test_a_list_counts_with_each_value_and_is_told_their_mean() -> None:
    lists = Ragged.of([[2, 3], [3], [2], [4, 2], [5]])
    target = np.array([1, 0, 1, 0, 1], dtype=np.float32)
    parts = np.array([0, 0, 0, 0, 2], dtype=np.uint8)
    rows = some_rows(5, columns=[lists], n_ids=(6,), target_R=target, parts_R=parts, folds_R=np.arange(5))
    counted = count_combination(rows, (0,))
    assert counted.cells.keys_G.tolist() == [2, 3, 4]
    assert counted.cells.n_G.tolist() == [3, 2, 1] and counted.cells.s_GC[:, 0].tolist() == [2, 1, 0]
    said = counted.said(rows)
    first = statements(np.array([2.0, 1.0]), np.array([[1.0], [0.0]]), rows.base_C, counted.cells.prior, "binary")
    assert said[0] == pytest.approx(first.mean(axis=0))
    assert said[4].tolist() == [0.0, 0.0]  # never seen


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_counts_of_two_tables_add_up(task: str) -> None:
    rows = some_rows(600, task=task, parts_R=np.zeros(600, dtype=np.uint8))
    fields = (0, 1)
    whole = count_combination(rows, fields).cells
    halves = [count_combination(rows.take(np.arange(start, 600, 2)), fields).cells for start in (0, 1)]
    merged = halves[0].merge(halves[1])
    assert np.array_equal(merged.keys_G, whole.keys_G)
    assert np.array_equal(merged.n_G, whole.n_G) and np.array_equal(merged.s_GC, whole.s_GC)


def test_new_rows_are_told_what_all_training_rows_say() -> None:
    rows = some_rows()
    evidence, said = learn_evidence(rows, in_memory, [(0,), (0, 1)], 10)
    held_out = np.flatnonzero(rows.parts_R)
    ids_RF = np.stack([np.asarray(column) for column in rows.columns], axis=1)
    encoded = evidence.encode(ids_RF, {})
    assert np.array_equal(encoded[held_out], said.transpose(1, 0, 2).reshape(len(rows), -1)[held_out])
    loaded = Evidence.from_parts(evidence.to_json(), evidence.arrays())
    assert np.array_equal(loaded.encode(ids_RF, {}), encoded)


def test_an_unseen_joint_value_says_nothing() -> None:
    rows = some_rows(columns=[np.zeros(400, dtype=np.int32)] * 3, n_ids=(9, 9, 9))
    evidence, _ = learn_evidence(rows, in_memory, [(0,), (0, 1, 2)], 10)
    assert np.array_equal(evidence.encode(np.full((2, 3), 8, dtype=np.int32), {}), np.zeros((2, 4)))


def test_keys_are_different_for_different_values() -> None:
    values = np.array(list(itertools.product(range(3), range(4), range(2))), dtype=np.int32)
    assert len(np.unique(joint_keys(list(values.T), (3, 4, 2)))) == len(values)


def test_a_planted_pair_comes_first() -> None:
    rng = np.random.default_rng(3)
    columns = [rng.integers(12, size=6000).astype(np.int32) for _ in range(6)]
    odd = (columns[1] * 5 + columns[4] * 3) % 7 < 3
    target = (rng.random(6000) < np.where(odd, 0.7, 0.3)).astype(np.float32)
    rows = some_rows(
        6000,
        columns=columns,
        n_ids=(12,) * 6,
        target_R=target,
        parts_R=np.zeros(6000, dtype=np.uint8),
        folds_R=rng.integers(N_FOLDS, size=6000).astype(np.uint8),
    )
    chosen = choose_combinations(rows, 5)
    assert chosen[:6] == [(f,) for f in range(6)]
    assert chosen[6] == (1, 4)


def test_pairs_and_triples_are_in_order_of_falling_gain() -> None:
    """The target is a triple, so that triple comes before all pairs."""
    rng = np.random.default_rng(3)
    columns = [rng.integers(4, size=6000).astype(np.int32) for _ in range(5)]
    target = ((columns[0] + columns[2] + columns[3]) % 2).astype(np.float32)
    given = {"columns": columns, "n_ids": (4,) * 5, "target_R": target, "parts_R": np.zeros(6000, dtype=np.uint8)}
    chosen = choose_combinations(some_rows(6000, **given), 20)
    assert chosen[5] == (0, 2, 3)
    assert (0, 2) in chosen[6:]


def test_a_planted_combination_of_four_is_found() -> None:
    """Its effect adds to that of three of its fields, which lead there."""
    rng = np.random.default_rng(3)
    columns = [rng.integers(4, size=20_000).astype(np.int32) for _ in range(6)]
    of_three, of_four = rng.normal(size=(4,) * 3), rng.normal(size=(4,) * 4)
    odds = of_three[columns[0], columns[2], columns[3]] + of_four[columns[0], columns[2], columns[3], columns[5]]
    target = (rng.random(20_000) < 1 / (1 + np.exp(-odds))).astype(np.float32)
    given = {
        "columns": columns,
        "n_ids": (4,) * 6,
        "target_R": target,
        "parts_R": np.zeros(20_000, dtype=np.uint8),
        "folds_R": rng.integers(N_FOLDS, size=20_000).astype(np.uint8),
    }
    chosen = choose_combinations(some_rows(20_000, **given), 30)
    assert (0, 2, 3, 5) in chosen and (0, 2, 3) in chosen
    assert [fields for fields in chosen if len(fields) == 4] == [(0, 2, 3, 5)]


def test_combinations_of_least_gain_are_dropped_first(caplog: pytest.LogCaptureFixture) -> None:
    rows = some_rows(4_000)
    everything, said = learn_evidence(rows, in_memory, None, 100)
    sizes = np.cumsum([len(cells) for cells in everything.cells]).tolist()
    assert len(sizes) > 4
    for max_cells, n_kept in ((sizes[-1], len(sizes)), (sizes[4], 5), (sizes[4] - 1, 4), (sizes[3], 4), (0, 3)):
        caplog.clear()
        evidence, kept_said = learn_evidence(rows, in_memory, None, 100, max_cells)
        assert evidence.combinations == everything.combinations[:n_kept]
        assert np.array_equal(kept_said, said[:n_kept])
        assert len(caplog.records) == (n_kept < len(sizes))


def test_combinations_that_are_named_are_kept() -> None:
    named = [(0,), (0, 1)]
    evidence, said = learn_evidence(some_rows(), in_memory, named, 100, 1)
    assert evidence.combinations == ((0,), (0, 1)) and len(said) == 2


def test_nothing_is_counted_after_there_are_too_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[int, ...]] = []

    def count(rows: CountedRows, fields: tuple[int, ...]) -> Counted:
        counted.append(fields)
        return count_combination(rows, fields)

    monkeypatch.setattr("fielddep.encoding.counting.count_combination", count)
    with forced("plain"):
        kept = count_all(some_rows(), [(0,), (1,), (0, 1), (0, 2), (1, 2)], np.empty((5, 400, 2)), max_cells=13)
    assert [cells.fields for cells in kept] == [(0,), (1,)]
    assert counted == [(0,), (1,), (0, 1)]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([0, 2**31 - 1]), np.int32),
        (np.array([0, 2**31]), np.int64),
        (np.array([2**60 + 1]), np.int64),
        (np.array([1.0, 5e6]), np.int32),
        (np.array([[0.5], [-3.25]]), np.float32),
        (np.array([UNIT, 2.0**31]), np.float32),
        (np.array([2.0**24 + UNIT]), np.float64),
        (np.array([1e300]), np.float64),
        (np.empty(0), np.int32),
    ],
)
def test_numbers_take_four_bytes_if_that_changes_none(values: np.ndarray, dtype: type) -> None:
    assert compact(values).dtype == dtype
    assert np.array_equal(compact(values).astype(values.dtype), values)


def test_few_rows_or_many_fields_have_no_evidence() -> None:
    assert choose_combinations(some_rows(200), 100) == []
    column = np.zeros(5_000, dtype=np.int32)
    many = some_rows(5_000, columns=[column] * (MAX_FIELDS + 1), n_ids=(2,) * (MAX_FIELDS + 1))
    assert choose_combinations(many, 100) == []


def test_numbers_that_the_model_sees_are_counted_with_other_fields_only() -> None:
    chosen = choose_combinations(some_rows(4_000, measured=(0, 1)), 100)
    assert chosen[0] == (2,)
    assert (0, 1) not in chosen and (0,) not in chosen


def test_what_parts_say_does_not_count_for_a_combination() -> None:
    """The target follows a number and a pair, so neither the number with a constant nor the pair with one is good."""
    rng = np.random.default_rng(5)
    number, left, right = (rng.integers(8, size=8_000).astype(np.int32) for _ in range(3))
    constant = (rng.random(8_000) < 0.01).astype(np.int32)
    score = number / 2 + 4 * ((left + right) % 2) + rng.normal(size=8_000)
    rows = some_rows(
        8_000,
        columns=[number, left, right, constant],
        n_ids=(8, 8, 8, 2),
        measured=(0,),
        target_R=(score > np.median(score)).astype(np.float32),
        parts_R=np.zeros(8_000, dtype=np.uint8),
    )
    chosen = choose_combinations(rows, 3)
    assert chosen[3] == (1, 2)
    assert chosen.index((1, 2)) < min(chosen.index(c) if c in chosen else 99 for c in [(0, 3), (1, 2, 3)])
    assert (1, 2, 3) not in choose_combinations(rows, 100)


def test_as_many_combinations_are_chosen_as_wanted() -> None:
    rows = some_rows(4_000)
    assert choose_combinations(rows, 0) == [(0,), (1,), (2,)]
    assert {(0, 1), (0, 2), (1, 2)} <= set(choose_combinations(rows, 100))


def test_a_number_that_rounds_is_exact_in_any_order() -> None:
    rows = some_rows(500, task="regression")
    shuffled = np.random.default_rng(0).permutation(500)
    first, second = count_combination(rows, (0,)).cells, count_combination(rows.take(shuffled), (0,)).cells
    assert np.array_equal(first.s_GC, second.s_GC)
    assert replace(first, prior=1.0).prior == 1.0
