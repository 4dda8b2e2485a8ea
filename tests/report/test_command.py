"""`fielddep report`, and the report that `fielddep fit` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fielddep.artifacts.run import REPORT, REPORT_NUMBERS, Run
from fielddep.cli import main
from fielddep.report import build as run_report
from fielddep.report import page
from tests.reports import odd_frame

QUICK = ["--set", "train.max_epochs=2", "--set", "model.d_embed=4", "--set", "train.threads=1"]
QUICK += ["--set", "data.exclude=['kind','cost']"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.csv"
    odd_frame().write_csv(path)
    return path


def fit(table: Path, folder: Path, *words: str) -> int:
    return main(["fit", str(table), "--target", "good", "--out", str(folder), *QUICK, *words])


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert fit(table, folder, "--quiet") == 0
    return folder


def test_fit_writes_a_report(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(table, tmp_path / "run") == 0
    assert f"report: {tmp_path / 'run' / REPORT}" in capsys.readouterr().err.splitlines()
    assert "Predicting <em>good</em>" in (tmp_path / "run" / REPORT).read_text("utf-8")
    assert json.loads((tmp_path / "run" / REPORT_NUMBERS).read_text("utf-8"))["training"]["source"] == "table.csv"


def test_fit_without_a_report(table: Path, tmp_path: Path) -> None:
    assert fit(table, tmp_path / "run", "--no-report") == 0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert not names & {REPORT, REPORT_NUMBERS}
    assert Run.open(tmp_path / "run").metrics["test"]


def test_fit_without_plotly(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "can_draw", lambda: False)
    assert fit(table, tmp_path / "run", "--quiet") == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "report" in line]
    assert len(said) == 1
    for fact in ("Plotly", "pip install 'fielddep[report]'", f"fielddep report {tmp_path / 'run'} {table}"):
        assert fact in said[0]
    assert not (tmp_path / "run" / REPORT).exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [(RuntimeError("no luck"), ["warning", "RuntimeError: no luck"]), (KeyboardInterrupt(), ["fielddep report "])],
)
def test_a_failing_report_does_not_lose_the_run(
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    said: list[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(run_report, "measured_facts", fail)
    assert fit(table, tmp_path / "run", "--quiet") == 0
    captured = capsys.readouterr()
    assert all(fact in captured.err for fact in said)
    assert captured.out.startswith("test rows\n")
    assert Run.open(tmp_path / "run").metrics["test"]
    assert not (tmp_path / "run" / REPORT).exists()


def test_report_draws_the_numbers_of_the_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    captured = capsys.readouterr()
    assert captured.err.endswith(f"{tmp_path / 'page.html'}\n") and captured.err.count("\n") == 1
    assert captured.out.splitlines()[0] == "40 test rows"
    header = captured.out.splitlines()[2].rstrip()
    assert header.split()[:2] == ["metric", "model"] and "95 %" in header and header.endswith("base rate")
    assert (tmp_path / "page.html").read_bytes() == (run / REPORT).read_bytes()


def test_report_goes_into_the_run(run: Path) -> None:
    before = (run / REPORT).read_bytes()
    (run / REPORT).unlink()
    assert main(["report", str(run)]) == 0
    assert (run / REPORT).read_bytes() == before


def test_report_of_the_training_table_and_of_another(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run), str(table), "--out", str(tmp_path / "own.html")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "40 test rows"
    odd_frame(100, seed=2).write_csv(tmp_path / "new.csv", separator=";")
    words = ["--out", str(tmp_path / "new.html"), "--set", "data.delimiter=;"]
    assert main(["report", str(run), str(tmp_path / "new.csv"), *words]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "100 rows of new.csv"
    assert "Measured on 100 rows of new.csv" in (tmp_path / "new.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["RUN", "--out", "page.pdf"], [".html", "page.pdf"]),
        (["nowhere"], ["nowhere"]),
        (["RUN", "none.csv"], ["none.csv"]),
        (["RUN", "table.csv", "--set", "train.lr=1"], ["data.format", "data.delimiter", "data.encoding", "train.lr"]),
        (["RUN", "--set", "data.delimiter=;"], ["--set", "TABLE"]),
    ],
)
def test_errors(run: Path, words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *(str(run) if word == "RUN" else word for word in words)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert all(fact in said for fact in facts)


def test_no_numbers_no_table(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(table, tmp_path / "run", "--quiet", "--no-report") == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run")]) == 2
    assert f"fielddep report {tmp_path / 'run'} TABLE" in capsys.readouterr().err


def test_the_hint_to_resume_keeps_the_report_option(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fielddep.artifacts.run.fit", interrupt)
    assert fit(table, tmp_path / "run", "--no-report") == 130
    assert "--no-report" in capsys.readouterr().err
