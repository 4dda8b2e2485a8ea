"""The second training: its rows, its length, and what is measured with which model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.predictor import Predictor, default_part
from fielddep.artifacts.run import Run
from fielddep.cli import main
from fielddep.config.settings import Config, TrainConfig
from fielddep.config.trees import LightGBMConfig
from fielddep.encoding.evidence import Evidence
from fielddep.errors import ConfigError, StoreError
from fielddep.nn.model import FieldModel
from fielddep.observer import Observer
from fielddep.report.build import read_report, report_table, report_training
from fielddep.store.build import build_store
from fielddep.store.shards import FileShards
from fielddep.training.checkpoint import Evaluation
from fielddep.training.fit import Trained, fit, train
from fielddep.training.metrics import measure
from fielddep.training.prepare import prepare
from fielddep.training.refit import Passes
from tests.conftest import quick_config, small_frame
from tests.helpers import raises, states

FRAME = small_frame(400)
SETTINGS: dict[str, object] = {"train.max_epochs": 5, "train.eval_every": 2, "train.patience": 3, "train.lr": 0.2}


class Watch(Observer):
    """Remembers the steps of both trainings."""

    def __init__(self, stop_at: int = -1) -> None:
        self.steps: list[list[int]] = [[]]
        self.passes = 0.0
        self.stop_at = stop_at

    def on_refit(self, n_rows: int, n_passes: float) -> None:
        self.n_rows, self.passes = n_rows, n_passes
        self.steps.append([])

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.steps[-1].append(n_rows)
        if len(self.steps) == 2 and step == self.stop_at:
            raise KeyboardInterrupt


def config_of(**settings: object) -> Config:
    return quick_config(**{**SETTINGS, "train.refit": True, **settings})


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    assert isinstance(trained.model, FieldModel)
    return trained.model.state_dict()


def same_weights(a: Trained, b: Trained) -> bool:
    return all(weight.equal(weights(b)[name]) for name, weight in weights(a).items())


def test_trains_on_both_parts_for_as_many_passes() -> None:
    watch = Watch()
    trained = fit(FRAME, config_of(), observer=watch)
    n_both = len(trained.prepared.parts["train"]) + len(trained.prepared.parts["validation"])
    assert watch.n_rows == n_both
    assert watch.passes == Passes.of(trained.history, trained.prepared.config.train).n > 0
    assert sum(watch.steps[1]) == pytest.approx(watch.passes * n_both, rel=0.05)
    assert max(watch.steps[1]) <= (trained.prepared.config.train.batch_size or 0)


def test_measures_validation_rows_before_and_test_rows_after() -> None:
    trained, first = fit(FRAME, config_of()), fit(FRAME, config_of(**{"train.refit": False}))
    assert trained.measured["validation"].metrics == first.measured["validation"].metrics
    assert trained.measured["test"].metrics != first.measured["test"].metrics
    test = measure(trained.model.outputs, trained.prepared.target, trained.prepared.parts["test"].chunks())
    assert trained.measured["test"].metrics == test.metrics
    assert trained.prepared.encoder.digest == first.prepared.encoder.digest
    assert [e.step for e in trained.history] == [e.step for e in first.history]


def test_without_validation_rows_in_the_refit_it_repeats_the_first_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows, learning rates and points of the running mean give the same bits."""
    dropping = {"train.plateau_restore": False, "train.plateau_factor": 0.3, "train.plateau_patience": 1}
    steps = {"model.inner_step": "fixed", "train.lr": 1.0, "train.patience": 20, "train.max_epochs": 12}
    config = config_of(**dropping, **steps)
    prepared = prepare(FRAME, config)
    part = type(prepared.store).part
    monkeypatch.setattr(type(prepared.store), "part", lambda self, name: part(self, "train"))
    again, first = fit(prepared), train(prepared)
    assert any(e.lr < first.history[0].lr for e in first.history if e.best)
    assert same_weights(again, first)


def test_a_store_gives_the_same_model(tmp_path: Path) -> None:
    store = build_store(FRAME, config_of(), tmp_path / "store")
    assert same_weights(fit(store, config_of()), fit(FRAME, config_of()))


