"""Samples of rows that arrive piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fielddep.data import row_sample
from fielddep.data.batch import FieldLayout
from fielddep.data.encoded import EncodedTable
from fielddep.data.row_sample import sample_rows, spread_rows
from fielddep.data.store.loader import StorePart
from tests.stores import numbered_store

LAYOUT = FieldLayout(names=("a", "b"), n_ids=(1000, 3))


def numbered(start: int, stop: int, *, with_target: bool = True) -> EncodedTable:
    number = torch.arange(start, stop, dtype=torch.int32)
    return EncodedTable(
        layout=LAYOUT,
        ids_RF=torch.stack([number, number % 3], dim=1),
        numbers_RN=torch.empty(stop - start, 0),
        target_R=number.float() if with_target else None,
    )


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
    assert torch.equal(whole.table.ids_RF, pieces.table.ids_RF)
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


def test_pieces_of_a_store(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(row_sample, "PIECE_ROWS", 8)
    parts = np.arange(400) % 2
    rows = StorePart(store=numbered_store(tmp_path / "store", parts), part="train")
    found = torch.cat([block.target_R for block in spread_rows(rows, 32)]).tolist()
    starts = [0, 130, 261, 392]
    assert found == [number for start in starts for number in range(start, start + 8) if number % 2 == 0]
    everything = torch.cat([block.target_R for block in spread_rows(rows, 400)]).tolist()
    assert everything == list(range(0, 400, 2))
    table = numbered(0, 50)
    assert list(spread_rows(table, 8)) == [table]
