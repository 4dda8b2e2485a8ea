"""Explanations from the estimators equal those of `fielddep.explain`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel

from fielddep.artifacts.predictor import Predictor
from fielddep.errors import SchemaError, TableError, UserError
from fielddep.explain.groups import group_rows
from fielddep.explain.hiding import hide_fields
from fielddep.explain.importance import permutation_importance
from fielddep.sklearn_api.estimators import BaselineClassifier, BaselineRegressor, MDLClassifier
from tests.conftest import small_frame
from tests.helpers import raises

TABLE = small_frame()
X, LABELS = TABLE.drop("good"), np.where(TABLE["good"] == 1, "yes", "no")
NEW = small_frame(60, seed=5)
NEW_X, NEW_LABELS = NEW.drop("good"), np.where(NEW["good"] == 1, "yes", "no")


@pytest.fixture(scope="module")
def mdl() -> MDLClassifier:
    return MDLClassifier(d_embed=4, hidden=(8,), max_epochs=5, batch_size=32).fit(X, LABELS)


@pytest.fixture(scope="module")
def fm() -> BaselineClassifier:
    return BaselineClassifier("fm", max_epochs=3).fit(X, LABELS)


@pytest.mark.parametrize("name", ["mdl", "fm"])
def test_importance_and_hiding(name, request):
    model = request.getfixturevalue(name)
    bundle = model.bundle_
    rows, _ = bundle.encoder.encode(NEW_X.with_columns(pl.Series("y", NEW_LABELS)), with_target=True)
    expected = permutation_importance(bundle, rows, n_repeats=2, seed=3)
    found = model.importance(NEW_X, NEW_LABELS, n_repeats=2, seed=3)
    assert found.to_frame().equals(expected.to_frame())
    assert model.importance(NEW_X.to_pandas(), NEW_LABELS, n_repeats=2, seed=3).to_frame().equals(expected.to_frame())
    texts = NEW_X.select(pl.all().cast(pl.String))
    assert model.hide_fields(NEW_X).to_frame().equals(hide_fields(bundle, rows, values=texts).to_frame())


def test_explanations_show_what_the_rows_hold(mdl, tmp_path: Path):
    odd = NEW_X.head(3).with_columns(colour=pl.Series(["mauve", None, "red"]), size=pl.Series([1e9, None, 0.25]))
    colours, sizes = ["mauve", "<missing>", "red"], ["1000000000", "<missing>", "0.25"]
    for values in (mdl.explain(odd).values, mdl.hide_fields(odd).values):
        assert (values["colour"].to_list(), values["size"].to_list()) == (colours, sizes)
    mdl.write_explanations(tmp_path / "odd", odd, rows=(2, 0))
    effects = pl.read_csv(tmp_path / "odd" / "effects.csv", infer_schema=False)
    assert effects.filter(hidden="colour")["value"].to_list() == ["mauve", "red"]
    assert effects.filter(hidden="size")["value"].to_list() == ["1000000000", "0.25"]


def test_importance_with_weights(mdl):
    weights = np.arange(60) % 3
    found = mdl.importance(NEW_X, NEW_LABELS, weights, n_repeats=1)
    repeated = np.repeat(np.arange(60), weights)
    assert found.base["logloss"] == pytest.approx(
        mdl.importance(NEW_X[repeated], NEW_LABELS[repeated], n_repeats=1).base["logloss"], rel=1e-5
    )
    with raises(ValueError, "Negative"):
        mdl.importance(NEW_X, NEW_LABELS, -weights)


def test_importance_of_a_regressor():
    model = BaselineRegressor("fm", max_epochs=3).fit(X, TABLE["good"] * 50.0)
    truth = NEW["good"].to_numpy() * 50.0
    found = model.importance(NEW_X, truth, n_repeats=1)
    assert found.metrics == ("rmse", "mae", "r2")
    assert found.base["rmse"] == pytest.approx(np.mean((model.predict(NEW_X) - truth) ** 2) ** 0.5, rel=1e-4)


def test_feature_importances_are_those_of_the_validation_rows(monkeypatch):
    table, new = (frame.insert_column(1, pl.Series("constant", ["c"] * len(frame))) for frame in (X[:], NEW_X[:]))
    model = BaselineClassifier("fm", max_epochs=3).fit(table, LABELS, eval_set=[(new, NEW_LABELS)])
    of_field = model.importance(new, NEW_LABELS)
    rises = of_field.mean_F("logloss").clip(0)
    expected = dict(zip(of_field.names, rises, strict=True)) | {"constant": 0.0}
    found = model.feature_importances_
    assert model.feature_names_in_.tolist() == ["colour", "constant", "shape", "size"]
    np.testing.assert_allclose(found, [expected[name] for name in table.columns], atol=1e-6)
    selected = SelectFromModel(model, prefit=True, threshold=1e-9).get_support()
    assert selected.tolist() == [bool(expected[name] >= 1e-9) for name in table.columns]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).feature_importances_, found)
    monkeypatch.setattr("fielddep.sklearn_api.base.permutation_importance", None)
    assert model.feature_importances_ is found  # computed once


def test_feature_importances_of_arrays_and_of_another_fit(fm):
    model = BaselineClassifier("fm", max_epochs=3).fit(X.to_numpy(), LABELS)
    np.testing.assert_allclose(model.feature_importances_, fm.feature_importances_, atol=1e-6)
    first = model.feature_importances_
    assert model.fit(X.to_numpy()[:, :2], LABELS).feature_importances_.shape == (2,)
    assert first.shape == (3,)


def test_feature_importances_need_validation_rows(fm, tmp_path: Path):
    fm.save(tmp_path / "bundle")
    loaded = BaselineClassifier.load(tmp_path / "bundle")
    assert not hasattr(loaded, "feature_importances_")
    with raises(AttributeError, "feature_importances_", "importance"):
        _ = loaded.feature_importances_
    with pytest.raises(NotFittedError):
        _ = BaselineClassifier("fm").feature_importances_


def test_groups(mdl):
    groups = mdl.group_rows(NEW_X, NEW_LABELS, n_groups=2, seed=1)
    rows, _ = mdl.bundle_.encoder.encode(NEW_X)
    np.testing.assert_array_equal(groups.group_R, group_rows(mdl.bundle_, rows, n_groups=2, seed=1).group_R)
    shares = [(NEW_LABELS[groups.group_R == g] == "yes").mean() for g in range(len(groups))]
    assert groups.to_frame()["target_probability_yes"].to_list() == pytest.approx(shares)
    assert mdl.group_rows(NEW_X).groups[0].target is None


def test_nearest_values_and_embeddings(mdl, fm):
    for model in (mdl, fm):
        near = model.nearest_values("colour", "red", n=1)
        table = model.embeddings("colour")
        vectors = {row[0]: np.array(row[2:]) for row in table.rows() if not row[0].startswith("<")}
        own = vectors.pop("red")
        cosines = {v: own @ e / (np.linalg.norm(own) * np.linalg.norm(e)) for v, e in vectors.items()}
        best = max(cosines, key=lambda v: cosines[v])
        assert near.values == (best,)
        assert near.similarities[0] == pytest.approx(cosines[best], abs=1e-5)
    with raises(UserError, "lr", "no embedding"):
        BaselineClassifier("lr", max_epochs=1).fit(X, LABELS).nearest_values("colour", "red")


def test_explanations_as_files(mdl, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    written = mdl.write_explanations(tmp_path / "all", NEW_X, NEW_LABELS, rows=(3, 0))
    assert sorted(written) == sorted(path.name for path in (tmp_path / "all").iterdir())
    assert {"learning.csv", "importance.csv", "rows.csv", "groups.csv"} <= set(written)
    effects = pl.read_csv(tmp_path / "all" / "effects.csv")
    expected = Predictor(mdl.bundle_).predict(NEW_X)["probability_yes"]
    assert effects.filter(pl.col("row") == 3)["prediction"][0] == pytest.approx(expected[3], rel=1e-5)
    mdl.save(tmp_path / "bundle")
    loaded = MDLClassifier.load(tmp_path / "bundle")
    again = loaded.write_explanations(tmp_path / "few", NEW_X.head(5))
    assert not {"learning.csv", "importance.csv"} & set(again)
    with raises(TableError, "row 60", "60 rows"):
        mdl.write_explanations(tmp_path / "none", NEW_X, rows=(60,))
    assert not (tmp_path / "none").exists()


def test_what_is_refused(mdl):
    with raises(SchemaError, "'maybe'"):
        mdl.importance(NEW_X.head(2), ["yes", "maybe"])
    with raises(SchemaError, "y"):
        mdl.importance(NEW_X, None)
    with raises(ValueError, "numbers of samples"):
        mdl.importance(NEW_X, NEW_LABELS[:-1])
    unfitted = MDLClassifier()
    for call in (
        lambda: unfitted.importance(X, LABELS),
        lambda: unfitted.hide_fields(X),
        lambda: unfitted.group_rows(X),
        lambda: unfitted.nearest_values("colour", "red"),
        lambda: unfitted.write_explanations("x", X),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_explaining_changes_nothing(mdl, tmp_path: Path):
    before = mdl.predict_proba(NEW_X)
    mdl.importance(NEW_X, NEW_LABELS, n_repeats=1)
    mdl.hide_fields(NEW_X)
    mdl.group_rows(NEW_X)
    np.testing.assert_array_equal(mdl.predict_proba(NEW_X), before)


def test_a_baseline_shows_its_evidence():
    alone = BaselineClassifier("fm", max_epochs=1).fit(X, LABELS)
    with raises(UserError, "model.direct = 'auto'"):
        alone.row_evidence(NEW_X)
    counted = BaselineClassifier("fm", max_epochs=2, config={"model.direct": "auto"}).fit(X, LABELS)
    found = counted.row_evidence(NEW_X.head(3), n_strongest=2)
    assert [len(seen) for seen in found.rows] == [2, 2, 2]
