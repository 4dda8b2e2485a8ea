"""From a table to a trained model: what reaches the encoder, what stops the training, what is told on the way."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import log_loss

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.encoding.split import Parts
from fielddep.errors import MissingExtraError, SchemaError, SplitError, TableError, TrainingError
from fielddep.nn.model import FieldModel
from fielddep.observer import Observer
from fielddep.store.loader import Loader
from fielddep.training import fit as fitting
from fielddep.training.checkpoint import Evaluation, TensorBoard
from fielddep.training.fit import fit, train
from fielddep.training.metrics import base_rate_metrics, measure
from fielddep.training.prepare import Prepared, prepare
from tests.conftest import quick_config, small_frame
from tests.helpers import raises

FRAME = small_frame(300)


def parts_of(n_train: int, n_validation: int, n_test: int) -> Parts:
    return np.repeat([0, 1, 2], [n_train, n_validation, n_test]).astype(np.uint8)


PARTS = parts_of(200, 50, 50)
LATE = FRAME.with_columns(
    colour=pl.when(pl.int_range(300) < 200)
    .then("colour")
    .when(pl.int_range(300) < 250)
    .then(pl.lit("pink"))
    .otherwise(pl.lit("grey")),
    size=pl.when(pl.int_range(300) < 200).then("size").otherwise(1e6),
)


# --- what reaches the encoder ---------------------------------------------------------------------------------


def test_nothing_of_validation_and_test_reaches_the_encoder():
    late, early = (
        prepare(LATE, quick_config(), parts=PARTS),
        prepare(LATE.head(250), quick_config(), parts=parts_of(200, 50, 0)),
    )
    alone = prepare(FRAME.head(250), quick_config(), parts=parts_of(200, 50, 0))
    for other in (early, alone):
        assert late.encoder.to_json() == other.encoder.to_json()
        assert late.encoder.vocabulary_frame().equals(other.encoder.vocabulary_frame())
    assert sorted(late.encoder.values("colour").to_list()[2:]) == ["blue", "green", "red"]
    assert [int(counts.sum()) for counts in late.encoder.counts[:3]] == [200, 200, 200]
    colour = {name: np.unique(part.rows().ids_RF[:, 0]).tolist() for name, part in late.parts.items()}
    assert colour["validation"] == colour["test"] == [1]
    assert 1 not in colour["train"]


def test_nothing_of_validation_and_test_reaches_the_weights():
    shuffled = LATE.with_columns(good=pl.when(pl.int_range(300) < 250).then("good").otherwise(1 - pl.col("good")))
    first = fit(LATE, quick_config(), parts=PARTS)
    second = fit(shuffled, quick_config(), parts=PARTS)
    for name, weight in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], weight), name
    assert first.metrics["validation"] == second.metrics["validation"]
    assert first.metrics["test"] != second.metrics["test"]


def test_regression_scale_is_of_training_rows():
    frame = FRAME.with_columns(good=pl.when(pl.int_range(300) < 200).then(pl.col("size") * 3 + 7).otherwise(1e6))
    target = prepare(frame, quick_config(), parts=PARTS).target
    known = frame["good"].head(200).to_numpy()
    assert target.mean == pytest.approx(known.mean())
    assert target.scale == pytest.approx(known.std())


def test_counts_from_all_lets_them_in():
    late = prepare(LATE, quick_config(data__counts_from="all"), parts=PARTS)
    assert sorted(late.encoder.values("colour").to_list()[2:]) == ["blue", "green", "grey", "pink", "red"]
    assert int(late.encoder.counts[0].sum()) == 300
    assert 1 not in late.parts["test"].rows().ids_RF[:, 0]


def test_unknown_values_of_validation_are_no_error():
    config = quick_config(data__handle_unknown="error", train__max_epochs=1)
    fitted = fit(LATE, config, parts=PARTS)
    assert fitted.prepared.encoder.handle_unknown == "error"


def test_every_setting_is_decided():
    config = prepare(FRAME, quick_config(model__d_embed=None)).config
    open_settings = (
        config.model.d_embed,
        config.train.batch_size,
        config.train.lr,
        config.train.eval_every,
        config.train.embedding_l2,
    )
    assert None not in open_settings
    asked = quick_config(
        model__d_embed=3, train__batch_size=17, train__lr=0.5, train__eval_every=2, train__embedding_l2=0.1
    )
    decided = prepare(FRAME, asked).config
    assert (decided.model.d_embed, decided.train.batch_size, decided.train.lr) == (3, 17, 0.5)
    assert (decided.train.eval_every, decided.train.embedding_l2) == (2.0, 0.1)


def test_what_cannot_be_fitted():
    with raises(TableError, "no rows"):
        prepare(FRAME.clear(), quick_config())
    with raises(SchemaError, "data.target"):
        prepare(FRAME, quick_config(data__target=None))
    with raises(SplitError, "split.validation"):
        prepare(FRAME, quick_config(split__validation=0))
    with raises(SchemaError, "data.target", "'god'", "'good'"):
        prepare(FRAME, quick_config(data__target="god"))


# --- metrics --------------------------------------------------------------------------------------------------


def test_metrics_stand_beside_those_of_the_base_rate():
    fitted = fit(FRAME, quick_config(), parts=PARTS)
    assert set(fitted.metrics) == {"validation", "validation_base_rate", "test", "test_base_rate"}
    rate = FRAME["good"].head(200).mean()
    labels = FRAME["good"].to_numpy()
    for number, part in ((1, "validation"), (2, "test")):
        expected = log_loss(labels[number == PARTS], np.full(50, rate))
        assert fitted.metrics[f"{part}_base_rate"]["logloss"] == pytest.approx(expected, abs=1e-6)
        assert fitted.metrics[f"{part}_base_rate"]["auc"] == 0.5
    assert set(fit(FRAME, quick_config(split__test=0)).metrics) == {"validation", "validation_base_rate"}


@pytest.mark.parametrize("column", ["good", "size", "shape"])
def test_a_model_starts_at_the_base_rate(column):
    frame = FRAME.with_columns(target=pl.col(column)).drop("good")
    prepared = prepare(frame, quick_config(data__target="target"), parts=PARTS)
    model = _constant(prepared)
    for part in ("validation", "test"):
        rows = prepared.parts[part]
        found = measure(model.outputs, prepared.target, rows.chunks()).metrics
        assert found == pytest.approx(base_rate_metrics(prepared.target, prepared.base_C, rows.chunks()), abs=1e-6)


def _constant(prepared: Prepared) -> FieldModel:
    """The model as training finds it, but blind to every field."""
    config = prepared.config.replace({"train.lr": 1e-30, "train.max_epochs": 1, "train.optimizer": "adagrad"})
    model = train(replace(prepared, config=config)).model
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "bias":
                weight.zero_()
    return model


# --- the loop -------------------------------------------------------------------------------------------------


def test_early_stopping_restores_the_best_weights(tmp_path: Path):
    config = quick_config(train__max_epochs=60, train__patience=3, train__lr=0.5, train__batch_size=16)
    fitted = fit(FRAME, config, parts=PARTS, checkpoints=tmp_path)
    losses = [evaluation.validation["loss"] for evaluation in fitted.history]
    assert len(losses) < 60
    best = int(np.argmin(losses))
    assert len(losses) - 1 - best == 3
    assert losses[-1] > losses[best]
    assert fitted.validation == fitted.history[best].validation
    assert fitted.metrics["validation"] == pytest.approx(fitted.history[best].validation, abs=1e-9)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines == [evaluation.to_json() for evaluation in fitted.history]
    known = {"step", "epoch", "lr", "train_loss", "validation", "best", "seconds", "rows_per_s", "monitor"}
    assert set(lines[0]) == known
    running = np.minimum.accumulate(losses)
    assert [line["best"] for line in lines] == [True, *(running[1:] < running[:-1]).tolist()]


def test_min_delta_wants_more_than_a_little():
    config = quick_config(train__max_epochs=20, train__patience=2, train__min_delta=10.0)
    assert [e.best for e in fit(FRAME, config, parts=PARTS).history] == [True, False, False]


def test_a_plateau_lowers_the_learning_rate():
    settings = {
        "train__max_epochs": 6,
        "train__patience": 100,
        "train__plateau_patience": 2,
        "train__plateau_factor": 0.5,
        "train__min_delta": 100.0,
        "train__lr": 0.1,
    }
    rates = [e.lr for e in fit(FRAME, quick_config(**settings), parts=PARTS).history]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.025])
    kept = fit(FRAME, quick_config(**{**settings, "train__plateau_factor": 1}), parts=PARTS).history
    assert {e.lr for e in kept} == {0.1}


@pytest.mark.parametrize("restore", [True, False])
def test_a_plateau_goes_back_to_the_best_weights_where_asked(restore):
    prepared = prepare(
        FRAME,
        quick_config(
            train__max_epochs=3, train__patience=100, train__plateau_patience=1, train__min_delta=100.0,
            train__lr=1e-30, train__average_decay=0.0, train__plateau_restore=restore,
        ),
        parts=PARTS,
    )  # fmt: skip
    weights = []

    class Disturb(Observer):
        """Moves a weight before the second evaluation, which is a plateau as nothing can improve by 100."""

        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            with torch.no_grad():
                trainer_model["model"].bias.add_(1.0 if 2 * n_batches > step > n_batches else 0.0)

        def on_evaluation(self, evaluation: Evaluation) -> None:
            weights.append(float(trainer_model["model"].bias.detach()))

    n_batches = Loader(prepared.parts["train"], batch_size=prepared.config.train.batch_size).n_batches
    trainer_model: dict[str, torch.nn.Module] = {}
    real = fitting.build_model

    def build(*args, **kwargs):
        trainer_model["model"] = real(*args, **kwargs)
        return trainer_model["model"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "build_model", build)
        train(prepared, observer=Disturb())
    # The observer hears of it after the plateau was dealt with.
    assert (weights[1] == pytest.approx(weights[0])) == restore


@pytest.mark.parametrize(
    ("every", "epochs"), [(4, [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]), (1, [1.0, 2.0]), (0.5, [2.0])]
)
def test_evaluations_inside_and_across_epochs(every, epochs):
    config = quick_config(train__max_epochs=2, train__batch_size=25, train__eval_every=every)
    assert [e.epoch for e in fit(FRAME, config, parts=PARTS).history] == epochs


def test_train_loss_is_the_mean_since_the_last_evaluation():
    class Losses(Observer):
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            self.losses.append(loss)

    seen = Losses()
    history = fit(FRAME, quick_config(train__batch_size=25, train__eval_every=2), parts=PARTS, observer=seen).history
    assert len(seen.losses) == 32
    for position, evaluation in enumerate(history):
        expected = np.mean(seen.losses[4 * position : 4 * position + 4])
        assert evaluation.train_loss == pytest.approx(expected, rel=1e-6)


def test_the_model_returned_is_ready_to_predict():
    fitted = fit(FRAME, quick_config(model__dropout=0.5))
    assert not fitted.model.training


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_seed_decides_everything(optimizer):
    weights = [
        fit(FRAME, quick_config(train__seed=seed, train__optimizer=optimizer, model__dropout=0.2)).model.state_dict()
        for seed in (4, 4, 5)
    ]
    assert all(torch.equal(weights[1][name], weight) for name, weight in weights[0].items())
    assert not torch.equal(weights[2]["embedding.weight"], weights[0]["embedding.weight"])


# --- errors ---------------------------------------------------------------------------------------------------


def test_a_diverging_loss_names_step_and_advice():
    config = quick_config(train__lr=1e20, model__batch_norm="none", data__numeric="scale")
    with raises(TrainingError, "step", "field", "train.lr", "1e+20"):
        fit(FRAME, config, parts=PARTS)


def test_an_infinite_number_names_its_field():
    prepared = prepare(FRAME, quick_config(data__numeric="scale"), parts=PARTS)
    prepared.store.read(0, 400).numbers_RN[5, 0] = math.inf
    with raises(TrainingError, "step", "field 'size'", "data.numeric"):
        train(prepared)


def test_a_validation_loss_that_is_no_number():
    prepared = prepare(FRAME, quick_config(data__numeric="scale"), parts=PARTS)
    prepared.store.read(0, 400).numbers_RN[prepared.parts["validation"].numbers(0, 400)[5], 0] = math.nan
    with raises(TrainingError, "validation loss", "step"):
        train(prepared)


def test_a_model_too_large_for_memory_is_refused_beforehand(monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2}
    monkeypatch.setattr(fitting.os, "sysconf", pages.__getitem__)
    many_ids = FRAME.with_columns(user=pl.Series(range(300)) % 150)
    with raises(TrainingError, "8.2 kB", "model.d_embed", "data.min_count"):
        fit(many_ids, quick_config(data__kinds={"user": "categorical"}))
    with raises(TrainingError, "8.2 kB", "fewer fields"):
        fit(FRAME, quick_config(model__d_embed=100))


def test_all_copies_of_all_weights_are_counted(monkeypatch):
    """Adagrad: weights, state, mean, best copy; and the gradient of what is in no table."""
    prepared = prepare(FRAME, quick_config(train__optimizer="adagrad", train__average_decay=0.8), parts=PARTS)
    model = fitting.build_for(prepared.target, prepared.encoder.layout, prepared.config)
    of_tables = sum(table.weight.numel() for _, table in model.tables())
    needed = 4 * (5 * model.n_parameters - of_tables)
    memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": needed - 1}
    monkeypatch.setattr(fitting.os, "sysconf", memory.__getitem__)
    with raises(TrainingError, f"{(needed - 1) / 1000:.1f} kB"):
        train(prepared)
    memory["SC_PHYS_PAGES"] = needed
    train(prepared)


def test_batches_of_one_row_are_refused_where_batch_norm_needs_more():
    tiny = FRAME.head(12)
    with raises(TrainingError, "2 rows", "9 training rows", "train.batch_size"):
        fit(tiny, quick_config(train__batch_size=2, model__batch_norm="all"), parts=parts_of(9, 3, 0))
    fitted = fit(tiny, quick_config(train__batch_size=2, model__batch_norm="none"), parts=parts_of(9, 3, 0))
    assert len(fitted.history) == 4


# --- observers -----------------------------------------------------------------------------------------------


def test_an_observer_sees_every_event_and_the_end_even_of_a_failure():
    class Events(Observer):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_prepared(self, prepared: Prepared) -> None:
            self.seen.append(f"prepared {len(prepared.parts['train'])}")

        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            self.seen.append(f"step {step} {n_rows}")

        def on_evaluation(self, evaluation: Evaluation) -> None:
            self.seen.append(f"evaluation {evaluation.step}")

        def on_end(self) -> None:
            self.seen.append("end")

    events = Events()
    fit(FRAME, quick_config(train__batch_size=100, train__max_epochs=1), parts=PARTS, observer=events)
    assert events.seen == ["prepared 200", "step 1 100", "step 2 100", "evaluation 2", "end"]
    failing = Events()
    with pytest.raises(TrainingError):
        fit(FRAME, quick_config(train__lr=1e20, model__batch_norm="none"), parts=PARTS, observer=failing)
    assert failing.seen[-1] == "end"


def test_tensorboard_writes_events(tmp_path: Path):
    pytest.importorskip("tensorboard")
    fit(FRAME, quick_config(), observer=TensorBoard(tmp_path))
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("events.out")
    assert b"validation/logloss" in file.read_bytes()


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with raises(MissingExtraError, "fielddep[tensorboard]"):
        TensorBoard(tmp_path)


def test_tensorboard_gets_a_point_a_metric(tmp_path: Path, monkeypatch):
    points: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            points.append((name, value, step))

        def close(self) -> None:
            points.append(("closed", 0.0, 0))

    fake = type(sys)("torch.utils.tensorboard")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    history = fit(FRAME, quick_config(train__max_epochs=1), observer=TensorBoard(tmp_path)).history
    step = history[0].step
    expected = [("train/loss", history[0].train_loss, step), ("train/lr", history[0].lr, step)]
    expected += [(f"validation/{name}", value, step) for name, value in history[0].validation.items()]
    assert points == [*expected, ("closed", 0.0, 0)]


def test_a_fitted_model_predicts_new_tables():
    fitted = fit(FRAME, quick_config())
    predictor = Predictor(Bundle.of(fitted))
    assert len(predictor.predict(small_frame(20, seed=3))) == 20
