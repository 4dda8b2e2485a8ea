"""Reports as numbers: collected from runs of every kind, kept as JSON, and read back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import REPORT, REPORT_NUMBERS, Run
from fielddep.errors import UserError
from fielddep.explain.dependencies import explain_rows, global_dependencies
from fielddep.explain.hiding import hide_fields, without_refinement
from fielddep.explain.importance import hiding_importance, permutation_importance
from fielddep.nn import MODELS
from fielddep.report import build as run_report
from fielddep.report.build import read_report, redraw_report, report_table, report_training
from fielddep.report.facts import Report
from fielddep.store.store import Store
from tests.reports import FIELDS, config_of, make_run, odd_frame
from tests.stores import write_store

RUNS = {
    "binary": {"task": "binary", "model__d_embed": 4},
    "multiclass": {"task": "multiclass", "model__d_embed": 4},
    "regression": {"task": "regression", "model__d_embed": 4},
    "baseline": {"task": "binary", "model__name": "fm", "split__test": 0.0},
    "no dependencies": {"task": "regression", "model__dependencies": "none", "model__d_embed": 4},
}


class Made:
    """A run with its rows and the report of it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.run = make_run(folder, **settings)
        assert self.run.trained is not None
        self.data = self.run.trained.prepared
        report_training(self.run)
        self.numbers = json.loads((folder / REPORT_NUMBERS).read_text("utf-8"))
        self.report = Report.from_json(self.numbers)
        self.bundle = Bundle.load(self.run.bundle)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("reports")
    return {name: Made(folder / name.replace(" ", "-"), **settings) for name, settings in RUNS.items()}


@pytest.fixture(params=RUNS)
def each(request: pytest.FixtureRequest, made: dict[str, Made]) -> Made:
    return made[request.param]


def test_numbers_come_back_from_json(each: Made) -> None:
    assert Report.from_json(json.loads(json.dumps(each.report.to_json()))) == each.report
    assert read_report(each.run) == each.report


def test_metrics_are_those_of_the_run(each: Made) -> None:
    measured = each.report.measured
    part = "test" if "test" in each.data.parts else "validation"
    assert measured.rows == f"{part} rows"
    assert measured.n_rows == measured.n_sampled == len(each.data.parts[part])
    unshown = ("loss", "average_precision")
    expected = {name: value for name, value in each.run.metrics[part].items() if name not in unshown}
    assert {name: found.value for name, found in measured.metrics.items()} == expected
    intervals = [found for name, found in measured.metrics.items() if name != "calibration_error"]
    assert all(found.low <= found.value <= found.high for found in intervals)
    base = {name: value for name, value in each.run.metrics[f"{part}_base_rate"].items() if name != "loss"}
    assert measured.base_rate == base
    assert measured.base_of == "training rows"


def test_training_facts(made: dict[str, Made]) -> None:
    facts = made["binary"].report.training
    assert (facts.source, facts.n_rows, facts.parts) == ("table.csv", 400, {"train": 320, "validation": 40, "test": 40})
    assert (facts.target, facts.task, facts.classes) == ("good", "binary", ("0", "1"))
    assert (facts.model, facts.split, facts.crosses) == ("mdl", "at random", ())
    assert facts.n_parameters == made["binary"].bundle.model.n_parameters
    assert facts.n_ids == made["binary"].bundle.encoder.layout.n_ids_total
    changed = {setting.path: (setting.value, setting.default) for setting in facts.changed}
    assert changed == {
        "data.exclude": ("['kind', 'cost']", "[]"),
        "data.crosses": ("none", "auto"),
        "model.d_embed": ("4", "not set"),
        "train.max_epochs": ("3", "50"),
        "train.eval_every": ("1", "not set"),
        "train.threads": ("1", "not set"),
    }
    decided = {setting.path for setting in facts.decided}
    assert decided == {
        "model.on_direct",
        "train.batch_size",
        "train.optimizer",
        "train.lr",
        "train.embedding_l2",
        "train.first_order_l2",
    }
    assert dict(facts.versions)["fielddep"] == made["binary"].run.environment["fielddep"]
    base_rate = float(made["binary"].data.parts["train"].rows().target_R.mean())
    assert 1 / (1 + math.exp(-facts.base[0])) == pytest.approx(base_rate)


def test_a_baseline_is_compared_with_its_own_defaults(made: dict[str, Made]) -> None:
    facts = made["baseline"].report.training
    assert facts.model == "fm"
    assert [setting.path for setting in facts.changed if setting.path.startswith("model.")] == []
    assert "test" not in facts.parts


