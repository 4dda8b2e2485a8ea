"""Shared pieces of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import numpy as np
import polars as pl
import pytest
import torch

from fielddep.config import Config
from fielddep.data.batch import FieldLayout
from fielddep.data.encoded import EncodedTable

# The same examples in every run; HYPOTHESIS_PROFILE=default draws others each time.
hypothesis.settings.register_profile("steady", derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
torch.set_num_threads(1)  # tables in tests are tiny, and threads would only wait for each other


@pytest.fixture
def layout() -> FieldLayout:
    """Three categorical fields and one numerical field."""
    return FieldLayout(names=("user", "item", "price", "hour"), n_ids=(6, 9, 2, 5), numerical=(2,))


def random_table(layout: FieldLayout, n_rows: int, seed: int = 0, n_classes: int = 2) -> EncodedTable:
    """Random ids, numbers and class targets."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.integers(0, n, n_rows) for n in layout.n_ids], axis=1).astype(np.int32)
    target = rng.integers(0, n_classes, n_rows)
    return EncodedTable(
        layout=layout,
        ids_RF=torch.from_numpy(ids),
        numbers_RN=torch.from_numpy(rng.normal(size=(n_rows, len(layout.numerical)))).float(),
        target_R=torch.from_numpy(target).float() if n_classes == 2 else torch.from_numpy(target),
    )


def small_frame(n_rows: int = 400, seed: int = 0) -> pl.DataFrame:
    """A table whose target depends on colour and shape together."""
    rng = np.random.default_rng(seed)
    colour, shape = rng.integers(0, 3, n_rows), rng.integers(0, 4, n_rows)
    noise = rng.random(n_rows) < 0.05
    return pl.DataFrame(
        {
            "colour": np.array(["red", "green", "blue"])[colour],
            "shape": np.array(["disc", "cube", "cone", "ring"])[shape],
            "size": rng.normal(size=n_rows).round(3),
            "good": (((colour + shape) % 2) ^ noise).astype(int),
        }
    )


def quick_config(**settings: object) -> Config:
    """Settings for a training of a second or less."""
    values = {
        "data.target": "good",
        "train.max_epochs": 4,
        "train.eval_every": 1,
        "model.d_embed": 4,
        "model.hidden": [8],
    }
    return Config().replace({**values, **{k.replace("__", "."): v for k, v in settings.items()}})


@pytest.fixture(scope="session")
def data_home() -> Path:
    """Folder of the real data sets."""
    home = Path(os.environ.get("FIELDDEP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (home / "frappe.zip").exists():
        pytest.skip(f"real data sets are not at {home}; set FIELDDEP_DATA to their folder")
    return home
