"""A model that is trained apart from its direct networks: a regression on ids alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config.defaults import fill_defaults
from fielddep.config.settings import Config
from fielddep.nn.model import FieldModel
from fielddep.observer import Observer
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import MAIN, Trained, fit

N_ROWS = 6_000


def ratings() -> pl.DataFrame:
    """Ratings that are products of factors of users and movies."""
    rng = np.random.default_rng(0)
    user, movie = rng.integers(0, 60, N_ROWS), rng.integers(0, 50, N_ROWS)
    of_user, of_movie = rng.normal(size=(60, 2)), rng.normal(size=(50, 2))
    rating = (of_user[user] * of_movie[movie]).sum(axis=1) + 0.3 * rng.normal(size=N_ROWS)
    text = {"user": [f"u{u}" for u in user], "movie": [f"m{m}" for m in movie]}
    return pl.DataFrame({**text, "rating": rating})


FRAME = ratings()


def config(**settings: object) -> Config:
    values = {"data.target": "rating", "data.evidence": [["user", "movie"]], "train.max_epochs": 12, "train.threads": 1}
    return Config().replace({**values, **{key.replace("__", "."): value for key, value in settings.items()}})


@pytest.fixture(scope="module")
def trained() -> Trained:
    return fit(FRAME, config())


def test_it_is_the_default_for_a_regression_on_ids_alone(trained: Trained) -> None:
    assert trained.prepared.config.model.on_direct is False
    with_number = FRAME.with_columns(pl.Series("price", np.random.default_rng(1).normal(size=N_ROWS)))
    assert fit(with_number, config(train__max_epochs=1)).prepared.config.model.on_direct is True
    liked = FRAME.with_columns(rating=(pl.col("rating") > 0).cast(pl.Int8))
    assert fit(liked, config(train__max_epochs=1)).prepared.config.model.on_direct is True


def test_what_the_user_sets_stays() -> None:
    given = Config().replace({"model.on_direct": True, "train.embedding_l2": 0.3})
    filled = fill_defaults(given, n_rows=100_000, regression_on_ids=True)
    assert filled.model.on_direct is True and filled.train.embedding_l2 == 0.3
    none = fill_defaults(Config().replace({"model.direct": "none"}), n_rows=100_000, regression_on_ids=True)
    assert none.train.embedding_l2 == Config().model.EMBEDDING_L2


def test_it_starts_from_the_base_rate_and_all_parts_are_mixed(trained: Trained) -> None:
    """The first evaluation of the model itself is far from what its evidence network had reached, or would be."""
    assert isinstance(trained.model, FieldModel) and trained.model.mix_P is not None
    assert not trained.model.apart
    mixed = trained.metrics["validation"]["mse"]
    alone = min(evaluation.validation["mse"] for evaluation in trained.histories[MAIN])
    evidence = min(evaluation.validation["mse"] for evaluation in trained.histories["evidence"])
    assert mixed <= min(alone, evidence) * 1.001
    assert trained.metrics["test"]["mse"] < 0.5 * trained.metrics["test_base_rate"]["mse"]


def test_its_own_outputs_do_not_depend_on_the_evidence() -> None:
    """Trained apart, the model is what it would be without direct networks."""
    settings = {"train__embedding_l2": 0.5}
    apart = fit(FRAME, config(**settings))
    without = fit(FRAME, config(model__direct="none", **settings))
    own = [evaluation.validation["mse"] for evaluation in apart.histories[MAIN]]
    assert own == [evaluation.validation["mse"] for evaluation in without.history]


def test_saved_and_loaded_it_predicts_the_same_bits(trained: Trained, tmp_path: Path) -> None:
    Bundle.of(trained).save(tmp_path / "bundle")
    before, after = (Predictor(bundle).predict(FRAME.head(50)) for bundle in (Bundle.of(trained), tmp_path / "bundle"))
    assert before.equals(after)


class StoppedError(Exception):
    """Stands for a kill."""


class StopAfter(Observer):
    """Stops the training of the model itself after some evaluations."""

    def __init__(self, n_evaluations: int) -> None:
        self.n_left = n_evaluations
        self.part = ""

    def on_part(self, name: str, n_batches: int, max_epochs: int) -> None:
        self.part = name

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.n_left -= self.part == MAIN
        if self.n_left < 0:
            raise StoppedError


def test_a_resumed_training_ends_with_the_same_bits(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        fit(FRAME, config(), checkpoints=tmp_path, observer=StopAfter(2))
    resumed = fit(FRAME, config(), checkpoints=tmp_path, resume=True)
    weights = trained.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in resumed.model.state_dict().items())


def test_a_refit_trains_it_apart_again() -> None:
    again = fit(FRAME, config(train__refit=True))
    assert isinstance(again.model, FieldModel) and not again.model.apart
    assert again.metrics["test"]["mse"] < 0.5 * again.metrics["test_base_rate"]["mse"]
