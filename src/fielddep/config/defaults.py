"""Defaults that depend on the data: settings that are None are decided here, once the rows are known."""

from __future__ import annotations

import dataclasses
import math

from fielddep.config.mdl import LEARNING_RATES, FieldModelConfig
from fielddep.config.settings import Config, TrainConfig


def fill_defaults(config: Config, *, n_rows: int, regression_on_ids: bool = False) -> Config:
    """A config without open settings: every None is decided from the model and the number of training rows.

    A regression on ids alone, such as ratings, is a factorisation. Evidence says of a user and a movie what their first
    weights say; on top of it, embeddings have so little left to explain that they stay small. So the model is trained
    apart, and with a stronger ridge: a squared error bends at least four times as much as a logloss.

    The rules were chosen by hand for the lowest loss on held-out rows of a dozen small public tables, of samples of the
    benchmark tables, and of Frappe and flights. `benchmarks/accuracy` has the figures: `results.csv` (variant
    *default*) and `defaults.csv`.
    """
    model, train = config.model, config.train
    optimizer = train.optimizer or model.OPTIMIZER
    # A model's own rate was found with its own optimizer.
    own_rate = model.LEARNING_RATE if optimizer == model.OPTIMIZER else None
    # Few rows need a stronger ridge: 1 from thirty thousand rows on, 2.5 for a thousand.
    strength = round(min(2.5, max(1.0, math.pow(30_000 / max(n_rows, 1), 0.3))), 2)
    filled: dict[str, object] = {
        # A power of two near a hundredth of the rows, from 32 to 2048.
        "train.batch_size": train.batch_size or 2 ** min(11, max(5, round(math.log2(max(n_rows, 1) / 100)))),
        "train.optimizer": optimizer,
        "train.lr": train.lr or own_rate or LEARNING_RATES[optimizer],
        "train.eval_every": train.eval_every or 4.0,
    }
    apart = False
    if isinstance(model, FieldModelConfig):
        on_direct = not regression_on_ids if model.on_direct is None else model.on_direct
        filled["model.on_direct"] = on_direct
        apart = regression_on_ids and model.direct != "none" and not on_direct
    if train.embedding_l2 is None:
        filled["train.embedding_l2"] = (model.APART_L2 if apart else model.EMBEDDING_L2) * strength
    if train.first_order_l2 is None:
        filled["train.first_order_l2"] = model.FIRST_ORDER_L2 * strength
    if getattr(model, "d_embed", 0) is None:  # a model without embeddings has no such setting
        # Few rows could only memorise large embeddings.
        filled["model.d_embed"] = 8 if n_rows < 5_000 else 16 if n_rows < 100_000 else 40
    return config.replace(filled)


def direct_settings(train: TrainConfig, *, n_rows: int) -> TrainConfig:
    """Settings for the direct networks of a model: Adam, and many passes.

    They were chosen on validation rows of eight tables of numbers and categories. Seed, device, threads and the rare id
    follow the user's settings; `max_epochs` is doubled.
    """
    wanted = min(2048, max(256, n_rows // 75)) if n_rows >= 1_000 else max(32, n_rows // 8)
    batch_size = 2 ** round(math.log2(wanted))
    return dataclasses.replace(
        train,
        optimizer="adam",
        lr=0.002 if batch_size <= 256 else 0.0028,
        batch_size=batch_size,
        max_epochs=2 * train.max_epochs,
        eval_every=2.0,
        # Losses of many validation rows are less noisy, and passes take longer.
        patience=round(min(20.0, max(8.0, 20.0 * math.pow(4_000 / max(n_rows, 1), 0.3)))),
        plateau_factor=1.0,
        plateau_restore=False,
        average_decay=0.6,
        embedding_l2=0.0,
        first_order_l2=0.0,
        weight_decay=0.0003,
        lr_decay="none",
        clip_norm=None,
    )
