"""Training of the rare id."""

from __future__ import annotations

import numpy as np
import torch

from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import EncodedRows, Layout
from fielddep.training.unknown import UnknownTraining
from tests.conftest import random_table

LAYOUT = Layout(names=("a", "b", "n"), n_ids=(4, 5, 2), numerical=(2,))
COUNTS = [np.array([10, 0, 1000, 1]), np.array([0, 0, 50000, 50000, 50000]), np.array([3, 900])]


def rates(rate, n_steps=400):
    hidden = UnknownTraining(LAYOUT, COUNTS, rate=rate, seed=0)
    batch = random_table(LAYOUT, 500).batch(slice(None))
    changed = torch.zeros(LAYOUT.n_ids_total)
    for step in range(n_steps):
        new = hidden(batch, step).inputs.ids_BF
        moved = new != batch.inputs.ids_BF
        assert torch.equal(new[moved], (torch.tensor(LAYOUT.offsets) + 1).expand_as(new)[moved])
        changed.index_add_(0, batch.inputs.ids_BF[moved], torch.ones(int(moved.sum())))
    return changed / (torch.bincount(batch.inputs.ids_BF.flatten(), minlength=LAYOUT.n_ids_total) * n_steps)


def test_chance_follows_the_count():
    found = rates(0.25)
    assert found[[0, 1]].max() == 0  # missing and rare stay
    assert abs(found[3] - 0.25 / 1.25) < 0.02  # seen once
    assert 0.0005 < found[2] < 0.02  # frequent value of a small field: the floor
    assert (found[6:9] > 0.0005).all()  # a field with frequent values only is trained too
    assert found[9:].max() == 0  # numbers are never hidden


def test_values_of_lists_are_replaced_one_by_one():
    layout = Layout(names=("a", "b", "c"), n_ids=(4, 5, 4), lists=(1, 2), shares=((2, 0),))
    counts = [np.array([10, 0, 1000, 1]), np.array([5, 5, 1, 1, 1]), np.array([10, 0, 1000, 1])]
    lists = {"list1": Ragged.of([[2, 3, 4, 0]] * 300), "list2": Ragged.of([[3, 3]] * 300)}
    rows = EncodedRows(layout=layout, arrays={"ids": np.full((300, 3), 2, dtype=np.int32), **lists})
    inputs = UnknownTraining(layout, counts, rate=1.0, seed=0)(rows.batch(), 1).inputs
    own, shared = (one.ids_V for one in inputs.lists)
    assert set(own[3::4].tolist()) == {4}  # an empty cell stays
    for ids, rare in ((own[0::4], 5), (shared, 1)):
        assert abs(float((ids == rare).float().mean()) - 0.5) < 0.1
    assert set(shared.tolist()) == {1, 3}


def test_zero_rate_changes_nothing():
    batch = random_table(LAYOUT, 50).batch(slice(None))
    assert UnknownTraining(LAYOUT, COUNTS, rate=0.0, seed=0)(batch, 1) is batch


def test_draws_depend_on_seed_and_step_alone():
    batch = random_table(LAYOUT, 500).batch(slice(None))
    a, b, c = (UnknownTraining(LAYOUT, COUNTS, rate=1.0, seed=s) for s in (1, 1, 2))
    a(batch, 5)
    assert torch.equal(a(batch, 9).inputs.ids_BF, b(batch, 9).inputs.ids_BF)
    assert not torch.equal(a(batch, 9).inputs.ids_BF, c(batch, 9).inputs.ids_BF)
    assert not torch.equal(a(batch, 9).inputs.ids_BF, a(batch, 10).inputs.ids_BF)