def test_an_interrupted_refit_resumes(tmp_path: Path) -> None:
    expected = Run.train(FRAME, config_of(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        Run.train(FRAME, config_of(), tmp_path / "run", observer=Watch(stop_at=3))
    run = Run.train(FRAME, config_of(), tmp_path / "run", resume=True)
    assert run.metrics == expected.metrics
    bundles = [(found.bundle / "weights.safetensors").read_bytes() for found in (run, expected)]
    assert bundles[0] == bundles[1]


# --- evidence -------------------------------------------------------------------------------------------------

EVIDENCE_SETTINGS: dict[str, object] = {
    "data.evidence": [["colour", "shape"]],
    "data.counts_from": "all",
    "model.direct": "auto",
    "model.direct_hidden": [8],
    "train.max_epochs": 2,
}
VALIDATION = np.flatnonzero(np.random.default_rng(0).random(400) < 0.3)


def late_frame() -> pl.DataFrame:
    """Validation rows have a colour that no other row has, and that says all."""
    part = np.where(np.arange(400) % 5 == 0, "test", "train").astype(object)
    part[VALIDATION] = "validation"
    late, is_held_out = pl.col("number") % 2 == 0, pl.col("part") == "validation"
    return FRAME.with_row_index("number").with_columns(part=pl.Series(part)).with_columns(
        colour=pl.when(is_held_out & late).then(pl.lit("gold")).otherwise("colour"),
        good=pl.when(is_held_out & late).then(1).otherwise("good"),
    ).drop("number")  # fmt: skip


def with_evidence(**settings: object) -> Config:
    by_part = {"split.method": "column", "split.column": "part"}
    return config_of(**{**EVIDENCE_SETTINGS, **by_part, **settings})


def evidence_of(trained: Trained) -> Evidence:
    assert trained.prepared.encoder.evidence is not None
    return trained.prepared.encoder.evidence


def test_evidence_is_that_of_all_rows_trained_on(tmp_path: Path) -> None:
    frame = late_frame()
    run = Run.train(frame, with_evidence(), tmp_path / "run")
    trained, first = run.trained, fit(frame, with_evidence(**{"train.refit": False}))
    assert trained is not None
    assert trained.measured["validation"].metrics == first.measured["validation"].metrics
    predictor = Predictor(run.bundle)
    kept = predictor.bundle.encoder.evidence
    assert kept is not None
    gold = predictor.bundle.encoder.values("colour").to_list().index("gold")
    n_gold = len(frame.filter(pl.col("colour") == "gold"))
    for evidence, n_rows in ((evidence_of(first), 0), (kept, n_gold)):
        assert evidence.cells[0].sums(np.array([gold]))[0].tolist() == [n_rows]
    # What is measured and what is saved have the same evidence.
    test = frame.filter(pl.col("part") == "test")
    assert predictor.evaluate(test)["logloss"] == pytest.approx(trained.metrics["test"]["logloss"], rel=1e-5)
    # The embedding of gold had few steps; the evidence knows it.
    network = predictor.bundle.model.get_submodule("direct.evidence")
    assert isinstance(network, FieldModel)
    rows = predictor.bundle.encoder.encode(test)[0]
    golden = predictor.bundle.encoder.encode(test.with_columns(colour=pl.lit("gold")))[0]
    assert network.outputs(golden).mean() > network.outputs(rows).mean()


def test_evidence_in_a_store_gives_the_same_model(tmp_path: Path) -> None:
    frame, config = late_frame(), with_evidence()
    store = build_store(frame, config, tmp_path / "store")
    memory, run = fit(frame, config), Run.train(store, config, tmp_path / "run")
    disk = run.trained
    assert disk is not None and same_weights(memory, disk)
    assert disk.metrics == memory.metrics
    for name, array in evidence_of(memory).arrays().items():
        assert np.array_equal(array, evidence_of(disk).arrays()[name])
    # The store knows the evidence of the first training only; the bundle is used on its rows all the same.
    assert Predictor(run.bundle).evaluate(store)["logloss"] == pytest.approx(disk.metrics["test"]["logloss"], rel=1e-5)
    report_training(run)
    at_once = read_report(run)
    assert at_once is not None and report_table(run, store, tmp_path / "page.html") == at_once.measured


def test_an_interrupted_refit_with_evidence_resumes(tmp_path: Path) -> None:
    frame, config = late_frame(), with_evidence()
    expected = Run.train(frame, config, tmp_path / "whole")
    store = build_store(frame, config, tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        Run.train(store, config, tmp_path / "run", observer=Watch(stop_at=2))
    run = Run.train(store, config, tmp_path / "run", resume=True)
    for name in ("weights.safetensors", "evidence.safetensors"):
        assert (run.bundle / name).read_bytes() == (expected.bundle / name).read_bytes()
    assert run.metrics == expected.metrics


def test_random_labels_stay_random_after_a_refit() -> None:
    """No row meets its own target in the second training, or the network would trust evidence that says nothing.

    It is measured alone, because the weights from the first training would silence it.
    """
    rng = np.random.default_rng(0)
    values = {name: [f"v{v}" for v in rng.integers(n, size=6_000)] for name, n in (("a", 1_500), ("b", 300), ("c", 9))}
    frame = pl.DataFrame({**values, "good": rng.integers(2, size=6_000)})
    settings = {**EVIDENCE_SETTINGS, "data.evidence": "auto", "split.test": 0.3, "split.validation": 0.3}
    trained = fit(frame, config_of(**settings))
    assert isinstance(trained.model, FieldModel)
    network = trained.model.get_submodule("direct.evidence")
    assert isinstance(network, FieldModel)
    alone = measure(network.outputs, trained.prepared.target, trained.prepared.parts["test"].chunks()).metrics
    for found in (alone, trained.metrics["test"]):
        assert abs(found["auc"] - 0.5) < 3 * 0.29 / np.sqrt(1_800 / 2)
        assert found["logloss"] < 1.02 * trained.metrics["test_base_rate"]["logloss"]


def test_a_store_without_folds_is_refused_before_training(tmp_path: Path) -> None:
    store = build_store(late_frame(), with_evidence(), tmp_path / "store")
    assert isinstance(store.shards, FileShards)
    arrays = {name: spec for name, spec in store.shards.arrays.items() if name != "folds"}
    old, watch = replace(store, shards=replace(store.shards, arrays=arrays)), Watch()
    with raises(StoreError, "folds", "train.refit"):
        fit(old, with_evidence(), observer=watch)
    assert watch.steps == [[]]
    fit(old, with_evidence(**{"train.refit": False}))


# --- passes ---------------------------------------------------------------------------------------------------


def evaluation(epoch: float, *, best: bool, lr: float = 0.1) -> Evaluation:
    return Evaluation(step=0, epoch=epoch, lr=lr, train_loss=0.0, validation={}, best=best, seconds=0.0)


def test_returns_to_the_best_weights_do_not_count() -> None:
    marks = [True, True, False, False, True, False]
    history = [evaluation(n + 1.0, best=best, lr=1.0 if n < 4 else 0.5) for n, best in enumerate(marks)]
    returns = Passes.of(history, TrainConfig(plateau_patience=2))
    assert (returns.ends, returns.rates) == ((1.0, 2.0, 3.0), (1.0, 1.0, 0.5))
    stays = Passes.of(history, TrainConfig(plateau_patience=2, plateau_restore=False))
    assert (stays.n, stays.rates) == (5.0, (1.0, 1.0, 1.0, 1.0, 0.5))
    assert [returns.rate(epoch) for epoch in (0.0, 1.9, 2.0, 3.0)] == [1.0, 1.0, 0.5, 0.5]


def test_trees_are_not_refitted() -> None:
    prepared = prepare(FRAME, config_of())
    trees = replace(prepared, config=replace(prepared.config, model=LightGBMConfig()))
    with raises(ConfigError, "lightgbm", "train.refit"):
        fit(trees)


def test_the_command_line_says_whose_metrics_these_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, run, store = tmp_path / "table.csv", tmp_path / "run", tmp_path / "store"
    FRAME.write_csv(table)
    assert main(["encode", str(table), "--out", str(store), "--target", "good", "--set", "split.test=0"]) == 0
    sets = [word for key, value in {**SETTINGS, "train.refit": "true"}.items() for word in ("--set", f"{key}={value}")]
    assert main(["fit", str(store), "--out", str(run), *sets]) == 0
    printed = capsys.readouterr()
    assert states(printed.err, "refit", "400")
    assert states(printed.out, "validation rows", "before the refit")
    report = json.loads((run / "report.json").read_text("utf-8"))
    assert any("refitted" in warning for _, warning in report["data"]["warnings"])
    predictor = Predictor(run)
    assert predictor.bundle.config.train.refit
    assert default_part(build_store(FRAME, quick_config(split__test=0.0)), refit=True) == "all"


def test_rows_of_two_parts_are_those_of_both() -> None:
    store = build_store(FRAME, quick_config())
    both = store.part(("train", "validation"))
    expected = np.flatnonzero(store.parts(0, store.n_rows) < 2)
    assert np.array_equal(both.numbers(0, store.n_rows), expected)
    assert len(both) == len(expected) == both.counts(7).sum()
    assert pl.DataFrame(both.rows().ids_RF).equals(pl.DataFrame(store.read(0, store.n_rows).ids_RF[expected]))
