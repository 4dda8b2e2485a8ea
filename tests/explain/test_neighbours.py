"""Nearest values by embedding."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.datasets.synthetic import generate
from fielddep.errors import SchemaError, UserError
from fielddep.explain.neighbours import nearest_values, value_embeddings
from tests.conftest import quick_config
from tests.explain.trained import bundle_of, mixed, mixed_frame, planted, planted_config


def slow_order(bundle: Bundle, field: str, value: str) -> list[tuple[str, float]]:
    labels, _, table = value_embeddings(bundle, field)
    own = table[labels.to_list().index(value)].astype(float)
    found = []
    for label, vector in list(zip(labels, table.astype(float), strict=True))[2:]:
        if label != value:
            cosine = sum(a * b for a, b in zip(own, vector, strict=True))
            found.append((label, cosine / (sum(own**2) ** 0.5 * sum(vector**2) ** 0.5)))
    return sorted(found, key=lambda pair: -pair[1])


@pytest.mark.parametrize("model", ["mdl", "fm", "deepfm"])
def test_nearest_by_cosine(model):
    bundle = mixed(model=model)
    near = nearest_values(bundle, "shape", "disc", n=2)
    expected = slow_order(bundle, "shape", "disc")[:2]
    assert near.values == tuple(value for value, _ in expected)
    np.testing.assert_allclose(near.similarities, [cosine for _, cosine in expected], atol=1e-9)
    counts = dict(zip(bundle.encoder.values("shape"), bundle.encoder.counts[1], strict=True))
    assert near.counts == tuple(counts[value] for value in near.values)
    assert (near.field, near.value, near.count) == ("shape", "disc", counts["disc"])
    frame = near.to_frame()
    assert frame.columns == ["value", "similarity", "count"]
    assert frame["value"].to_list() == list(near.values)


def test_all_others_and_no_reserved_ids():
    _, bundle, _ = planted()
    near = nearest_values(bundle, "field_0", "v3", n=1000)
    assert len(near.values) == 9
    assert "v3" not in near.values and not any(value.startswith("<") for value in near.values)
    assert list(near.similarities) == sorted(near.similarities, reverse=True)
    assert list(near.values) == [value for value, _ in slow_order(bundle, "field_0", "v3")]


def test_values_with_the_same_meaning_are_neighbours():
    rng = np.random.default_rng(0)
    meaning = {"red": 0, "crimson": 0, "blue": 1, "navy": 1}
    colour, shape = rng.choice(list(meaning), 3000), rng.choice(["disc", "cube"], 3000)
    good = [meaning[c] ^ (s == "cube") for c, s in zip(colour, shape, strict=True)]
    frame = pl.DataFrame({"colour": colour, "shape": shape, "good": good})
    bundle = bundle_of(frame, quick_config(train__max_epochs=10, data__crosses="none"))
    for one, other in (("red", "crimson"), ("navy", "blue")):
        assert nearest_values(bundle, "colour", one, n=1).values == (other,)
        assert nearest_values(bundle, "colour", other, n=1).values == (one,)


@pytest.mark.parametrize("model", [{}, {"model.name": "fm", "model.d_embed": 8}], ids=["mdl", "fm"])
def test_a_value_that_is_written_in_two_ways_is_its_own_neighbour(model):
    """Half the rows of every value, taken at random, have it under another name: one of 19 others is right."""
    table = generate(8000, n_fields=5, n_values=10, seed=0, task="regression")
    renamed = pl.Series(np.where(np.random.default_rng(0).random(8000) < 0.5, " too", ""))
    frame = table.frame.with_columns(field_0=pl.col("field_0") + renamed)
    bundle = bundle_of(frame, planted_config(table.target).replace(model))
    names = [f"v{number}" for number in range(10)]
    for one, other in [(name, f"{name} too") for name in names] + [(f"{name} too", name) for name in names]:
        assert nearest_values(bundle, "field_0", one, n=1).values == (other,)


def test_numbers_of_bins_and_their_labels():
    bundle = mixed()
    label = nearest_values(bundle, "price", 12.5).value
    low, high = label.strip("[()").split(", ")
    assert float(low) <= 12.5 < float(high)
    assert nearest_values(bundle, "price", "12.5").value == label
    assert nearest_values(bundle, "price", label).value == label


def test_numbers_of_bins_of_counts_are_no_names_of_bins():
    frame = mixed_frame().with_columns(visits=pl.int_range(400) % 120)
    settings = {"data__fields": ["colour", "visits"], "data__kinds": {"visits": "numerical"}}
    bundle = bundle_of(frame, quick_config(data__numeric={"visits": "log2"}, train__max_epochs=1, **settings))
    near = nearest_values(bundle, "visits", 21, n=3)
    assert near.value == "[21, 24)"
    for same in (23.5, "21", "21.0", near.value):
        assert nearest_values(bundle, "visits", same, n=3).to_frame().equals(near.to_frame())
    assert not {"9", "21"} & set(bundle.encoder.values("visits"))


def test_missing_and_rare_may_be_asked_for():
    bundle = mixed()
    assert nearest_values(bundle, "colour", None).value == "<missing>"
    assert nearest_values(bundle, "colour", "<rare>").value == "<rare>"
    assert set(nearest_values(bundle, "colour", None).values) == {"red", "green", "blue"}


def test_unknown_values_and_fields():
    with pytest.raises(SchemaError, match=r"'colour'.*'gren'.*'green'"):
        nearest_values(mixed(), "colour", "gren")
    with pytest.raises(SchemaError, match=r"'zzz'.*'red'"):
        nearest_values(mixed(), "colour", "zzz")
    with pytest.raises(SchemaError, match=r"7.*'red'"):
        nearest_values(mixed(), "colour", 7)
    with pytest.raises(SchemaError, match=r"'color'.*'colour'"):
        nearest_values(mixed(), "color", "red")


def test_numbers_and_models_without_embeddings_of_values():
    with pytest.raises(UserError, match=r"'size'.*data\.numeric\.size = 'quantile'"):
        nearest_values(mixed(), "size", 1.0)
    with pytest.raises(UserError, match=r"\blr\b.*embedding"):
        nearest_values(mixed(model="lr"), "colour", "red")


def test_a_zero_embedding_is_like_nothing():
    fields = quick_config(data__fields=["colour", "shape"], train__max_epochs=1)
    bundle = bundle_of(mixed_frame(), fields)
    bundle.model.embedding.weight.data[: bundle.encoder.layout.n_ids[0]] = 0.0
    assert nearest_values(bundle, "colour", "red").similarities == (0.0, 0.0)
