"""From a table to a trained model: what reaches the encoder, what stops the training, what is told on the way."""

from __future__ import annotations

import io
import itertools
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from rich.console import Console
from sklearn.metrics import log_loss

from fielddep import fitting
from fielddep.bundle import Bundle
from fielddep.data.loader import Loader
from fielddep.data.splits import Split
from fielddep.errors import MissingExtraError, SchemaError, SplitError, TrainingError
from fielddep.fitting import fit_table, measure, prepare, train_model
from fielddep.predictor import Predictor
from fielddep.training.callbacks import Callback, EvaluationLog, ProgressBar, TensorBoard, TrainingPlan
from fielddep.training.history import Evaluation
from tests.conftest import quick_config, small_frame

FRAME = small_frame(300)


def split_of(n_train: int, n_validation: int, n_test: int) -> Split:
    edges = np.cumsum([0, n_train, n_validation, n_test])
    parts = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    return Split(train=parts[0], validation=parts[1], test=parts[2])


SPLIT = split_of(200, 50, 50)
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
        prepare(LATE, quick_config(), split=SPLIT),
        prepare(LATE.head(250), quick_config(), split=split_of(200, 50, 0)),
    )
    alone = prepare(FRAME.head(250), quick_config(), split=split_of(200, 50, 0))
    for other in (early, alone):
        assert late.encoder.to_json() == other.encoder.to_json()
        assert late.encoder.vocabulary_frame().equals(other.encoder.vocabulary_frame())
    assert sorted(late.encoder.values("colour").to_list()[2:]) == ["blue", "green", "red"]
    assert [int(counts.sum()) for counts in late.encoder.counts[:3]] == [200, 200, 200]
    colour = {name: part.ids_RF[:, 0].unique().tolist() for name, part in late.parts.items()}
    assert colour["validation"] == colour["test"] == [1]
    assert 1 not in colour["train"]


def test_nothing_of_validation_and_test_reaches_the_weights():
    shuffled = LATE.with_columns(good=pl.when(pl.int_range(300) < 250).then("good").otherwise(1 - pl.col("good")))
    first = fit_table(LATE, quick_config(), split=SPLIT)
    second = fit_table(shuffled, quick_config(), split=SPLIT)
    for name, weight in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], weight), name
    assert first.metrics["validation"] == second.metrics["validation"]
    assert first.metrics["test"] != second.metrics["test"]


def test_regression_scale_is_of_training_rows():
    frame = FRAME.with_columns(good=pl.when(pl.int_range(300) < 200).then(pl.col("size") * 3 + 7).otherwise(1e6))
    target = prepare(frame, quick_config(), split=SPLIT).target
    known = frame["good"].head(200).to_numpy()
    assert target.mean == pytest.approx(known.mean())
    assert target.scale == pytest.approx(known.std())


def test_counts_from_all_lets_them_in():
    late = prepare(LATE, quick_config(data__counts_from="all"), split=SPLIT)
    assert sorted(late.encoder.values("colour").to_list()[2:]) == ["blue", "green", "grey", "pink", "red"]
    assert int(late.encoder.counts[0].sum()) == 300
    assert 1 not in late.parts["test"].ids_RF[:, 0]


def test_unknown_values_of_validation_are_no_error():
    config = quick_config(data__handle_unknown="error", train__max_epochs=1)
    fitted = fit_table(LATE, config, split=SPLIT)
    assert fitted.encoder.handle_unknown == "error"


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
    with pytest.raises(SchemaError, match="the table has no rows"):
        prepare(FRAME.clear(), quick_config())
    with pytest.raises(SchemaError, match=r"a target is needed; set data.target"):
        prepare(FRAME, quick_config(data__target=None))
    with pytest.raises(SplitError, match=r"set split.validation above 0"):
        prepare(FRAME, quick_config(split__validation=0))
    with pytest.raises(SchemaError, match=r"data.target names 'god', which is no column; did you mean 'good'\?"):
        prepare(FRAME, quick_config(data__target="god"))


# --- metrics --------------------------------------------------------------------------------------------------


