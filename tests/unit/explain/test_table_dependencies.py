"""Dependencies over a table, against a loop over its rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.errors import UserError
from fielddep.explain import dependencies
from fielddep.explain.dependencies import explain_rows
from fielddep.explain.table_dependencies import table_dependencies
from tests.unit.explain.trained import MIXED_FIELDS, mixed, mixed_rows, planted


@pytest.mark.parametrize("block_rows", [1, 50, 1000])
def test_sums_equal_a_loop_over_the_rows(block_rows, monkeypatch):
    bundle, rows = mixed(), mixed_rows(mixed())
    explanation = explain_rows(bundle, rows)
    monkeypatch.setattr(dependencies, "BLOCK_ROWS", block_rows)
    found = table_dependencies(bundle, rows)
    counts, mean, size = np.zeros((5, 5), dtype=int), np.zeros((5, 5)), np.zeros((5, 5))
    for row in range(120):
        refined = explanation.refined(row).matrix_FF
        mean += refined / 120
        size += np.abs(refined) / 120
        for dependent in range(5):
            weights = np.abs(explanation.w_RSFF[row, -1, :, dependent])
            others = [source for source in range(5) if source != dependent]
            counts[max(others, key=lambda source: weights[source]), dependent] += 1
    assert found.n_rows == 120
    np.testing.assert_array_equal(found.counts_FF, counts)
    np.testing.assert_allclose(found.mean_FF, mean, atol=1e-6)
    np.testing.assert_allclose(found.size_FF, size, atol=1e-6)
    assert found.mean.fields == found.size.fields == MIXED_FIELDS


def test_frame_has_the_most_frequent_first():
    found = table_dependencies(mixed(), mixed_rows(mixed()))
    frame = found.to_frame()
    assert frame.columns == ["field", "leans_on", "n_rows", "share", "mean", "size"]
    assert frame["field"].to_list() == [name for name in MIXED_FIELDS for _ in range(4)]
    for f, name in enumerate(MIXED_FIELDS):
        part = frame.filter(frame["field"] == name)
        assert part["n_rows"].to_list() == sorted(part["n_rows"], reverse=True)
        assert part["share"].sum() == pytest.approx(1)
        first = part.row(0, named=True)
        assert first["n_rows"] == found.counts_FF[:, f].max()
        assert first["size"] == found.size_FF[MIXED_FIELDS.index(first["leans_on"]), f]


def test_no_rows():
    none = table_dependencies(mixed(), mixed_rows(mixed()).take(torch.empty(0, dtype=torch.int64)))
    assert none.n_rows == 0
    assert none.counts_FF.sum() == 0
    assert none.to_frame()["share"].sum() == 0


def test_a_model_without_dependencies():
    with pytest.raises(UserError, match="only the model mdl learns field dependencies"):
        table_dependencies(mixed(model="fm"), mixed_rows(mixed(model="fm")))


def test_the_planted_pair_is_the_strongest():
    table, bundle, rows = planted()
    found = table_dependencies(bundle, rows)
    strongest = found.size.strongest(2)
    assert [{entry.source, entry.dependent} for entry in strongest] == [set(table.planted[0])] * 2
    frame = found.to_frame()
    for field, other in (table.planted[0], table.planted[0][::-1]):
        assert frame.filter(frame["field"] == field)["leans_on"][0] == other
