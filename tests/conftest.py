"""Shared pieces of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import numpy as np
import polars as pl
import pytest
import torch

from fielddep.config.settings import Config
from fielddep.encoding.rows import EncodedRows, Inputs, Layout

# The same examples in every run; HYPOTHESIS_PROFILE=default draws others each time.
hypothesis.settings.register_profile("steady", derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
torch.set_num_threads(1)  # tables in tests are tiny, and threads would only wait for each other


# Files, folders and single tests marked `slow`: kills, browsers, docs, benchmarks, and what takes seconds otherwise.
SLOW = (
    "README.md",
    "tests/browser/",
    "tests/datasets/test_recipes.py::test_facts_of_the_real_files",
    "tests/integration/test_ablate.py",
    "tests/integration/test_bench_",
    "tests/integration/test_benchmark_tables.py",
    "tests/integration/test_cli.py::test_demo_goes_the_whole_way",
    "tests/integration/test_docs.py",
    "tests/integration/test_encode_memory.py",
    "tests/integration/test_encode_resume.py",
    "tests/integration/test_flights_report.py",
    "tests/integration/test_readme_commands.py",
    "tests/integration/test_resume.py",
    "tests/integration/test_search_compare.py",
    "tests/integration/test_speed_",
    "tests/nn/kernels/test_choice.py::test_every_instruction_set_agrees",
    "tests/properties/test_every_model.py::test_one_small_batch_can_be_memorised",
    "tests/sklearn_api/test_estimators.py::test_scikit_learn_contract",
    "tests/sklearn_api/test_every_estimator.py::test_scikit_learn_contract",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `SLOW` names."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def layout() -> Layout:
    """Three categorical fields and one numerical field."""
    return Layout(names=("user", "item", "price", "hour"), n_ids=(6, 9, 2, 5), numerical=(2,))


def random_table(layout: Layout, n_rows: int, seed: int = 0, n_classes: int = 2) -> EncodedRows:
    """Random ids, numbers and class targets."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.integers(0, n, n_rows) for n in layout.n_ids], axis=1).astype(np.int32)
    target = rng.integers(0, n_classes, n_rows)
    return EncodedRows(
        layout=layout,
        arrays={
            "ids": ids,
            "numbers": rng.normal(size=(n_rows, len(layout.numerical))).astype(np.float32),
            "target": target.astype(np.float32) if n_classes == 2 else target,
        },
    )


def double(inputs: Inputs) -> Inputs:
    """The same rows with numbers in float64."""
    return inputs._replace(numbers_BN=inputs.numbers_BN.double())


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