def test_metrics_stand_beside_those_of_the_base_rate():
    fitted = fit_table(FRAME, quick_config(), split=SPLIT)
    assert set(fitted.metrics) == {"validation", "validation_base_rate", "test", "test_base_rate"}
    rate = FRAME["good"].head(200).mean()
    labels = FRAME["good"].to_numpy()
    for part, rows in (("validation", SPLIT.validation), ("test", SPLIT.test)):
        expected = log_loss(labels[rows], np.full(50, rate))
        assert fitted.metrics[f"{part}_base_rate"]["logloss"] == pytest.approx(expected, abs=1e-6)
        assert fitted.metrics[f"{part}_base_rate"]["auc"] == 0.5
    assert set(fit_table(FRAME, quick_config(split__test=0)).metrics) == {"validation", "validation_base_rate"}


@pytest.mark.parametrize("column", ["good", "size", "shape"])
def test_a_model_starts_at_the_base_rate(column):
    frame = FRAME.with_columns(target=pl.col(column)).drop("good")
    prepared = prepare(frame, quick_config(data__target="target"), split=SPLIT)
    base = measure(prepared, _constant(prepared))
    for part in ("validation", "test"):
        assert base[part] == pytest.approx(base[f"{part}_base_rate"], abs=1e-6)


def _constant(prepared: fitting.Prepared) -> torch.nn.Module:
    """The model as training finds it, but blind to every field."""
    config = prepared.config.replace({"train.lr": 1e-30, "train.max_epochs": 1, "train.optimizer": "adagrad"})
    model = train_model(replace(prepared, config=config))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "bias":
                weight.zero_()
    return model


# --- the loop -------------------------------------------------------------------------------------------------


def test_early_stopping_restores_the_best_weights(tmp_path: Path):
    config = quick_config(train__max_epochs=60, train__patience=3, train__lr=0.5, train__batch_size=16)
    fitted = fit_table(FRAME, config, split=SPLIT, history_path=tmp_path / "history.jsonl")
    losses = [evaluation.validation["loss"] for evaluation in fitted.history]
    assert len(losses) < 60
    best = int(np.argmin(losses))
    assert len(losses) - 1 - best == 3
    assert losses[-1] > losses[best]
    assert fitted.history.best == fitted.history[best]
    assert fitted.metrics["validation"] == pytest.approx(fitted.history[best].validation, abs=1e-9)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines == [evaluation.to_json() for evaluation in fitted.history]
    assert set(lines[0]) == {"step", "epoch", "lr", "train_loss", "validation", "best", "seconds", "rows_per_s"}
    running = np.minimum.accumulate(losses)
    assert [line["best"] for line in lines] == [True, *(running[1:] < running[:-1]).tolist()]


def test_min_delta_wants_more_than_a_little():
    config = quick_config(train__max_epochs=20, train__patience=2, train__min_delta=10.0)
    assert [e.best for e in fit_table(FRAME, config, split=SPLIT).history] == [True, False, False]


def test_a_plateau_lowers_the_learning_rate():
    settings = {
        "train__max_epochs": 6,
        "train__patience": 100,
        "train__plateau_patience": 2,
        "train__plateau_factor": 0.5,
        "train__min_delta": 100.0,
        "train__lr": 0.1,
    }
    rates = [e.lr for e in fit_table(FRAME, quick_config(**settings), split=SPLIT).history]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.025])
    kept = fit_table(FRAME, quick_config(**{**settings, "train__plateau_factor": 1}), split=SPLIT).history
    assert {e.lr for e in kept} == {0.1}


@pytest.mark.parametrize("restore", [True, False])
def test_a_plateau_goes_back_to_the_best_weights_where_asked(restore):
    prepared = prepare(
        FRAME,
        quick_config(
            train__max_epochs=3, train__patience=100, train__plateau_patience=1, train__min_delta=100.0,
            train__lr=1e-30, train__average=0.0, train__plateau_restore=restore,
        ),
        split=SPLIT,
    )  # fmt: skip
    weights = []

    class Disturb(Callback):
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
        train_model(prepared, callbacks=[Disturb()])
    # The callback runs after the plateau was dealt with.
    assert (weights[1] == pytest.approx(weights[0])) == restore


@pytest.mark.parametrize(
    ("every", "epochs"), [(4, [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]), (1, [1.0, 2.0]), (0.5, [2.0])]
)
def test_evaluations_inside_and_across_epochs(every, epochs):
    config = quick_config(train__max_epochs=2, train__batch_size=25, train__eval_every=every)
    assert [e.epoch for e in fit_table(FRAME, config, split=SPLIT).history] == epochs


