"""Defaults that depend on the data: what `None` in a config becomes.

Chosen on validation rows of the benchmark tables and of samples of them from a thousand rows on; the figures stand
in `benchmarks/accuracy`.
"""

from __future__ import annotations

import math

from fielddep.config import Config
from fielddep.data.batch import FieldLayout

LEARNING_RATES = {"adagrad": 0.05, "adam": 0.001}


def decide(config: Config, *, n_rows: int, layout: FieldLayout) -> Config:
    """A config with nothing left to decide.

    Args:
        config: settings of the user.
        n_rows: training rows.
        layout: fields and their numbers of ids.
    """
    model, train = config.model, config.train
    batch_size = train.batch_size or _batch_size(n_rows)
    decided: dict[str, object] = {
        "model.d_embed": model.d_embed or _d_embed(n_rows),
        "train.batch_size": batch_size,
        "train.lr": train.lr or LEARNING_RATES[train.optimizer],
        "train.eval_every": train.eval_every or _eval_every(n_rows, batch_size),
        "train.embedding_l2": 0.0 if train.embedding_l2 is None else train.embedding_l2,
    }
    return config.replace(decided)


def _batch_size(n_rows: int) -> int:
    """A power of two near a hundredth of the rows, from 32 to 2048."""
    return int(2 ** min(11, max(5, round(math.log2(max(n_rows, 1) / 100)))))


def _d_embed(n_rows: int) -> int:
    """Small embeddings for few rows, which could only be memorised."""
    return 8 if n_rows < 5_000 else 16 if n_rows < 100_000 else 20


def _eval_every(n_rows: int, batch_size: int) -> float:
    """One evaluation an epoch; more in long epochs, as such models overfit within one to three of them."""
    n_batches = max(1, n_rows // batch_size)
    return 1.0 if n_batches < 50 else 2.0 if n_batches < 2000 else 4.0
