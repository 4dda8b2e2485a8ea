"""Explanations as numbers."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fielddep.artifacts.bundle import Bundle
from fielddep.config.settings import Config
from fielddep.errors import UserError
from fielddep.explain import dependencies
from fielddep.explain.dependencies import (
    Dependency,
    Explanation,
    FieldDependencies,
    explain_rows,
    global_dependencies,
    learns_dependencies,
    refined_chunks,
    strongest_sources,
    table_dependencies,
)
from fielddep.training.fit import fit
from tests.conftest import quick_config, small_frame
from tests.explain.trained import MIXED_FIELDS, found_planted, mixed, mixed_rows, planted

TABLE = FieldDependencies(
    fields=("a", "b", "c"), matrix_FF=np.array([[-1.0, 0.5, -2.0], [0.1, -1.0, 0.0], [0.2, 0.3, -1.0]])
)
FRAME = small_frame(200)


def fitted_bundle(**settings: object) -> Bundle:
    fitted = fit(FRAME, quick_config(train__max_epochs=2, data__numeric="scale", **settings))
    return Bundle.of(fitted)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return fitted_bundle(data__crosses=[["colour", "shape"]])


@pytest.fixture(scope="module")
def explanation(bundle: Bundle) -> Explanation:
    rows = FRAME.head(5).with_columns(colour=pl.Series(["red", None, "mauve", "blue", "green"]))
    return explain_rows(bundle, bundle.encoder.encode(rows)[0])


def test_strongest_leaves_out_the_diagonal():
    assert TABLE.strongest(2) == [
        Dependency(source="a", dependent="c", weight=-2.0),
        Dependency(source="a", dependent="b", weight=0.5),
    ]
    assert len(TABLE.strongest(100)) == 6
    assert all(d.source != d.dependent for d in TABLE.strongest(100))


def test_the_part_of_the_strongest_fields():
    matrix = np.zeros((4, 4))
    matrix[3, 1], matrix[0, 2], matrix[2, 2] = -2.0, 1.0, 9.0
    table = FieldDependencies(fields=("a", "b", "c", "d"), matrix_FF=matrix)
    assert table.strongest_fields(2) == [1, 3]
    assert table.strongest_fields(9) == [0, 1, 2, 3]
    part = table.part([1, 3])
    assert part.fields == ("b", "d")
    assert part.matrix_FF.tolist() == [[0.0, 0.0], [-2.0, 0.0]]


def test_normalized_to_one():
    scaled = TABLE.normalized()
    assert scaled[0, 2] == -1.0
    assert scaled[0, 1] == 0.25
    assert np.diagonal(scaled).tolist() == [0.0, 0.0, 0.0]
    zeros = FieldDependencies(fields=("a", "b"), matrix_FF=-np.eye(2))
    assert zeros.normalized().tolist() == [[0, 0], [0, 0]]
    assert TABLE.matrix_FF[0, 0] == -1.0


def test_frame_has_a_column_a_dependent_field():
    frame = TABLE.to_frame()
    assert frame.columns == ["source", "a", "b", "c"]
    assert frame.filter(pl.col("source") == "a")["c"].item() == -2.0


def test_a_field_may_be_called_source():
    odd = FieldDependencies(fields=("source", "b"), matrix_FF=-np.eye(2))
    assert odd.to_frame().columns == ["(source)", "source", "b"]


def test_global_dependencies_are_the_learned_start(bundle):
    table = global_dependencies(bundle)
    assert table.fields == ("colour", "shape", "size")
    weight = bundle.model.refinement.weight.detach().double().numpy().copy()
    np.fill_diagonal(weight, -1.0)
    np.testing.assert_array_equal(table.matrix_FF, weight)


def test_shapes_constraints_and_values(bundle, explanation):
    assert len(explanation) == 5
    assert explanation.w_RSFF.shape == (5, 5, 3, 3)
    assert explanation.mu_RSF.shape == explanation.loss_RSF.shape == (5, 5, 3)
    assert (np.diagonal(explanation.w_RSFF, axis1=2, axis2=3) == -1).all()
    np.testing.assert_allclose(explanation.mu_RSF.sum(axis=2), explanation.sparsity, rtol=1e-5)
    assert explanation.sparsity == bundle.config.model.sparsity
    unsure = "<rare> or <missing>"
    assert explanation.values["colour"].to_list() == ["red", unsure, unsure, "blue", "green"]


def test_values_are_those_of_the_cells_where_they_are_given(bundle):
    values = pl.DataFrame({"colour": ["mauve"], "shape": ["disc"], "size": ["1e9"]})
    found = explain_rows(bundle, bundle.encoder.encode(values)[0], values=values)
    assert found.values.equals(values)
    assert found.to_json()["values"] == [{"colour": "mauve", "shape": "disc", "size": "1e9"}]


def test_refined_is_what_the_network_sees(bundle, explanation):
    model = bundle.model
    seen: list[torch.Tensor] = []
    hook = model.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    batch = bundle.encoder.encode(FRAME.head(3))[0].batch(slice(None))
    with torch.no_grad():
        model(batch.inputs)
    hook.remove()
    refined = explain_rows(bundle, bundle.encoder.encode(FRAME.head(3))[0])
    off_diagonal = ~np.eye(3, dtype=bool)
    for row in range(3):
        values = refined.refined(row).matrix_FF[off_diagonal]
        np.testing.assert_allclose(seen[0][row, -6:].numpy(), values, rtol=1e-4, atol=1e-6)


def test_frame_of_all_steps(explanation):
    frame = explanation.to_frame()
    assert frame.columns == ["row", "step", "source", "dependent", "w", "mu", "loss"]
    assert len(frame) == 5 * 5 * 6
    picked = frame.row(
        by_predicate=(pl.col("row") == 2)
        & (pl.col("step") == 3)
        & (pl.col("source") == "size")
        & (pl.col("dependent") == "colour"),
        named=True,
    )
    assert picked["w"] == explanation.w_RSFF[2, 3, 2, 0]
    assert picked["mu"] == explanation.mu_RSF[2, 3, 0]
    assert picked["loss"] == explanation.loss_RSF[2, 3, 0]


def test_json_holds_everything(explanation):
    values = json.loads(json.dumps(explanation.to_json()))
    assert values["fields"] == ["colour", "shape", "size"]
    np.testing.assert_array_equal(np.array(values["w"]), explanation.w_RSFF)
    np.testing.assert_array_equal(np.array(values["mu"]), explanation.mu_RSF)
    np.testing.assert_array_equal(np.array(values["loss"]), explanation.loss_RSF)
    assert values["values"][0]["colour"] == "red"


def test_no_rows(bundle):
    empty = explain_rows(bundle, bundle.encoder.encode(FRAME.clear())[0])
    assert len(empty) == 0
    assert empty.w_RSFF.shape == (0, 5, 3, 3)
    assert empty.to_frame().schema == explain_rows(bundle, bundle.encoder.encode(FRAME.head(1))[0]).to_frame().schema
    assert len(empty.to_frame()) == 0


def test_global_dependencies_are_not_refined():
    fixed = fitted_bundle(model__dependencies="global")
    found = explain_rows(fixed, fixed.encoder.encode(FRAME.head(4))[0])
    assert found.w_RSFF.shape == (4, 1, 3, 3)
    np.testing.assert_array_equal(found.w_RSFF[3, 0], global_dependencies(fixed).matrix_FF)


def test_a_model_without_dependencies():
    blind = fitted_bundle(model__dependencies="none")
    with pytest.raises(UserError, match=r"model\.dependencies = 'refined'"):
        explain_rows(blind, blind.encoder.encode(FRAME.head(1))[0])


def test_explaining_does_not_depend_on_the_other_rows(bundle):
    rows, _ = bundle.encoder.encode(FRAME.head(20))
    whole = explain_rows(bundle, rows)
    alone = explain_rows(bundle, rows.take(np.array([7])))
    np.testing.assert_allclose(alone.w_RSFF[0], whole.w_RSFF[7], atol=1e-6)
    np.testing.assert_allclose(alone.mu_RSF[0], whole.mu_RSF[7], atol=1e-5)


# --- many rows ------------------------------------------------------------------------------------------------


def test_chunks_change_nothing(bundle, monkeypatch):
    rows, _ = bundle.encoder.encode(FRAME)
    whole = explain_rows(bundle, rows)
    monkeypatch.setattr(dependencies, "CHUNK_ROWS", 7)
    cut = explain_rows(bundle, rows)
    np.testing.assert_allclose(cut.w_RSFF, whole.w_RSFF, atol=1e-6)
    np.testing.assert_allclose(cut.mu_RSF, whole.mu_RSF, atol=1e-5)
    np.testing.assert_allclose(cut.loss_RSF, whole.loss_RSF, atol=1e-6)
    chunks = list(refined_chunks(bundle, rows))
    assert [len(w_BFF) for w_BFF, _ in chunks] == [7] * 28 + [4]
    np.testing.assert_allclose(np.concatenate([w_BFF for w_BFF, _ in chunks]), whole.w_RSFF[:, -1], atol=1e-5)
    refined_RFF = np.concatenate([refined_BFF for _, refined_BFF in chunks])
    np.testing.assert_allclose(refined_RFF[11], whole.refined(11).matrix_FF, atol=1e-5)


# --- strongest sources ----------------------------------------------------------------------------------------


def test_the_strongest_source_is_the_largest_of_a_column():
    sources = TABLE.strongest_sources()
    assert sources.entries == (
        Dependency(source="c", dependent="a", weight=0.2),
        Dependency(source="a", dependent="b", weight=0.5),
        Dependency(source="a", dependent="c", weight=-2.0),
    )
    assert sources.to_frame().rows() == [("a", "c", 0.2), ("b", "a", 0.5), ("c", "a", -2.0)]
    assert sources.to_frame().columns == ["field", "strongest_source", "weight"]
    assert TABLE.matrix_FF[0, 0] == -1.0


def test_strongest_sources_of_a_row_are_those_of_its_last_step(explanation):
    for row in range(5):
        last = explanation.at_step(-1, row)
        np.testing.assert_array_equal(last.matrix_FF, explanation.w_RSFF[row, -1])
        assert explanation.strongest_sources(row) == last.strongest_sources()
        for j, entry in enumerate(explanation.strongest_sources(row).entries):
            sizes = {i: abs(explanation.w_RSFF[row, -1, i, j]) for i in range(3) if i != j}
            assert entry.source == explanation.fields[max(sizes, key=lambda i: sizes[i])]
            assert entry.dependent == explanation.fields[j]


def test_the_fields_of_a_planted_pair_are_strongest_for_each_other_where_it_is_intact():
    """Against one of four by chance.

    For the seeds 0 to 4 of the generator it was 93 % of the intact rows or more, but for `field_0` of seed 2: 52 %.
    W(0), which is the same for all rows, did not have the pair as its strongest entry for any of them.
    """
    bundle, rows, intact_R = found_planted()
    found = explain_rows(bundle, rows)
    sources_RF = strongest_sources(found.w_RSFF[:, -1])
    found_R2 = np.stack([sources_RF[:, 0] == 1, sources_RF[:, 1] == 0], axis=1)
    assert (found_R2[intact_R].mean(axis=0) > 0.85).all()
    assert (found_R2[~intact_R].mean(axis=0) < 0.5).all()
    assert found_R2[:9, 0].tolist() == [found.strongest_sources(row).entries[0].source == "field_1" for row in range(9)]


def test_refinement_adds_a_planted_pair_where_it_is_intact_and_takes_it_away_elsewhere():
    """What held for all of the seeds 0 to 4."""
    bundle, rows, intact_R = found_planted()
    found = explain_rows(bundle, rows)
    change_RFF = found.w_RSFF[:, -1] - found.w_RSFF[:, 0]
    in_intact_FF, in_broken_FF = (change_RFF[chosen_R].mean(axis=0) for chosen_R in (intact_R, ~intact_R))
    assert {(0, 1), (1, 0)} == {divmod(int(flat), 5) for flat in np.argsort(-in_intact_FF, axis=None)[:2]}
    for i, j in ((0, 1), (1, 0)):
        assert in_intact_FF[i, j] > 0.2
        assert in_broken_FF[i, j] < 0
        assert roc_auc_score(intact_R, found.w_RSFF[:, -1, i, j]) > 0.95


def test_who_learns_dependencies(bundle):
    assert learns_dependencies(bundle)
    assert not learns_dependencies(fitted_bundle(model__dependencies="none"))
    fm = fit(FRAME, Config().replace({"data.target": "good", "model.name": "fm", "train.max_epochs": 1}))
    other = Bundle.of(fm)
    assert not learns_dependencies(other)
    with pytest.raises(UserError, match=r"mdl.*\bfm\b"):
        global_dependencies(other)


# --- over a table, against a loop over its rows ---------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [1, 50, 1000])
def test_sums_equal_a_loop_over_the_rows(chunk_rows, monkeypatch):
    bundle, rows = mixed(), mixed_rows(mixed())
    explanation = explain_rows(bundle, rows)
    monkeypatch.setattr(dependencies, "CHUNK_ROWS", chunk_rows)
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
    assert found.fields == MIXED_FIELDS


def test_frame_has_the_most_frequent_first():
    found = table_dependencies(mixed(), mixed_rows(mixed()))
    frame = found.to_frame()
    assert frame.columns == ["field", "source", "n_rows", "share", "mean", "size"]
    assert frame["field"].to_list() == [name for name in MIXED_FIELDS for _ in range(4)]
    for f, name in enumerate(MIXED_FIELDS):
        part = frame.filter(frame["field"] == name)
        assert part["n_rows"].to_list() == sorted(part["n_rows"], reverse=True)
        assert part["share"].sum() == pytest.approx(1)
        first = part.row(0, named=True)
        assert first["n_rows"] == found.counts_FF[:, f].max()
        assert first["size"] == found.size_FF[MIXED_FIELDS.index(first["source"]), f]


def test_a_table_without_rows():
    none = table_dependencies(mixed(), mixed_rows(mixed()).take(slice(0)))
    assert none.n_rows == 0
    assert none.counts_FF.sum() == 0
    assert none.to_frame()["share"].sum() == 0


def test_a_table_for_a_model_without_dependencies():
    with pytest.raises(UserError, match=r"mdl.*\bfm\b"):
        table_dependencies(mixed(model="fm"), mixed_rows(mixed(model="fm")))


def test_the_planted_pair_is_the_strongest():
    """In most of five tables; in some, training settles on another pair."""
    n_found = 0
    for seed in range(1, 6):
        table, bundle, rows = planted(seed)
        found = table_dependencies(bundle, rows)
        strongest = FieldDependencies(fields=found.fields, matrix_FF=found.size_FF).strongest(2)
        if [{entry.source, entry.dependent} for entry in strongest] != [set(table.planted[0])] * 2:
            continue
        n_found += 1
        frame = found.to_frame()
        for field, other in (table.planted[0], table.planted[0][::-1]):
            assert frame.filter(frame["field"] == field)["source"][0] == other
    assert n_found >= 3