def test_data_facts(made: dict[str, Made]) -> None:
    data = made["binary"].report.data
    assert tuple(field.name for field in data.fields) == FIELDS
    assert data.skipped == (("same", "it is constant"),)
    assert data.leaks == ("leak",)
    assert made["regression"].report.data.leaks == ()


def test_history_is_that_of_the_run(each: Made) -> None:
    assert list(each.report.history) == each.run.history


def test_curves(each: Made) -> None:
    measured = each.report.measured
    assert sum(point.weight for point in measured.calibration) == measured.n_rows
    assert all(point.low - 1e-9 <= point.observed <= point.high + 1e-9 for point in measured.calibration)
    predicted = [point.predicted for point in measured.calibration]
    assert predicted == sorted(predicted)
    assert measured.scores is not None
    names = [name for name, _ in measured.scores.shares]
    task = each.report.training.task
    expected = {"binary": ["0", "1"], "multiclass": ["<high>", "low", "mid"]}
    assert names == expected.get(task, ["true values", "predicted values"])
    for _, shares in measured.scores.shares:
        assert len(shares) == len(measured.scores.edges) - 1
        assert 0.95 <= sum(shares) <= 1 + 1e-9


def test_importance_is_the_permutation_importance(each: Made) -> None:
    part = each.data.parts["test" if "test" in each.data.parts else "validation"].rows()
    found = permutation_importance(each.bundle, part, n_repeats=3)
    facts = each.report.measured.importance
    assert facts is not None
    assert (facts.metric, facts.n_rows, facts.n_repeats) == (found.metrics[0], len(part), 3)
    means = dict(zip(found.names, found.mean_F(found.metrics[0]), strict=True))
    assert [name for name, _, _ in facts.fields] == sorted(means, key=lambda name: -means[name])
    assert {name: mean for name, mean, _ in facts.fields} == pytest.approx(means, abs=1e-9)


