"""Defaults that depend on the data: what `None` in a config becomes.

Chosen by hand for the lowest loss on held-out rows of a dozen small public tables, of samples of the benchmark tables
from a thousand rows on, and on the validation rows of Frappe and flights. `benchmarks/accuracy` has the figures:
`results.csv` (variant *default*) and `defaults.csv`.
"""

from __future__ import annotations

import math

from fielddep.config.mdl import LEARNING_RATES, ModelConfig
from fielddep.config.settings import Config

EVALUATIONS_AN_EPOCH = 4.0


def decide(config: Config, *, n_rows: int) -> Config:
    """A config with nothing left to decide.

    Args:
        config: settings of the user.
        n_rows: training rows.
    """
    model, train = config.model, config.train
    batch_size = train.batch_size or _batch_size(n_rows)
    strength = _ridge_strength(n_rows)
    optimizer = train.optimizer or model.OPTIMIZER
    decided: dict[str, object] = {
        "train.batch_size": batch_size,
        "train.optimizer": optimizer,
        "train.lr": train.lr or _learning_rate(model, optimizer),
        "train.eval_every": train.eval_every or EVALUATIONS_AN_EPOCH,
    }
    if train.embedding_l2 is None:
        decided["train.embedding_l2"] = model.EMBEDDING_L2 * strength
    if train.first_order_l2 is None:
        decided["train.first_order_l2"] = model.FIRST_ORDER_L2 * strength
    if getattr(model, "d_embed", 0) is None:  # a model without embeddings has no such setting
        decided["model.d_embed"] = _d_embed(n_rows)
    return config.replace(decided)


def _learning_rate(model: ModelConfig, optimizer: str) -> float:
    """The model's own rate belongs to the model's own optimiser."""
    own = model.LEARNING_RATE if optimizer == model.OPTIMIZER else None
    return own or LEARNING_RATES[optimizer]


def _batch_size(n_rows: int) -> int:
    """A power of two near a hundredth of the rows, from 32 to 2048."""
    return int(2 ** min(11, max(5, round(math.log2(max(n_rows, 1) / 100)))))


def _d_embed(n_rows: int) -> int:
    """Small embeddings for few rows, which could only be memorised."""
    return 8 if n_rows < 5_000 else 16 if n_rows < 100_000 else 40


def _ridge_strength(n_rows: int) -> float:
    """One from thirty thousand rows on, rising to two and a half for a thousand."""
    return round(min(2.5, max(1.0, math.pow(30_000 / max(n_rows, 1), 0.3))), 2)