def test_train_loss_is_the_mean_since_the_last_evaluation():
    class Losses(Callback):
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            self.losses.append(loss)

    seen = Losses()
    history = fit_table(
        FRAME, quick_config(train__batch_size=25, train__eval_every=2), split=SPLIT, callbacks=[seen]
    ).history
    assert len(seen.losses) == 32
    for position, evaluation in enumerate(history):
        expected = np.mean(seen.losses[4 * position : 4 * position + 4])
        assert evaluation.train_loss == pytest.approx(expected, rel=1e-6)


def test_the_model_returned_is_ready_to_predict():
    fitted = fit_table(FRAME, quick_config(model__dropout=0.5))
    assert not fitted.model.training


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_seed_decides_everything(optimizer):
    weights = [
        fit_table(
            FRAME, quick_config(train__seed=seed, train__optimizer=optimizer, model__dropout=0.2)
        ).model.state_dict()
        for seed in (4, 4, 5)
    ]
    assert all(torch.equal(weights[1][name], weight) for name, weight in weights[0].items())
    assert not torch.equal(weights[2]["embedding.weight"], weights[0]["embedding.weight"])


# --- errors ---------------------------------------------------------------------------------------------------


def test_a_diverging_loss_names_step_and_advice():
    config = quick_config(train__lr=1e20, model__batch_norm="none", data__numeric="scale")
    with pytest.raises(
        TrainingError, match=r"the loss is (nan|inf) at step \d+ \(field '[a-z x]+'\)\. Lower train\.lr \(now 1e\+20\)"
    ):
        fit_table(FRAME, config, split=SPLIT)


def test_an_infinite_number_names_its_field():
    prepared = prepare(FRAME, quick_config(data__numeric="scale"), split=SPLIT)
    prepared.parts["train"].numbers_RN[5, 0] = math.inf
    with pytest.raises(TrainingError, match=r"at step \d+ \(field 'size'\).*data\.numeric = 'quantile'"):
        train_model(prepared)


def test_a_validation_loss_that_is_no_number():
    prepared = prepare(FRAME, quick_config(data__numeric="scale"), split=SPLIT)
    prepared.parts["validation"].numbers_RN[5, 0] = math.nan
    with pytest.raises(TrainingError, match="the validation loss is not a number at step"):
        train_model(prepared)


def test_a_model_too_large_for_memory_is_refused_beforehand(monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2}
    monkeypatch.setattr(fitting.os, "sysconf", pages.__getitem__)
    many_ids = FRAME.with_columns(user=pl.Series(range(300)) % 150)
    with pytest.raises(
        TrainingError, match=r"GiB, most of it for the tables of \d+ ids, .*lower model.d_embed or raise data.min_count"
    ):
        fit_table(many_ids, quick_config(data__kinds={"user": "categorical"}))
    with pytest.raises(
        TrainingError, match=r"GiB, most of it for \d\d,\d+ weights outside of the tables, .*or use fewer fields"
    ):
        fit_table(FRAME, quick_config(model__d_embed=100))


def test_all_copies_of_all_weights_are_counted(monkeypatch):
    """Adagrad: weights, state, mean, best copy; and the gradient of what is in no table."""
    prepared = prepare(FRAME, quick_config(train__optimizer="adagrad", train__average=0.8), split=SPLIT)
    model = fitting.build_for(prepared.target, prepared.encoder.layout, prepared.config)
    of_tables = sum(table.weight.numel() for _, table in model.tables())
    needed = 4 * (5 * model.n_parameters - of_tables)
    memory = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": needed - 1}
    monkeypatch.setattr(fitting.os, "sysconf", memory.__getitem__)
    with pytest.raises(TrainingError, match="training would need about"):
        train_model(prepared)
    memory["SC_PHYS_PAGES"] = needed
    train_model(prepared)


def test_batches_of_one_row_are_refused_where_batch_norm_needs_more():
    tiny = FRAME.head(12)
    with pytest.raises(TrainingError, match=r"batches of at least 2 rows; 9 training rows with train.batch_size = 2"):
        fit_table(tiny, quick_config(train__batch_size=2, model__batch_norm="all"), split=split_of(9, 3, 0))
    fitted = fit_table(tiny, quick_config(train__batch_size=2, model__batch_norm="none"), split=split_of(9, 3, 0))
    assert len(fitted.history) == 4


