"""The accuracy benchmark: which calls it makes, and what it takes over from a comparison."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import polars as pl
import pytest

from fielddep.config import MODEL_CONFIGS
from fielddep.experiments.plan import find_contenders, read_settings

ACCURACY = Path(__file__).parents[2] / "benchmarks" / "accuracy"
sys.path.insert(0, str(ACCURACY))
import compare  # noqa: E402  the benchmarks are scripts beside each other
import tables  # noqa: E402

GIVEN = {"models": None, "seeds": 5, "trials": None, "minutes": None, "rows": None, "threads": 1, "jobs": 1}
GIVEN |= {"defaults": False}


def words(name: str, **others: object) -> str:
    given = argparse.Namespace(**{**GIVEN, "scratch": Path("scratch"), **others})
    return " ".join(compare.command(name, given)[1:])


def test_every_table_has_a_plan_of_known_models() -> None:
    assert tuple(compare.BENCHES) == tables.NAMES
    for bench in compare.BENCHES.values():
        find_contenders(",".join(bench.models))
    assert {*compare.BENCHES["frappe"].models} == {*MODEL_CONFIGS, "mdl-wo-dep", "lightgbm-evidence"}
    assert all({*compare.SEARCHED} <= {*bench.models} for bench in compare.BENCHES.values())
    assert {*compare.PAPER} <= {*compare.BENCHES["ml-tag-part"].models}
    assert len(compare.PAPER) == 10


def test_a_call_states_budget_sample_and_encoding() -> None:
    rating = words("ml-rating")
    assert rating.startswith("-m fielddep compare ml-rating --models lr,fm,")
    budget = "--trials 20 --search-minutes 60.0 --rows 100000 --threads 1"
    assert f"--seeds 5 --configs scratch/known-configs/ml-rating {budget}" in rating
    assert "--search-minutes 60.0 --rows 200000,fm=1000 --threads 1" in words("ml-rating", rows="200000,fm=1000")
    assert words("frappe").endswith("--out scratch/frappe --set data.evidence=auto")
    assert words("flights").endswith("--out scratch/flights --set data.evidence=auto --set data.crosses=auto")
    assert "--models fm,mdl --seeds" in words("frappe", models=["fm", "mdl"])


def test_defaults_need_no_search() -> None:
    call = words("frappe", defaults=True)
    assert f"--models {','.join(compare.SEARCHED)} --seeds 5 --threads 1" in call
    assert "--out scratch/frappe-defaults --no-search --set data.evidence=auto" in call


@pytest.mark.parametrize("name", compare.BENCHES)
def test_only_models_that_are_not_searched_have_earlier_settings(name: str, tmp_path: Path) -> None:
    folder = compare.known_settings(name, tmp_path)
    found = {file.stem for file in folder.iterdir()}
    assert "fm" in found
    assert not found & {*compare.SEARCHED}
    for model in found:
        read_settings(folder / f"{model}.toml", find_contenders(model)[0])


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """What a comparison leaves behind."""
    folder = tmp_path / "done"
    for name, text in {
        "results.csv": "dataset,model,variant,seed,split,metric,value,n_parameters,train_seconds,commit,error\n"
        "frappe,fm,tuned,0,test,auc,0.98123456,10,1.234,abc,\n",
        "comparison.json": "{}",
        "comparison.md": "table",
        "dunnett-auc.tex": "tests",
        "configs/fm.toml": "settings",
        "search/fm/trials.csv": "trials",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_rows_of_a_model_are_replaced_together_and_others_stay(done: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    old = pl.DataFrame(
        [
            ("frappe", "fm", "tuned", 4, "test", "auc", 0.9, 3.0, "old"),
            ("frappe", "mdl", "tuned", 0, "test", "auc", 0.98, 9.0, "old"),
        ],
        schema=list(compare.COLUMNS),
        orient="row",
    )
    old.write_csv(here / "results.csv")
    compare.gather("frappe", done, here)
    results = pl.read_csv(here / "results.csv")
    assert tuple(results.columns[: len(compare.COLUMNS)]) == compare.COLUMNS
    assert results.select("model", "seed", "value", "train_seconds", "commit").rows() == [
        ("mdl", 0, 0.98, 9.0, "old"),
        ("fm", 0, 0.981235, 1.2, "abc"),
    ]
    assert results["n_parameters"].to_list() == [None, 10]


def test_what_was_said_of_threads_of_old_rows_stays(tmp_path: Path) -> None:
    compare.write_machine(tmp_path)
    assert "threads" not in json.loads((tmp_path / "machine.json").read_text())
    compare.write_machine(tmp_path, 3)
    compare.write_machine(tmp_path)
    assert json.loads((tmp_path / "machine.json").read_text())["threads"] == 3


def test_tables_settings_and_trials_are_taken_over(done: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "comparison" / "frappe").mkdir(parents=True)
    (here / "comparison" / "frappe" / "dunnett-mse.tex").write_text("of other models")
    compare.gather("frappe", done, here)
    found = {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()}
    tables_made = {"comparison/frappe/comparison.md", "comparison/frappe/dunnett-auc.tex"}
    assert found == {"results.csv", "configs/fm-frappe.toml", "search/fm-frappe.csv", *tables_made}


def test_a_variant_stands_next_to_the_comparison(done: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    compare.gather("frappe", done, here)
    compare.gather("frappe", done, here, variant="expert")
    assert pl.read_csv(here / "results.csv")["variant"].to_list() == ["tuned", "expert"]
    found = {path.name for path in here.rglob("*.*") if path.parent.name in ("configs", "search")}
    assert found == {"fm-frappe.toml", "fm-frappe.csv", "fm-expert-frappe.toml", "fm-expert-frappe.csv"}
