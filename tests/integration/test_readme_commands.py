"""The command lines of the README are run as they stand there."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.conftest import small_frame
from tests.documents import indented_commands, run_command

README = Path(__file__).parents[2] / "README.md"


def test_commands_of_the_readme_run(tmp_path, monkeypatch):
    lines = indented_commands(README.read_text("utf-8"))
    commands = {"ablate", "compare", "data", "describe", "encode", "evaluate", "explain", "fit"}
    commands |= {"predict", "report", "search", "settings"}
    assert {shlex.split(line)[1] for line in lines} == commands
    table = small_frame(200).rename({"good": "late"})
    table.write_csv(tmp_path / "flights.csv")
    table.drop("late").head(20).write_csv(tmp_path / "new.csv")
    table.tail(20).write_csv(tmp_path / "labelled.csv")
    for part in range(2):
        table.rename({"late": "click"}).slice(100 * part, 100).write_csv(tmp_path / f"clicks-{part}.csv")
    monkeypatch.chdir(tmp_path)
    for line in lines:
        run_command(line)
    assert {"run", "predictions.csv", "why", "report.html", "STORE", "predictions.parquet"} <= {
        path.name for path in tmp_path.iterdir()
    }
