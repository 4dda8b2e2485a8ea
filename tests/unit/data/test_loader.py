"""The order of rows: every row once an epoch, decided by seed and epoch alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fielddep.data.batch import Batch, FieldLayout
from fielddep.data.encoded import EncodedTable
from fielddep.data.loader import Loader

LAYOUT = FieldLayout(names=("a", "b"), n_ids=(3, 3))


def numbered(n_rows: int) -> EncodedTable:
    """A table whose target is the row's number."""
    return EncodedTable(
        layout=LAYOUT,
        ids_RF=torch.ones(n_rows, 2, dtype=torch.int32),
        numbers_RN=torch.empty(n_rows, 0),
        target_R=torch.arange(n_rows).float(),
        weight_R=torch.arange(n_rows).float() + 1,
    )


def rows_of(batches: list[Batch]) -> list[list[int]]:
    return [batch.target_B.int().tolist() for batch in batches if batch.target_B is not None]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 64), st.integers(0, 5), st.integers(0, 3))
def test_every_row_once_an_epoch(n_rows, batch_size, seed, epoch):
    loader = Loader(numbered(n_rows), batch_size=batch_size, seed=seed)
    batches = rows_of(list(loader.batches(epoch)))
    assert len(batches) == loader.n_batches
    assert sorted(row for batch in batches for row in batch) == list(range(n_rows))
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", [0, None])
def test_no_tiny_last_batch(seed):
    sizes = [len(b) for b in Loader(numbered(101), batch_size=50, seed=seed).batches()]
    assert sorted(sizes) == [33, 34, 34]


def test_order_depends_on_seed_and_epoch_only():
    table = numbered(50)
    first = Loader(table, batch_size=8, seed=3)
    list(first.batches(0))
    torch.manual_seed(99)
    second = Loader(table, batch_size=8, seed=3)
    assert rows_of(list(first.batches(1))) == rows_of(list(second.batches(1)))
    assert rows_of(list(first.batches(0))) != rows_of(list(first.batches(1)))
    assert rows_of(list(first.batches(0))) != rows_of(list(Loader(table, batch_size=8, seed=4).batches(0)))


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    list(Loader(numbered(20), batch_size=4, seed=0).batches(0))
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("seed", [7, None])
@pytest.mark.parametrize("start", [0, 1, 5, 7])
def test_resuming_gives_the_rest(seed, start):
    loader = Loader(numbered(50), batch_size=8, seed=seed)
    assert rows_of(list(loader.batches(2, start))) == rows_of(list(loader.batches(2)))[start:]


def test_without_a_seed_rows_keep_their_order():
    batches = rows_of(list(Loader(numbered(25), batch_size=10).batches(3)))
    assert [row for batch in batches for row in batch] == list(range(25))


def test_a_batch_carries_all_of_its_rows():
    (batch,) = Loader(numbered(6), batch_size=10, seed=0).batches()
    assert batch.weight_B is not None and batch.target_B is not None
    assert torch.equal(batch.weight_B, batch.target_B + 1)
    assert batch.ids_BF.tolist() == [[1, 4]] * 6
    assert batch.ids_BF.dtype == torch.int64


def test_taking_rows_and_moving_batches():
    part = numbered(10).take(torch.tensor([7, 2]))
    assert len(part) == 2
    assert part.target_R is not None and part.target_R.tolist() == [7, 2]
    batch = part.batch(slice(None))
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    assert moved.ids_BF.device.type == "meta"
    assert len(moved) == 2
