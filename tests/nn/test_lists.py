"""Fields with several values per row, in every model: the mean of the values, whatever their order."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from fielddep.config import NETWORKS
from fielddep.encoding.ragged import Ragged
from fielddep.encoding.rows import EncodedRows, Layout
from fielddep.nn import build_model
from fielddep.nn.embedding import EmbeddingTable
from fielddep.training.optim import Optimizer
from tests.small_models import small_config

LAYOUT = Layout(names=("user", "tags", "price", "history", "item"), n_ids=(5, 9, 2, 7, 7), numerical=(2,), lists=(1, 3))
SHARED = Layout(
    names=("user", "tags", "price", "history", "item"),
    n_ids=(5, 9, 2, 7, 7),
    numerical=(2,),
    lists=(1, 3),
    shares=((3, 4),),
)


def rows_of(layout: Layout, n_rows: int = 12, seed: int = 0) -> EncodedRows:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.integers(0, n, n_rows) for n in layout.n_ids], axis=1).astype(np.int32)
    lists = {
        f"list{f}": Ragged.of([rng.integers(0, layout.n_ids[f], rng.integers(1, 5)).tolist() for _ in range(n_rows)])
        for f in layout.lists
    }
    numbers = rng.normal(size=(n_rows, len(layout.numerical))).astype(np.float32)
    target = rng.integers(0, 2, n_rows).astype(np.float32)
    return EncodedRows(layout=layout, arrays={"ids": ids, "numbers": numbers, "target": target, **lists})


def model_of(name: str, layout: Layout):
    return build_model(layout, 1, small_config(name).model, regression=False, seed=0)


def test_shared_blocks_have_the_same_ids():
    assert SHARED.offsets == (0, 5, 14, 16, 16)
    assert SHARED.n_ids_total == 23
    assert LAYOUT.n_ids_total == 30
    assert SHARED.of_owners("abcde") == ["a", "b", "c", "e"]


@pytest.mark.parametrize("layout", [LAYOUT, SHARED])
def test_the_embedding_of_a_list_is_the_mean_of_its_values(layout):
    rows = rows_of(layout)
    table = EmbeddingTable(layout, 3, std=1.0)
    found = table(rows.batch().inputs).detach().numpy()
    weight = table.weight.detach().numpy()
    for r in range(len(rows)):
        for f, offset in enumerate(layout.offsets):
            ids = rows.lists_R(f).to_lists()[r] if f in layout.lists else [rows.ids_RF[r, f]]
            expected = sum(weight[offset + i] for i in ids) / len(ids)
            expected = expected * (rows.numbers_RN[r, 0] if f == 2 else 1.0)
            np.testing.assert_allclose(found[r, f], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_lists_of_one_value_are_plain_values(name):
    plain = replace(LAYOUT, lists=())
    rows = rows_of(plain)
    singles = {f"list{f}": Ragged.of([[i] for i in rows.ids_RF[:, f].tolist()]) for f in LAYOUT.lists}
    model, other = model_of(name, plain), model_of(name, LAYOUT)
    model.start_from(rows.batch().inputs)
    for one in (model, other):
        one.eval()
    other.load_state_dict(model.state_dict())
    other.train().eval()
    found = other.outputs(EncodedRows(layout=LAYOUT, arrays={**rows.arrays, **singles}))
    torch.testing.assert_close(found, model.outputs(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lr", "fm", "ffm"])
@pytest.mark.parametrize("layout", [LAYOUT, SHARED])
@torch.no_grad()
def test_models_add_up_values_weighted_by_one_over_the_length(name, layout):
    rows = rows_of(layout)
    model = model_of(name, layout)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_()
    found = model.outputs(rows)[:, 0].tolist()
    for r in range(len(rows)):
        entries = [_entries(rows, r, f) for f in range(layout.n_columns)]
        expected = float(model.bias) + sum(
            x * float(model.first_order.weight[i, 0]) for field in entries for i, x in field
        )
        pairs = itertools.combinations(range(layout.n_columns), 2) if name != "lr" else ()
        scale = 1.0
        if name == "ffm" and model.normalize:
            scale = 1 / (layout.n_columns - 1 + float(rows.numbers_RN[r, 0]) ** 2)
        for a, b in pairs:
            expected += scale * sum(
                x * z * _product(model, name, (a, i), (b, j)) for i, x in entries[a] for j, z in entries[b]
            )
        assert found[r] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def _entries(rows, row, field):
    """Joint ids and weights of a cell."""
    layout = rows.layout
    ids = rows.lists_R(field).to_lists()[row] if field in layout.lists else [int(rows.ids_RF[row, field])]
    number = float(rows.numbers_RN[row, 0]) if field in layout.numerical else 1.0
    return [(layout.offsets[field] + i, number / len(ids)) for i in ids]


def _product(model, name, left, right):
    """Product of the embeddings of two values, given as field and joint id; an FFM has one for each other field."""
    (a, i), (b, j) = left, right
    if name == "fm":
        return float(model.embedding.weight[i] @ model.embedding.weight[j])
    e_i, e_j = (model.embedding.weight[id_].view(*model.sizes)[:, 0] for id_ in (i, j))
    return float(e_i[b - 1] @ e_j[a])


ONLY_LISTS = Layout(names=("tags", "history"), n_ids=(9, 7), lists=(0, 1))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layout", [LAYOUT, SHARED, ONLY_LISTS])
def test_order_of_values_stand_ins_and_copies_of_a_list_change_nothing(name, layout):
    rows = rows_of(layout)
    model = model_of(name, layout)
    model.start_from(rows.batch().inputs)
    model.eval()
    changed = {
        f"list{f}": Ragged.of([list(reversed(ids)) * 2 for ids in rows.lists_R(f).to_lists()]) for f in layout.lists
    }
    ids = rows.ids_RF.copy()
    ids[:, list(layout.lists)] = 0
    other = rows.with_arrays(ids=ids, **changed)
    torch.testing.assert_close(model.outputs(other), model.outputs(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layout", [LAYOUT, SHARED, ONLY_LISTS])
def test_a_step_moves_exactly_the_values_of_the_batch(name, layout):
    rows = rows_of(layout, n_rows=4)
    model = model_of(name, layout)
    model.start_from(rows.batch().inputs)
    model.train()
    batch = rows.batch()
    optimizer = Optimizer(model, kind="adagrad", lr=0.1, l2={n: 0.1 for n, _ in model.tables()})
    before = {n: table.weight.detach().clone() for n, table in model.tables()}
    logits, penalty = model.training_forward(batch.inputs)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], batch.target_B)
    (loss if penalty is None else loss + penalty).backward()
    optimizer.step(batch.inputs)
    model.after_step(1)
    assert torch.isfinite(model(batch.inputs)).all()
    ids = batch.inputs.looked_up()[0]
    for table_name, table in model.tables():
        moved = (table.weight.detach() != before[table_name]).any(dim=1)
        still = torch.ones(len(moved), dtype=torch.bool)
        still[table.rows_of(ids)] = False
        if name != "fwl":  # its penalty moves all values
            assert not moved[still].any()
        assert moved.any()


def test_look_ups_weigh_the_square_of_one_over_the_length():
    rows = rows_of(LAYOUT, n_rows=3)
    ids, weights = rows.batch().inputs.looked_up()
    assert len(ids) == 3 * 3 + len(rows.lists_R(1).values) + len(rows.lists_R(3).values)
    lengths = np.concatenate([rows.lists_R(1).lengths, rows.lists_R(3).lengths])
    assert float(weights.sum()) == pytest.approx(3 * 3 + (1 / lengths).sum())


def test_rows_of_batches_can_be_taken_and_joined():
    rows = rows_of(LAYOUT, n_rows=7)
    inputs = rows.batch().inputs
    picked = inputs.take(torch.tensor([5, 0]))
    again = rows.take(np.array([5, 0])).batch().inputs
    joined = type(inputs).concat([inputs.take(slice(0, 3)), inputs.take(slice(3, None))])
    for one, other in ((picked, again), (joined, inputs)):
        assert torch.equal(one.ids_BF, other.ids_BF)
        for a, b in zip(one.lists, other.lists, strict=True):
            assert a.column == b.column and torch.equal(a.ids_V, b.ids_V) and torch.equal(a.starts, b.starts)
