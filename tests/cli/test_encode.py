"""`fielddep encode`: what it prints where, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.cli import main
from fielddep.store.store import Store
from tests.helpers import states
from tests.streamed import mixed_frame


@pytest.fixture
def table(tmp_path: Path) -> Path:
    mixed_frame(800).write_csv(tmp_path / "table.csv")
    return tmp_path / "table.csv"


def test_the_summary_goes_to_stdout(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", 'data.exclude=["grade", "amount"]', "--set", "data.weight=weight", "--set", "data.crosses=none"]
    assert main(["encode", str(table), "--target", "good", "--out", str(tmp_path / "store"), *words]) == 0
    shown = capsys.readouterr()
    store = Store.open(tmp_path / "store", check=True)
    assert states(shown.out, "good", "binary", "2 classes")
    assert states(shown.out, "800 rows", "640 train", "80 validation", "80 test", "6 fields")
    assert f"{store.layout.n_ids_total:,} ids" in shown.out
    assert "rows/s" in shown.out
    lines = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines() if line.strip()}
    assert lines["colour"] == ["categorical", "5"]
    assert lines["price"][:2] == ["numerical", "(quantile)"]
    stages = [line for line in shown.err.splitlines() if not line.startswith("warning: ")]
    assert [line.split()[0] for line in stages] == ["reading", "splitting", "learning", "counting", "writing"]
    assert states(shown.err, "warning", "'constant'", "constant")


def test_quiet_and_many_tables(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed_frame(300, seed=1).write_csv(tmp_path / "more.csv")
    words = ["--target", "amount", "--task", "regression", "--quiet", "--set", "split.seed=4"]
    assert main(["encode", str(table), str(tmp_path / "more.csv"), "--out", str(tmp_path / "store"), *words]) == 0
    shown = capsys.readouterr()
    store = Store.open(tmp_path / "store")
    assert store.n_rows == 1100
    assert store.config.split.seed == 4
    assert states(shown.out, "amount", "regression")
    assert "reading" not in shown.err


def test_settings_of_a_file(table: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[data]\ntarget = "good"\nmin_count = 3\n')
    words = ["encode", str(table), "--config", str(tmp_path / "settings.toml"), "--out", str(tmp_path / "store")]
    assert main([*words, "--quiet"]) == 0
    assert Store.open(tmp_path / "store").config.data.min_count == 3


def test_errors_exit_with_2(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["encode", str(table), "--out", str(tmp_path / "store")]
    assert main([*words]) == 2
    assert states(capsys.readouterr().err, "error", "data.target")
    assert not (tmp_path / "store").exists()
    assert main([*words, "--target", "good", "--quiet"]) == 0
    assert main([*words, "--target", "good"]) == 2
    assert states(capsys.readouterr().err, tmp_path / "store", "--force")
    assert main([*words, "--target", "good", "--resume"]) == 0
    shown = capsys.readouterr()
    assert states(shown.err, tmp_path / "store", "finished")
    assert "800 rows" in shown.out
    assert main([*words, "--target", "good", "--force", "--quiet"]) == 0
    assert main(["encode", str(tmp_path / "none.csv"), "--target", "good", "--out", str(tmp_path / "x")]) == 2


def test_a_store_is_not_a_table(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "good", "--quiet"]
    assert main(["encode", str(table), *words, "--out", str(tmp_path / "store")]) == 0
    assert main(["encode", str(table), str(tmp_path / "store"), *words, "--out", str(tmp_path / "other")]) == 2
    assert states(capsys.readouterr().err, tmp_path / "store", "give the table")
    assert not (tmp_path / "other").exists()


def test_no_validation_rows_cause_a_warning(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "good", "--quiet", "--set", "split.validation=0"]
    assert main(["encode", str(table), *words, "--out", str(tmp_path / "store")]) == 0
    assert states(capsys.readouterr().err, "warning", "validation", "split.validation")
