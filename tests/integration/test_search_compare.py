"""`fielddep search` and `fielddep compare` as a user calls them: killed, resumed, with a model that fails."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from fielddep.cli import main
from fielddep.config.settings import Config
from fielddep.store.store import Store
from tests.conftest import small_frame

COMPARED = ("lr", "fm")
QUICK = ("--set", "train.max_epochs=2", "--set", "data.crosses=none")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "good.csv"
    small_frame().write_csv(path)
    return path


def search_words(table: Path, out: Path) -> list[str]:
    return ["search", str(table), "--target", "good", "--model", "lr", "--out", str(out), "--trials", "6", *QUICK]


def trials(out: Path) -> list[dict[str, str]]:
    """All lines of the CSV, without the times."""
    if not (out / "trials.csv").exists():
        return []
    with (out / "trials.csv").open() as file:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def test_a_killed_search_ends_as_one_that_was_not(table: Path, tmp_path: Path) -> None:
    assert main(search_words(table, tmp_path / "whole")) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "fielddep", *search_words(table, tmp_path / "cut")], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not trials(tmp_path / "cut") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < len(trials(tmp_path / "cut")) < 6
    assert main(search_words(table, tmp_path / "cut")) == 0
    assert trials(tmp_path / "cut") == trials(tmp_path / "whole")
    best = (tmp_path / "cut" / "best.toml").read_text()
    assert best == (tmp_path / "whole" / "best.toml").read_text()
    words = ["fit", str(table), "--config", str(tmp_path / "cut" / "best.toml"), "--out", str(tmp_path / "run")]
    assert main([*words, "--quiet"]) == 0


@pytest.fixture(scope="module")
def compared(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which FM fails, as its embeddings fit into no machine."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "configs").mkdir()
    (folder / "configs" / "fm.toml").write_text('[model]\nname = "fm"\nd_embed = 1000000000\n')
    assert main(compare_words(table, folder)) == 0
    return folder


def compare_words(table: Path, folder: Path, *others: str) -> list[str]:
    words = ["compare", str(table), "--target", "good", "--models", ",".join(COMPARED), "--seeds", "2"]
    words += [
        "--configs",
        str(folder / "configs"),
        "--no-search",
        "--control",
        "lr",
        "--threads",
        "1",
        "--jobs",
        "2",
        "--quiet",
    ]
    return [*words, "--out", str(folder / "out"), *QUICK, *others]


def saved(folder: Path) -> dict[str, dict[str, object]]:
    paths = sorted((folder / "out" / "runs").glob("*.json"))
    return {path.stem: json.loads(path.read_text())["result"] for path in paths}


def test_a_failing_model_is_recorded_and_loses_no_other(compared: Path) -> None:
    runs = saved(compared)
    assert list(runs) == ["fm-0", "fm-1", "lr-0", "lr-1"]
    for seed in (0, 1):
        assert "model.d_embed" in str(runs[f"fm-{seed}"]["error"])
        assert runs[f"lr-{seed}"]["error"] is None
    text = (compared / "out" / "comparison.md").read_text()
    assert "| fm | failed |" in text
    assert re.search(r"fm: 2 of 2 .*0, 1.*model.d_embed", text)


def test_every_figure_is_kept(compared: Path) -> None:
    run = saved(compared)["lr-0"]
    assert set(run["metrics"]["test"]) == {"logloss", "auc", "calibration_error", "average_precision"}
    for cost in ("n_parameters", "train_seconds", "rows_per_s", "peak_mb", "predict_seconds", "predict_rows_per_s"):
        assert float(str(run[cost])) > 0, cost
    assert 50 < float(str(run["peak_mb"])) < 10_000
    results = pl.read_csv(compared / "out" / "results.csv")
    value = results.filter(model="lr", seed=0, split="test", metric="auc")["value"].item()
    assert value == pytest.approx(run["metrics"]["test"]["auc"])
    names = {path.name for path in (compared / "out").iterdir()}
    assert {f"comparison.{end}" for end in ("md", "csv", "tex")} <= names
    assert {f"dunnett-{m}.{e}" for m in ("logloss", "auc", "calibration_error") for e in ("md", "csv", "tex")} <= names


def test_all_models_read_one_store(compared: Path) -> None:
    store = Store.open(compared / "out" / "store")
    for path in (compared / "out" / "runs").glob("*.json"):
        assert json.loads(path.read_text())["made_from"]["store"] == store.sha256


def test_only_what_is_not_done_is_run_again(table: Path, compared: Path) -> None:
    runs = compared / "out" / "runs"
    before = {path.name: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    result = json.loads((runs / "lr-1.json").read_text())["result"]["metrics"]
    (runs / "lr-1.json").unlink()
    assert main(compare_words(table, compared, "--no-retry")) == 0
    after = {path.name: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert [name for name in before if before[name] != after[name]] == ["lr-1.json"]
    assert json.loads((runs / "lr-1.json").read_text())["result"]["metrics"] == result


def test_other_settings_run_a_model_again_and_what_failed_is_tried_again(table: Path, compared: Path) -> None:
    (compared / "configs" / "fm.toml").write_text('[model]\nname = "fm"\nd_embed = 2\n')
    done = (compared / "out" / "runs" / "lr-0.json").stat().st_mtime_ns
    assert main(compare_words(table, compared)) == 0
    assert all(run["error"] is None for run in saved(compared).values())
    assert (compared / "out" / "runs" / "lr-0.json").stat().st_mtime_ns == done
    settings = Config.from_toml(compared / "out" / "configs" / "fm.toml")
    assert settings.model.d_embed == 2


def test_models_are_searched_first(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(table), "--target", "good", "--models", "lr,lightgbm", "--seeds", "1", "--trials", "2"]
    words += ["--control", "lr", "--out", str(tmp_path / "out"), "--threads", "1", "--jobs", "2", *QUICK]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "2 searches to do" in printed.err
    assert "lightgbm" in printed.out
    for model in ("lr", "lightgbm"):
        assert len(trials(tmp_path / "out" / "search" / model)) == 2
        result = json.loads((tmp_path / "out" / "runs" / f"{model}-0.json").read_text())["result"]
        assert (result["settings"], result["error"]) == ("tuned", None)
    assert main(words) == 0
    err = capsys.readouterr().err
    assert re.search("0 searches to do.* 2 .*done", err)
    assert re.search("0 runs to do.* 2 .*done", err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "nowhere.csv", "--models", "lr"], "nowhere.csv"),
        (["compare", "frape", "--models", "lr"], "'frappe'"),
        (["compare", "x.csv", "--models", "deepfn"], "'deepfm'"),
        (["compare", "x.csv", "--models", "lr", "--set", "model.d_embed=3"], "model.d_embed"),
        (["compare", "x.csv", "--models", "lr", "--seeds", "0"], "seed"),
        (["compare", "x.csv", "--models", "lr", "--set", "train.lrr=1"], "train.lrr"),
        (["compare", "x.csv", "--models", "lr,fm", "--control", "mld"], "lr, fm"),
        (["compare", "x.csv", "--models", "lr", "--rows", "0"], "row"),
        (["compare", "x.csv", "--models", "lr", "--rows", "fm=9"], "'fm=9'"),
        (["search", "x.csv", "--model", "lr", "--rows", "0"], "--rows"),
        (["compare", "nowhere.csv", "--models", "lr,fm"], "--control"),
        (["search", "nowhere.csv", "--model", "lr"], "nowhere.csv"),
        (["search", "x.csv", "--model", "lr", "--set", "model.d_embed=3"], "model.d_embed"),
        (["search", "x.csv", "--trials", "0"], "trial"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what"), [(["compare", "--models", "lr"], "comparison"), (["search", "--model", "lr"], "search")]
)
def test_a_folder_of_other_things_is_left_alone(
    words: list[str], what: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert main([*words, str(table), "--target", "good", "--out", str(tmp_path)]) == 2
    assert what in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    assert main([*words, str(table), "--target", "good", "--out", str(tmp_path / "letter.txt")]) == 2
    assert "Not a directory" in capsys.readouterr().err
