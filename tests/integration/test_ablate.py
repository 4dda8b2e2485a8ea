"""`fielddep ablate` as a user calls it: with real runs, interrupted, resumed, and with mistakes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from fielddep.cli import main
from fielddep.experiments.ablation.trainings import AblationJob
from tests.conftest import small_frame
from tests.experiments.ablation.ablations import fake_runs


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    small_frame().write_csv(folder / "good.csv")
    (folder / "configs").mkdir()
    settings = "[model]\nd_embed = 4\nhidden = [8]\n[train]\nmax_epochs = 2\n"
    (folder / "configs" / "mdl.toml").write_text(settings)
    return folder / "good.csv"


def words_of(table: Path, out: Path, *others: str) -> list[str]:
    words = ["ablate", str(table), "--target", "good", "--out", str(out), "--no-search", "--threads", "1"]
    return [
        *words,
        "--configs",
        str(table.parent / "configs"),
        "--set",
        "data.crosses=none",
        "--set",
        "data.evidence=none",
        *others,
    ]


def test_an_interrupted_ablation_goes_on_where_it_was(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = words_of(table, out, "--what", "depth", "--seeds", "1")
    process = subprocess.Popen([sys.executable, "-m", "fielddep", *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list(out.glob("runs/*.json")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    done = {path: path.stat().st_mtime_ns for path in out.glob("runs/*.json")}
    assert 0 < len(done) < 3
    command = shlex.split(told.strip().splitlines()[-1])
    assert command[:2] == ["fielddep", "ablate"]
    assert main(command[1:]) == 0
    assert {path: path.stat().st_mtime_ns for path in done} == done
    printed = capsys.readouterr()
    assert re.search(f"{3 - len(done)} runs to do.* {len(done)} .*done", printed.err)
    assert "undecided: 3 layers are best to train with" in printed.out
    assert str(out) in printed.out
    _check_runs(out)
    assert main([*command[1:], "--quiet"]) == 0
    assert "runs to do" not in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in done} == done


def _check_runs(out: Path) -> None:
    """Real runs: two layers are the tuned network, which is evaluated with other numbers of steps too."""
    runs = {path.stem: json.loads(path.read_text())["result"] for path in out.glob("runs/*.json")}
    assert sorted(runs) == ["layers-3-0", "layers-4-0", "mdl-0"]
    assert all(run["error"] is None for run in runs.values())
    assert runs["mdl-0"]["n_parameters"] < runs["layers-3-0"]["n_parameters"] < runs["layers-4-0"]["n_parameters"]
    test = runs["mdl-0"]["metrics"]["test"]
    assert {f"logloss@{t}" for t in range(11)} <= set(test)
    assert test["logloss@4"] == test["logloss"]
    figures = pl.read_csv(out / "depth.csv").filter(split="test", metric="logloss")
    assert figures["setting_value"].to_list() == [2, 3, 4]
    assert figures["value"][0] == pytest.approx(test["logloss"])
    assert (out / "depth.png").stat().st_size > 10_000
    assert "# Depth of the network: good" in (out / "depth.md").read_text()


def all_fail(job: AblationJob, n_steps: int, part: str) -> dict[str, float]:
    raise RuntimeError(f"no memory for {job.contender}")


def test_when_every_run_fails_the_reasons_are_told(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_runs(monkeypatch, all_fail)
    assert main(words_of(table, tmp_path / "out", "--what", "depth", "--seeds", "1")) == 2
    printed = capsys.readouterr()
    assert re.search("mdl seed 0.*no memory for mdl", printed.err)
    assert re.search("layers-4: 1 of 1 .*no memory for layers-4", printed.out)
    assert "error" in printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["frape"], "'frappe'"),
        (["x.csv", "--what", "stepz"], "'steps'"),
        (["x.csv", "--seeds", "0"], "seed"),
        (["x.csv", "--set", "model.d_embed=3"], "model.d_embed"),
        (["x.csv", "--configs", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ablate", *words, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_of_other_things_is_left_alone(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert main(words_of(table, tmp_path)) == 2
    assert "ablation" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_comparison_is_not_taken_for_an_ablation(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("store", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "comparison.json").write_text("{}")
    assert main(words_of(table, tmp_path)) == 2
    assert re.search("comparison.*ablation", capsys.readouterr().err)
    assert not any((tmp_path / "store").iterdir())
