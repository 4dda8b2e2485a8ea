"""Groups of rows by their refined dependencies, and the values that set them apart."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.errors import ConfigError, TableError, UserError
from fielddep.explain import dependencies
from fielddep.explain import groups as grouping
from fielddep.explain.curves import score_rows
from fielddep.explain.dependencies import explain_rows
from fielddep.explain.groups import group_rows, over_represented
from tests.conftest import quick_config, small_frame
from tests.explain.trained import MIXED_FIELDS, bundle_of, found_planted, mixed, mixed_frame, mixed_rows
from tests.streamed import learned

FRAME = mixed_frame(120, seed=7)
PLANTED_PAIR = {("field_0", "field_1"), ("field_1", "field_0")}


def patterns(bundle: Bundle, rows) -> np.ndarray:
    """mu(T)/lambda * W(T) of every row, one after another, zeros on the diagonal."""
    explanation = explain_rows(bundle, rows)
    found = [explanation.refined(row).matrix_FF.copy() for row in range(len(explanation))]
    for matrix in found:
        np.fill_diagonal(matrix, 0.0)
    return np.stack(found)


def two_worlds() -> Bundle:
    """A model in which refinement changes rows with red and leaves the others as they are."""
    bundle = bundle_of(
        small_frame(100),
        quick_config(
            data__fields=["colour", "shape"], data__crosses="none", train__max_epochs=1, train__unknown_rate=0.0
        ),
    )
    values = bundle.encoder.values("colour").to_list()
    bundle.model.embedding.weight.data[:] = 0.5
    bundle.model.embedding.weight.data[: len(values)] = 0.0
    bundle.model.embedding.weight.data[values.index("red")] = 3.0
    return bundle


def test_rows_of_two_worlds_are_told_apart():
    bundle, frame = two_worlds(), small_frame(300, seed=2)
    groups = group_rows(bundle, bundle.encoder.encode(frame, with_target=True)[0], n_groups=2)
    red = frame["colour"].to_numpy() == "red"
    assert len(groups) == 2
    np.testing.assert_array_equal(groups.group_R == 1, red)  # fewer rows are red, so theirs is the second group
    assert [group.n_rows for group in groups.groups] == [int((~red).sum()), int(red.sum())]
    first = groups.groups[1].values[0]
    assert (first.field, first.value, first.share) == ("colour", "red", 1.0)
    assert first.n_rows == red.sum()
    assert first.share_of_all == pytest.approx(red.mean())
    assert first.lift == pytest.approx(1 / red.mean())
    assert {v.value for v in groups.groups[0].values} == {"green", "blue"}


@pytest.mark.parametrize("target", ["good", "kind", "cost"])
def test_groups_equal_a_direct_computation(target):
    bundle = mixed(target)
    rows = mixed_rows(bundle)
    groups = group_rows(bundle, rows, n_groups=3, seed=4)
    found = patterns(bundle, rows)
    assert groups.group_R.shape == (120,)
    sizes = [group.n_rows for group in groups.groups]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes == [int((groups.group_R == g).sum()) for g in range(3)]
    scored = score_rows(bundle, rows)
    means = np.stack([found[groups.group_R == g].mean(axis=0) for g in range(3)])
    for g, group in enumerate(groups.groups):
        chosen = groups.group_R == g
        np.testing.assert_allclose(group.pattern.matrix_FF, means[g], atol=1e-6)
        np.testing.assert_allclose(group.contrast.matrix_FF, means[g] - found.mean(axis=0), atol=1e-6)
        assert group.share == pytest.approx(chosen.mean())
        predicted, truth = scored.predictions()[chosen], scored.truth()[chosen]
        if target == "cost":
            expected, known = {"prediction": predicted.mean()}, {"prediction": truth.mean()}
        else:
            labels = list(enumerate(scored.target.classes))[1 if target == "good" else 0 :]
            expected = {f"probability_{label}": predicted[:, c].mean() for c, label in labels}
            known = {f"probability_{label}": (truth == c).mean() for c, label in labels}
        assert group.prediction == pytest.approx(expected)
        assert group.target == pytest.approx(known)
    # k-means has settled: every row is nearest to the mean of its own group.
    gaps = ((found[:, None] - means[None]) ** 2).sum(axis=(2, 3))
    assert (gaps.argmin(axis=1) == groups.group_R).mean() > 0.99


def test_over_represented_values_equal_counting():
    bundle, rows = mixed(), mixed_rows(mixed())
    group = np.where(FRAME["shape"] == "disc", 0, np.where(FRAME["price"] < FRAME["price"].median(), 1, 2))
    group[::10] = 0
    found = over_represented(bundle, rows, group, n=100)
    assert {share.field for shares in found for share in shares} >= {"shape", "price"}
    decoded = bundle.encoder.decode(rows).with_columns(pl.col("colour").fill_null("<missing>"))
    quartiles = {name: decoded[name] for name in ("size", "height")}
    for g in range(3):
        scores = []
        for share in found[g]:
            if share.field in quartiles:
                low, high = (float(end) for end in share.value.strip("[()").split(", "))
                holds = ((quartiles[share.field] >= low) & (quartiles[share.field] < high)).fill_null(False).to_numpy()
            else:
                holds = (decoded[share.field] == share.value).to_numpy()
            inside = holds[group == g]
            assert share.n_rows == inside.sum()
            assert share.share == pytest.approx(inside.mean())
            assert share.share_of_all == pytest.approx(holds.mean())
            n, p = len(inside), holds.mean()
            deviation = np.sqrt(n * p * (1 - p) * (120 - n) / 119)
            scores.append((inside.sum() - n * p) / deviation)
            draws = [comb(holds.sum(), k) * comb(120 - holds.sum(), n - k) for k in range(inside.sum(), n + 1)]
            assert sum(draws) / comb(120, n) < 0.05 and inside.sum() >= 5
        assert scores == sorted(scores, reverse=True)


def test_random_groups_have_no_values_of_their_own():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": [f"u{n}" for n in rng.integers(0, 3000, 10_000)],
            "city": [f"c{n}" for n in rng.integers(0, 30, 10_000)],
            "size": rng.normal(size=10_000),
            "good": rng.integers(0, 2, 10_000),
        }
    )
    config = quick_config(data__crosses="none")
    encoder = learned(frame, config)
    bundle, rows = replace(mixed(), encoder=encoder), encoder.encode(frame)[0]
    group = np.zeros(10_000, dtype=np.int64)
    group[rng.choice(10_000, 190, replace=False)] = 1
    assert over_represented(bundle, rows, group) == [(), ()]
    group[frame["user"].is_in(["u0", "u7", "u9"]).to_numpy()] = 1
    found = over_represented(bundle, rows, group)[1]
    assert [(share.value, share.n_rows, share.share_of_all) for share in found] == [("u0", 9, 9e-4), ("u7", 6, 6e-4)]


def test_a_field_that_makes_the_groups_stands_out():
    bundle, rows = mixed(), mixed_rows(mixed())
    is_disc = (FRAME["shape"] == "disc").to_numpy()
    found = over_represented(bundle, rows, is_disc.astype(np.int64))
    assert (found[1][0].field, found[1][0].value, found[1][0].share) == ("shape", "disc", 1.0)
    assert "disc" not in {share.value for share in found[0]}
    assert over_represented(bundle, rows, np.zeros(120, dtype=np.int64)) == [()]


def test_frames():
    groups = group_rows(mixed("kind"), mixed_rows(mixed("kind")), n_groups=2)
    classes = [f"probability_{label}" for label in score_rows(mixed("kind"), mixed_rows(mixed("kind"))).target.classes]
    frame = groups.to_frame()
    assert frame.columns == ["group", "n_rows", "share", *classes, *(f"target_{name}" for name in classes)]
    assert frame["n_rows"].sum() == 120
    strongest = groups.dependencies_frame(2)
    assert strongest.columns == ["group", "source", "dependent", "weight", "contrast"]
    assert strongest["group"].to_list() == [0, 0, 1, 1]
    entry = groups.groups[1].pattern.strongest(1)[0]
    line = strongest.row(2, named=True)
    assert (line["source"], line["dependent"], line["weight"]) == (entry.source, entry.dependent, entry.weight)
    i, j = MIXED_FIELDS.index(entry.source), MIXED_FIELDS.index(entry.dependent)
    assert line["contrast"] == groups.groups[1].contrast.matrix_FF[i, j]
    values = groups.values_frame()
    assert values.columns == ["group", "field", "value", "n_rows", "share", "share_of_all", "lift"]
    assert len(values) == sum(len(group.values) for group in groups.groups)


def test_without_targets_groups_do_not_tell_them():
    groups = group_rows(mixed(), mixed_rows(mixed(), with_target=False), n_groups=2)
    assert [group.target for group in groups.groups] == [None, None]
    assert groups.to_frame().columns == ["group", "n_rows", "share", "probability_1"]


def test_the_same_seed_gives_the_same_groups_and_chunks_do_not_matter(monkeypatch):
    rows = mixed_rows(mixed())
    whole = group_rows(mixed(), rows, seed=3)
    torch.manual_seed(1)
    monkeypatch.setattr(dependencies, "CHUNK_ROWS", 7)
    again = group_rows(mixed(), rows, seed=3)
    np.testing.assert_array_equal(whole.group_R, again.group_R)
    np.testing.assert_allclose(whole.groups[0].pattern.matrix_FF, again.groups[0].pattern.matrix_FF, atol=1e-7)


def test_centres_from_some_rows_serve_all(monkeypatch):
    bundle, frame = two_worlds(), small_frame(300, seed=2)
    rows, _ = bundle.encoder.encode(frame)
    monkeypatch.setattr(grouping, "MAX_FITTED", 20)
    groups = group_rows(bundle, rows, n_groups=2)
    np.testing.assert_array_equal(groups.group_R == 1, frame["colour"].to_numpy() == "red")


def test_fewer_patterns_than_groups():
    rows = mixed_rows(mixed())
    same = rows.take(np.array([5, 5, 5, 9]))
    assert [group.n_rows for group in group_rows(mixed(), same, n_groups=4).groups] == [3, 1]
    alone = group_rows(mixed(), rows.take(np.array([0])))
    assert [group.n_rows for group in alone.groups] == [1]
    assert alone.groups[0].values == ()


def test_what_is_refused():
    rows = mixed_rows(mixed())
    with pytest.raises(ConfigError, match=r"n_groups.* 1.* 0"):
        group_rows(mixed(), rows, n_groups=0)
    with pytest.raises(TableError, match="rows"):
        group_rows(mixed(), rows.take(slice(0)))
    with pytest.raises(UserError, match=r"mdl.*\bfm\b"):
        group_rows(mixed(model="fm"), mixed_rows(mixed(model="fm")))


def test_groups_of_planted_rows_differ_in_the_planted_pair():
    """Two groups are the rows with and without the planted pair; what sets them apart is its two entries.

    For the seeds 0 to 4 of the generator 99.8 % of the intact and 95.8 % of the broken rows or more got their group.
    """
    bundle, rows, intact_R = found_planted()
    groups = group_rows(bundle, rows, n_groups=2)
    whole, broken = groups.groups  # four of five rows are intact, so theirs is the larger group
    right_R = (groups.group_R == 0) == intact_R
    assert right_R[intact_R].mean() > 0.95 and right_R[~intact_R].mean() > 0.9  # by chance the sum of both is 1
    for group, sign in ((whole, 1), (broken, -1)):
        first, second, third = group.contrast.strongest(3)
        assert {(entry.source, entry.dependent) for entry in (first, second)} == PLANTED_PAIR
        assert sign * first.weight > 0 and sign * second.weight > 0
        assert abs(second.weight) > 1.5 * abs(third.weight)
