"""MDL with its direct network, from a table of numbers to a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.artifacts.run import Run
from fielddep.config.settings import Config
from fielddep.nn.mdl import MDL
from fielddep.observer import Observer
from fielddep.store.build import build_store
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import MAIN, Trained, fit


def waves(n_rows: int = 3_000, seed: int = 0) -> pl.DataFrame:
    """A target that follows a product of two numbers and a category; every tenth number is missing."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n_rows))
    colour = rng.integers(0, 3, n_rows)
    good = rng.random(n_rows) < 1 / (1 + np.exp(-3 * x * y - colour + 1))
    z = pl.Series(rng.normal(size=n_rows)).set(pl.Series(rng.random(n_rows) < 0.1), None)
    names = pl.Series(["red", "green", "blue"]).gather(colour)
    return pl.DataFrame({"x": x, "y": y, "z": z, "colour": names, "good": good.astype(int)})


FRAME = waves()


def config(**settings: object) -> Config:
    values = {"data.target": "good", "model.d_embed": 4, "train.max_epochs": 8, "train.threads": 1}
    return Config().replace({**values, **{key.replace("__", "."): value for key, value in settings.items()}})


@pytest.fixture(scope="module")
def trained() -> Trained:
    return fit(FRAME, config())


def test_numbers_are_learned_better_with_it(trained: Trained) -> None:
    alone = fit(FRAME, config(model__direct="none"))
    assert trained.metrics["test"]["logloss"] < alone.metrics["test"]["logloss"] - 0.005
    assert isinstance(trained.model, MDL) and trained.model.mix_P is not None
    assert trained.model.mix_P[:2].sum() > 0.4


def test_the_validation_metrics_are_those_of_both_parts(trained: Trained) -> None:
    assert set(trained.histories) == {MAIN, "numbers", "evidence"}
    assert trained.validation["loss"] == pytest.approx(trained.metrics["validation"]["loss"])
    assert trained.validation["loss"] <= min(e.validation["loss"] for e in trained.history) + 1e-3


def test_saved_and_loaded_it_predicts_the_same_bits(trained: Trained, tmp_path: Path) -> None:
    bundle = Bundle(model=trained.model, encoder=trained.prepared.encoder, config=trained.prepared.config)
    bundle.save(tmp_path / "bundle")
    before, after = (Predictor(source).predict(FRAME.head(50)) for source in (bundle, tmp_path / "bundle"))
    assert before.equals(after)
    row = Predictor(tmp_path / "bundle").predict_row(FRAME.drop("good").row(3, named=True))
    assert row["probability_1"] == pytest.approx(after["probability_1"][3], abs=1e-6)


def test_a_row_does_not_depend_on_its_batch(trained: Trained) -> None:
    rows = trained.prepared.parts["test"].read(0, 200)
    together = trained.model.outputs(rows)
    single = torch.cat([trained.model.outputs(rows.take(slice(r, r + 1))) for r in range(5)])
    torch.testing.assert_close(single, together[:5], rtol=1e-4, atol=1e-5)


def test_a_missing_number_and_a_text_are_accepted(trained: Trained, tmp_path: Path) -> None:
    bundle = Bundle(model=trained.model, encoder=trained.prepared.encoder, config=trained.prepared.config)
    odd = pl.DataFrame({"x": [None, 1e300], "y": [0.5, -1e300], "z": [None, 1.0], "colour": ["pink", None]})
    found = Predictor(bundle).predict(odd)
    assert found["probability_1"].is_finite().all()


def test_a_store_gives_the_same_model(trained: Trained, tmp_path: Path) -> None:
    store = build_store(FRAME, config(), tmp_path / "store")
    again = fit(store, config())
    for name, weight in trained.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], weight, rtol=0, atol=0, msg=name)


class _StoppedError(Exception):
    pass


class _StopAfter(Observer):
    """Interrupts a training after some evaluations, of either part."""

    def __init__(self, n: int) -> None:
        self.n = n

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.n -= 1
        if not self.n:
            raise _StoppedError


@pytest.mark.parametrize("n_evaluations", [3, 18])
def test_a_resumed_training_ends_with_the_same_bits(trained: Trained, tmp_path: Path, n_evaluations: int) -> None:
    with pytest.raises(_StoppedError):
        Run.train(FRAME, config(), tmp_path / "run", observer=_StopAfter(n_evaluations))
    run = Run.train(FRAME, config(), tmp_path / "run", resume=True)
    found = Bundle.load(run.folder / "bundle").model.state_dict()
    for name, weight in trained.model.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0, msg=name)


def test_a_refit_trains_both_parts_on_more_rows(trained: Trained) -> None:
    again = fit(FRAME, config(train__refit=True))
    assert isinstance(again.model, MDL) and isinstance(trained.model, MDL)
    assert again.model.mix_P is not None and trained.model.mix_P is not None
    torch.testing.assert_close(again.model.mix_P, trained.model.mix_P)
    changed = [n for n, w in trained.model.state_dict().items() if not torch.equal(w, again.model.state_dict()[n])]
    assert any(name.startswith("direct.numbers.mlp") for name in changed)
    assert any(name.startswith("mlp") for name in changed)
    assert again.metrics["test"]["logloss"] < 0.6


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_regression_with_a_long_tail_in_any_unit(unit: float) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 2_000))
    price = np.exp(x + 0.5 * y + 0.3 * rng.normal(size=2_000)) * unit
    table = pl.DataFrame({"x": x, "y": y, "good": price})
    found = fit(table, config(data__task="regression")).metrics["test"]
    assert found["r2"] > 0.5
    assert found["rmse"] == pytest.approx(found["mse"] ** 0.5)


def test_several_classes_of_a_small_table_are_not_worse_than_a_linear_model() -> None:
    rng = np.random.default_rng(5)
    numbers = rng.normal(size=(900, 8))
    label = (numbers @ rng.normal(size=(8, 4))).argmax(axis=1)
    table = pl.DataFrame(numbers, schema=[f"n{i}" for i in range(8)]).with_columns(good=pl.Series(label))
    settings = config(data__task="multiclass", train__max_epochs=30)
    linear = settings.replace({"model.name": "lr"})
    assert fit(table, settings).metrics["test"]["logloss"] < fit(table, linear).metrics["test"]["logloss"]


def test_two_thousand_columns_train_in_bounded_time() -> None:
    rng = np.random.default_rng(6)
    numbers = rng.normal(size=(300, 2_000))
    table = pl.DataFrame(numbers, schema=[f"n{i}" for i in range(2_000)])
    table = table.with_columns(good=pl.Series((numbers[:, 3] > 0).astype(int)))
    found = fit(table, config(train__max_epochs=1))
    assert found.prepared.encoder.related is not None
    assert 3 in found.prepared.encoder.related
    assert len(found.prepared.encoder.related) == 64
    assert found.metrics["test"]["logloss"] < 1.0
