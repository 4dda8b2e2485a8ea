"""MDL with evidence, from a table to a bundle, and what it must not learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config.settings import Config
from fielddep.encoding.rows import EVIDENCE
from fielddep.errors import SchemaError, SplitError
from fielddep.explain.hiding import hide_field
from fielddep.nn.mdl import MDL
from fielddep.store.build import build_store
from fielddep.store.store import Store
from fielddep.training.fit import Trained, fit
from tests.helpers import raises

N_USERS, N_ITEMS = 60, 40


def clicks(n_rows: int = 6_000, seed: int = 0) -> pl.DataFrame:
    """Users like some items, for no reason that a user or an item shows alone."""
    rng = np.random.default_rng(seed)
    user, item, hour = (rng.integers(n, size=n_rows) for n in (N_USERS, N_ITEMS, 24))
    likes = np.random.default_rng(7).random((N_USERS, N_ITEMS)) < 0.4
    good = rng.random(n_rows) < np.where(likes[user, item], 0.85, 0.1)
    names = {"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item], "hour": [f"h{h}" for h in hour]}
    return pl.DataFrame({**names, "good": good.astype(int)})


FRAME = clicks()


def config(**settings: object) -> Config:
    values = {"data.target": "good", "data.crosses": "none", "model.d_embed": 4, "train.threads": 1}
    quick = {"train.max_epochs": 6, "model.direct_hidden": [32]}
    return Config().replace({**values, **quick, **{key.replace("__", "."): v for key, v in settings.items()}})


@pytest.fixture(scope="module")
def trained() -> Trained:
    return fit(FRAME, config())


def test_joint_values_are_learned_with_it(trained: Trained) -> None:
    alone = fit(FRAME, config(data__evidence="none"))
    assert trained.metrics["test"]["logloss"] < alone.metrics["test"]["logloss"] - 0.05
    assert isinstance(trained.model, MDL)
    assert list(trained.model.direct) == ["evidence"]
    evidence = trained.prepared.encoder.evidence
    assert evidence is not None and (0, 1) in evidence.combinations


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_labels_stay_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = {name: [f"v{v}" for v in rng.integers(n, size=8_000)] for name, n in (("a", 2_000), ("b", 300), ("c", 9))}
    frame = pl.DataFrame({**values, "good": rng.integers(2, size=8_000)})
    found = fit(frame, config(split__validation=0.3, train__seed=seed, train__max_epochs=3)).metrics
    assert abs(found["validation"]["auc"] - 0.5) < 3 * 0.29 / np.sqrt(2_400 / 2)
    assert found["validation"]["logloss"] < 1.005 * found["validation_base_rate"]["logloss"]


def test_a_store_on_disk_has_the_same_statements(tmp_path: Path) -> None:
    settings = config(split__method="group", split__column="user")
    memory, disk = build_store(FRAME, settings), build_store(FRAME, settings, tmp_path / "store")
    assert memory.encoder.digest == disk.encoder.digest
    rows = (store.read(0, len(FRAME)).arrays[EVIDENCE] for store in (memory, Store.open(tmp_path / "store")))
    assert np.array_equal(*rows)
    assert not (tmp_path / "store" / "unfinished").exists()


def test_rows_of_a_group_do_not_inform_each_other() -> None:
    store = build_store(FRAME, config(split__method="group", split__column="user", data__fields=["user", "item"]))
    rows, evidence = store.part("train").rows(), store.encoder.evidence
    assert evidence is not None
    of_users = evidence.combinations.index((0,))
    said = rows.arrays[EVIDENCE][:, of_users * evidence.width + evidence.width - 1]
    assert (said == 0).all()  # all rows of a user are in one fold


@pytest.mark.parametrize("given", [False, True])
def test_groups_of_a_split_that_is_given_do_not_inform_each_other(given: bool, tmp_path: Path) -> None:
    """As parts, or as a column; the users are no field unless they are listed."""
    rng = np.random.default_rng(0)
    parts = rng.choice(3, size=N_USERS, p=[0.7, 0.2, 0.1])[FRAME["user"].str.slice(1).cast(pl.Int64)].astype(np.uint8)
    frame = FRAME.with_columns(part=pl.Series(["train", "valid", "test"]).gather(parts))
    by_column = {"split__method": "column", "split__column": "part"}
    wanted = config(split__group="user", data__fields=["user", "item"], **({} if given else by_column))
    folder = None if given else tmp_path / "store"
    store = build_store(frame, wanted, folder, parts=parts if given else None)
    rows, evidence = store.part("train").rows(), store.encoder.evidence
    assert evidence is not None
    said = rows.arrays[EVIDENCE].reshape(len(rows), len(evidence.cells), evidence.width)
    assert (said[:, evidence.combinations.index((0,)), -1] == 0).all()
    assert (said[:, evidence.combinations.index((1,)), -1] > 0).all()
    unlisted = build_store(frame.drop("part") if given else frame, config(split__group="user"), parts=parts)
    assert "user" not in unlisted.encoder.schema.field_names


def test_groups_that_cannot_be_are_refused() -> None:
    with raises(SplitError, "split.group names 'usr'", "did you mean 'user'"):
        build_store(FRAME, config(split__group="usr"))
    with raises(SplitError, "split.method is group", "remove split.group"):
        build_store(FRAME, config(split__method="group", split__column="user", split__group="item"))


def test_earlier_rows_know_nothing_of_later_ones() -> None:
    frame = FRAME.with_row_index("time")
    store = build_store(frame, config(split__method="time", split__column="time"))
    rows, evidence = store.part("train").rows(), store.encoder.evidence
    assert evidence is not None
    said = rows.arrays[EVIDENCE][:, evidence.width - 1]
    assert (said[:200] == 0).all() and (said[-400:] > 0).all()


def test_saved_and_loaded_it_predicts_the_same_bits(trained: Trained, tmp_path: Path) -> None:
    Bundle.of(trained).save(tmp_path / "bundle")
    predictor = Predictor(tmp_path / "bundle")
    odd = pl.concat([FRAME.head(30), FRAME.head(2).with_columns(user=pl.lit("new"), item=pl.lit(None, pl.String))])
    before, after = Predictor(Bundle.of(trained)).predict(odd), predictor.predict(odd)
    assert before.equals(after)
    for row in (0, 30):
        found = predictor.predict_row(odd.drop("good").row(row, named=True))
        assert found["probability_1"] == pytest.approx(after["probability_1"][row], abs=1e-6)


def test_hiding_a_field_hides_it_in_its_combinations(trained: Trained) -> None:
    encoder = trained.prepared.encoder
    rows = encoder.encode(FRAME.head(20))[0]
    empty = encoder.encode(FRAME.head(20).with_columns(item=pl.lit(None, pl.String)))[0]
    assert np.array_equal(hide_field(encoder, rows, 1).arrays[EVIDENCE], empty.arrays[EVIDENCE])


def test_hiding_a_field_keeps_what_other_fields_say(trained: Trained) -> None:
    """Training rows are told what other folds say; with all rows, they would meet their own target."""
    rows, encoder = trained.prepared.parts["train"].rows(), trained.prepared.encoder
    assert encoder.evidence is not None
    shape = (len(rows), len(encoder.evidence.cells), encoder.evidence.width)
    before, after = (r.arrays[EVIDENCE].reshape(shape) for r in (rows, hide_field(encoder, rows, 1)))
    for k, fields in enumerate(encoder.evidence.combinations):
        assert np.array_equal(before[:, k], after[:, k]) == (1 not in fields)


def test_evidence_does_not_enter_the_dependencies(trained: Trained) -> None:
    assert isinstance(trained.model, MDL)
    inputs = trained.prepared.parts["test"].read(0, 6_000).batch().inputs
    changed = inputs._replace(evidence_BE=inputs.evidence_BE + 1)
    first, second = (trained.model.dependency_values(given) for given in (inputs, changed))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_several_classes_and_numbers_have_evidence_too() -> None:
    graded = FRAME.with_columns(grade=pl.col("user").str.slice(1).cast(pl.Int64) % 3).drop("good")
    found = fit(graded, config(data__target="grade", data__task="multiclass", train__max_epochs=2))
    assert found.prepared.encoder.layout.evidence_width == 4
    assert found.metrics["test"]["logloss"] < 0.5 * found.metrics["test_base_rate"]["logloss"]
    amounts = FRAME.with_columns(pl.col("good") * 1000.0 + pl.Series(np.arange(6_000) % 7))
    found = fit(amounts, config(data__task="regression", train__max_epochs=4))
    assert found.metrics["test"]["mse"] < 0.75 * found.metrics["test_base_rate"]["mse"]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ([["user", "items"]], "not a field"),
        ([["user", "user"]], "two to four different"),
        ([["user"]], "two to four"),
    ],
)
def test_wrong_combinations_are_refused(named: object, message: str) -> None:
    with raises(SchemaError, message):
        build_store(FRAME, config(data__evidence=named))


def test_named_combinations_are_counted() -> None:
    evidence = build_store(FRAME, config(data__evidence=[["item", "user"]])).encoder.evidence
    assert evidence is not None
    assert evidence.combinations == ((0,), (1,), (2,), (0, 1))


def test_rows_of_a_store_are_predicted_like_those_of_a_table(tmp_path: Path) -> None:
    store = build_store(FRAME.head(2_000), config(), tmp_path / "store")
    predictor = Predictor(Bundle.of(fit(store, config(train__max_epochs=1))))
    assert predictor.predict(store).equals(predictor.predict(FRAME.head(2_000)))
