"""The estimators of every model, and scikit-learn's checks of one baseline; `test_estimators.py` has those of MDL."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from fielddep import BaselineClassifier, BaselineRegressor, MDLClassifier, MDLRegressor
from fielddep.nn import MODELS
from fielddep.sklearn_api.base import TableEstimator
from tests.conftest import small_frame
from tests.small_models import small_settings

FRAME = small_frame(300)
X, ROWS = FRAME.drop("good"), FRAME.drop("good").head(30)
COLOURS = FRAME["colour"].to_numpy()
VALUES = 1000.0 + 50.0 * (COLOURS == "red") + 5.0 * FRAME["size"].to_numpy()

SPLIT_REASON = "rows are held out for early stopping and trained in batches; see test_estimators.py"


@parametrize_with_checks(
    [BaselineClassifier("fm", max_epochs=2, lr=0.1)],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": SPLIT_REASON},
)
def test_scikit_learn_contract_of_a_baseline(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("kind", [MDLClassifier, MDLRegressor, BaselineClassifier, BaselineRegressor])
def test_every_parameter_is_documented(kind: type[TableEstimator]):
    doc = inspect.getdoc(kind.__init__)
    assert doc is not None
    documented = re.findall(r"^ {4}(\w+): ", doc, flags=re.MULTILINE)
    assert documented == list(inspect.signature(kind).parameters)


def estimator(name: str, *, regression: bool = False) -> TableEstimator:
    """A small estimator of a model, to be fitted in a moment."""
    sizes = {path: value for path, value in small_settings(name).items() if path != "model.name"}
    lr = 0.01 if name in ("saint", "tabtransformer") else 0.05
    shared = {
        "max_epochs": 8 if name == "saint" else 3,
        "batch_size": 32,
        "lr": lr,
        "optimizer": "adam",
        "eval_every": 1,
        "config": sizes,
    }
    if name == "mdl":
        return (MDLRegressor if regression else MDLClassifier)(**shared)
    return (BaselineRegressor if regression else BaselineClassifier)(name, **shared)


@pytest.mark.parametrize("name", MODELS)
def test_a_classifier_learns_and_is_saved(name: str, tmp_path: Path):
    model = clone(estimator(name)).fit(X, COLOURS)
    assert model.bundle_.config.model.name == name
    assert model.classes_.tolist() == ["blue", "green", "red"]
    chances = model.predict_proba(ROWS)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(ROWS), model.classes_[chances.argmax(axis=1)])
    assert model.score(X, COLOURS) > 0.9
    model.save(tmp_path / "bundle")
    loaded = type(model).load(tmp_path / "bundle")
    assert loaded.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(loaded.predict_proba(ROWS), chances)


@pytest.mark.parametrize("name", MODELS)
def test_a_regressor_learns_and_is_saved(name: str, tmp_path: Path):
    model = clone(estimator(name, regression=True)).fit(X, VALUES)
    assert model.bundle_.config.model.name == name
    assert model.score(X, VALUES) > 0.8
    model.save(tmp_path / "bundle")
    np.testing.assert_array_equal(type(model).load(tmp_path / "bundle").predict(ROWS), model.predict(ROWS))