# --- lookers-on -----------------------------------------------------------------------------------------------


def test_callbacks_see_every_event_and_the_end_even_of_a_failure():
    class Events(Callback):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_start(self, plan: TrainingPlan) -> None:
            self.seen.append(f"start {plan.n_rows} {plan.n_batches} {plan.max_epochs} {plan.start_step}")

        def on_step(self, step: int, n_rows: int, loss: float) -> None:
            self.seen.append(f"step {step} {n_rows}")

        def on_evaluation(self, evaluation: Evaluation) -> None:
            self.seen.append(f"evaluation {evaluation.step}")

        def on_end(self) -> None:
            self.seen.append("end")

    events = Events()
    fit_table(FRAME, quick_config(train__batch_size=100, train__max_epochs=1), split=SPLIT, callbacks=[events])
    assert events.seen == ["start 200 2 1 0", "step 1 100", "step 2 100", "evaluation 2", "end"]
    failing = Events()
    with pytest.raises(TrainingError):
        fit_table(FRAME, quick_config(train__lr=1e20, model__batch_norm="none"), split=SPLIT, callbacks=[failing])
    assert failing.seen[-1] == "end"


def test_progress_bar_on_a_terminal():
    text = io.StringIO()
    bar = ProgressBar(Console(file=text, force_terminal=True, width=160))
    fit_table(FRAME, quick_config(train__batch_size=20), split=SPLIT, callbacks=[bar, _Refresh(bar)])
    shown = text.getvalue()
    assert "epoch 1/4" in shown
    assert "epoch 4/4" in shown
    assert "rows/s" in shown
    assert "loss 0." in shown
    assert "validation 0." in shown


class _Refresh(Callback):
    """Draws the bar after every step: a training of a second would end before its next turn."""

    def __init__(self, bar: ProgressBar) -> None:
        self.bar = bar

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.bar.progress.refresh()


def test_progress_bar_is_silent_elsewhere():
    text = io.StringIO()
    fit_table(FRAME, quick_config(), callbacks=[ProgressBar(Console(file=text, force_terminal=False))])
    assert text.getvalue() == ""


def test_progress_bar_goes_on_where_a_run_was_resumed():
    bar = ProgressBar(Console(file=io.StringIO(), force_terminal=False))
    bar.on_start(TrainingPlan(n_rows=200, n_batches=4, max_epochs=3, start_step=6))
    (task,) = bar.progress.tasks
    assert (task.completed, task.total, task.description) == (100, 200, "epoch 2/3")
    bar.on_step(7, 50, 0.5)
    assert task.completed == 150
    bar.on_end()


def test_evaluation_log_prints_a_line_each():
    text = io.StringIO()
    history = fit_table(FRAME, quick_config(), callbacks=[EvaluationLog(Console(file=text, width=200))]).history
    lines = text.getvalue().splitlines()
    assert len(lines) == len(history)
    assert f"validation logloss {history[0].validation['logloss']:.4f}" in lines[0]
    assert lines[0].endswith("*")


def test_tensorboard_writes_events(tmp_path: Path):
    pytest.importorskip("tensorboard")
    fit_table(FRAME, quick_config(), callbacks=[TensorBoard(tmp_path)])
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("events.out")
    assert b"validation/logloss" in file.read_bytes()


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"fielddep\[tensorboard\]"):
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
    history = fit_table(FRAME, quick_config(train__max_epochs=1), callbacks=[TensorBoard(tmp_path)]).history
    step = history[0].step
    expected = [("train/loss", history[0].train_loss, step), ("train/lr", history[0].lr, step)]
    expected += [(f"validation/{name}", value, step) for name, value in history[0].validation.items()]
    assert points == [*expected, ("closed", 0.0, 0)]


def test_a_fitted_model_predicts_new_tables():
    fitted = fit_table(FRAME, quick_config())
    predictor = Predictor(Bundle(config=fitted.config, encoder=fitted.encoder, model=fitted.model))
    assert len(predictor.predict(small_frame(20, seed=3))) == 20
