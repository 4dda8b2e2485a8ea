"""What training must achieve: memorise a batch, find a planted dependency, teach the rare id.

What the planted-dependency test found: with five fields, 6,000 rows and the neighbouring pair field_0 -> field_1, the
planted pair was the strongest entry for all of the seeds 0 to 4, for a binary and for a regression target. It does not
always win: with six fields and as many rows it did for two of the five seeds, and a planted pair of fields that do not
interact otherwise (field_1 -> field_3) for four of five. The test asks for four of five in the first case.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.config.mdl import MDLConfig
from fielddep.config.settings import Config
from fielddep.datasets.synthetic import generate
from fielddep.encoding.rows import EncodedRows, Layout
from fielddep.explain.dependencies import explain_rows
from fielddep.nn.mdl import MDL
from fielddep.training.fit import train
from fielddep.training.metrics import mean_loss
from fielddep.training.optim import Optimizer
from fielddep.training.prepare import prepare
from tests.conftest import quick_config, random_table

# --- memory ---------------------------------------------------------------------------------------------------

VARIANTS = {
    "refined": MDLConfig(d_embed=8, hidden=(32,)),
    "global": MDLConfig(d_embed=8, hidden=(32,), dependencies="global"),
    "none": MDLConfig(d_embed=8, hidden=(32,), dependencies="none"),
    "no-batch-norm": MDLConfig(d_embed=8, hidden=(32,), batch_norm="none"),
}


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_small_batch_can_be_memorised(variant, optimizer):
    layout = Layout(names=("a", "b", "c"), n_ids=(12, 12, 2), numerical=(2,))
    batch = random_table(layout, 24, seed=3).batch(slice(None))
    assert batch.target_B is not None
    torch.manual_seed(0)
    model = MDL(layout, 1, VARIANTS[variant])
    steps = Optimizer(model, kind=optimizer, lr=0.1 if optimizer == "adagrad" else 0.02, l2={})
    for _ in range(150):
        steps.zero_grad()
        logits, penalty = model.training_forward(batch.inputs)
        loss = mean_loss(logits, batch.target_B, None, "binary")
        (loss if penalty is None else loss + penalty).backward()
        steps.step(batch.inputs)
    assert float(loss.detach()) < 0.05


# --- a planted dependency -------------------------------------------------------------------------------------


def planted_settings(target: str, seed: int) -> Config:
    return Config().replace(
        {
            "data.target": target,
            "data.crosses": "none",
            "data.evidence": "none",
            "model.embedding_init": "normal",
            "model.embedding_init_scale": 0.5,
            "model.d_embed": 8,
            "model.hidden": [32],
            "model.sparsity": 10.0,
            "model.inner_lr": 1.0,
            "model.n_inner_steps": 4,
            "model.batch_norm": "all",
            "train.optimizer": "adagrad",
            "train.lr": 0.05,
            "train.batch_size": 512,
            "train.max_epochs": 10,
            "train.patience": 100,
            "train.plateau_patience": 2,
            "train.plateau_factor": 0.3,
            "train.embedding_l2": 0.0,
            "train.unknown_rate": 0.25,
            "train.seed": seed,
        }
    )


def strongest_pair(seed: int) -> tuple[set[str], set[str]]:
    """Names of the strongest entry of the mean |mu W(T)| over rows, and of the planted pair."""
    table = generate(12_000, n_fields=5, n_values=10, seed=seed)
    prepared = prepare(table.frame, planted_settings(table.target, seed))
    bundle = Bundle.of(train(prepared))
    explanation = explain_rows(bundle, prepared.parts["train"].rows().take(np.arange(2000)))
    size_FF = np.abs(explanation.w_RSFF[:, -1] * explanation.mu_RSF[:, -1, None, :]).mean(axis=0)
    np.fill_diagonal(size_FF, 0.0)
    source, dependent = np.unravel_index(size_FF.argmax(), size_FF.shape)
    return {explanation.fields[source], explanation.fields[dependent]}, set(table.planted[0])


def test_a_planted_dependency_is_the_strongest_found():
    results = [strongest_pair(seed) for seed in range(5)]
    assert sum(found == planted for found, planted in results) >= 4, results


# --- the rare id ----------------------------------------------------------------------------------------------


def test_an_unseen_value_is_no_random_guess():
    """Logloss on rows whose user was never seen, against the base rate and against borrowing another user's id.

    `test_every_training.py` has the rare id of every model.
    """
    rng = np.random.default_rng(0)
    n_rows, n_users = 4000, 60
    user, item = rng.integers(0, n_users, n_rows), rng.integers(0, 8, n_rows)
    taste = rng.normal(size=n_users) * 2.5
    chance = 1 / (1 + np.exp(-(taste[user] + 1.5 * (item % 2) - 0.75)))
    frame = pl.DataFrame(
        {
            "user": [f"u{u}" for u in user],
            "item": [f"i{i}" for i in item],
            "good": (rng.random(n_rows) < chance).astype(int),
        }
    )
    known, new = frame.filter(pl.Series(user < 50)), frame.filter(pl.Series(user >= 50))
    prepared = prepare(known, quick_config(train__max_epochs=15, train__unknown_rate=1.0))
    model = train(prepared).model
    encoded, _ = prepared.encoder.encode(new, with_target=True)
    assert (encoded.ids_RF[:, 0] == 1).all()
    unknown = _logloss(model, encoded)
    base_rate = known["good"].mean()
    labels = new["good"].to_numpy()
    base = -np.mean(np.log(np.where(labels == 1, base_rate, 1 - base_rate)))
    assert unknown < base + 0.03
    borrowed = []
    for seed in range(5):
        ids = encoded.ids_RF.copy()
        ids[:, 0] = np.random.default_rng(seed).integers(2, 52, len(ids))
        borrowed.append(_logloss(model, encoded.with_arrays(ids=ids)))
    assert unknown < min(borrowed)


@torch.no_grad()
def _logloss(model: torch.nn.Module, rows: EncodedRows) -> float:
    batch = rows.batch()
    return float(mean_loss(model(batch.inputs), batch.target_B, None, "binary"))
