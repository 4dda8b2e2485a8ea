"""Importance of fields against tables whose raw values are shuffled or emptied, one loop after another."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.errors import ConfigError, SchemaError
from fielddep.explain.hiding import REFINEMENT, unrefined
from fielddep.explain.importance import FieldImportance, hiding_importance, permutation_importance
from tests.explain.trained import MIXED_FIELDS, mixed, mixed_frame, mixed_rows, planted

FRAME = mixed_frame(120, seed=7)
CASES = {
    "binary": {"target": "good"},
    "multiclass": {"target": "kind"},
    "regression": {"target": "cost"},
    "weighted": {"target": "good", "weight": "weight"},
    "fm": {"target": "good", "model": "fm"},
    "deepfm, regression": {"target": "cost", "model": "deepfm"},
}
METRICS = {"good": ("logloss", "auc"), "kind": ("logloss", "accuracy"), "cost": ("rmse", "mae", "r2")}


def worse(bundle: Bundle, changed: pl.DataFrame, metric: str) -> float:
    predictor = Predictor(bundle)
    rise = predictor.evaluate(changed)[metric] - predictor.evaluate(FRAME)[metric]
    return -rise if metric in ("auc", "accuracy", "r2") else rise


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_permutation_importance_equals_shuffled_tables(case):
    bundle = mixed(**case)
    found = permutation_importance(bundle, mixed_rows(bundle), n_repeats=3, seed=5)
    assert found.names == MIXED_FIELDS
    assert found.metrics == METRICS[case["target"]]
    base = Predictor(bundle).evaluate(FRAME)
    assert found.base == pytest.approx({name: base[name] for name in found.metrics}, rel=1e-5)
    for f, name in enumerate(MIXED_FIELDS):
        rng = np.random.default_rng([5, f])
        for repeat in range(3):
            shuffled = FRAME.with_columns(FRAME[name].gather(rng.permutation(len(FRAME))))
            for metric in found.metrics:
                expected = worse(bundle, shuffled, metric)
                assert found.worse_FP[metric][f, repeat] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_hiding_importance_equals_emptied_tables(case):
    bundle = mixed(**case)
    found = hiding_importance(bundle, mixed_rows(bundle))
    refined = case.get("model", "mdl") == "mdl"
    assert found.names == ((*MIXED_FIELDS, REFINEMENT) if refined else MIXED_FIELDS)
    for metric in found.metrics:
        for f, name in enumerate(MIXED_FIELDS):
            emptied = FRAME.with_columns(pl.lit(None, dtype=FRAME.schema[name]).alias(name))
            assert found.worse_FP[metric][f, 0] == pytest.approx(worse(bundle, emptied, metric), rel=1e-4, abs=1e-5)
        if refined:
            without = Predictor(unrefined(bundle)).evaluate(FRAME)[metric] - found.base[metric]
            sign = -1 if metric in ("auc", "accuracy", "r2") else 1
            assert found.worse_FP[metric][-1, 0] == pytest.approx(sign * without, rel=1e-4, abs=1e-5)


def test_mean_deviation_and_order():
    found = FieldImportance(
        method="permutation",
        names=("a", "b", "c"),
        n_rows=10,
        base={"logloss": 0.5, "auc": 0.8},
        worse_FP={
            "logloss": np.array([[0.1, 0.3], [0.5, 0.7], [-0.1, 0.1]]),
            "auc": np.array([[0.2, 0.2], [0.0, 0.1], [0.3, 0.5]]),
        },
    )
    np.testing.assert_allclose(found.mean_F("logloss"), [0.2, 0.6, 0.0])
    np.testing.assert_allclose(found.std_F("logloss"), [np.sqrt(0.02)] * 3)
    assert found.ranked() == ["b", "a", "c"]
    assert found.ranked("auc") == ["c", "a", "b"]
    frame = found.to_frame()
    assert frame.columns == ["metric", "field", "base", "importance", "std"]
    assert frame["metric"].to_list() == ["logloss"] * 3 + ["auc"] * 3
    assert frame["field"].to_list() == ["b", "a", "c", "c", "a", "b"]
    assert frame["base"].to_list() == [0.5] * 3 + [0.8] * 3


def test_one_repeat_has_no_deviation():
    found = hiding_importance(mixed(), mixed_rows(mixed()))
    assert found.to_frame()["std"].null_count() == 12


def test_the_same_seed_gives_the_same_numbers():
    rows = mixed_rows(mixed())
    first, again, other = (permutation_importance(mixed(), rows, n_repeats=2, seed=s) for s in (1, 1, 2))
    assert first.to_frame().equals(again.to_frame())
    assert not first.to_frame().equals(other.to_frame())


def test_rows_of_one_class_have_no_auc():
    rows = mixed_rows(mixed())
    ones = rows.take(np.flatnonzero(rows.target_R == 1))
    assert permutation_importance(mixed(), ones, n_repeats=1).metrics == ("logloss",)


def test_what_is_refused():
    rows = mixed_rows(mixed(), with_target=False)
    for measure in (permutation_importance, hiding_importance):
        with pytest.raises(SchemaError, match="'good'"):
            measure(mixed(), rows)
        with pytest.raises(SchemaError, match="no rows"):
            measure(mixed(), mixed_rows(mixed()).take(slice(0)))
    with pytest.raises(ConfigError, match=r"n_repeats.* 1.* 0"):
        permutation_importance(mixed(), mixed_rows(mixed()), n_repeats=0)
    weighted = mixed("good", weight="weight")
    rows = mixed_rows(weighted)
    rows.weight_R.fill(0)
    with pytest.raises(SchemaError, match="weight"):
        permutation_importance(weighted, rows)


@pytest.mark.parametrize("measure", [permutation_importance, hiding_importance])
def test_the_planted_fields_are_the_most_important(measure):
    table, bundle, rows = planted()
    found = measure(bundle, rows)
    for metric in found.metrics:
        assert set(found.ranked(metric)[:2]) == set(table.planted[0])
