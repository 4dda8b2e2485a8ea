"""Baselines with `model.direct = "auto"`: the same direct networks as MDL has, and the same evidence."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config import MODEL_CONFIGS, NETWORKS
from fielddep.config.mdl import FieldModelConfig
from fielddep.config.settings import Config, settings_reference
from fielddep.encoding.rows import EVIDENCE
from fielddep.errors import UserError
from fielddep.explain.evidence import rank_evidence, row_evidence, uses_evidence
from fielddep.explain.features import feature_names
from fielddep.nn.model import FieldModel
from fielddep.observer import Observer
from fielddep.store import build
from fielddep.store.build import build_store
from fielddep.store.format import CELLS
from fielddep.training.fit import Trained, fit, train
from fielddep.training.prepare import Prepared, prepare
from tests.helpers import raises
from tests.small_models import for_model, small_config

BASELINES = [name for name in NETWORKS if name not in ("mdl", "blend")]
QUICK = {"data__target": "good", "data__crosses": "none", "train__threads": 1, "train__eval_every": 1}
AUTO = {"model__direct": "auto", "model__direct_hidden": [16]}


def clicks(n_rows: int = 3_000, *, numbers: bool = False) -> pl.DataFrame:
    """Users like some items, for no reason that a user or an item shows alone."""
    rng = np.random.default_rng(0)
    user, item, hour = (rng.integers(n, size=n_rows) for n in (40, 30, 24))
    likes = np.random.default_rng(7).random((40, 30)) < 0.4
    good = rng.random(n_rows) < np.where(likes[user, item], 0.85, 0.1)
    names = {"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item], "hour": [f"h{h}" for h in hour]}
    age = {"age": rng.normal(size=n_rows)} if numbers else {}
    return pl.DataFrame({**names, **age, "good": good.astype(int)})


FRAME = clicks()


def config_of(name: str, n_epochs: int = 3, **settings: object) -> Config:
    return small_config(name, **{**QUICK, "train__max_epochs": n_epochs, **settings})


@cache
def encoded() -> Prepared:
    return prepare(FRAME, config_of("mdl"))


@cache
def trained(name: str) -> Trained:
    prepared = for_model(encoded(), config_of(name, **AUTO))
    return fit(prepared)


@pytest.mark.parametrize("name", BASELINES)
def test_joint_values_are_learned_with_direct_networks(name: str) -> None:
    alone, found = fit(for_model(encoded(), config_of(name))), trained(name)
    assert found.metrics["test"]["logloss"] < alone.metrics["test"]["logloss"] - 0.08
    assert isinstance(alone.model, FieldModel) and not alone.model.direct and alone.model.mix_P is None
    assert isinstance(found.model, FieldModel) and found.model.mix_P is not None
    assert list(found.model.direct) == ["evidence"]
    assert list(found.histories) == ["evidence", ""]


@pytest.mark.parametrize("name", BASELINES)
def test_saved_and_loaded_it_predicts_the_same_bits(name: str, tmp_path: Path) -> None:
    bundle = Bundle.of(trained(name))
    bundle.save(tmp_path / "bundle")
    predictor = Predictor(tmp_path / "bundle")
    odd = pl.concat([FRAME.head(30), FRAME.head(2).with_columns(user=pl.lit("new"), item=pl.lit(None, pl.String))])
    after = predictor.predict(odd)
    assert Predictor(bundle).predict(odd).equals(after)
    for row in (0, 30):
        found = predictor.predict_row(odd.drop("good").row(row, named=True))
        assert found["probability_1"] == pytest.approx(after["probability_1"][row], abs=1e-6)


@pytest.mark.parametrize("name", BASELINES)
def test_training_moves_the_model_itself_alone(name: str) -> None:
    """Also in models whose training adds a penalty."""
    model = trained(name).model
    assert isinstance(model, FieldModel) and model.mix_P is not None
    inputs = encoded().parts["train"].read(0, 200).batch().inputs
    before = model.mix_P.clone()
    try:
        model.mix_P.copy_(torch.tensor([1.0, 0.0]))
        logits, _ = model.train().training_forward(inputs)
        assert not model.direct["evidence"].training
        torch.testing.assert_close(logits, model.direct["evidence"](inputs))
        model.mix_P.copy_(torch.tensor([1.0, 1.0]))
        model.training_forward(inputs)[0].sum().backward()
        assert all(weight.grad is None for weight in model.direct.parameters())
        assert any(weight.grad is not None for weight in model.parameters())
    finally:
        model.mix_P.copy_(before)
        model.zero_grad(set_to_none=True)
        model.eval()


def test_baselines_have_no_direct_networks_by_default() -> None:
    defaults = {}
    for name in NETWORKS:
        config = MODEL_CONFIGS[name]()
        assert isinstance(config, FieldModelConfig)
        defaults[name] = config.direct
    assert {name for name, direct in defaults.items() if direct == "auto"} == {"mdl", "blend"}
    known = {line.path: line for line in settings_reference(Config().replace({"model.name": "lr"}))}
    assert known["model.direct"].default == "none" and known["model.direct_hidden"].default == (128, 128, 128)


def test_evidence_explains_a_baseline_as_it_does_mdl() -> None:
    bundle = Bundle.of(trained("deepfm"))
    rows = encoded().parts["test"].rows()
    assert uses_evidence(bundle)
    assert rank_evidence(bundle, rows).combinations[0] == ("user", "item")
    assert any(seen.fields == ("user", "item") for seen in row_evidence(bundle, rows.take(slice(1))).rows[0])
    alone = Bundle.of(fit(for_model(encoded(), config_of("deepfm", 1))))
    with raises(UserError, "'deepfm' without", "model.direct = 'auto'"):
        row_evidence(alone, rows)


def test_with_numbers_there_are_two_networks_whose_embeddings_are_no_features() -> None:
    found = fit(clicks(1_000, numbers=True), config_of("fm", 1, **AUTO))
    assert list(found.histories) == ["numbers", "evidence", ""]
    assert isinstance(found.model, FieldModel) and len(found.model.mix_P) == 3
    assert len(feature_names(Bundle.of(found))) == 4 * 4


def test_nothing_is_counted_for_a_model_that_does_not_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "learn_evidence", lambda *_: pytest.fail("evidence was counted"))
    prepared = prepare(FRAME, config_of("fm"))
    assert prepared.encoder.evidence is None and not prepared.encoder.layout.evidence
    assert EVIDENCE not in prepared.parts["train"].rows().arrays


@pytest.mark.parametrize("direct", [{}, AUTO])
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_store_and_its_table_give_the_same_bundle(direct: dict[str, object], place: str, tmp_path: Path) -> None:
    frame, config = FRAME.head(1_000), config_of("fm", 1, **direct)
    store = build_store(frame, config, None if place == "memory" else tmp_path / "encoded")
    assert store.encoder.evidence is not None
    for name, source in {"table": frame, "store": store}.items():
        Bundle.of(fit(source, config)).save(tmp_path / name)
    files = {path.name: path.read_bytes() for path in (tmp_path / "table").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    assert (CELLS in files) == bool(direct)
    predictor = Predictor(tmp_path / "table")
    assert predictor.predict(store).equals(predictor.predict(frame))


class StopAt(Observer):
    """An interrupt at a step of a part of the model."""

    def __init__(self, part: str, step: int) -> None:
        self.part, self.step, self.current = part, step, ""

    def on_part(self, name: str, n_batches: int, max_epochs: int) -> None:
        self.current = name

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        if (self.current, step) == (self.part, self.step):
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["lr", "rafm", "tabnet", "saint"])
def test_a_training_that_was_stopped_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    prepared = for_model(encoded(), config_of(name, 2, train__batch_size=500, train__eval_every=2, **AUTO))
    straight = train(prepared)
    for part in ("evidence", ""):
        with pytest.raises(KeyboardInterrupt):
            train(prepared, checkpoints=tmp_path, observer=StopAt(part, 7), resume=True)
    resumed = train(prepared, checkpoints=tmp_path, resume=True)
    assert isinstance(resumed.model, FieldModel) and isinstance(straight.model, FieldModel)
    expected = straight.model.state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in resumed.model.state_dict().items())


def test_a_refit_keeps_the_weights_of_the_parts() -> None:
    prepared = for_model(encoded(), config_of("fm", 2, **AUTO))
    first = train(prepared)
    again = fit(for_model(encoded(), config_of("fm", 2, train__refit=True, **AUTO)))
    assert isinstance(first.model, FieldModel) and isinstance(again.model, FieldModel)
    assert first.model.mix_P is not None and again.model.mix_P is not None
    torch.testing.assert_close(again.model.mix_P, first.model.mix_P)
