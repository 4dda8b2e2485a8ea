"""Features and callbacks of estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fielddep import BaselineClassifier, BaselineRegressor, MDLClassifier, MDLRegressor
from fielddep.errors import ConfigError, UserError
from fielddep.nn import MODELS
from fielddep.observer import Observer
from fielddep.training.checkpoint import Evaluation
from tests.conftest import small_frame
from tests.helpers import raises
from tests.small_models import small_settings

FRAME = small_frame(300)
X, Y = FRAME.drop("good"), FRAME["good"].to_numpy()
FIELDS = X.columns


@pytest.fixture(scope="module")
def fitted() -> MDLClassifier:
    return MDLClassifier(max_epochs=3, d_embed=3, hidden=(8,), config={"data.numeric": "scale"}).fit(X, Y)


def test_features_are_embeddings_and_the_refined_dependencies(fitted: MDLClassifier) -> None:
    found = pl.DataFrame(fitted.transform(X), schema=fitted.get_feature_names_out().tolist())
    n_pairs = len(FIELDS) * (len(FIELDS) - 1)
    assert found.width == 3 * len(FIELDS) + n_pairs
    assert found.to_numpy().dtype == np.float64
    values = fitted.embeddings("colour")
    for row in range(5):
        expected = values.filter(pl.col("value") == X["colour"][row]).select("e0", "e1", "e2").row(0)
        assert found.select([f"colour_e{d}" for d in range(3)]).row(row) == pytest.approx(expected)
    number = (X["size"] - X["size"].mean()) / X["size"].std()
    assert abs(np.corrcoef(found["size_e0"], number)[0, 1]) > 0.99


def test_dependencies_are_those_of_the_explanation(fitted: MDLClassifier) -> None:
    rows = X.head(20)
    found = pl.DataFrame(fitted.transform(rows), schema=fitted.get_feature_names_out().tolist())
    explained = fitted.explain(rows)
    assert fitted.sparsity == 10.0  # lambda
    for source, name in enumerate(explained.fields):
        for dependent, other in enumerate(explained.fields):
            if source != dependent:
                expected = explained.w_RSFF[:, -1, source, dependent] * explained.mu_RSF[:, -1, dependent] / 10.0
                assert found[f"{name} -> {other}"].to_numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_with_embeddings(name: str) -> None:
    if name == "mdl":
        pytest.skip("tested above")
    model = BaselineRegressor(name, config=small_settings(name), max_epochs=1).fit(X, Y * 50.0)
    if name == "lr":
        with raises(UserError, "lr", "embeddings"):
            model.transform(X)
        return
    found = model.transform(X.head(7))
    assert found.shape == (7, len(model.get_feature_names_out()))
    assert np.isfinite(found).all()
    assert any("->" in feature for feature in model.get_feature_names_out()) == (name == "blend")


def test_frames_come_out_on_demand() -> None:
    model = MDLRegressor(max_epochs=1, d_embed=2).fit(X, Y * 1.0)
    plain, names = model.transform(X), model.get_feature_names_out().tolist()
    assert isinstance(plain, np.ndarray)
    pandas = X.to_pandas().set_index(np.arange(len(X)) + 7)
    as_pandas = model.set_output(transform="pandas").transform(pandas)
    assert isinstance(as_pandas, pd.DataFrame)
    assert (as_pandas.columns.tolist(), as_pandas.index[0]) == (names, 7)
    as_polars = model.set_output(transform="polars").transform(X)
    assert isinstance(as_polars, pl.DataFrame)
    assert as_polars.columns == names
    assert np.array_equal(as_pandas.to_numpy(), plain) and np.array_equal(as_polars.to_numpy(), plain)


def test_features_in_a_pipeline() -> None:
    pipeline = make_pipeline(MDLClassifier(max_epochs=15, d_embed=4), LogisticRegression(max_iter=1000)).fit(X, Y)
    assert pipeline.score(X, Y) > 0.6
    assert len(pipeline[:-1].get_feature_names_out()) == pipeline[-1].n_features_in_


def test_features_need_a_fitted_model() -> None:
    with pytest.raises(NotFittedError):
        MDLClassifier().transform(X)
    with pytest.raises(NotFittedError):
        MDLClassifier().get_feature_names_out()


def test_without_dependencies_there_are_embeddings_only() -> None:
    model = MDLClassifier(max_epochs=1, d_embed=2, dependencies="none").fit(X, Y)
    assert model.transform(X).shape == (len(X), 2 * len(FIELDS)) == (len(X), len(model.get_feature_names_out()))


# --- callbacks ------------------------------------------------------------------------------------------------


class Steps(Observer):
    def __init__(self) -> None:
        self.n = 0

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.n += 1


def test_callbacks_watch_the_training() -> None:
    seen: list[Evaluation] = []
    steps = Steps()
    model = BaselineClassifier("fm", max_epochs=3).fit(X, Y, callbacks=[seen.append, steps])
    assert [evaluation.to_json() for evaluation in seen] == model.history_
    assert steps.n == model.n_iter_


def test_a_callback_can_end_the_training() -> None:
    def stop(evaluation: Evaluation) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BaselineRegressor("fm", max_epochs=3).fit(X, Y * 1.0, callbacks=[stop])


@pytest.mark.parametrize("wrong", [3, "loss", Observer])
def test_callbacks_of_another_kind_are_refused(wrong: object) -> None:
    with raises(ConfigError, "callbacks", repr(wrong)):
        BaselineClassifier("fm", max_epochs=1).fit(X, Y, callbacks=[wrong])
