"""Runs that the tests of reports share: of a small table with odd names, of every task, of MDL and of a baseline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fielddep.artifacts.run import Run
from fielddep.config.settings import Config
from fielddep.store.store import Store

SCRIPT = "<script>alert(1)</script>"
FIELDS = (SCRIPT, "shape & size", "price", "leak")
TARGETS = {"binary": "good", "multiclass": "kind", "regression": "cost"}


def odd_frame(n_rows: int = 400, seed: int = 0) -> pl.DataFrame:
    """Names and values that a page must not take for HTML; a constant column, and one that tells the classes."""
    rng = np.random.default_rng(seed)
    colour, shape = rng.integers(0, 3, n_rows), rng.integers(0, 4, n_rows)
    good = (colour + shape) % 2
    return pl.DataFrame(
        {
            SCRIPT: np.array(["red", "<b>green</b>", "blue"])[colour],
            "shape & size": np.array(['"disc"', "cube", "cone", "ring</script>"])[shape],
            "price": rng.normal(size=n_rows).round(3),
            "leak": np.array(["even", "odd"])[good],
            "same": ["always"] * n_rows,
            "good": good ^ (rng.random(n_rows) < 0.1) if seed else good,
            "kind": np.array(["low", "mid", "<high>"])[colour],
            "cost": (colour * 2.0 + shape + rng.normal(size=n_rows)).round(3),
        }
    )


def config_of(task: str, **settings: object) -> Config:
    """Settings for a training of about a second."""
    others = [name for name in TARGETS.values() if name != TARGETS[task]]
    values = {
        "data.target": TARGETS[task],
        "data.exclude": others,
        "data.crosses": "none",
        "train.max_epochs": 3,
        "train.eval_every": 1,
        "train.threads": 1,
    }
    return Config().replace(values | {key.replace("__", "."): value for key, value in settings.items()})


def make_run(folder: Path, task: str = "binary", table: pl.DataFrame | Store | None = None, **settings: object) -> Run:
    """A run that was just trained."""
    return Run.train(odd_frame() if table is None else table, config_of(task, **settings), folder, name="table.csv")
