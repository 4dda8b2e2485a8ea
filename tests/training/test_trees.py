"""Trees get the rows of all other models, and give what a direct call of their library gives."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score

from fielddep.config.settings import Config
from fielddep.config.trees import CTR_CHOICES
from fielddep.errors import MissingExtraError
from fielddep.experiments.plan import find_contender
from fielddep.observer import Observer
from fielddep.store.store import Store
from fielddep.training import trees
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import fit
from fielddep.training.fit import train as train_model
from fielddep.training.prepare import Prepared, prepare
from fielddep.training.tree_rows import TreeColumns, TreeTable
from fielddep.training.trees import catboost_settings, check_installed, is_installed
from tests.conftest import small_frame
from tests.helpers import raises
from tests.stores import write_store

QUICK = {"model.max_trees": 12, "model.patience": 4, "train.threads": 1}
TASKS = ("binary", "multiclass", "regression")


def frame_for(task: str) -> pl.DataFrame:
    frame = small_frame(300).with_columns(weight=pl.int_range(300) % 3 + 1.0)
    if task == "multiclass":
        return frame.with_columns(good=pl.col("good") + (pl.col("shape") == "ring"))
    return frame.with_columns(good=pl.col("good") * 3.0 + pl.col("size")) if task == "regression" else frame


def data_for(task: str, model: str, folder: Path, **settings: object) -> Prepared:
    config = Config().replace({"data.target": "good", "data.weight": "weight", "data.task": task})
    store: Store = write_store(folder / "store", frame_for(task), config)
    return prepare(store, find_contender(model).config({**QUICK, **settings}))


def by_hand(data: Prepared, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of the two categorical fields, the number, target and weight, without the code under test."""
    blocks = list(data.parts[part].chunks())
    ids = np.concatenate([np.column_stack([block.ids_RF[:, :2], block.measures_RM]) for block in blocks])
    target = np.concatenate([block.target_R for block in blocks])
    return ids, target, np.concatenate([block.weight_R for block in blocks])


def lightgbm_by_hand(data: Prepared, task: str) -> np.ndarray:
    (x, y, w), (x_valid, y_valid, w_valid) = by_hand(data, "train"), by_hand(data, "validation")
    objective = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}[task]
    parameters = {"objective": objective, "seed": 3, "verbosity": -1, "num_threads": 1, "min_data_in_bin": 1}
    parameters |= {"min_data_per_group": 20, "num_class": 3 if task == "multiclass" else 1, "deterministic": True}
    train = lgb.Dataset(x, y, weight=w, categorical_feature=[0, 1])
    valid = lgb.Dataset(x_valid, y_valid, weight=w_valid, categorical_feature=[0, 1], reference=train)
    booster = lgb.train(
        {**parameters, "force_row_wise": True, "feature_pre_filter": False},
        train,
        12,
        valid_sets=[valid],
        callbacks=[lgb.early_stopping(4, verbose=False)],
    )
    return booster.predict(by_hand(data, "test")[0], raw_score=True, num_iteration=booster.best_iteration)


