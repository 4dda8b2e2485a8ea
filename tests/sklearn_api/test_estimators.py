"""The estimators as scikit-learn and its users see them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from fielddep import MDLClassifier, MDLRegressor
from fielddep.artifacts.run import Run
from fielddep.cli import main
from fielddep.errors import ConfigError, SchemaError, TableError, UserError
from fielddep.sklearn_api.input import FitInput
from tests.conftest import quick_config, small_frame
from tests.helpers import raises, states

QUICK = {"max_epochs": 3, "d_embed": 2, "hidden": (8,), "batch_size": 64}
SPLIT_REASON = (
    "rows are held out for early stopping and trained in batches, so a row of weight 2 and two rows are not shared out "
    "alike; a row of weight 0 does equal an absent one"
)


ROUNDING_REASON = "float32: the last digit of a matrix product depends on the number of rows, and 1e-7 is asked"


def expected_failures(estimator: object) -> dict[str, str]:
    found = {"check_sample_weight_equivalence_on_dense_data": SPLIT_REASON}
    return found | ({"check_methods_subset_invariance": ROUNDING_REASON} if isinstance(estimator, MDLRegressor) else {})


@parametrize_with_checks(
    [
        MDLClassifier(max_epochs=2, d_embed=2, hidden=(8,), lr=0.1),
        MDLRegressor(max_epochs=6, d_embed=2, hidden=(8,), lr=0.1),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


FRAME = small_frame(400)
X, Y = FRAME.drop("good"), FRAME["good"].to_numpy()
ROWS = X.head(30)


PLAIN = {"model.direct": "none"}
"""The paper's part of MDL alone, whose training the history tells."""


def classifier(**settings: object) -> MDLClassifier:
    return MDLClassifier(**{**QUICK, **settings})


@pytest.fixture(scope="module")
def fitted() -> MDLClassifier:
    return MDLClassifier(max_epochs=15, d_embed=4, hidden=(16,), batch_size=32, patience=15).fit(X, Y)


@pytest.fixture(scope="module")
def regressor() -> MDLRegressor:
    return MDLRegressor(**QUICK).fit(X, Y * 3.0 + 10)


def test_it_learns_what_no_single_field_tells(fitted):
    assert fitted.score(X, Y) > 0.85
    assert accuracy_score(Y, fitted.predict(X)) == fitted.score(X, Y)


# --- scikit-learn's tools -------------------------------------------------------------------------------------


def test_parameters_clone_and_set():
    estimator = classifier(sparsity=3.0, config={"model.mu_start": "one"})
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(d_embed=5).d_embed == 5
    assert estimator.d_embed == 2
    bundle = copy.fit(X, Y).bundle_
    assert (bundle.config.model.d_embed, bundle.config.model.sparsity, bundle.config.model.mu_start) == (5, 3.0, "one")


@pytest.mark.parametrize(("n_jobs", "threads"), [(None, None), (1, 1), (2, 2), (-1, os.cpu_count()), (-1000, 1)])
def test_n_jobs_are_threads(n_jobs, threads, monkeypatch):
    used = []
    monkeypatch.setattr("fielddep.training.fit.torch.set_num_threads", used.append)
    before = torch.get_num_threads()
    model = classifier(n_jobs=n_jobs, config=PLAIN).fit(X, Y)
    assert model.bundle_.config.train.threads == threads
    assert used == [threads or before, before]


def test_wrong_settings_are_refused_at_fit():
    with raises(ConfigError, "train.threads", 0):
        classifier(n_jobs=0).fit(X, Y)
    with raises(ConfigError, "model.dropout", 1):
        classifier(dropout=1.5).fit(X, Y)
    with raises(ConfigError, "model.mu_strat", "mdl", "model.mu_start"):
        classifier(config={"model.mu_strat": "one"}).fit(X, Y)


