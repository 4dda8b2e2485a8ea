"""Rows with one field changed equal rows encoded anew from changed raw values, crosses included."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.data.encoded import EncodedTable
from fielddep.data.vocabulary import MISSING_ID, RARE_ID
from fielddep.explain.changed_rows import hide_field, permute_field
from tests.unit.explain.trained import MIXED_FIELDS, mixed, mixed_frame, mixed_rows

FRAME = mixed_frame(120, seed=7)


def assert_same(found: EncodedTable, expected: EncodedTable) -> None:
    np.testing.assert_array_equal(found.ids_RF.numpy(), expected.ids_RF.numpy())
    np.testing.assert_array_equal(found.numbers_RN.numpy(), expected.numbers_RN.numpy())
    assert torch.equal(found.target_R, expected.target_R)


@pytest.mark.parametrize("field", MIXED_FIELDS)
def test_a_hidden_field_is_an_empty_column(field):
    encoder = mixed().encoder
    rows = mixed_rows(mixed())
    before = rows.ids_RF.clone(), rows.numbers_RN.clone()
    empty = FRAME.with_columns(pl.lit(None, dtype=FRAME.schema[field]).alias(field))
    hidden = hide_field(encoder, rows, MIXED_FIELDS.index(field))
    assert_same(hidden, encoder.encode(empty, with_target=True))
    assert torch.equal(rows.ids_RF, before[0]) and torch.equal(rows.numbers_RN, before[1])


def test_a_hidden_field_takes_an_id_that_was_trained():
    rows = mixed_rows(mixed())
    ids = {name: hide_field(mixed().encoder, rows, f).ids_RF[:, f] for f, name in enumerate(MIXED_FIELDS)}
    assert (ids["colour"] == MISSING_ID).all()  # training held missing colours
    assert (ids["shape"] == RARE_ID).all()
    assert (ids["price"] == RARE_ID).all()
    assert (ids["height"] == MISSING_ID).all()
    assert (ids["size"] == 1).all()  # a number, and that is the mean:
    assert (hide_field(mixed().encoder, rows, MIXED_FIELDS.index("size")).numbers_RN[:, 0] == 0).all()


def test_crosses_of_a_hidden_field_follow_and_others_stay():
    rows = mixed_rows(mixed())
    n_fields = len(MIXED_FIELDS)
    hidden = hide_field(mixed().encoder, rows, 0).ids_RF
    assert not torch.equal(hidden[:, n_fields], rows.ids_RF[:, n_fields])
    assert torch.equal(hidden[:, n_fields + 1], rows.ids_RF[:, n_fields + 1])


@pytest.mark.parametrize("field", MIXED_FIELDS)
def test_permuted_ids_are_those_of_permuted_values(field):
    encoder = mixed().encoder
    order = np.random.default_rng(3).permutation(len(FRAME))
    shuffled = FRAME.with_columns(FRAME[field].gather(order))
    found = permute_field(encoder, mixed_rows(mixed()), MIXED_FIELDS.index(field), order)
    assert_same(found, encoder.encode(shuffled, with_target=True))


def test_no_rows():
    none = mixed().encoder.encode(FRAME.clear(), with_target=True)
    for position in range(len(MIXED_FIELDS)):
        assert len(hide_field(mixed().encoder, none, position)) == 0
        assert len(permute_field(mixed().encoder, none, position, np.empty(0, dtype=np.int64))) == 0