@pytest.mark.parametrize("name", ["binary", "multiclass", "regression"])
def test_what_refinement_does_to_the_predictions(made: dict[str, Made], name: str) -> None:
    bundle, rows = made[name].bundle, made[name].data.parts["test"].rows()
    found = made[name].report.measured.refinement
    assert found is not None
    effects = without_refinement(bundle, rows)
    assert found.n_rows == len(rows) == 40
    assert found.change == pytest.approx(np.abs(effects.effect_RF).mean(), rel=1e-4)
    loss = hiding_importance(bundle, rows)
    metric, power = loss.metrics[0], 2 if name == "regression" else 1  # the loss is the square of the RMSE
    assert found.loss == pytest.approx(loss.base[metric] ** power, rel=1e-4)
    without = (loss.base[metric] + loss.mean_F(metric)[-1]) ** power
    assert found.loss_without - found.loss == pytest.approx(without - found.loss, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("name", ["baseline", "no dependencies"])
def test_a_model_that_does_not_refine(made: dict[str, Made], name: str) -> None:
    assert made[name].report.measured.refinement is None


def test_dependencies_only_where_they_are_learned(made: dict[str, Made]) -> None:
    assert made["baseline"].report.dependencies is None
    assert made["no dependencies"].report.dependencies is None
    found = made["binary"].report.dependencies
    assert found is not None
    assert found.fields == FIELDS
    np.testing.assert_array_equal(found.matrix, global_dependencies(made["binary"].bundle).matrix_FF)


def test_rows_are_explained(each: Made) -> None:
    rows = each.report.measured.examples
    part = each.data.parts["test" if "test" in each.data.parts else "validation"].rows()
    assert {"right", "random"} <= {row.why for row in rows} <= {"right", "wrong", "unsure", "random"}
    assert len({row.number for row in rows}) == len(rows) >= 3
    table = part.take(np.array([row.number for row in rows]))
    effects = hide_fields(each.bundle, table)
    expected = effects.effect_RF if effects.logit_effect_RF is None else effects.logit_effect_RF
    np.testing.assert_allclose([row.effects for row in rows], expected, atol=1e-5)
    assert [row.values for row in rows] == effects.values.rows()
    if each.report.dependencies is None:
        assert all(row.refinement is None for row in rows)
        return
    found = explain_rows(each.bundle, table)
    for at, row in enumerate(rows):
        assert row.refinement is not None
        np.testing.assert_allclose(row.refinement.dependencies, found.refined(at).matrix_FF, atol=1e-5)
        np.testing.assert_allclose(row.refinement.weights, found.mu_RSF[at, -1] / found.sparsity, atol=1e-5)
        assert row.refinement.shown == tuple(range(len(FIELDS)))
        steps = row.refinement.steps
        np.testing.assert_allclose([step.w for step in steps], found.w_RSFF[at], atol=1e-5)
        np.testing.assert_allclose([step.weights for step in steps], found.mu_RSF[at] / found.sparsity, atol=1e-5)
        np.testing.assert_allclose([step.loss for step in steps], found.loss_RSF[at].sum(axis=1), rtol=1e-4)


def test_predictions_and_truth_in_words(made: dict[str, Made]) -> None:
    for name, part in (("binary", "test"), ("multiclass", "test"), ("regression", "test")):
        rows, data = made[name].report.measured.examples, made[name].data
        target = data.target
        for row in rows:
            value = float(data.parts[part].rows().target_R[row.number])
            said = f"{value * target.scale + target.mean:.4g}" if name == "regression" else target.classes[int(value)]
            assert row.truth == str(said)
    assert all(" % for 1" in row.predicted for row in made["binary"].report.measured.examples)


def test_a_store_has_the_report_of_its_table(tmp_path: Path, made: dict[str, Made]) -> None:
    config = config_of("binary", model__d_embed=4)
    store = write_store(tmp_path / "store", odd_frame(), config)
    stored = Made(tmp_path / "run", task="binary", table=store, model__d_embed=4)
    assert stored.report.data == made["binary"].report.data
    assert stored.report.measured.n_rows == 40
    assert stored.report.training.source == "store"
    again = report_table(stored.run, Store.open(tmp_path / "store"), tmp_path / "page.html")
    assert again == stored.report.measured


def test_the_training_table_is_recognised(tmp_path: Path, made: dict[str, Made]) -> None:
    table = tmp_path / "again.parquet"
    odd_frame().write_parquet(table)
    run = make_run(tmp_path / "run", model__d_embed=4)
    assert read_report(run) is None
    found = report_table(run, str(table), tmp_path / "page.html")
    assert found == made["binary"].report.measured
    kept = read_report(run)
    assert kept is not None
    assert kept.measured == found
    assert kept.data == made["binary"].report.data


def test_all_rows_of_another_table_are_measured(tmp_path: Path, made: dict[str, Made]) -> None:
    frame = odd_frame(150, seed=5)
    frame.write_csv(tmp_path / "new.csv")
    before = made["binary"].numbers
    found = report_table(made["binary"].run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    assert (found.rows, found.n_rows, found.base_of) == ("rows of new.csv", 150, "training rows")
    from fielddep.artifacts.predictor import Predictor

    expected = Predictor(made["binary"].bundle).evaluate(frame)
    assert {name: m.value for name, m in found.metrics.items()} == pytest.approx(
        {name: value for name, value in expected.items() if name not in ("loss", "average_precision")}
    )
    rate = float(frame["good"].mean())
    base = made["binary"].report.training.base[0]
    loss = rate * np.logaddexp(0, -base) + (1 - rate) * np.logaddexp(0, base)
    assert found.base_rate["logloss"] == pytest.approx(loss)
    # The numbers that the run keeps are still those of its own rows.
    assert json.loads((made["binary"].run.folder / REPORT_NUMBERS).read_text("utf-8")) == before


def test_a_run_without_numbers_takes_the_base_rate_of_the_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4)
    frame = odd_frame(150, seed=5)
    frame.write_csv(tmp_path / "new.csv")
    found = report_table(run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    rate = float(frame["good"].mean())
    assert found.base_of == "same rows"
    assert found.base_rate["logloss"] == pytest.approx(-rate * math.log(rate) - (1 - rate) * math.log(1 - rate))
    assert not (run.folder / REPORT_NUMBERS).exists()


@pytest.mark.parametrize(
    "frame", [odd_frame().with_columns(price=pl.col("price").reverse()), odd_frame().reverse()], ids=["values", "order"]
)
def test_a_changed_training_table_is_warned_of(
    frame: pl.DataFrame, tmp_path: Path, made: dict[str, Made], caplog: pytest.LogCaptureFixture
) -> None:
    frame.write_parquet(tmp_path / "changed.parquet")
    found = report_table(made["binary"].run, str(tmp_path / "changed.parquet"), tmp_path / "page.html")
    assert found.n_rows == 400
    assert "changed.parquet" in caplog.text and "fingerprint" in caplog.text


@pytest.mark.parametrize("version", [None, 1, 99])
def test_a_table_split_by_another_version_is_not_measured(tmp_path: Path, version: int | None) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4)
    odd_frame().write_parquet(tmp_path / "table.parquet")
    path = run.folder / "environment.json"
    record = json.loads(path.read_text("utf-8")) | {"split_version": version}
    path.write_text(json.dumps({key: value for key, value in record.items() if value is not None}), "utf-8")
    with pytest.raises(UserError, match=r"table.parquet is the training table .*split"):
        report_table(run, str(tmp_path / "table.parquet"), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    odd_frame(150, seed=5).write_csv(tmp_path / "new.csv")
    assert report_table(run, str(tmp_path / "new.csv"), tmp_path / "page.html").n_rows == 150


def test_many_rows_are_sampled(tmp_path: Path, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "MAX_ROWS", 50)
    odd_frame(150, seed=5).write_csv(tmp_path / "new.csv")
    found = report_table(made["binary"].run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    assert (found.n_rows, found.n_sampled) == (150, 50)
    assert sum(point.weight for point in found.calibration) == 50
    assert "sample of 50 rows" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("numbers", [True, False], ids=["of the training", "of the rows"])
def test_the_base_rate_is_measured_on_all_rows_as_the_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: bool
) -> None:
    run = make_run(tmp_path / "run", table=odd_frame().with_columns(w=pl.lit(1)), data__weight="w")
    if numbers:
        report_training(run)
    frame = odd_frame(150, seed=5).with_columns(w=pl.int_range(150) % 3)
    frame.write_csv(tmp_path / "new.csv")
    whole = report_table(run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    monkeypatch.setattr(run_report, "MAX_ROWS", 30)
    found = report_table(run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    assert (found.n_rows, found.n_sampled) == (150, 30)
    assert found.base_rate == whole.base_rate
    assert found.base_of == ("training rows" if numbers else "same rows")
    rate = float(np.average(frame["good"], weights=frame["w"]))
    if not numbers:
        assert found.base_rate["logloss"] == pytest.approx(-rate * math.log(rate) - (1 - rate) * math.log(1 - rate))


def test_a_table_without_the_target(tmp_path: Path, made: dict[str, Made]) -> None:
    odd_frame(20).drop("good").write_csv(tmp_path / "new.csv")
    with pytest.raises(UserError, match="'good'"):
        report_table(made["binary"].run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_numbers_of_another_model_are_not_drawn(tmp_path: Path, made: dict[str, Made]) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4, train__seed=1)
    (run.folder / REPORT_NUMBERS).write_text(json.dumps(made["binary"].numbers), "utf-8")
    with pytest.raises(UserError, match=r"fielddep report .*run\b"):
        redraw_report(run, tmp_path / "page.html")


def test_a_replaced_run_loses_its_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4)
    report_training(run)

    Run.train(odd_frame(), config_of("binary", model__d_embed=4, train__seed=1), run.folder, force=True)
    assert not (run.folder / REPORT).exists()
    assert not (run.folder / REPORT_NUMBERS).exists()
    assert Run.open(run.folder).metrics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, r"\b99\b.*\b3\b"),
        ({"made": None}, "text"),
        ({"history": {}}, "list"),
        ({"training": []}, "table"),
        ({"maid": 1}, "'maid'.*'made'"),
    ],
)
def test_altered_numbers(made: dict[str, Made], change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Report.from_json({**made["binary"].numbers, **change})


def test_unreadable_numbers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4)
    (run.folder / REPORT_NUMBERS).write_text('{"format": 3', "utf-8")
    with pytest.raises(UserError, match=r"report\.json"):
        read_report(run)


