"""What must hold for every model: MDL and the baselines.

Numbers are compared in evaluation mode after a start from rows, as a trained model would be used.
"""

from __future__ import annotations

from functools import cache

import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config import NETWORKS
from fielddep.encoding.rows import Batch, EncodedRows, Layout
from fielddep.nn import MODELS, build_model
from fielddep.nn.layers import Dropout
from fielddep.nn.model import FieldModel
from fielddep.training.fit import train
from fielddep.training.metrics import mean_loss
from fielddep.training.optim import Optimizer
from fielddep.training.prepare import Prepared, prepare
from tests.conftest import random_table, small_frame
from tests.small_models import for_model, small_config


def fresh(name: str, layout: Layout, n_outputs: int = 1, *, seed: int = 0) -> FieldModel:
    model = build_model(layout, n_outputs, small_config(name).model, seed=seed)
    torch.manual_seed(seed)
    model.start_from(random_table(layout, 64, seed=9).batch(slice(None)).inputs)
    return model


def forward(model: FieldModel, batch: Batch) -> torch.Tensor:
    return model(batch.inputs)


def learn(model: FieldModel, batch: Batch, task: str, n_steps: int, lr: float, kind: str) -> float:
    """Train on one batch; the loss of the last step."""
    assert batch.target_B is not None
    steps = Optimizer(model, kind=kind, lr=lr, l2={})
    model.train()
    for step in range(1, n_steps + 1):
        steps.zero_grad()
        logits, penalty = model.training_forward(batch.inputs)
        loss = mean_loss(logits, batch.target_B, None, task)
        (loss if penalty is None else loss + penalty).backward()
        steps.step(batch.inputs)
        model.after_step(step)
    return float(loss.detach())


@pytest.fixture(params=list(MODELS))
def name(request) -> str:
    return request.param


def test_every_model_has_settings_and_every_settings_a_model():
    assert set(MODELS) == set(NETWORKS)
    assert len(NETWORKS) == 19


ROUNDING = 1e-5
"""By so much a logit may depend on the other rows of its batch."""


def learned(name: str, layout: Layout, n_outputs: int) -> FieldModel:
    """A model after a few steps, with every weight moved by chance: nothing is left at a start of zero."""
    model = fresh(name, layout, n_outputs)
    rows = random_table(layout, 40, n_classes=max(n_outputs, 2)).batch(slice(None))
    learn(model, rows, "binary" if n_outputs == 1 else "multiclass", 3, 0.01, "adam")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model


@torch.no_grad()
def batch_gap(model: FieldModel, table: EncodedRows) -> float:
    """Largest change of a logit, relative to its size, when a row is predicted alone instead of with all others."""
    whole = forward(model, table.batch(slice(None)))
    assert whole.shape == (len(table), model.n_outputs)
    alone = torch.cat([forward(model, table.batch(slice(row, row + 1))) for row in range(0, len(table), 3)])
    return float(((alone - whole[::3]).abs() / (1 + whole[::3].abs())).max())


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_prediction_does_not_depend_on_the_batch(name, layout, n_outputs):
    model = learned(name, layout, n_outputs).eval()
    assert batch_gap(model, random_table(layout, 40)) < ROUNDING


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_saint_that_predicted_as_it_trains_would_depend_on_the_batch(layout, n_outputs):
    """The test above can fail: attention between rows has an effect after the few steps of `learned`."""
    model = learned("saint", layout, n_outputs).eval()
    model.training = True  # of the model alone, so that nothing is dropped out
    assert batch_gap(model, random_table(layout, 40)) > 1000 * ROUNDING


def test_prediction_changes_no_state(name, layout):
    model = fresh(name, layout).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    batch = random_table(layout, 30).batch(slice(None))
    assert torch.equal(forward(model, batch), forward(model, batch))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_every_weight_gets_a_finite_gradient(name, layout):
    model = fresh(name, layout, 3).train()
    batch = random_table(layout, 60).batch(slice(None))
    logits, penalty = model.training_forward(batch.inputs)
    (logits.square().mean() + (0 if penalty is None else penalty)).backward()
    for key, weight in model.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, key
            gradient = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
            assert torch.isfinite(gradient).all(), key


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_one_small_batch_can_be_memorised(name, task):
    if name == "lr":
        pytest.skip("a linear model cannot memorise what is not linear")
    layout = Layout(names=("a", "b", "c"), n_ids=(26, 26, 2), numerical=(2,))
    batch = random_table(layout, 24, seed=3).batch(slice(None))
    model = fresh(name, layout)
    model.regression = task == "regression"
    for module in model.modules():
        if isinstance(module, Dropout):
            module.n_dropped = 0
    start = learn(model, batch, task, 1, 0.01, "adam")
    end = learn(model, batch, task, 300, 0.02, "adam")
    assert end < 0.2 * start


def test_weights_of_a_batch_only_move_where_it_looks(name, layout):
    model = fresh(name, layout)
    batch = random_table(layout, 3, seed=4).batch(slice(None))
    before = {key: table.weight.detach().clone() for key, table in model.tables()}
    logits, penalty = model.train().training_forward(batch.inputs)
    (logits.square().mean() + (0 if penalty is None else penalty)).backward()
    Optimizer(model, kind="adagrad", lr=0.1, l2={}).step(batch.inputs)
    for key, table in model.tables():
        untouched = torch.ones(len(table.weight), dtype=torch.bool)
        untouched[table.rows_of(batch.inputs.ids_BF).flatten()] = False
        assert torch.equal(table.weight[untouched], before[key][untouched]), key


def test_same_seed_same_model_and_sizes_known_beforehand(name, layout):
    config = small_config(name).model
    first, second = (build_model(layout, 1, config, seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    planned = build_model(layout, 1, config, device="meta")
    assert planned.n_parameters == build_model(layout, 1, config).n_parameters


TASKS = {
    "binary": {"data__target": "good", "data__task": "binary"},
    "multiclass": {"data__target": "shape", "data__task": "multiclass"},
    "regression": {"data__target": "size", "data__task": "regression"},
}


@cache
def encoded(task: str) -> Prepared:
    """A table that is encoded once, for all models."""
    return prepare(small_frame(400), small_config("mdl", **TASKS[task]))


@pytest.mark.parametrize("task", TASKS)
def test_from_table_to_bundle_and_back(name, task, tmp_path):
    config = small_config(name, **TASKS[task], train__max_epochs=2, train__batch_size=64)
    bundle = Bundle.of(train(for_model(encoded(task), config)))
    bundle.save(tmp_path / "b")
    rows = small_frame(20).drop(config.data.target)
    odd = rows.with_columns(pl.lit("never seen").alias("colour"))
    loaded = Predictor(tmp_path / "b")
    first = loaded.predict(rows)
    assert first.equals(loaded.predict(rows))
    assert first.equals(Predictor(bundle).predict(rows))
    assert loaded.predict(odd).null_count().sum_horizontal().item() == 0