@pytest.mark.parametrize("table", [X.to_pandas(), X, X.to_numpy()], ids=["pandas", "polars", "numpy"])
def test_cross_validation_and_grid_search(table):
    scores = cross_val_score(classifier(), table, Y, cv=2, scoring="neg_log_loss", error_score="raise")
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(classifier(), {"d_embed": [1, 3]}, cv=2, error_score="raise").fit(table, Y)
    assert search.best_params_["d_embed"] in (1, 3)
    assert search.best_estimator_.bundle_.config.model.d_embed == search.best_params_["d_embed"]
    assert search.predict(table).shape == (400,)


def test_pipeline_passes_tables_and_arrays():
    pipe = make_pipeline(FunctionTransformer(lambda t: t.drop(columns="size")), classifier())
    pipe.fit(X.to_pandas(), Y)
    assert pipe[-1].feature_names_in_.tolist() == ["colour", "shape"]
    assert pipe.predict(X.to_pandas()).shape == (400,)
    numbers, labels = make_classification(200, 4, random_state=0)
    scaled = make_pipeline(StandardScaler(), classifier()).fit(numbers, labels)
    assert scaled.predict_proba(numbers).shape == (200, 2)


def test_pandas_polars_and_numpy_agree(fitted):
    expected = fitted.predict_proba(ROWS)
    np.testing.assert_array_equal(fitted.predict_proba(ROWS.to_pandas()), expected)
    by_position = classifier().fit(X.to_numpy(), Y)
    by_name = classifier().fit(X, Y)
    np.testing.assert_array_equal(by_position.predict_proba(ROWS.to_numpy()), by_name.predict_proba(ROWS))
    assert by_name.n_features_in_ == by_position.n_features_in_ == 3
    assert not hasattr(by_position, "feature_names_in_")
    assert by_name.feature_names_in_.tolist() == X.columns


def test_object_arrays_with_text_and_none():
    table = np.array([["a", 1], ["b", 2], [None, 1], ["a", None]] * 30, dtype=object)
    labels = ["no", "yes", "yes", "no"] * 30
    model = classifier(max_epochs=30, patience=30, batch_size=16).fit(table, labels)
    assert model.predict(table[:4]).tolist() == ["no", "yes", "yes", "no"]
    assert model.bundle_.encoder.values("x0").to_list() == ["<missing>", "<rare>", "a", "b"]


def test_verbose_prints_a_line_per_evaluation(capsys):
    model = classifier(verbose=True, config=PLAIN).fit(X, Y)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == len(model.history_)
    for line, evaluation in zip(lines, model.history_, strict=True):
        states(line, f"{evaluation['epoch']:.2f}", f"{evaluation['train_loss']:.4f}")
        assert line.isprintable()
    classifier().fit(X, Y)
    assert capsys.readouterr().err == ""