def test_a_table_is_measured_where_the_numbers_of_the_run_are_unreadable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4)
    (run.folder / REPORT_NUMBERS).write_text('{"format": 1', "utf-8")
    odd_frame(50, seed=5).write_csv(tmp_path / "new.csv")
    found = report_table(run, str(tmp_path / "new.csv"), tmp_path / "page.html")
    assert (found.n_rows, found.base_of) == (50, "same rows")
    assert "report.json" in caplog.text


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_report(tmp_path: Path, model: str) -> None:
    settings = {"model__name": model, "train__max_epochs": 1}
    report = Made(tmp_path / "run", table=odd_frame(150), **settings).report
    assert report.training.model == model
    assert (report.dependencies is None) == (model not in ("mdl", "blend"))
    assert report.measured.importance is not None
    assert all(len(row.effects) == len(FIELDS) for row in report.measured.examples)


def test_weighted_rows(tmp_path: Path) -> None:
    frame = odd_frame().with_columns(w=pl.Series(np.arange(400) % 3))
    weighted = Made(tmp_path / "run", table=frame, model__d_embed=4, data__weight="w")
    measured, rows = weighted.report.measured, weighted.data.parts["test"].rows()
    assert rows.weight_R is not None
    assert measured.metrics["logloss"].value == weighted.run.metrics["test"]["logloss"]
    assert sum(point.weight for point in measured.calibration) == pytest.approx(float(rows.weight_R.sum()))
