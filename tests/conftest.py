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
    "tests/encoding/test_learn.py::test_columns_of_every_type",
    "tests/encoding/test_learn.py::test_numbers_of_every_type",
    "tests/experiments/ablation/test_ablate.py",
    "tests/experiments/test_folder.py::test_a_folder_is_kept_for_one_process",
    "tests/experiments/test_search.py",
    "tests/explain/test_dependencies.py::test_the_planted_pair_is_the_strongest",
    "tests/explain/test_overview.py",
    "tests/explain/test_plots.py::test_labels_of_heat_maps_do_not_overlap",
    "tests/integration/",
    "tests/nn/kernels/test_choice.py::test_every_instruction_set_agrees",
    "tests/properties/test_encoder_properties.py",
    "tests/properties/test_every_model.py::test_one_small_batch_can_be_memorised",
    "tests/properties/test_training_properties.py::test_a_planted_dependency_is_the_strongest_found",
    "tests/report/test_page.py::test_the_code_on_the_page_runs",
    "tests/report/test_report.py::test_every_model_has_a_report",
    "tests/sklearn_api/test_estimators.py::test_scikit_learn_contract",
    "tests/sklearn_api/test_every_estimator.py",
    "tests/store/test_build.py::test_drawn_splits_equal_memory",
    "tests/store/test_build.py::test_equals_the_encoding_in_memory",
    "tests/store/test_build.py::test_measures_kept_as_numbers_equal_the_encoding_in_memory",
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
    """Settings for a training of a second or less, without evidence and the direct networks of MDL."""
    values = {
        "data.target": "good",
        "data.evidence": "none",
        "train.max_epochs": 4,
        "train.eval_every": 1,
        "model.d_embed": 4,
        "model.hidden": [8],
    }
    given = {k.replace("__", "."): v for k, v in settings.items()}
    if given.get("model.name", "mdl") == "mdl":
        values["model.direct"] = "none"
    return Config().replace({**values, **given})


@pytest.fixture(scope="session")
def data_home() -> Path:
    """Folder of the real data sets."""
    home = Path(os.environ.get("FIELDDEP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (home / "frappe.zip").exists():
        pytest.skip(f"real data sets are not at {home}; set FIELDDEP_DATA to their folder")
    return home
