"""A blend adds what its members say, is saved and loaded whole, and is as good as each of them."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fielddep.artifacts.bundle import TREES, Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.errors import BundleError, MissingExtraError
from fielddep.explain.members import row_members
from fielddep.nn.blend import MEMBERS, Blend
from fielddep.store.build import build_store
from fielddep.training import trees
from fielddep.training.fit import Trained, fit
from fielddep.training.metrics import measure
from fielddep.training.mixing import PRIOR_ROWS, weights_of
from tests.helpers import raises

QUICK = {"train.max_epochs": 4, "model.max_trees": 60, "train.threads": 1, "train.seed": 1}
TASKS = ("binary", "multiclass", "regression")


@cache
def visits(n_rows: int = 1500) -> pl.DataFrame:
    """Users visit shops at some hour: what they spend depends on the pair and, by steps, on the hour."""
    rng = np.random.default_rng(0)
    user, shop, hour = rng.integers(0, 40, n_rows), rng.integers(0, 12, n_rows), rng.uniform(0, 24, n_rows)
    taste = rng.normal(size=(40, 12))[user, shop]
    spent = taste + 1.5 * (hour > 17) - 1.0 * (hour < 6) + 0.3 * rng.normal(size=n_rows)
    return pl.DataFrame(
        {"user": [f"u{u}" for u in user], "shop": [f"s{s}" for s in shop], "hour": hour.round(3), "spent": spent}
    )


def table(task: str) -> pl.DataFrame:
    spent = pl.col("spent")
    of_task = {
        "binary": (spent > 0).cast(pl.Int64),
        "multiclass": pl.when(spent < -0.5)
        .then(pl.lit("a"))
        .when(spent < 0.8)
        .then(pl.lit("b"))
        .otherwise(pl.lit("c")),
    }
    return visits().with_columns(spent=of_task.get(task, spent))


@cache
def blend(task: str, *, evidence: str = "auto", refit: bool = False) -> Trained:
    asked = {"model.name": "blend", "data.target": "spent", "data.evidence": evidence, "train.refit": refit}
    return fit(table(task), Config().replace({**asked, **QUICK}))


@pytest.mark.parametrize("task", TASKS)
def test_outputs_are_the_weighted_sum_of_the_members(task):
    trained = blend(task)
    model, rows = trained.model, next(trained.prepared.parts["test"].chunks())
    assert isinstance(model, Blend) and model.members == MEMBERS
    apart = model.member_outputs(rows)
    assert len({tuple(outputs.flatten().tolist()) for outputs in apart}) == 3
    torch.testing.assert_close(apart[0], torch.cat([model(rows.batch().inputs)]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(apart[1], model.trees[0].outputs(rows).float(), rtol=0, atol=0)
    expected = sum(weight * outputs for weight, outputs in zip(model.share_P, apart, strict=True))
    torch.testing.assert_close(model.outputs(rows), expected)


@pytest.mark.parametrize("task", TASKS)
def test_weights_are_the_best_for_validation_rows(task):
    """So no member alone has a lower loss there, apart from what the prior asks for, and no weight is negative."""
    trained = blend(task)
    model, target = trained.model, trained.prepared.target
    assert isinstance(model, Blend) and (model.share_P >= 0).all()
    rows = next(trained.prepared.parts["validation"].chunks())
    apart = model.member_outputs(rows)
    prior = PRIOR_ROWS / (PRIOR_ROWS + len(rows)) * (2 / 3) * target.loss_unit  # of one weight 1 and two of 0
    for outputs in apart:
        alone = measure(lambda _, fixed=outputs: fixed, target, [rows]).metrics["loss"]
        assert trained.validation["loss"] <= (alone + prior) * (1 + 1e-3)
    found = weights_of(apart.double(), torch.full((3,), 1 / 3, dtype=torch.double), rows, target)
    torch.testing.assert_close(found.float(), model.share_P, rtol=1e-3, atol=1e-3)


def test_without_evidence_trees_see_the_categories():
    trained = blend("binary", evidence="none")
    assert isinstance(trained.model, Blend)
    assert trained.model.members == ("network", "trees with categories")
    assert trained.metrics["test"]["auc"] > 0.75


def test_trees_on_evidence_do_not_see_codes():
    first, second = blend("binary").model.trees
    assert first.columns.codes == () and first.columns.evidence
    assert second.columns.codes == (0, 1) and second.columns.evidence


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_blend_predicts_the_same(task, tmp_path: Path):
    bundle = Bundle.of(blend(task))
    bundle.save(tmp_path / "bundle")
    asked = table(task).drop("spent").head(50).vstack(pl.DataFrame({"user": ["new"], "shop": [None], "hour": [None]}))
    before, loaded = Predictor(bundle).predict(asked), Predictor(tmp_path / "bundle")
    assert loaded.predict(asked).equals(before)
    for row, expected in zip(asked.iter_rows(named=True), before.iter_rows(named=True), strict=True):
        found = loaded.predict_row(row)
        if task != "regression":
            assert found.pop("prediction") == expected.pop("prediction")
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_damaged_bundle_is_refused(tmp_path: Path):
    Bundle.of(blend("binary")).save(tmp_path / "bundle")
    path = tmp_path / "bundle" / TREES
    texts = json.loads(path.read_text())
    path.write_text(json.dumps(texts[:1]))
    with raises(BundleError, TREES):
        Bundle.load(tmp_path / "bundle")


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Bundle.of(blend("binary")).save(tmp_path / "bundle")
    monkeypatch.setattr(trees.importlib.util, "find_spec", lambda name: None)
    with raises(MissingExtraError, "blend needs lightgbm", "fielddep[trees]"):
        Bundle.load(tmp_path / "bundle")


def test_a_refit_trains_the_trees_on_all_rows():
    once, again = blend("binary"), blend("binary", refit=True)
    assert [trees.n_best for trees in again.model.trees] == [trees.n_best for trees in once.model.trees]
    torch.testing.assert_close(again.model.share_P, once.model.share_P)
    rows = next(once.prepared.parts["test"].chunks())
    for before, after in zip(once.model.trees, again.model.trees, strict=True):
        assert not torch.equal(before.outputs(rows), after.outputs(rows))
    assert again.metrics["validation"] == once.metrics["validation"]


@pytest.mark.parametrize("task", TASKS)
def test_a_refit_counts_the_evidence_of_all_rows(task, tmp_path):
    once, again = blend(task), blend(task, refit=True)
    for trained, n_rows in ((once, 1200), (again, 1350)):
        evidence = trained.prepared.encoder.evidence
        assert evidence is not None and evidence.cells[0].n_G.sum() == n_rows
    rows = again.prepared.parts["test"].rows()
    found = again.model.outputs(rows)
    Bundle.of(again).save(tmp_path / "bundle")
    bundle = Bundle.load(tmp_path / "bundle")
    torch.testing.assert_close(bundle.model.outputs(bundle.encoder.as_new(rows)), found)
    store = build_store(table(task), again.prepared.config, tmp_path / "store")
    of_store = fit(store, again.prepared.config)
    torch.testing.assert_close(of_store.model.outputs(of_store.prepared.parts["test"].rows()), found, rtol=0, atol=0)


@pytest.mark.parametrize("task", TASKS)
def test_members_explain_a_row(task):
    trained = blend(task)
    bundle, rows = Bundle.of(trained), next(trained.prepared.parts["test"].chunks())
    found = row_members(bundle, rows)
    assert found is not None and found.names == MEMBERS
    frame = found.to_frame()
    assert frame.height == 3 * len(rows) and frame["weight"].head(3).to_list() == pytest.approx(found.weights)
    sure = dataclasses.replace(found, weights=(0.5, 0.25, 0.25))
    assert sure.text(0).count("weight 0.25") == 2 and sure.text(0).startswith("network ")
    if task == "regression":
        alone = found.prediction_RP @ np.array(found.weights)
        mean = trained.prepared.target.mean * (1 - sum(found.weights))
        predicted = Predictor(bundle).logits(rows)[:, 0].double() * trained.prepared.target.scale
        np.testing.assert_allclose(alone + mean, predicted + trained.prepared.target.mean, rtol=1e-4)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, run = tmp_path / "visits.csv", tmp_path / "run"
    table("binary").write_csv(path)
    quick = [f"--set={name}={value}" for name, value in QUICK.items() if name != "train.seed"]
    assert main(["fit", str(path), "--target", "spent", "--model", "blend", "--out", str(run), *quick]) == 0
    shown = capsys.readouterr()
    assert "training trees with categories" in shown.err
    assert "Its members predict: network " in (run / "report.html").read_text()
    asked = ["explain", str(run), str(path), "--rows", "3", "--sample", "0", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    assert "members: network " in capsys.readouterr().out
    assert pl.read_csv(tmp_path / "out" / "members.csv")["member"].to_list() == list(MEMBERS)
    assert main(["predict", str(run), str(path), "--out", str(tmp_path / "predictions.csv")]) == 0
