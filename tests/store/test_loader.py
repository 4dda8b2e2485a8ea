"""Batches from a store: every row once an epoch, decided by seed and epoch alone, reachable from any position."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.errors import StoreError
from fielddep.store import shards
from fielddep.store.loader import Loader
from fielddep.store.shards import MemoryShards, StorePart
from fielddep.store.store import PART_NAMES, Store
from tests.helpers import raises
from tests.stores import numbered_store


def drawn_parts(n_rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(3, size=n_rows, p=[0.7, 0.2, 0.1])


def rows_of(batches) -> list[list[int]]:
    return [batch.target_B.int().tolist() for batch in batches]


def flat(batches) -> list[int]:
    return [row for batch in rows_of(batches) for row in batch]


@pytest.fixture(scope="module", params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """200 rows, 25 chunks of 8."""
    folder = None if request.param == "memory" else tmp_path_factory.mktemp("numbered") / "store"
    return numbered_store(folder, drawn_parts(200))


def train_loader(store: Store, **settings) -> Loader:
    values = {"batch_size": 10, "seed": 3, "buffer_rows": 40, "chunk_rows": 8, **settings}
    return Loader(store.part("train"), **values)


def train_rows(store: Store) -> list[int]:
    return np.flatnonzero(store.parts(0, store.n_rows) == 0).tolist()


# --- every row once -------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 150), st.integers(1, 20), st.integers(1, 60), st.integers(1, 80), st.sampled_from([0, 7, None]),
    st.sampled_from([*PART_NAMES, None]), st.integers(0, 2),
)  # fmt: skip
def test_every_row_once_an_epoch(n_rows, chunk_rows, batch_size, buffer_rows, seed, part, epoch):
    marks = drawn_parts(n_rows)
    wanted = [row for row in range(n_rows) if part is None or marks[row] == PART_NAMES.index(part)]
    with tempfile.TemporaryDirectory() as folder:
        store = numbered_store(Path(folder) / "store", marks, chunk_rows=chunk_rows)
        rows = store.part(part)
        loader = Loader(rows, batch_size=batch_size, seed=seed, buffer_rows=buffer_rows, chunk_rows=1 + buffer_rows % 7)
        batches = rows_of(loader.batches(epoch))
    assert len(rows) == loader.n_rows == len(wanted)
    assert sorted(row for batch in batches for row in batch) == wanted
    if wanted:
        sizes = [len(batch) for batch in batches]
        assert len(batches) == loader.n_batches == -(-len(wanted) // batch_size)
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("buffer_rows", [16, 40, 10_000])
@pytest.mark.parametrize("seed", [3, None])
def test_memory_and_disk_give_the_same_batches(tmp_path, seed, buffer_rows):
    parts = drawn_parts(150)
    stores = numbered_store(None, parts), numbered_store(tmp_path / "store", parts)
    for epoch in range(2):
        memory, disk = (train_loader(s, seed=seed, buffer_rows=buffer_rows).batches(epoch) for s in stores)
        for a, b in zip(memory, disk, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a.inputs[:2], b.inputs[:2], strict=True))
            assert torch.equal(a.target_B, b.target_B)
            assert torch.equal(a.weight_B, b.weight_B)


@pytest.mark.parametrize("seed", [0, None])
def test_no_tiny_last_batch(seed):
    loader = Loader(numbered_store(None, np.zeros(101)).part("train"), batch_size=50, seed=seed)
    assert sorted(len(batch) for batch in loader.batches()) == [33, 34, 34]


def test_a_batch_carries_all_of_its_rows(store):
    for batch in train_loader(store).batches():
        number = batch.target_B
        assert batch.inputs.ids_BF.dtype == torch.int64
        expected = torch.stack([2 + number % 3, 2 + number % 2, torch.ones_like(number)], dim=1).long()
        assert torch.equal(batch.inputs.ids_BF, expected + torch.tensor(store.layout.offsets))
        assert torch.equal(batch.inputs.numbers_BN[:, 0], (number.long() / 10).float())
        assert torch.equal(batch.weight_B, number + 1)


def test_without_a_seed_rows_keep_their_order(store):
    assert flat(train_loader(store, seed=None).batches(4)) == train_rows(store)
    everything = Loader(store.part(), batch_size=33)
    assert rows_of(everything.batches())[0] == list(range(28))
    assert flat(everything.batches()) == list(range(200))


# --- the order ------------------------------------------------------------------------------------------------


def test_order_depends_on_seed_and_epoch_only(store):
    first = train_loader(store)
    list(first.batches(0))
    torch.manual_seed(99)
    second = train_loader(store)
    assert rows_of(first.batches(1)) == rows_of(second.batches(1))
    assert rows_of(first.batches(0)) != rows_of(first.batches(1))
    assert rows_of(first.batches(0)) != rows_of(train_loader(store, seed=4).batches(0))


def test_the_callers_random_state_is_left_alone(store):
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    list(train_loader(store).batches())
    assert torch.equal(torch.rand(2), expected)


def test_buffers_hold_different_chunks_each_epoch(store):
    loader = train_loader(store)
    buffers = [{int(chunk) for chunk in chunks} for chunks in loader.buffers(0)]
    assert [len(chunks) for chunks in buffers] == [5, 5, 5, 5, 5]
    assert set().union(*buffers) == set(range(25))
    assert buffers != [{int(chunk) for chunk in chunks} for chunks in loader.buffers(1)]


def test_rows_of_a_buffer_are_shuffled_together(store):
    loader = train_loader(store)
    order = flat(loader.batches(0))
    rows = np.array(train_rows(store))
    at = 0
    for chunks in loader.buffers(0):
        expected = rows[np.isin(rows // 8, chunks)].tolist()
        found = order[at : at + len(expected)]
        assert sorted(found) == expected
        # The rows of a chunk do not stay together: neighbours of the order come from different ones, mostly.
        changes = np.mean(np.diff(np.array(found) // 8) != 0)
        assert changes > 0.5
        at += len(expected)


def test_a_store_of_one_buffer_is_shuffled_fully(store):
    order = np.array(flat(train_loader(store, buffer_rows=1 << 20).batches()))
    places = np.argsort(order)
    # Position and row number have nothing to do with each other.
    assert abs(np.corrcoef(places, np.arange(len(order)))[0, 1]) < 0.25


def test_chunks_without_rows_of_the_part_are_not_read(tmp_path):
    rows = numbered_store(tmp_path / "s", np.array([0] * 16 + [2] * 24)).part("test")
    loader = Loader(rows, batch_size=4, seed=0, chunk_rows=8)
    assert loader.chunks.tolist() == [2, 3, 4]
    assert sorted(flat(loader.batches())) == list(range(16, 40))


@pytest.mark.parametrize("chunk_rows", [1, 7, 8, 33, 500])
def test_rows_of_a_part_are_counted_by_chunks(store, chunk_rows, monkeypatch):
    monkeypatch.setattr(shards, "COUNTED_ROWS", 50)
    marks = store.parts(0, 200)
    for part, wanted in (("train", marks == 0), ("test", marks == 2), (None, marks < 3)):
        expected = [int(wanted[first : first + chunk_rows].sum()) for first in range(0, 200, chunk_rows)]
        assert store.part(part).counts(chunk_rows).tolist() == expected


# --- position -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("buffer_rows", [8, 40, 10_000])
def test_resuming_gives_the_rest(store, seed, buffer_rows):
    loader = train_loader(store, seed=seed, buffer_rows=buffer_rows)
    whole = rows_of(loader.batches(2))
    for start in range(loader.n_batches + 1):
        assert rows_of(loader.batches(2, start)) == whole[start:]


def test_resuming_reads_nothing_before_its_buffer(store, monkeypatch):
    loader = train_loader(store)
    seen: list[int] = []
    real = StorePart.numbers

    def numbers(self, start, stop):
        seen.append(start // 8)
        return real(self, start, stop)

    monkeypatch.setattr(StorePart, "numbers", numbers)
    list(loader.batches(0, loader.n_batches - 1))
    assert seen == [int(chunk) for chunk in loader.buffers(0)[-1]]


# --- errors and threads ---------------------------------------------------------------------------------------


def _fail_at_the_first(loader: Loader) -> None:
    for _ in loader.batches():
        raise ZeroDivisionError


def prefetching() -> int:
    return sum(thread.name.startswith("fielddep-prefetch") for thread in threading.enumerate())


def test_an_error_while_reading_is_raised_in_the_caller(tmp_path):
    store = numbered_store(tmp_path / "store", np.zeros(64, dtype=np.uint8))
    loader = Loader(store.part("train"), batch_size=4)
    shard = tmp_path / "store" / "shard-00002.ids"
    shard.write_bytes(shard.read_bytes()[:40])
    batches = loader.batches()
    assert flat([next(batches) for _ in range(8)]) == list(range(32))
    with raises(StoreError, "shard-00002.ids", "cut off"):
        list(batches)
    assert prefetching() == 0


def test_no_thread_stays_behind(tmp_path):
    loader = train_loader(numbered_store(tmp_path / "store", drawn_parts(200)))
    batches = loader.batches()
    assert prefetching() == 0, "nothing is read before the first batch is asked for"
    next(batches)
    batches.close()
    assert prefetching() == 0
    for _ in loader.batches():
        break
    assert prefetching() == 0
    with pytest.raises(ZeroDivisionError):
        _fail_at_the_first(loader)
    assert prefetching() == 0


def test_rows_in_memory_are_cut_without_a_thread_and_without_a_copy(tmp_path):
    store = numbered_store(None, drawn_parts(200))
    assert isinstance(store.shards, MemoryShards)
    batches = train_loader(store).batches()
    next(batches)
    assert prefetching() == 0
    assert np.shares_memory(store.read(3, 50).ids_RF, store.shards.rows.ids_RF)
    assert sorted(flat(Loader(store.shards.rows, batch_size=7, seed=1).batches())) == list(range(200))


def test_chunks_are_all_rows_in_order(store):
    rows = [int(row) for chunk in store.part("train").chunks() for row in chunk.target_R]
    assert rows == train_rows(store)


def test_a_part_is_counted_by_chunks_without_reading(store, monkeypatch):
    expected = store.part("train").counts(4).reshape(-1, 2).sum(axis=1).tolist()
    monkeypatch.setattr(type(store.shards), "parts", None)
    assert store.part("train").counts(8).tolist() == expected


def test_a_store_replaced_between_epochs_is_refused(tmp_path):
    loader = train_loader(numbered_store(tmp_path / "store", drawn_parts(100)))
    list(loader.batches(0))
    numbered_store(tmp_path / "other", drawn_parts(100, seed=1))
    for path in (tmp_path / "other").iterdir():
        path.replace(tmp_path / "store" / path.name)
    with raises(StoreError, "since it was opened"):
        next(loader.batches(1))


def test_a_store_replaced_within_an_epoch_is_refused(tmp_path):
    loader = train_loader(numbered_store(tmp_path / "store", drawn_parts(400)), batch_size=1)
    batches = loader.batches(0)
    next(batches)
    numbered_store(tmp_path / "other", drawn_parts(400, seed=1))
    (tmp_path / "store" / "manifest.json").unlink()
    for path in (tmp_path / "other").iterdir():
        path.replace(tmp_path / "store" / path.name)
    with raises(StoreError, "since it was opened"):
        list(batches)
