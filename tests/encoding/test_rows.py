"""Encoded rows: arrays by name, batches of them, and samples of rows that arrive chunk by chunk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fielddep.encoding.rows import EncodedRows, Inputs, Layout, sample_rows
from tests.stores import numbered_store

LAYOUT = Layout(names=("a", "b"), n_ids=(1000, 3))


def numbered(start: int, stop: int, *, with_target: bool = True) -> EncodedRows:
    number = np.arange(start, stop, dtype=np.int32)
    rows = EncodedRows(layout=LAYOUT, arrays={"ids": np.stack([number, number % 3], axis=1)})
    return rows.with_arrays(target=number.astype(np.float32)) if with_target else rows


def test_few_rows_are_all_kept() -> None:
    sample = sample_rows([numbered(0, 5), numbered(5, 5), numbered(5, 9)], 10)
    assert sample.n_seen == 9
    assert sample.numbers.tolist() == list(range(9))
    assert sample.table is not None and sample.table.target_R is not None
    assert sample.table.target_R.tolist() == list(range(9))
    assert sample.table.ids_RF[:, 0].tolist() == list(range(9))


def test_no_rows() -> None:
    sample = sample_rows([], 10)
    assert (sample.n_seen, sample.table) == (0, None)


def test_the_sample_does_not_depend_on_the_pieces() -> None:
    whole = sample_rows([numbered(0, 500)], 40, seed=3)
    pieces = sample_rows([numbered(at, at + 50) for at in range(0, 500, 50)], 40, seed=3)
    assert whole.table is not None and pieces.table is not None
    assert len(whole.table) == 40
    assert whole.numbers.tolist() == pieces.numbers.tolist() == whole.table.ids_RF[:, 0].tolist()
    assert np.array_equal(whole.table.ids_RF, pieces.table.ids_RF)
    assert sample_rows([numbered(0, 500)], 40, seed=4).numbers.tolist() != whole.numbers.tolist()


def test_every_row_has_the_same_chance() -> None:
    times = np.zeros(100)
    for seed in range(400):
        times[sample_rows([numbered(0, 60), numbered(60, 100)], 10, seed=seed).numbers] += 1
    assert times.sum() == 4000
    assert abs(times[:60].mean() - times[60:].mean()) < 4  # 40 each, give or take the noise of 400 draws
    assert times.min() > 15


def test_rows_without_target() -> None:
    sample = sample_rows([numbered(0, 3, with_target=False), numbered(3, 6, with_target=False)], 4)
    assert sample.table is not None
    assert sample.table.target_R is None
    assert len(sample.table) == 4


def test_rows_from_everywhere_in_a_store(tmp_path: Path) -> None:
    parts = np.arange(400) % 2
    rows = numbered_store(tmp_path / "store", parts).part("train")
    found = np.concatenate([chunk.target_R for chunk in rows.spread(32, 8)]).tolist()
    starts = [0, 130, 261, 392]
    assert found == [number for start in starts for number in range(start, start + 8) if number % 2 == 0]
    everything = np.concatenate([chunk.target_R for chunk in rows.spread(400, 8)]).tolist()
    assert everything == list(range(0, 400, 2))


def test_arrays_are_taken_batched_and_joined_by_name() -> None:
    rows = numbered(0, 6).with_arrays(numbers=np.arange(6, dtype=np.float32)[:, np.newaxis])
    some = rows.take(np.array([4, 1]))
    assert {name: values.tolist() for name, values in some.arrays.items()} == {
        "ids": [[4, 1], [1, 1]],
        "target": [4.0, 1.0],
        "numbers": [[4.0], [1.0]],
    }
    batch = EncodedRows.concat([some, rows.take(slice(5, None))]).batch(slice(1, None))
    assert batch.inputs.ids_BF.tolist() == [[1, 1001], [5, 1002]]
    assert batch.inputs.numbers_BN.tolist() == [[1.0], [5.0]]
    assert batch.target_B is not None and batch.target_B.tolist() == [1.0, 5.0]
    assert batch.weight_B is None


def test_joined_rows_have_the_arrays_that_all_have() -> None:
    joined = EncodedRows.concat([numbered(0, 2), numbered(2, 3, with_target=False)])
    assert list(joined.arrays) == ["ids"]
    assert len(EncodedRows.concat([EncodedRows.empty(LAYOUT), numbered(0, 2)])) == 2


def test_a_slice_is_a_view() -> None:
    rows = numbered(0, 6)
    assert np.shares_memory(rows.take(slice(2, 4)).ids_RF, rows.ids_RF)
    target_B = rows.batch(slice(2, 4)).target_B
    assert target_B is not None and np.shares_memory(target_B.numpy(), rows.target_R)


def test_inputs_are_taken_and_joined_whole() -> None:
    inputs = numbered(0, 6).batch().inputs
    again = Inputs.concat([inputs.take(slice(2)), inputs.take(slice(2, None))])
    assert all(torch.equal(a, b) for a, b in zip(again[:2], inputs[:2], strict=True))