def catboost_by_hand(data: Prepared, task: str) -> np.ndarray:
    def pool(part: str) -> catboost.Pool:
        x, y, w = by_hand(data, part)
        frame = pd.DataFrame({"a": x[:, 0].astype(int), "b": x[:, 1].astype(int), "c": x[:, 2]})
        return catboost.Pool(frame, y, cat_features=["a", "b"], weight=w)

    loss = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}[task]
    model = catboost.CatBoost(
        {"loss_function": loss, "iterations": 12, "depth": 3, "random_seed": 3}
        | {"thread_count": 1, "early_stopping_rounds": 4, "verbose": False, "allow_writing_files": False}
    )
    model.fit(pool("train"), eval_set=pool("validation"), use_best_model=True)
    return np.asarray(model.predict(pool("test"), prediction_type="RawFormulaVal"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", ["lightgbm", "catboost"])
def test_outputs_are_those_of_a_direct_call(model: str, task: str, tmp_path: Path) -> None:
    own = {"lightgbm": {"model.min_data_per_group": 20}, "catboost": {"model.depth": 3}}[model]
    data = data_for(task, model, tmp_path, **own, **{"train.seed": 3})
    trained = train_model(data)
    outputs = torch.cat([trained.model.outputs(block) for block in data.parts["test"].chunks()]).numpy()
    expected = (lightgbm_by_hand if model == "lightgbm" else catboost_by_hand)(data, task)
    assert outputs.shape == (len(data.parts["test"]), 3 if task == "multiclass" else 1)
    np.testing.assert_allclose(outputs, expected.reshape(outputs.shape), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_metrics_are_those_of_scikit_learn(task: str, tmp_path: Path) -> None:
    data = data_for(task, "lightgbm", tmp_path)
    trained = fit(data)
    found = trained.measured["test"]
    outputs = torch.cat([trained.model.outputs(block) for block in data.parts["test"].chunks()]).numpy()[:, 0]
    _, target, weight = by_hand(data, "test")
    assert found.n_rows == len(target)
    if task == "regression":
        error = mean_squared_error(target, outputs, sample_weight=weight) * data.target.scale**2
        assert found.metrics["mse"] == pytest.approx(error, rel=1e-5)
    else:
        chance = 1 / (1 + np.exp(-outputs))
        assert found.metrics["logloss"] == pytest.approx(log_loss(target, chance, sample_weight=weight), rel=1e-5)
        assert found.metrics["auc"] == pytest.approx(roc_auc_score(target, outputs, sample_weight=weight), rel=1e-5)


def test_columns_are_codes_and_numbers_without_crosses() -> None:
    n_rows = 200
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "kind": rng.choice(["a", "b", "c"], n_rows),
            "scaled": rng.normal(size=n_rows),
            "binned": rng.normal(size=n_rows),
            "counted": rng.choice([2, 50, 99], n_rows),
            "y": [0, 1] * (n_rows // 2),
        }
    ).with_columns(pl.when(pl.int_range(n_rows) % 10 > 0).then(pl.all().exclude("y")))
    config = Config().replace(
        {
            "data.target": "y",
            "data.numeric": {"scaled": "scale", "binned": "quantile", "counted": "log2"},
            "data.kinds": dict.fromkeys(("scaled", "binned", "counted"), "numerical"),
            "data.crosses": [["kind", "binned"]],
            "data.n_bins": 4,
        }
    )
    encoder = prepare(frame, config).encoder
    columns = TreeColumns.of(encoder)
    probe = pl.DataFrame(
        {
            "kind": ["a", None, "new"],
            "scaled": [1.5, None, -2.0],
            "binned": [-9.0, None, 9.0],
            "counted": [2, None, 99],
            "y": [0, 1, 0],
        }
    )
    kind, scaled, binned, counted = columns.columns(encoder.encode(probe, with_target=True)[0])
    assert columns.categorical == [0]
    assert kind.dtype == np.int32
    assert kind[1:].tolist() == [0, 1]  # missing, and rare or unknown
    assert kind[0] >= 2
    assert np.isnan([scaled[1], binned[1], counted[1]]).all()
    assert scaled[0] > scaled[2]
    assert binned[0] < -5.0 and binned[2] > 5.0  # the measure, in units of the spread
    assert counted[0] < counted[2]


def test_rows_of_a_part_are_whole_and_in_order(tmp_path: Path) -> None:
    data = data_for("binary", "lightgbm", tmp_path)
    table = TreeTable.of(TreeColumns.of(data.encoder), data.parts["train"])
    ids, target, weight = by_hand(data, "train")
    np.testing.assert_array_equal(np.stack(table.columns, axis=1), ids)
    np.testing.assert_array_equal(table.target, target)
    np.testing.assert_array_equal(table.weight, weight)


@pytest.mark.parametrize(
    ("model", "smallest"), [("lightgbm", {"model.num_leaves": 2}), ("catboost", {"model.depth": 1})]
)
def test_parameters_are_leaves_and_splits(model: str, smallest: dict[str, object], tmp_path: Path) -> None:
    one = {"model.max_trees": 1, "model.patience": 1}
    trained = train_model(data_for("binary", model, tmp_path, **smallest, **one))
    assert trained.model.n_parameters == 3  # two leaves and a split


class _StopError(Exception):
    """Ends a training."""


class _Stopping(Observer):
    """Counts trees, and ends the training at the third loss."""

    def __init__(self) -> None:
        self.steps = 0
        self.losses: list[float] = []

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.steps += 1

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.losses.append(evaluation.validation["loss"])
        if len(self.losses) == 3:
            raise _StopError


@pytest.mark.parametrize("model", ["lightgbm", "catboost"])
def test_a_watcher_sees_losses_and_can_end_the_training(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "TREES_PER_EVALUATION", 2)
    watcher = _Stopping()
    data = data_for("regression", model, tmp_path, **{"model.patience": 12})
    with pytest.raises(_StopError):
        train_model(data, observer=watcher)
    assert watcher.steps == 6
    assert watcher.losses == sorted(watcher.losses, reverse=True)
    whole = train_model(dataclasses.replace(data, config=data.config.replace({"model.max_trees": 6})))
    assert whole.validation["mse"] == pytest.approx(watcher.losses[-1], rel=1e-4)


def test_an_absent_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees.importlib.util, "find_spec", lambda name: None if name == "catboost" else object())
    assert is_installed("lightgbm") and is_installed("blend") and not is_installed("catboost")
    with raises(MissingExtraError, "fielddep[trees]"):
        check_installed("catboost")
    check_installed("lightgbm")
    check_installed("mdl")


def test_lightgbm_gets_every_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the last hundredth of the rows keep bins of their own."""
    frequent = pl.int_range(40_000, eager=True) % 300
    frame = pl.DataFrame({"item": pl.concat([frequent, 1000 + pl.int_range(200, eager=True)]).cast(pl.String)})
    frame = frame.with_columns(good=pl.int_range(40_200) % 2, day=pl.int_range(40_200) % 7, weight=pl.lit(1.0))
    config = Config().replace({"data.target": "good", "data.weight": "weight", "data.min_count": 1})
    data = prepare(write_store(tmp_path / "store", frame, config), find_contender("lightgbm").config(QUICK))
    bins: list[int] = []
    train = lgb.train

    def watched(parameters: dict[str, object], rows: lgb.Dataset, *others: object, **named: object) -> lgb.Booster:
        booster = train(parameters, rows, *others, **named)
        bins.append(rows.feature_num_bin(0))
        return booster

    monkeypatch.setattr(lgb, "train", watched)
    train_model(data)
    seen = np.unique(np.concatenate([block.ids_RF[:, 0] for block in data.parts["train"].chunks()]))
    assert len(seen) > 400
    assert bins[0] >= len(seen)


def catboost_parameters(data: Prepared, **settings: object) -> dict[str, object]:
    """What CatBoost says it was trained with."""
    known = catboost_settings(dataclasses.replace(data, config=data.config.replace(settings)))
    train, valid = (by_hand(data, part) for part in ("train", "validation"))
    pools = [catboost.Pool(x[:, 2:], y, weight=w) for x, y, w in (train, valid)]
    return catboost.CatBoost(known).fit(pools[0], eval_set=pools[1]).get_all_params()


@pytest.mark.parametrize(("task", "bootstrap"), [("binary", "MVS"), ("regression", "MVS"), ("multiclass", "Bayesian")])
def test_catboost_has_its_own_bootstrap(task: str, bootstrap: str, tmp_path: Path) -> None:
    data = data_for(task, "catboost", tmp_path)
    assert catboost_parameters(data)["bootstrap_type"] == bootstrap
    warm = catboost_parameters(data, **{"model.bagging_temperature": 0.5})
    assert (warm["bootstrap_type"], warm["bagging_temperature"]) == ("Bayesian", 0.5)
    drawn = catboost_parameters(data, **{"model.bootstrap_type": "MVS", "model.subsample": 0.5})
    assert (drawn["bootstrap_type"], drawn["subsample"]) == ("MVS", 0.5)


@pytest.mark.parametrize("ctr", CTR_CHOICES)
@pytest.mark.parametrize("task", TASKS)
def test_catboost_accepts_the_statistics_of_the_search(task: str, ctr: tuple[str, ...], tmp_path: Path) -> None:
    own = {"model.simple_ctr": ctr, "model.combinations_ctr": ctr, "model.ctr_target_border_count": 2}
    data = data_for(task, "catboost", tmp_path, **own, **{"model.model_size_reg": 0.0, "model.max_ctr_complexity": 2})
    assert np.isfinite(train_model(data).validation["loss"])