def test_random_state():
    probabilities = [classifier(random_state=seed).fit(X, Y).predict_proba(ROWS) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(probabilities[0], probabilities[1])
    assert not np.array_equal(probabilities[0], probabilities[2])
    first = classifier(random_state=np.random.RandomState(3)).fit(X, Y).predict_proba(ROWS)
    second = classifier(random_state=np.random.RandomState(3)).fit(X, Y).predict_proba(ROWS)
    np.testing.assert_array_equal(first, second)


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    model = classifier(dropout=0.5, random_state=9).fit(X, Y)
    model.predict_proba(ROWS)
    model.explain(ROWS)
    assert torch.equal(torch.rand(3), expected[0])
    np.testing.assert_array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


# --- labels ---------------------------------------------------------------------------------------------------

LABELS = {
    "text": np.where(Y == 1, "yes", "no"),
    "bool": Y == 1,
    "int": Y + 1,
    "float": Y.astype(float),
    "signs": np.where(Y == 1, 1, -1),
    "object": np.where(Y == 1, "yes", "no").astype(object),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_labels_of_any_type(labels, tmp_path):
    model = classifier(max_epochs=6).fit(X, labels)
    assert model.classes_.tolist() == sorted(set(labels.tolist()))
    probabilities = model.predict_proba(ROWS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    predicted = model.predict(ROWS)
    assert predicted.dtype == labels.dtype
    assert predicted.tolist() == model.classes_[probabilities.argmax(axis=1)].tolist()
    reference = classifier(max_epochs=6).fit(X, Y).predict_proba(ROWS)
    np.testing.assert_array_equal(probabilities, reference)
    model.save(tmp_path / "bundle")
    assert MDLClassifier.load(tmp_path / "bundle").predict(ROWS).tolist() == predicted.tolist()


def test_many_classes_follow_classes_():
    labels = np.array(["ten", "two", "one"])[(FRAME["colour"].rank("dense").to_numpy() - 1).astype(int)]
    model = classifier(max_epochs=20, patience=20, batch_size=32).fit(X, labels)
    assert model.classes_.tolist() == ["one", "ten", "two"]
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert model.score(X, labels) > 0.95
    assert (model.classes_[probabilities.argmax(axis=1)] == labels).mean() == model.score(X, labels)


def test_class_order_is_numeric_not_textual():
    labels = np.array([2, 10, -1])[np.arange(400) % 3]
    model = classifier().fit(X, labels)
    assert model.classes_.tolist() == [-1, 2, 10]
    frame = model.predictor_.predict(ROWS)
    assert frame.columns == ["prediction", "probability_-1", "probability_2", "probability_10"]
    np.testing.assert_allclose(model.predict_proba(ROWS), frame.drop("prediction").to_numpy(), atol=1e-6)


def test_bad_targets():
    with raises(SchemaError, "two classes", "one class"):
        classifier().fit(X, np.ones(400, dtype=int))
    with raises(SchemaError, "NaN or inf"):
        MDLRegressor(**QUICK).fit(X, [float("nan")] * 400)
    with raises(ValueError, "numbers of samples"):
        classifier().fit(X, Y[:10])
    with raises(SchemaError, "requires y"):
        classifier().fit(X, None)


# --- weights and validation rows ------------------------------------------------------------------------------


def test_rows_of_weight_zero_count_as_absent():
    kept = np.arange(400) % 4 != 0
    weighted = classifier().fit(X, Y, sample_weight=np.where(kept, 1.0, 0.0))
    without = classifier().fit(X.filter(pl.Series(kept)), Y[kept], sample_weight=np.ones(kept.sum()))
    np.testing.assert_array_equal(weighted.predict_proba(ROWS), without.predict_proba(ROWS))


def test_weights_matter_and_their_scale_does_not():
    weights = np.where(Y == 1, 5.0, 1.0)
    plain, weighted, doubled = (
        classifier().fit(X, Y, sample_weight=w).predict_proba(X)[:, 1] for w in (None, weights, 2 * weights)
    )
    np.testing.assert_array_equal(weighted, doubled)
    assert weighted.mean() > plain.mean() + 0.05


def test_class_weights_are_multiplied_into_sample_weights():
    labels = np.where(Y == 1, "yes", "no")
    weights = np.linspace(1.0, 2.0, 400)
    by_class = classifier(class_weight={"yes": 5}).fit(X, labels, sample_weight=weights)
    by_row = classifier().fit(X, labels, sample_weight=weights * np.where(Y == 1, 5.0, 1.0))
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    alone = classifier(class_weight={"yes": 5, "no": 1}).fit(X, labels)
    only = classifier().fit(X, labels, sample_weight=np.where(Y == 1, 5.0, 1.0))
    np.testing.assert_array_equal(alone.predict_proba(X), only.predict_proba(X))


def test_balanced_class_weights_equal_scikit_learns():
    labels = np.array(["a", "b", "c"])[np.minimum(np.arange(400) % 7, 2)]
    balanced = classifier(class_weight="balanced").fit(X, labels)
    expected = classifier().fit(X, labels, sample_weight=compute_sample_weight("balanced", labels))
    np.testing.assert_allclose(balanced.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    assert balanced.predict_proba(X)[:, 0].mean() > classifier().fit(X, labels).predict_proba(X)[:, 0].mean() + 0.05


def test_class_weights_do_not_weigh_the_eval_set():
    pair = [(X.head(100), Y[:100])]
    model = classifier(class_weight={1: 7.0}, config=PLAIN).fit(X, Y, eval_set=pair)
    expected = -np.log(model.predict_proba(pair[0][0])[np.arange(100), Y[:100]]).mean()
    assert min(line["validation"]["loss"] for line in model.history_) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("class_weight", "fact"),
    [("balance", "'balance'"), (3.0, 3.0), ({1: 2.0, 7: 1.0}, 7), ({1: 0.0}, "0.0 for 1"), ({0: -1}, "-1 for 0")],
)
def test_bad_class_weights(class_weight, fact):
    with raises(ConfigError, "class_weight", fact):
        classifier(class_weight=class_weight).fit(X, Y)


def test_class_weights_are_not_for_numbers():
    with raises(ConfigError, "class_weight", "'balanced'"):
        MDLRegressor(class_weight="balanced").fit(X, Y)


@pytest.mark.parametrize(
    ("weights", "fact"),
    [(np.zeros(400), "non-zero|above 0"), (np.full(400, -1.0), "0 or more")],
)
def test_bad_weights(weights, fact):
    with pytest.raises(ValueError, match=fact):
        classifier().fit(X, Y, sample_weight=weights)


def test_eval_set_stops_the_training_and_teaches_nothing():
    odd = ROWS.with_columns(colour=pl.lit("only here"))
    model = classifier(max_epochs=40, patience=2, lr=0.5, config=PLAIN).fit(X, Y, eval_set=(odd, Y[:30]))
    assert model.bundle_.encoder.values("colour").to_list() == ["<missing>", "<rare>", *_by_count("colour")]
    assert int(model.bundle_.encoder.counts[0].sum()) == 400
    best = min(line["validation"]["loss"] for line in model.history_)
    probabilities = model.predict_proba(odd)[np.arange(30), Y[:30]]
    assert -np.log(probabilities).mean() == pytest.approx(best, abs=1e-6)
    assert len(model.history_) < 40 * 2


def _by_count(field: str) -> list[str]:
    counted = FRAME.group_by(field).len().sort("len", field, descending=[True, False])
    return counted[field].to_list()


def test_eval_set_with_other_column_order_types_and_extras():
    odd = (
        X.head(40)
        .with_columns(size=pl.col("size").cast(pl.String), more=pl.lit(1))
        .select("more", "size", *X.columns[:2])
    )
    same = classifier().fit(X, Y, eval_set=(X.head(40), Y[:40]))
    other = classifier().fit(X, Y, eval_set=(odd, Y[:40]), sample_weight=np.ones(400))
    np.testing.assert_array_equal(same.predict_proba(ROWS), other.predict_proba(ROWS))


def test_large_integers_survive_an_eval_set_of_floats():
    ids = [2**60 + i % 5 for i in range(400)]
    table = X.with_columns(user_id=pl.Series(ids))
    floats = table.head(20).with_columns(pl.col("user_id").cast(pl.Float64))
    model = classifier().fit(table, Y, eval_set=(floats, Y[:20]))
    assert set(model.bundle_.encoder.values("user_id").to_list()[2:]) == {str(i) for i in ids}


def test_eval_set_that_cannot_be_used():
    with raises(SchemaError, "eval_set", "'shape'"):
        classifier().fit(X, Y, eval_set=(ROWS.drop("shape"), Y[:30]))
    with raises(SchemaError, "eval_set", "'7'"):
        classifier().fit(X, Y, eval_set=(ROWS, np.full(30, 7)))


def test_eval_set_is_a_list_of_one_pair_as_in_lightgbm():
    half = X.head(200), Y[:200]
    pair = classifier().fit(X, Y, eval_set=half)
    for eval_set in ([half], (half,), [list(half)]):
        listed = classifier().fit(X, Y, eval_set=eval_set)
        assert listed.history_[-1]["validation"] == pair.history_[-1]["validation"]
        np.testing.assert_array_equal(listed.predict_proba(ROWS), pair.predict_proba(ROWS))
    assert int(pair.bundle_.encoder.counts[0].sum()) == len(X)
    number = MDLRegressor(**QUICK).fit(X, Y * 2.0, eval_set=[(X.to_pandas(), Y * 2.0)])
    assert int(number.bundle_.encoder.counts[0].sum()) == len(X)


@pytest.mark.parametrize(
    "eval_set",
    [[], [(ROWS, Y[:30])] * 2, ((ROWS, Y[:30]),) * 2, ROWS, (ROWS,), [ROWS], [(ROWS, Y[:30], "more")]],
    ids=["none", "two", "two in a tuple", "a frame", "half a pair", "half a pair in a list", "three"],
)
def test_anything_but_one_pair_is_refused(eval_set):
    for estimator in (classifier(), MDLRegressor(**QUICK)):
        with raises(SchemaError, "eval_set", "(X, y)"):
            estimator.fit(X, Y, eval_set=eval_set)


def test_weights_of_the_eval_set():
    first = np.arange(60) < 30
    only_first = classifier(config=PLAIN).fit(X, Y, eval_set=[(X.head(60), Y[:60])], eval_sample_weight=[first * 3.0])
    short = classifier(config=PLAIN).fit(X, Y, eval_set=[(ROWS, Y[:30])])
    np.testing.assert_array_equal(only_first.predict_proba(X), short.predict_proba(X))
    weights = [np.where(first, 9.0, 1.0)]
    weighted = classifier(config=PLAIN).fit(X, Y, eval_set=[(X.head(60), Y[:60])], eval_sample_weight=weights)
    plain = classifier(config=PLAIN).fit(X, Y, eval_set=[(X.head(60), Y[:60])])
    assert plain.history_[0]["train_loss"] == weighted.history_[0]["train_loss"]
    assert plain.history_[0]["validation"]["loss"] != weighted.history_[0]["validation"]["loss"]


def test_weights_of_an_eval_set_that_cannot_be_used():
    pair = [(ROWS, Y[:30])]
    for weights in (np.ones(30), [np.ones(30)] * 2, []):
        with raises(SchemaError, "eval_sample_weight", type(weights).__name__):
            classifier().fit(X, Y, eval_set=pair, eval_sample_weight=weights)
    with raises(SchemaError, "eval_sample_weight", "eval_set"):
        classifier().fit(X, Y, eval_sample_weight=[np.ones(30)])
    with pytest.raises(ValueError, match=r"non-zero|above 0"):
        classifier().fit(X, Y, eval_set=pair, eval_sample_weight=[np.zeros(30)])
    with raises(SchemaError, "eval_sample_weight", "row 7"):
        classifier().fit(X, Y, eval_set=pair, eval_sample_weight=[np.where(np.arange(30) == 7, -1.0, 1.0)])


def test_labels_that_are_one_class_to_a_model_are_refused():
    labels = np.array(["1", "1.0", "2", "no"] * 100)
    with raises(SchemaError, "'1'", "'1.0'"):
        classifier().fit(X, labels)
    with raises(SchemaError, "'TRUE'", "'true'"):
        classifier().fit(X, np.array(["TRUE", "true"] * 200))


# --- other tables at predict time -----------------------------------------------------------------------------


def test_unseen_and_missing_values_are_accepted(fitted, regressor):
    odd = pl.DataFrame({"colour": ["ultraviolet", None], "shape": [None, "blob"], "size": [1e9, None]})
    for row in (odd, odd.to_pandas()):
        assert np.isfinite(fitted.predict_proba(row)).all()
        assert np.isfinite(regressor.predict(row)).all()


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_many_unknown_values_are_warned_of(method):
    model = classifier().fit(X, Y)
    assert model.unknown_ == {}
    odd = ROWS.with_columns(colour=pl.when(pl.int_range(30) < 6).then(pl.lit("mauve")).otherwise("colour"))
    with pytest.warns(UserWarning, match="'colour'") as caught:
        getattr(model, method)(odd)
    [message] = [str(warning.message) for warning in caught]
    states(message, "'colour'", "20 %")
    assert model.unknown_ == {"colour": 0.2, "shape": 0.0, "size": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(model, method)(ROWS)
    assert model.unknown_["colour"] == 0.0


def test_columns_are_chosen_by_name(fitted):
    shuffled = ROWS.with_columns(good=pl.lit("nonsense"), more=pl.lit(1.0)).select(
        "more", "size", "good", "shape", "colour"
    )
    np.testing.assert_array_equal(fitted.predict_proba(shuffled), fitted.predict_proba(ROWS))


def test_absent_columns_are_named(fitted):
    with raises(SchemaError, "'colour'", "'size'", "'colours'"):
        fitted.predict(ROWS.rename({"colour": "colours"}).drop("size"))
    with raises(SchemaError, "X has 2 features, but MDLClassifier is expecting 3"):
        classifier().fit(X.to_numpy(), Y).predict(X.to_numpy()[:, :2])


def test_arrays_are_taken_by_position_with_a_warning(fitted, regressor):
    for model in (fitted, regressor):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expected = model.predict(ROWS)
        for array in (ROWS.to_numpy(), ROWS.to_numpy().astype(object), [list(row) for row in ROWS.rows()]):
            with pytest.warns(UserWarning, match="feature names"):
                np.testing.assert_array_equal(model.predict(array), expected)
        with raises(SchemaError, 2, 3, type(model).__name__):
            model.predict(ROWS.to_numpy()[:, :2])
    with pytest.warns(UserWarning, match="feature names"):
        assert fitted.explain(ROWS.to_numpy()).values["colour"].to_list() == ROWS["colour"].to_list()


def test_positions_count_even_if_names_look_like_those_of_an_array():
    table = X.rename({"colour": "x2", "shape": "x0", "size": "x1"})
    model = classifier().fit(table, Y)
    with pytest.warns(UserWarning, match="feature names"):
        found = model.predict_proba(ROWS.to_numpy())
    np.testing.assert_array_equal(found, model.predict_proba(table.head(30)))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_an_explainer_may_mix_rows_as_arrays(fitted):
    """As `shap.KernelExplainer` does: cells of a row, the others from background rows, in an array of objects."""
    row, background = ROWS.to_numpy()[0].astype(object), ROWS.to_numpy()[1:11].astype(object)
    kept = np.array([[bool(n >> f & 1) for f in range(3)] for n in range(8)])
    value = np.stack([fitted.predict_proba(np.where(mask, row, background)).mean(axis=0) for mask in kept])
    np.testing.assert_allclose(value[0], fitted.predict_proba(ROWS[1:11]).mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(value[-1], fitted.predict_proba(ROWS[:1])[0], atol=1e-6)
    mixed = ROWS[1:11].with_columns(colour=pl.lit(ROWS["colour"][0]))
    np.testing.assert_allclose(value[1], fitted.predict_proba(mixed).mean(axis=0), atol=1e-6)


def test_an_empty_table_is_refused(fitted):
    with raises(TableError, "no rows"):
        fitted.predict(ROWS.clear())
    with raises(ValueError, "0 sample"):
        fitted.predict(np.empty((0, 3)))


def test_unknown_values_may_be_refused():
    model = classifier(handle_unknown="error").fit(X, Y)
    with raises(UserError, "'colour'", "30 unknown", "'x'"):
        model.predict(ROWS.with_columns(colour=pl.lit("x")))


@pytest.mark.parametrize("estimator", [MDLClassifier(), MDLRegressor()])
def test_unfitted(estimator, tmp_path):
    for call in (
        lambda: estimator.predict(ROWS),
        lambda: estimator.explain(ROWS),
        lambda: estimator.save(tmp_path / "x"),
        estimator.field_dependencies,
        lambda: estimator.embeddings("shape"),
        lambda: estimator.unknown_,
    ):
        with pytest.raises(NotFittedError):
            call()


# --- regression -----------------------------------------------------------------------------------------------


def test_regression_in_the_targets_own_unit():
    target = Y * 1000.0 - 5e6
    model = MDLRegressor(max_epochs=20, d_embed=4, hidden=(16,), batch_size=32, patience=20).fit(X, target)
    predicted = model.predict(X)
    assert predicted.dtype == np.float64
    assert r2_score(target, predicted) == pytest.approx(model.score(X, target), abs=1e-12)
    assert model.score(X, target) > 0.5


# --- save and load --------------------------------------------------------------------------------------------


def test_saved_and_loaded_predicts_the_same_bits(fitted, regressor, tmp_path):
    fitted.save(tmp_path / "classifier")
    regressor.save(tmp_path / "regressor")
    loaded = MDLClassifier.load(tmp_path / "classifier")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    np.testing.assert_array_equal(MDLRegressor.load(tmp_path / "regressor").predict(X), regressor.predict(X))
    with raises(UserError, "MDLRegressor", "binary"):
        MDLRegressor.load(tmp_path / "classifier")
    with raises(UserError, "MDLClassifier", "regression"):
        MDLClassifier.load(tmp_path / "regressor")


def test_an_estimator_is_loaded_from_a_run(tmp_path):
    table = FRAME.rename({"good": "target"})
    run = Run.train(table, quick_config(data__target="target", train__max_epochs=2), tmp_path / "run")
    loaded = MDLClassifier.load(run.folder)
    np.testing.assert_array_equal(loaded.predict_proba(X), MDLClassifier.load(run.bundle).predict_proba(X))


def test_loaded_array_models_expect_every_column_of_training(tmp_path):
    table = np.column_stack([X.to_numpy(), np.full(400, "constant")])
    model = classifier(config={"data.exclude": ["x2"]}).fit(table, Y)
    model.save(tmp_path / "bundle")
    loaded = MDLClassifier.load(tmp_path / "bundle")
    assert loaded.n_features_in_ == model.n_features_in_ == 4
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    chosen = classifier(config={"data.fields": ["x0", "x1"]}).fit(table, Y)
    chosen.save(tmp_path / "chosen")
    np.testing.assert_array_equal(MDLClassifier.load(tmp_path / "chosen").predict(table), chosen.predict(table))


def test_refitting_forgets_the_first_table():
    model = classifier().fit(X, Y)
    model.fit(X.to_numpy(), np.where(Y == 1, "b", "a"))
    assert model.classes_.tolist() == ["a", "b"]
    assert not hasattr(model, "feature_names_in_")


# --- explanations ---------------------------------------------------------------------------------------------


def test_field_dependencies_are_a_named_square(fitted):
    table = fitted.field_dependencies()
    assert table.columns == ["source", "colour", "shape", "size"]
    assert table["source"].to_list() == ["colour", "shape", "size"]
    np.testing.assert_array_equal(np.diagonal(table.drop("source").to_numpy()), [-1.0, -1.0, -1.0])


def test_explain_follows_the_refinement(fitted):
    explanation = fitted.explain(ROWS)
    n_steps, sparsity = fitted.n_inner_steps + 1, fitted.sparsity
    assert explanation.w_RSFF.shape == (30, n_steps, 3, 3)
    assert explanation.mu_RSF.shape == explanation.loss_RSF.shape == (30, n_steps, 3)
    np.testing.assert_allclose(explanation.mu_RSF.sum(axis=2), sparsity, rtol=1e-5)
    assert explanation.values["colour"].to_list() == ROWS["colour"].to_list()
    np.testing.assert_array_equal(explanation.w_RSFF[:, 0], np.broadcast_to(_w0(fitted), (30, 3, 3)))


def _w0(model: MDLClassifier) -> np.ndarray:
    return model.field_dependencies().drop("source").to_numpy()


def test_loss_of_every_step_equals_a_direct_computation(fitted):
    explanation = fitted.explain(ROWS)
    encoder = fitted.bundle_.encoder
    ids_RF = encoder.encode(ROWS)[0].ids_RF
    tables = [fitted.embeddings(name).drop("value", "count").to_numpy() for name in X.columns]
    for row in range(30):
        e_DF = np.stack([tables[f][ids_RF[row, f]] for f in range(3)], axis=1).astype(np.float64)
        for step in range(fitted.n_inner_steps + 1):
            residual_DF = e_DF @ explanation.w_RSFF[row, step]
            loss_F = explanation.mu_RSF[row, step] * (residual_DF**2).sum(axis=0) / (2 * fitted.sparsity)
            np.testing.assert_allclose(explanation.loss_RSF[row, step], loss_F, rtol=1e-4, atol=1e-7)


def test_embeddings_one_row_a_value(fitted):
    table = fitted.embeddings("colour")
    assert table.columns == ["value", "count", "e0", "e1", "e2", "e3"]
    assert table["value"].to_list()[:2] == ["<missing>", "<rare>"]
    assert sorted(table["value"].to_list()[2:]) == ["blue", "green", "red"]
    assert table["count"].sum() == 360  # rows that were not held out
    with raises(SchemaError, "'color'", "'colour'"):
        fitted.embeddings("color")


def test_without_dependencies_there_is_nothing_to_explain():
    model = classifier(dependencies="none").fit(X, Y)
    with raises(UserError, "field dependencies"):
        model.explain(ROWS)
    with raises(UserError, "field dependencies"):
        model.field_dependencies()


def test_pandas_categories_and_dates_are_fields():
    table = pd.DataFrame(
        {
            "a": pd.Categorical(["x", "y"] * 100),
            "b": pd.date_range("2024-01-01", periods=4).repeat(50),
            "c": [True] * 200,
        }
    )
    model = classifier().fit(table, [0, 1] * 100)
    assert model.bundle_.encoder.schema.field_names == ("a", "b: day", "b: weekday", "b: elapsed")
    assert model.predict(table.head(3)).shape == (3,)


def test_a_split_that_is_asked_for_is_used():
    table = X.with_columns(group=pl.Series([str(i // 10) for i in range(len(X))]))
    settings = {"split.method": "group", "split.column": "group"}
    model = classifier(config=settings, validation=0.3).fit(table, Y)
    assert model.bundle_.config.split.method == "group"
    assert "group" not in model.bundle_.encoder.schema.field_names
    assert classifier().fit(X, Y).bundle_.config.split.method == "stratified"


LABELS = ["yes" if good else "no" for good in Y]


@pytest.mark.parametrize(
    ("y", "name"),
    [
        (LABELS, "y"),
        (np.array(LABELS), "y"),
        (pl.Series(LABELS), "y"),
        (pl.Series("late", LABELS), "late"),
        (pd.Series(LABELS, name="late"), "late"),
        (pd.Series(LABELS, name=7), "y"),
        (pl.Series("colour", LABELS), "y"),
    ],
    ids=["list", "array", "no name", "polars", "pandas", "no text", "name of a field"],
)
def test_the_target_is_called_as_y_is(y, name):
    rows = FitInput.of(classifier(), X, y, None)
    assert rows.target_name == name
    assert rows.table().columns == [*X.columns, name]


def test_a_saved_estimator_is_evaluated_on_a_table_that_names_the_target(tmp_path: Path):
    classifier().fit(X, pl.Series("late", LABELS)).save(tmp_path / "bundle")
    X.with_columns(late=pl.Series(LABELS)).write_csv(tmp_path / "new.csv")
    assert main(["evaluate", str(tmp_path / "bundle"), str(tmp_path / "new.csv")]) == 0


def test_names_of_target_and_weight_are_those_of_no_field():
    table = X.with_columns(y=pl.col("colour"), sample_weight=pl.col("shape"))
    more = table.with_columns(y_=pl.lit("a"), sample_weight_=pl.lit("a"))
    weights = np.ones(len(X))
    model = classifier(max_epochs=1).fit(table, Y, weights, eval_set=(more, Y))
    schema = model.bundle_.encoder.schema
    assert {"y", "sample_weight"} <= set(schema.field_names)
    assert (schema.target.name, schema.weight) == ("y_", "sample_weight_")
    assert model.predict(table).shape == (len(X),)


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA, pd.NaT], ids=["None", "NaN", "NA", "NaT"])
def test_missing_labels_are_refused(gap):
    labels = ["yes", "no", gap, "no", gap]
    facts = ("y", "2 missing", "row 2")
    for given in (labels, np.array(labels, dtype=object), pd.Series(labels, dtype=object)):
        with raises(SchemaError, *facts):
            classifier().fit(X.head(5), given)
    good = [str(label) for label in Y]
    with raises(SchemaError, *facts):
        classifier().fit(X, good, eval_set=(X.head(5), labels))
    with raises(SchemaError, *facts):
        classifier().fit(X.head(5), pl.Series(["yes", "no", None, "no", None]))
