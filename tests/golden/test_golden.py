"""Bundles of every released format keep loading and predicting what they did.

What this does not catch: that training gives the same weights as before; the bundles are read, not made.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.explain.dependencies import explain_rows

HERE = Path(__file__).parent
BUNDLES = sorted(path.parent for path in HERE.glob("bundle-v*/*/manifest.json"))


def test_every_task_has_a_golden_bundle():
    assert [f"{path.parent.name}/{path.name}" for path in BUNDLES] == [
        "bundle-v1/binary",
        "bundle-v1/multiclass",
        "bundle-v1/regression",
    ]


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_predictions(folder: Path):
    expected = pl.read_csv(folder.parent / f"{folder.name}.csv")
    predicted = Predictor(folder).predict(HERE / "rows.csv")
    assert_frame_equal(predicted, expected, check_dtypes=False, abs_tol=1e-5, rel_tol=1e-5)


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_bundles_hold_every_kind_of_field(folder: Path):
    bundle = Bundle.load(folder)
    assert [field.numeric for field in bundle.encoder.schema.fields] == [None, "scale", "quantile"]
    assert bundle.encoder.layout.crosses == ((0, 2),)
    assert bundle.encoder.layout.names[-1] == "colour x age"
    rows, _ = bundle.encoder.encode(pl.read_csv(HERE / "rows.csv", infer_schema=False))
    assert explain_rows(bundle, rows).w_RSFF.shape == (12, 4, 3, 3)


def test_rows_differ_as_they_should():
    predicted = Predictor(HERE / "bundle-v1" / "binary").predict(HERE / "rows.csv")["probability_1"].to_list()
    assert predicted[4] == predicted[10], "two unseen colours"
    assert predicted[0] == predicted[11], "one row in two spellings"
    assert len(set(predicted)) == 10
