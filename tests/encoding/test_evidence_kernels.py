"""Compiled counting has the sums of the plain form, and its statements, whatever the table is like."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.encoding import counting, evidence
from fielddep.encoding.choosing import choose_combinations
from fielddep.encoding.counting import CountedRows, count_all
from fielddep.encoding.evidence import MAX_TABLE, Cells, Evidence, joint_keys, list_means, statements
from fielddep.encoding.learn_evidence import learn_evidence
from fielddep.encoding.ragged import Ragged, starts_of
from fielddep.native import forced, native

pytestmark = pytest.mark.skipif(native() is None, reason="no compiled kernels in this installation")

TASKS = ("binary", "multiclass", "regression")
LISTED = 4
COMBINATIONS = [(0,), (1,), (3,), (0, 1), (1, 2), (0, 1, 2), (1, 2, 3), (LISTED,)]


def allocate(name: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[np.float16]:
    return np.full(shape, np.nan, dtype=dtype)


def table(
    n_rows: int,
    *,
    task: str = "binary",
    weighted: bool = False,
    in_order: bool = False,
    train_share: float = 0.8,
    n_folds: int = 10,
    n_ids: tuple[int, ...] = (3, 40, 500, 1 << 30),
    min_rows: float = 0.0,
    seed: int = 0,
) -> CountedRows:
    """Skewed ids, and a list of one to four ids at the end."""
    rng = np.random.default_rng(seed)
    columns: list = [np.floor(n ** rng.random(n_rows) - 1).astype(np.int32) for n in n_ids]
    lengths = rng.integers(1, 5, n_rows)
    columns.append(Ragged(rng.integers(0, 30, lengths.sum()).astype(np.int32), starts_of(lengths)))
    score = columns[0] + rng.normal(size=n_rows)
    target = {
        "binary": (score > 1).astype(np.float32),
        "multiclass": np.clip(score + 1, 0, 3).astype(np.int64),
        "regression": score.astype(np.float32),
    }[task]
    return CountedRows(
        columns=columns,
        n_ids=(*n_ids, 30),
        target_R=target,
        weight_R=np.where(rng.random(n_rows) < 0.2, 0, rng.random(n_rows) * 3).astype(np.float32) if weighted else None,
        parts_R=(rng.random(n_rows) > train_share).astype(np.uint8),
        folds_R=(rng.integers(0, n_folds, n_rows) * 3).astype(np.uint8),
        in_order=in_order,
        min_rows=min_rows,
        task=task,
        n_outputs=4 if task == "multiclass" else 1,
    )


def learn(rows: CountedRows, kind: str) -> tuple[Evidence, npt.NDArray[np.float16]]:
    with forced(kind):
        return learn_evidence(rows, allocate, COMBINATIONS, 0)


def assert_same_cells(found: Cells, expected: Cells) -> None:
    assert (found.fields, found.n_ids, found.prior) == (expected.fields, expected.n_ids, expected.prior)
    for name in ("keys_G", "n_G", "s_GC"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes(), name


def assert_same(rows: CountedRows) -> None:
    evidence, said = learn(rows, "native")
    expected, expected_said = learn(rows, "plain")
    for cells, others in zip(evidence.cells, expected.cells, strict=True):
        assert_same_cells(cells, others)
    np.testing.assert_array_equal(said, expected_said)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("n_rows", [300, 40_000])
@pytest.mark.parametrize("min_rows", [0, 7])
def test_counts_and_statements_are_those_of_the_plain_form(task, weighted, in_order, n_rows, min_rows):
    assert_same(table(n_rows, task=task, weighted=weighted, in_order=in_order, min_rows=min_rows))


@settings(max_examples=60, deadline=None)
@given(
    n_rows=st.integers(1, 60),
    task=st.sampled_from(TASKS),
    weighted=st.booleans(),
    in_order=st.booleans(),
    train_share=st.sampled_from([0.0, 0.5, 1.0]),
    n_folds=st.integers(1, 12),
    n_ids=st.tuples(*[st.integers(1, 1 << 15)] * 4),
    min_rows=st.sampled_from([0, 1, 2, 4.5]),
    seed=st.integers(0, 1 << 30),
)
def test_random_small_tables(n_rows, **arguments):
    assert_same(table(n_rows, **arguments))


@pytest.mark.parametrize("train_share", [0.0, 1.0])
def test_no_training_rows_and_no_others(train_share):
    assert_same(table(500, train_share=train_share))


def test_no_rows():
    with forced("native"):
        cells = count_all(table(0), COMBINATIONS, np.empty((len(COMBINATIONS), 0, 2), dtype=np.float16))
    assert [len(one) for one in cells] == [0] * len(COMBINATIONS)


def test_large_keys():
    rows = table(5000, n_ids=(1 << 20, 1 << 20, 1 << 21, 7))
    cells = count_all(rows, [(0, 1, 2)], np.empty((1, 5000, 2)))[0]
    assert cells.keys_G[-1] > 1 << 50
    assert_same(rows)


def test_one_value_in_most_rows():
    """Its bucket is larger than all others together."""
    rows = table(60_000)
    rows.columns[3][::2] = 5
    assert_same(rows)


def test_wrong_ids_are_refused():
    rows = table(100)
    rows.columns[1][3] = 40
    with pytest.raises(IndexError, match="smaller than the number of ids"):
        count_all(rows, [(1,)], np.empty((1, 100, 2)))


@pytest.mark.parametrize("task", TASKS)
def test_threads_do_not_change_a_byte(monkeypatch, task):
    rows = table(30_000, task=task)
    found = []
    for n_threads in (1, 2, 4):
        monkeypatch.setattr(counting, "n_threads", lambda n=n_threads: n)
        cells, said = learn(rows, "native")
        found.append((said.tobytes(), *(array.tobytes() for array in cells.arrays().values())))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_statements_are_rounded_to_the_type_of_the_array(dtype):
    rows = table(3000)
    said = np.empty((1, 3000, 2), dtype=dtype)
    count_all(rows, [(0, 1)], said)
    with forced("plain"):
        expected = np.empty((1, 3000, 2))
        count_all(rows, [(0, 1)], expected)
    np.testing.assert_allclose(said, expected.astype(dtype), rtol=0 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_statements_about_new_rows(task):
    rows, new = table(20_000, task=task), table(5000, task=task, seed=1)
    learned, _ = learn(rows, "native")
    ids_RF = np.stack([*new.columns[:LISTED], np.zeros(len(new))], axis=1).astype(np.int32)
    lists = new.columns[LISTED]
    found = {}
    for kind in ("native", "plain"):
        with forced(kind):
            found[kind] = learned.encode(ids_RF, {LISTED: lists})
            for n_rows in (0, 1, 5, 64, 700):
                few = learned.encode(ids_RF[:n_rows], {LISTED: lists[:n_rows]})
                assert few.tobytes() == found[kind][:n_rows].tobytes()
    np.testing.assert_array_equal(found["native"], found["plain"])


def test_statements_are_those_of_one_combination_after_the_other():
    rows, new = table(20_000), table(50, seed=1)
    learned, _ = learn(rows, "native")
    ids_RF = np.stack([*new.columns[:LISTED], np.zeros(50)], axis=1).astype(np.int32)
    said = learned.encode(ids_RF, {LISTED: new.columns[LISTED]}).reshape(50, len(COMBINATIONS), 2)
    for k, cells in enumerate(learned.cells[:-1]):
        sums = cells.sums(joint_keys([ids_RF[:, f] for f in cells.fields], cells.n_ids))
        expected = statements(*sums, learned.base_C, cells.prior, "binary")
        np.testing.assert_array_equal(said[:, k], expected.astype(np.float16))
    lists = new.columns[LISTED]
    said_V = statements(*learned.cells[-1].sums(lists.values.astype(np.int64)), learned.base_C, cells.prior, "binary")
    assert learned.cells[-1].prior == cells.prior
    np.testing.assert_array_equal(said[:, -1], list_means(said_V, lists).astype(np.float16))


def test_ids_in_any_order_of_memory():
    rows = table(2000)
    learned, _ = learn(rows, "native")
    ids_RF = np.stack([*rows.columns[:LISTED], np.zeros(2000)], axis=1).astype(np.int32)
    lists = {LISTED: rows.columns[LISTED]}
    assert np.array_equal(learned.encode(np.asfortranarray(ids_RF), lists), learned.encode(ids_RF, lists))


def test_the_compiled_module_is_asked_for_once(monkeypatch):
    learned, _ = learn(table(500), "native")
    asked = []
    monkeypatch.setattr(evidence, "native", lambda: asked.append(1) or native())
    learned.encode(np.zeros((3, 5), dtype=np.int32), {LISTED: Ragged.of([[1, 2], [3], [4]])})
    assert len(asked) == 1


def test_cells_are_in_memory_once():
    learned, _ = learn(table(500), "native")
    loaded = pickle.loads(pickle.dumps(Evidence.from_parts(learned.to_json(), learned.arrays())))
    for one in (learned, Evidence.from_parts(learned.to_json(), learned.arrays())):
        assert all(np.shares_memory(cells.s_GC, one.s_GC) for cells in one.cells)
    assert all(np.array_equal(loaded.arrays()[name], array) for name, array in learned.arrays().items())


def test_ids_of_too_few_fields_are_refused():
    learned, _ = learn(table(500), "native")
    with pytest.raises(ValueError, match="a field has no ids"):
        learned.encode(np.zeros((3, 2), dtype=np.int32), {})


@settings(max_examples=60, deadline=None)
@given(
    keys=st.sets(st.one_of(st.integers(0, 100), st.integers(0, (1 << 62) - 1)), min_size=1, max_size=80),
    others=st.lists(st.one_of(st.integers(0, 200), st.integers(0, (1 << 62) - 1)), max_size=20),
    n_rows=st.sampled_from([1, 63, 64, 1000]),
)
def test_keys_are_found_where_a_binary_search_finds_them(keys, others, n_rows):
    """Keys of two fields; every cell says something else."""
    keys_G = np.array(sorted({*keys, MAX_TABLE}), dtype=np.int64)
    cells = Cells(
        fields=(0, 1),
        n_ids=(1 << 31, 1 << 31),
        keys_G=keys_G,
        n_G=np.ones(len(keys_G)),
        s_GC=np.arange(1.0, len(keys_G) + 1)[:, None],
        prior=1.0,
    )
    learned = Evidence.of("regression", np.zeros(1), [cells])
    asked = np.resize([*others, *keys, 0, min(keys_G[-1] + 1, (1 << 62) - 1), (1 << 62) - 1], n_rows)
    ids_RF = np.stack(np.divmod(asked, 1 << 31), axis=1).astype(np.int32)
    with forced("native"):
        found = learned.encode(ids_RF, {})
    with forced("plain"):
        np.testing.assert_array_equal(found, learned.encode(ids_RF, {}))


@pytest.mark.parametrize("task", TASKS)
def test_both_forms_choose_the_same_combinations(task):
    rows = table(5000, task=task, n_ids=(3, 40, 50, 9))
    with forced("native"):
        found = choose_combinations(rows, 10)
    with forced("plain"):
        assert choose_combinations(rows, 10) == found


def test_counting_in_threads_of_the_caller():
    """Nothing is shared between counts."""
    rows = table(20_000)
    said = np.empty((8, 1, len(rows), 2), dtype=np.float16)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: count_all(rows, [(0, 1, 2)], one), said))
    assert len({one.tobytes() for one in said}) == 1
