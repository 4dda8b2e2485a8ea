"""Made the golden bundles: one a task, each with its expected predictions for `rows.csv`.

Run it from the root of the repository, `python tests/golden/make.py FOLDER`, to make bundles of a new format in a new
folder. Never remake an old one: that it still loads and still predicts the same is what the tests are for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.config.settings import Config
from fielddep.training.fit import fit

HERE = Path(__file__).parent
TASKS = ("binary", "multiclass", "regression")
SETTINGS = {
    "data.fields": ["colour", "price", "age"],
    "data.kinds": {"colour": "categorical", "price": "numerical", "age": "numerical"},
    "data.numeric": {"*": "quantile", "price": "scale"},
    "data.n_bins": 4,
    "data.min_count": 2,
    "data.crosses": [["colour", "age"]],
    "data.cross_min_count": 3,
    "data.handle_unknown": "rare",
    "split.method": "random",
    "split.validation": 0.2,
    "split.test": 0.0,
    "split.seed": 0,
    "model.name": "mdl",
    "model.d_embed": 3,
    "model.n_inner_steps": 3,
    "model.inner_lr": 0.5,
    "model.sparsity": 5.0,
    "model.dependencies": "refined",
    "model.mu_start": "share",
    "model.mu_update_from": "new",
    "model.residual_reduction": "sum",
    "model.dependency_scale": "normalized",
    "model.dependency_diagonal": False,
    "model.dependency_init": "uniform",
    "model.interaction_init": "xavier",
    "model.embedding_input": False,
    "model.hidden": [6],
    "model.batch_norm": "all",
    "model.dropout": 0.0,
    "model.embedding_dropout": 0.0,
    "model.first_order": True,
    "model.embedding_init": "normal",
    "model.embedding_init_scale": 0.3,
    "train.optimizer": "adam",
    "train.lr": 0.02,
    "train.batch_size": 32,
    "train.max_epochs": 12,
    "train.eval_every": 1.0,
    "train.patience": 12,
    "train.plateau_patience": 12,
    "train.embedding_l2": 1e-3,
    "train.weight_decay": 0.0,
    "train.unknown_rate": 1.0,
    "train.seed": 0,
    "train.device": "cpu",
}


def training_rows(n_rows: int = 240) -> pl.DataFrame:
    """A small table whose targets depend on colour and age together, and on price."""
    rng = np.random.default_rng(0)
    colour, age = rng.integers(0, 4, n_rows), rng.integers(18, 80, n_rows)
    price = rng.normal(20.0, 5.0, n_rows).round(2)
    score = np.where((colour % 2 == 0) ^ (age > 45), 1.5, -1.5) + (price - 20.0) / 5.0 + rng.normal(0, 0.5, n_rows)
    missing = rng.random((2, n_rows)) < 0.05
    return pl.DataFrame(
        {
            "colour": [None if m else f"c{c}" for m, c in zip(missing[0], colour, strict=True)],
            "price": price,
            "age": [None if m else int(a) for m, a in zip(missing[1], age, strict=True)],
            "binary": (score > 0).astype(int),
            "multiclass": np.array(["low", "middle", "high"])[np.digitize(score, [-1.0, 1.0])],
            "regression": (10.0 * score).round(3),
        }
    )


def make(folder: Path) -> None:
    """Train, save and predict."""
    for task in TASKS:
        config = Config().replace({**SETTINGS, "data.target": task, "data.task": task})
        fitted = fit(training_rows(), config)
        bundle = Bundle.of(fitted)
        bundle.save(folder / task)
        predicted = Predictor(bundle).predict(HERE / "rows.csv")
        predicted.write_csv(folder / f"{task}.csv", float_precision=8)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
