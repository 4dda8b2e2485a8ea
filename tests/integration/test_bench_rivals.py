"""The benchmark next to the defaults of LightGBM and CatBoost: its tables, its limits, and a small run.

The figures themselves are not judged here.
"""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

SIZE = Path(__file__).resolve().parents[2] / "benchmarks" / "size"


def module(name: str) -> ModuleType:
    """A module by its path: the folders of the benchmarks have files of the same names."""
    spec = importlib.util.spec_from_file_location(name, SIZE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def made() -> ModuleType:
    for name in ("click_fields", "clicks"):
        module(name)
    return module("rival_tables")


@pytest.fixture(scope="module")
def rivals() -> ModuleType:
    module("measured")
    return module("next_to_rivals")


def run(out: Path, scratch: Path, *words: str) -> list[dict[str, str]]:
    command = [sys.executable, str(SIZE / "next_to_rivals.py"), "--scratch", str(scratch), "--out", str(out), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def test_classes_differ_in_their_values(made: ModuleType) -> None:
    """Three values that a class prefers are far more frequent in it than in other classes."""
    frame = made.class_table(20_000)
    assert frame["team"].n_unique() == 75
    first = frame.filter(team=frame["team"].mode()[0])["field2"].value_counts(sort=True).head(6)["field2"]
    inside = frame.group_by("team").agg(pl.col("field2").is_in(first.to_list()).mean())["field2"].sort()
    assert inside[-1] > 1.3 * inside[-2]
    assert made.class_table(500).equals(made.class_table(500))


@pytest.mark.parametrize(("name", "n_fields", "n_classes"), [("clicks", 22, 2), ("classes", 12, 75)])
def test_a_table_has_parts_and_facts(made: ModuleType, name: str, n_fields: int, n_classes: int) -> None:
    frame = made.with_parts(made.TABLES[name](10_000, 0), 0)
    facts = made.facts_of(frame, made.TARGETS[name])
    assert (facts["n_fields"], facts["n_classes"]) == (n_fields, n_classes)
    assert 0.3 < facts["base_logloss"] < 4.4
    assert dict(frame["part"].value_counts().iter_rows())["test"] == pytest.approx(1_000, abs=120)


def test_every_model_is_measured_once(tmp_path: Path) -> None:
    words = ["--tables", "classes", "--rows", "3000", "--trees", "3", "--threads", "1"]
    rows = run(tmp_path / "a.csv", tmp_path / "scratch", *words)
    assert sorted(row["model"] for row in rows) == ["catboost", "fielddep", "lightgbm"]
    for row in rows:
        assert (row["outcome"], row["n_classes"], row["rows"]) == ("finished", "75", "3000"), row
        assert float(row["fit_seconds"]) > 0 and float(row["cpu_seconds"]) > 0
        assert float(row["model_mb"]) > 0 and float(row["peak_mb"]) > 50
        assert 0 < float(row["logloss"]) < 8
        assert row["machine"] and row["commit"]
    assert run(tmp_path / "a.csv", tmp_path / "scratch", *words) == rows
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_fit_without_end_is_recorded(rivals: ModuleType, tmp_path: Path) -> None:
    endless = [sys.executable, "-c", "import time; time.sleep(600)"]
    found = rivals.fit_limited(endless, tmp_path, 0.02, 1)
    assert found["outcome"] == "not finished in 0.02 minutes"
    assert found["peak_mb"] > 0


def test_a_fit_that_fails_is_recorded(rivals: ModuleType, tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "raise MemoryError('too many values')"]
    found = rivals.fit_limited(broken, tmp_path, 1, 1)
    assert found["outcome"] == "failed with code 1: MemoryError: too many values"
