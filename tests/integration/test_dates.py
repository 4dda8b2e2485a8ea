"""Dates from the table to explanations: however they are stored and whichever way they are predicted."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fielddep import MDLClassifier, Predictor
from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import Run
from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.encoding.dates import PARTS
from fielddep.explain.dependencies import global_dependencies
from fielddep.explain.hiding import hide_fields
from fielddep.explain.importance import hiding_importance, permutation_importance
from fielddep.explain.neighbours import nearest_values
from fielddep.explain.rows import pick_rows
from fielddep.report.build import read_report, report_training
from fielddep.report.page import loading_code
from fielddep.store.build import build_store
from fielddep.training.fit import fit
from tests.integration.test_one_pipeline import QUICK, saved

NAMES = tuple(f"when: {part}" for part in PARTS)
N_ROWS = 600


def visits() -> pl.DataFrame:
    """Rows that are good on Mondays and Tuesdays, at any time."""
    rng = np.random.default_rng(0)
    minutes = rng.integers(0, 60 * 24 * 90, N_ROWS)
    when = [dt.datetime(2023, 11, 1) + dt.timedelta(minutes=int(m)) for m in minutes]
    good = ["yes" if t.weekday() < 2 else "no" for t in when]
    cells = [None if i == 5 else t for i, t in enumerate(when)]
    return pl.DataFrame({"when": cells, "shop": rng.choice(["a", "b", "c"], N_ROWS), "good": good})


def config(**settings: Any) -> Config:
    return Config().replace({"data.target": "good", "data.crosses": "none", **QUICK, **settings})


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    # Evidence or numbers of other parts of the date could stand in for a hidden weekday.
    settings = {"data.evidence": "none", "model.direct": "none", "train.max_epochs": 15, "train.lr": 0.1}
    return Bundle.of(fit(visits(), config(**settings)))


def test_every_source_gives_the_same_bundle(tmp_path: Path) -> None:
    table, chosen = visits(), config()
    expected = saved(table, chosen, tmp_path / "frame")
    assert saved(build_store(table, chosen, tmp_path / "store"), chosen, tmp_path / "of-store") == expected
    table.write_csv(tmp_path / "table.csv")
    table.write_parquet(tmp_path / "table.parquet")
    table.with_columns(pl.col("when").dt.strftime("%Y-%m-%d %H:%M")).write_csv(tmp_path / "short.csv")
    sources = {
        "csv": str(tmp_path / "table.csv"),
        "parquet": str(tmp_path / "table.parquet"),
        "short": str(tmp_path / "short.csv"),
        "pandas": pd.DataFrame({name: table[name].to_list() for name in table.columns}),
        "store-of-csv": build_store(str(tmp_path / "table.csv"), chosen, tmp_path / "csv-store"),
    }
    for name, source in sources.items():
        assert saved(source, chosen, tmp_path / f"bundle-{name}") == expected, name


@pytest.mark.parametrize("column", ["2023-12-25T08:00:00", "25.12.2023 08:00", "12/25/2023 8:00 AM"])
def test_one_row_as_typed_or_as_text(column: str) -> None:
    formats = {"T": "%Y-%m-%dT%H:%M:%S", ".": "%d.%m.%Y %H:%M", "M": "%m/%d/%Y %I:%M %p"}
    time_format = next(f for mark, f in formats.items() if mark in column)
    table = visits().with_columns(pl.col("when").dt.strftime(time_format))
    predictor = Predictor(Bundle.of(fit(table, config())))
    typed = dt.datetime(2023, 12, 25, 8)
    expected = predictor.predict({"when": [typed], "shop": ["b"]}).row(0, named=True)
    assert predictor.predict({"when": [column], "shop": ["b"]}).row(0, named=True) == expected
    assert predictor.predict_row({"when": column, "shop": "b"}) == expected
    assert predictor.predict_row({"when": typed, "shop": "b"}) == expected
    missing = predictor.predict_row({"when": None, "shop": "b"})
    assert missing == predictor.predict_row({"when": "soon", "shop": "b"}) != expected


def test_a_saved_bundle_predicts_new_days(bundle: Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "bundle")
    again = Predictor(tmp_path / "bundle")
    mondays = [dt.datetime(2024, 1, 29) + dt.timedelta(weeks=w) for w in range(3)]
    new = {"when": [*mondays, *(t + dt.timedelta(days=3) for t in mondays)], "shop": ["a"] * 6}
    found = again.predict(new)
    assert found.equals(Predictor(bundle).predict(new))
    assert found["prediction"].to_list() == ["yes"] * 3 + ["no"] * 3
    pl.DataFrame(new).write_csv(tmp_path / "new.csv")
    assert again.predict(str(tmp_path / "new.csv")).equals(found)


def test_explanations_name_the_parts(bundle: Bundle) -> None:
    picked = pick_rows(bundle, visits(), [0, 5])
    assert picked.values is not None and picked.sample is not None
    first = visits()["when"][0].isoformat()
    assert picked.values.select(NAMES).rows() == [(first,) * 6, ("<missing>",) * 6]
    effects = hide_fields(bundle, picked.chosen, values=picked.values)
    assert effects.names == (*NAMES, "shop")
    assert set(effects.to_frame().filter(pl.col("row") == 0, pl.col("hidden") == "when: hour")["value"]) == {first}
    weekday = NAMES.index("when: weekday")
    assert np.abs(effects.effect_RF[0]).argmax() == weekday
    for importance in (permutation_importance(bundle, picked.sample), hiding_importance(bundle, picked.sample)):
        assert importance.ranked()[0] == "when: weekday"
    assert global_dependencies(bundle).fields == (*NAMES, "shop")
    assert nearest_values(bundle, "when: weekday", "Mon").values[0] == "Tue"
    assert nearest_values(bundle, "when: month", 12).value == "12"
    assert nearest_values(bundle, "when: elapsed", 3.5).value.startswith("(-inf, ")


def test_estimators_have_one_importance_per_column(tmp_path: Path) -> None:
    table = visits().to_pandas()
    model = MDLClassifier(max_epochs=15, random_state=0, lr=0.1).fit(table[["when", "shop"]], table["good"])
    assert list(model.feature_names_in_) == ["when", "shop"]
    assert model.feature_importances_.shape == (2,)
    assert model.feature_importances_[0] > model.feature_importances_[1]
    model.save(tmp_path / "bundle")
    again = MDLClassifier.load(tmp_path / "bundle")
    assert again.n_features_in_ == 2
    assert (again.predict(table[["when", "shop"]]) == model.predict(table[["when", "shop"]])).all()
    assert model.hide_fields(table.head(3)).values["when: day"][0] == table["when"][0].isoformat()


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = tmp_path / "visits.csv", tmp_path / "run"
    visits().with_columns(pl.col("when").dt.strftime("%d.%m.%Y %H:%M")).write_csv(path)
    assert main(["describe", str(path), "--target", "good"]) == 0
    assert "date: year, month, day, weekday, hour, elapsed" in " ".join(capsys.readouterr().out.split())
    words = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    assert main(["fit", str(path), "--target", "good", "--out", str(run), *words]) == 0
    assert "when: weekday: categorical, 7 values" in capsys.readouterr().err
    assert main(["evaluate", str(run), str(path)]) == 0
    assert main(["explain", str(run), str(path), "--rows", "0", "--out", str(tmp_path / "explained")]) == 0
    assert main(["predict", str(run), str(path), "--out", str(tmp_path / "out.csv")]) == 0
    assert main(["fit", str(path), "--target", "good", "--out", str(run), "--set", "data.date_formats.when=%Y"]) == 2
    capsys.readouterr()


def test_the_code_of_a_report_predicts_a_date(tmp_path: Path) -> None:
    run = Run.train(visits(), config(), tmp_path / "run")
    report_training(run)
    report = read_report(run)
    assert report is not None
    code = loading_code(report)
    assert code.count('"when"') == 1 and "when: " not in code
    found: dict[str, Any] = {}
    exec(code.replace("print(predictor.predict(rows))", "found = predictor.predict(rows)"), found)
    assert len(found["found"]) == 1
