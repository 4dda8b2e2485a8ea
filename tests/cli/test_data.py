"""`fielddep data`: what it prints where, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.cli import main
from fielddep.datasets import RECIPES
from fielddep.datasets.recipe import DATA_HOME, Recipe
from fielddep.store.store import Store
from tests.datasets import test_frappe, test_kdd2012
from tests.helpers import states


@pytest.fixture(autouse=True)
def no_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_HOME, raising=False)


def row_of(text: str, name: str) -> str:
    (row,) = (line for line in text.splitlines() if line.split()[:1] == [name])
    return row


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test_frappe.write(tmp_path)
    assert main(["data", "list", "--raw", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for recipe in RECIPES.values():
        assert f"{recipe.facts.rows:,}" in row_of(shown, recipe.facts.name)
    assert row_of(shown, "frappe").split()[:5] == ["frappe", "binary", "288,609", "10", "yes"]
    assert "no: training.txt" in row_of(shown, "kdd2012")
    assert "no: ml-tag.train.libfm" in row_of(shown, "ml-tag")
    assert row_of(shown, "synthetic").split()[4] == "yes"


def test_the_folder_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test_frappe.write(tmp_path)
    monkeypatch.setenv(DATA_HOME, str(tmp_path))
    assert main(["data", "list"]) == 0
    assert row_of(capsys.readouterr().out, "frappe").split()[4] == "yes"
    assert main(["data", "prepare", "frappe", "--out", str(tmp_path / "store"), "--quiet"]) == 0


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "kdd2012"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert states(lines[0], "kdd2012", "KDD Cup 2012")
    shown = dict(line.split(":", 1) for line in lines if ":" in line)
    counts = ("149,639,105", "95,764,025 train", "23,941,007 validation", "29,934,073 test", "6,658,036 positives")
    assert states(shown["rows"], *counts)
    assert states(shown["files"], "training.txt", "training.txt.gz", "10.0 GB")
    assert states(shown["available"], "no", "training.txt")
    assert main(["data", "info", "synthetic"]) == 0
    assert "files:      none" in capsys.readouterr().out


def test_prepare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test_kdd2012.write(tmp_path)
    words = ["data", "prepare", "kdd2012", "--raw", str(tmp_path), "--out", str(tmp_path / "store")]
    assert main([*words, "--counts-from", "all", "--seed", "3", "--set", "data.min_count=9"]) == 0
    shown = capsys.readouterr()
    store = Store.open(tmp_path / "store", check=True)
    assert (store.config.data.counts_from, store.config.data.min_count, store.config.split.seed) == ("all", 9, 3)
    assert states(shown.out, "500 rows", "320 train", "80 validation", "100 test", "11 fields")
    assert len(shown.err.splitlines()) == 4  # reading, splitting, learning, writing
    assert main(words) == 2
    assert states(capsys.readouterr().err, tmp_path / "store", "--force")
    assert main([*words, "--resume"]) == 0
    assert states(capsys.readouterr().err, tmp_path / "store", "finished")
    assert main([*words, "--force", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert Store.open(tmp_path / "store").config.data.min_count == 10


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["avasu"], ["'avasu'", "did you mean 'avazu'"]),
        (["avazu"], ["train", "https://www.kaggle.com/c/avazu-ctr-prediction/data"]),
        (["kdd2012", "--counts-from", "test"], ["data.counts_from"]),
        (["kdd2012", "--set", "model.d_embed=3"], ["model.d_embed", "data and split"]),
    ],
)
def test_errors_exit_with_2(
    tmp_path: Path, words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    test_kdd2012.write(tmp_path)
    assert main(["data", "prepare", *words, "--raw", str(tmp_path), "--out", str(tmp_path / "store")]) == 2
    shown = capsys.readouterr().err
    assert states(shown, *facts)
    assert "Traceback" not in shown
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "write", "how"),
    [("kdd2012", test_kdd2012.write, "--resume"), ("frappe", test_frappe.write, "--force")],
)
def test_interrupted(
    tmp_path: Path,
    name: str,
    write: object,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path)  # type: ignore[operator]  # functions of two modules
    prepare = Recipe.prepare

    def interrupted(self: Recipe, *args: object, **options: object) -> Store:
        options["observer"] = test_kdd2012.interrupt_at(1)
        return prepare(self, *args, **options)  # type: ignore[arg-type]  # passed on as they came

    words = ["data", "prepare", name, "--raw", str(tmp_path), "--out", str(tmp_path / "store")]
    with monkeypatch.context() as patch:
        patch.setattr(Recipe, "prepare", interrupted)
        assert main([*words, "--quiet"]) == 130
    command = capsys.readouterr().err.splitlines()[-1].split()
    assert command[:4] == ["fielddep", "data", "prepare", name]
    assert command[-1] == how
    assert main(command[1:]) == 0
