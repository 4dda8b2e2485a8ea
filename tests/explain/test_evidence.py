"""Evidence of rows: counts are those of the training rows, effects name what was planted, for every task."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.config.settings import Config
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import UserError
from fielddep.explain import hide_fields, rank_evidence, row_evidence, uses_evidence
from fielddep.explain.evidence import N_STRONGEST, SeenValues
from fielddep.store.shards import MemoryShards
from fielddep.training.fit import Trained, fit
from tests.explain.trained import mixed, mixed_rows
from tests.helpers import raises

N_USERS, N_ITEMS = 30, 20
PAIR = ("user", "item")


@cache
def frame(n_rows: int = 5_000, seed: int = 0) -> pl.DataFrame:
    """Users like some items, which neither shows alone; the hour says nothing."""
    rng = np.random.default_rng(seed)
    user, item, hour = (rng.integers(n, size=n_rows) for n in (N_USERS, N_ITEMS, 24))
    likes = np.random.default_rng(7).random((N_USERS, N_ITEMS)) < 0.4
    good = (rng.random(n_rows) < np.where(likes[user, item], 0.85, 0.1)).astype(int)
    values = {"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item], "hour": [f"h{h}" for h in hour]}
    kind = np.array(["low", "high", "odd"])[np.where(rng.random(n_rows) < 0.1, 2, good)]
    return pl.DataFrame({**values, "good": good, "kind": kind, "cost": 300.0 + 200.0 * good + rng.normal(size=n_rows)})


@cache
def trained(target: str = "good", **settings: object) -> Trained:
    others = [name for name in ("good", "kind", "cost") if name != target]
    values = {"data.target": target, "data.exclude": others, "data.crosses": "none", "model.d_embed": 4}
    quick = {"train.max_epochs": 6, "train.threads": 1, "model.direct_hidden": [32]}
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return fit(frame(), Config().replace({**values, **quick, **given}))


def bundle_of(target: str = "good") -> Bundle:
    return Bundle.of(trained(target))


def new_rows(bundle: Bundle, n_rows: int = 300) -> EncodedRows:
    return bundle.encoder.encode(frame(n_rows, seed=5))[0]


def training_frame(target: str) -> pl.DataFrame:
    """The training rows of a model, with their values as text."""
    shards = trained(target).prepared.store.shards
    assert isinstance(shards, MemoryShards)
    return frame().filter(pl.Series(shards.row_parts == 0))


def counted(target: str, fields: tuple[str, ...], values: tuple[str, ...]) -> pl.Series:
    """Targets of the training rows with these values."""
    same = [pl.col(name) == value for name, value in zip(fields, values, strict=True)]
    return training_frame(target).filter(*same)[target]


@pytest.mark.parametrize("target", ["good", "kind", "cost"])
def test_a_planted_pair_is_the_strongest(target: str) -> None:
    bundle = bundle_of(target)
    ranking = rank_evidence(bundle, new_rows(bundle))
    assert ranking.combinations[0] == PAIR
    assert ranking.effect_K[0] > 3 * ranking.effect_K[1]
    assert list(ranking.effect_K) == sorted(ranking.effect_K, reverse=True)
    assert ranking.to_frame().columns == ["fields", "effect", "seen"]
    assert ranking.to_frame()["fields"][0] == "user, item"


@pytest.mark.parametrize("target", ["good", "kind", "cost"])
def test_counts_are_those_of_the_training_rows(target: str) -> None:
    bundle = bundle_of(target)
    found = row_evidence(bundle, new_rows(bundle, 12))
    of_training = training_frame(target)[target]
    for row, seen_values in enumerate(found.rows):
        assert seen_values
        for seen in seen_values:
            targets = counted(target, seen.fields, seen.values)
            assert seen.n == len(targets) > 0
            if target == "cost":
                assert seen.mean == pytest.approx(targets.mean(), abs=0.01)
                assert seen.base == pytest.approx(of_training.mean(), abs=0.01)
            else:
                followed = found.classes[row]
                assert seen.mean == pytest.approx((targets == followed).mean())
                assert seen.base == pytest.approx((of_training == followed).mean(), abs=1e-3)


@pytest.mark.parametrize("target", ["good", "kind", "cost"])
def test_rows_that_did_it_more_often_raise_the_prediction(target: str) -> None:
    bundle = bundle_of(target)
    pairs = [s for seen in row_evidence(bundle, new_rows(bundle)).rows for s in seen if s.fields == PAIR]
    spread = 50.0 if target == "cost" else 0.2
    clear = [seen for seen in pairs if abs(seen.mean - seen.base) > spread and seen.n >= 5]
    assert len(clear) > 50
    assert np.mean([(seen.effect > 0) == (seen.mean > seen.base) for seen in clear]) > 0.95


@pytest.mark.parametrize("target", ["good", "kind", "cost"])
def test_predictions_and_classes_are_those_of_the_effects(target: str) -> None:
    bundle = bundle_of(target)
    rows = new_rows(bundle, 40)
    found, effects = row_evidence(bundle, rows), hide_fields(bundle, rows)
    assert found.classes == effects.classes
    np.testing.assert_allclose(found.prediction_R, effects.prediction_R)


def test_an_effect_is_a_difference_of_predictions() -> None:
    bundle = bundle_of()
    rows, evidence = new_rows(bundle, 20), bundle.encoder.evidence
    assert evidence is not None and rows.evidence_RE is not None
    pair = evidence.combinations.index((0, 1)) * evidence.width
    before = row_evidence(bundle, rows).prediction_R
    for compared_with, n_changed in (("base", evidence.width - 1), ("unseen", evidence.width)):
        changed = rows.evidence_RE.copy()
        changed[:, pair : pair + n_changed] = 0  # what an unseen value says
        after = row_evidence(bundle, rows.with_arrays(evidence=changed)).prediction_R
        found = row_evidence(bundle, rows, compared_with=compared_with)
        effects = {row: s.effect for row, seen in enumerate(found.rows) for s in seen if s.fields == PAIR}
        assert len(effects) > 10
        for row, effect in effects.items():
            assert effect == pytest.approx(before[row] - after[row], abs=1e-6)


def test_values_that_were_not_seen_are_left_out() -> None:
    bundle = bundle_of()
    unknown = frame(1).with_columns(user=pl.lit("new"), item=pl.lit(None, pl.String), hour=pl.lit("h99"))
    assert row_evidence(bundle, bundle.encoder.encode(unknown)[0]).rows == ((),)
    one = row_evidence(bundle, bundle.encoder.encode(unknown.with_columns(item=pl.lit("i3")))[0]).rows[0]
    assert [(seen.fields, seen.values) for seen in one] == [(("item",), ("i3",))]
    assert row_evidence(bundle, bundle.encoder.encode(unknown)[0]).to_frame().height == 0


def test_the_strongest_come_first() -> None:
    bundle = bundle_of()
    for seen in row_evidence(bundle, new_rows(bundle, 30), n_strongest=3).rows:
        assert 1 <= len(seen) <= 3
        sizes = [abs(one.effect) for one in seen]
        assert sizes == sorted(sizes, reverse=True)
    assert max(map(len, row_evidence(bundle, new_rows(bundle, 30)).rows)) <= N_STRONGEST


def test_frames() -> None:
    numbers = ["n", "share", "base", "effect", "text"]
    bundle = bundle_of()
    found = row_evidence(bundle, new_rows(bundle, 5))
    table = found.to_frame()
    assert table.columns == ["row", "fields", "values", "class", *numbers]
    assert table.height == sum(map(len, found.rows))
    assert table["text"][0] == str(found.rows[0][0])
    bundle = bundle_of("cost")
    columns = row_evidence(bundle, new_rows(bundle, 5)).to_frame().columns
    assert columns == ["row", "fields", "values", "n", "mean", "base", "effect", "text"]


def test_numbers_are_shown_as_what_was_counted() -> None:
    rng = np.random.default_rng(0)
    priced = frame(2_000).select("user", "good").with_columns(price=pl.Series(rng.random(2_000) * 100))
    settings = {"data.target": "good", "data.numeric": {"price": "quantile"}, "data.evidence": [["user", "price"]]}
    quick = {"train.max_epochs": 1, "train.threads": 1, "data.crosses": "none", "model.direct_hidden": [8]}
    bundle = Bundle.of(fit(priced, Config().replace(settings | quick)))
    seen = row_evidence(bundle, bundle.encoder.encode(priced.head(1))[0]).rows[0]
    shown = {value for one in seen for name, value in zip(one.fields, one.values, strict=True) if name == "price"}
    assert len(shown) == 1
    low, high = (float(end) for end in shown.pop()[1:-1].split(","))
    assert low <= priced["price"][0] < high


def test_lists_add_up_the_rows_of_their_values() -> None:
    rng = np.random.default_rng(1)
    tags = [[f"t{t}" for t in rng.choice(6, size=2, replace=False)] for _ in range(1_500)]
    liked = [int("t0" in held) ^ int(rng.random() < 0.1) for held in tags]
    listed = pl.DataFrame({"tags": tags, "shop": [f"s{n % 5}" for n in range(1_500)], "liked": liked})
    settings = {"data.target": "liked", "train.max_epochs": 2, "train.threads": 1, "data.crosses": "none"}
    found = fit(listed, Config().replace({**settings, "model.direct_hidden": [8]}))
    bundle = Bundle.of(found)
    rows, evidence = bundle.encoder.encode(listed.head(4))[0], bundle.encoder.evidence
    assert evidence is not None
    cells = next(one for one in evidence.cells if one.fields == (0,))
    for row, seen in enumerate(row_evidence(bundle, rows).rows):
        (of_tags,) = [one for one in seen if one.fields == ("tags",)]
        ids = rows.lists_R(0).to_lists()[row]
        assert of_tags.n == sum(cells.sums(np.array([i]))[0][0] for i in ids)
        assert of_tags.values == (", ".join(tags[row]),)


def test_a_model_without_evidence() -> None:
    none, other = Bundle.of(trained(data__evidence="none")), mixed(model="fm")
    for bundle, rows in ((none, new_rows(none, 2)), (other, mixed_rows(other, 2))):
        assert not uses_evidence(bundle)
        for explain in (row_evidence, rank_evidence):
            with raises(UserError, "evidence"):
                explain(bundle, rows)


def test_evidence_that_training_gave_no_weight_is_not_used() -> None:
    bundle = bundle_of()
    model = bundle.model
    before = model.mix_P.clone()
    assert uses_evidence(bundle)
    model.mix_P[0] = 0.0
    assert not uses_evidence(bundle)
    model.mix_P.copy_(before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "a = x: seen 4 times, 3 of them late (75 %, all rows 50 %)"),
        ({"n": 1234.0, "mean": 0.0}, "a = x: seen 1,234 times, none of them late (0 %, all rows 50 %)"),
        ({"n": 2.5, "mean": 0.4}, "a = x: seen 2.5 times, 1 of them late (40 %, all rows 50 %)"),
        ({"n": 1.0, "mean": 3.5, "base": 2.0, "outcome": ""}, "a = x: seen once, mean 3.5 (all rows 2)"),
    ],
)
def test_sentences(changes: dict[str, object], said: str) -> None:
    values = {"fields": ("a",), "values": ("x",), "n": 4.0, "mean": 0.75, "base": 0.5, "effect": 0.1, "outcome": "late"}
    assert str(SeenValues(**{**values, **changes})) == said  # type: ignore[arg-type]


def test_the_words_of_a_class() -> None:
    assert " of them good (" in str(row_evidence(bundle_of(), new_rows(bundle_of(), 1)).rows[0][0])
    found = row_evidence(bundle_of("kind"), new_rows(bundle_of("kind"), 1))
    assert f" of them with kind = {found.classes[0]} (" in str(found.rows[0][0])
