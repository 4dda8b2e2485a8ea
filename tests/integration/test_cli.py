"""The command line: what it prints where, what it writes, how it exits."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep import cli
from fielddep.artifacts.predictor import Predictor
from fielddep.cli import demo as demo_module
from fielddep.cli import main
from fielddep.cli.console import PIPE_WIDTH
from fielddep.config.settings import Config, settings_reference
from fielddep.datasets import flights as flights_module
from fielddep.nn import MODELS
from tests.conftest import small_frame
from tests.helpers import states
from tests.small_models import small_settings

QUICK = [
    word
    for text in ("train.max_epochs=2", "train.eval_every=1", "model.hidden=[8]", "model.d_embed=4")
    for word in ("--set", text)
]
QUICK += ["--set", "train.threads=1"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.csv"
    small_frame().with_columns(nothing=pl.lit("same")).write_csv(path)
    return path


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["fit", str(table), "--target", "good", "--out", str(folder), "--quiet", *QUICK]) == 0
    return folder


def spawn(*args: str, **options: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "fielddep", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, **{**pipes, **options})  # type: ignore[call-overload,no-any-return]


# --- the process ----------------------------------------------------------------------------------------------


def test_help_is_fast_and_needs_neither_torch_nor_polars() -> None:
    code = "import sys, fielddep.cli; print([m for m in ('torch', 'polars', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-m", "fielddep", "--help"], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # the time of other processes does not count
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.returncode == 0
    for command in ("describe", "fit", "evaluate", "predict", "explain", "settings", "demo"):
        assert f"  {command} " in done.stdout
    assert min(seconds) < 0.5


def test_results_on_stdout_log_on_stderr(table: Path, tmp_path: Path) -> None:
    process = spawn(
        "fit", str(table), "--target", "good", "--out", str(tmp_path / "run"), *QUICK, "--set", "model.direct=none"
    )
    out, err = process.communicate()
    assert process.returncode == 0
    assert out.startswith("test rows\n")
    assert "logloss" in out
    assert out.endswith(f"saved in {tmp_path / 'run'}\n")
    assert "train loss" not in out
    lines = err.splitlines()
    assert lines[0].startswith("warning: ")
    assert states(lines[0], "'nothing'", "constant", "data.kinds")
    assert states(err, table, "400 rows", "3 fields", "320 train", "40 validation", "40 test")
    assert states(err, "categorical, 3 values", "binary, 2 classes", "train.optimizer = adagrad", "train.lr")
    assert sum(line.startswith("epoch ") for line in lines) == 2
    assert "\x1b" not in out + err


def test_a_users_error_has_exit_code_2_and_no_traceback(tmp_path: Path) -> None:
    process = spawn("fit", str(tmp_path / "none.csv"), "--target", "y", "--out", str(tmp_path / "run"))
    out, err = process.communicate()
    assert process.returncode == 2
    assert out == ""
    assert states(err, "error", tmp_path / "none.csv", "does not exist")
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_a_bug_has_exit_code_1_and_a_traceback() -> None:
    code = (
        "import sys, fielddep.cli as cli, fielddep.config.settings as c\n"
        "def broken(config): raise RuntimeError('a bug')\n"
        "import fielddep.cli.settings as s; s.settings_reference = broken\n"
        "sys.exit(cli.main(['settings']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: a bug" in done.stderr


def test_a_closed_pipe_is_quiet(run: Path, tmp_path: Path) -> None:
    big = tmp_path / "big.parquet"
    small_frame(150_000).write_parquet(big)
    process = spawn("predict", str(run), str(big))
    assert process.stdout is not None
    assert process.stdout.readline() == "prediction,probability_0,probability_1\n"
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait() == 141
    assert errors == ""


def test_an_interrupt_of_any_command_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    assert main(["settings"]) == 130


def test_module_and_version() -> None:
    done = subprocess.run([sys.executable, "-m", "fielddep", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "fielddep 0.1.0\n")


# --- describe, settings ---------------------------------------------------------------------------------------


def test_describe_shows_every_column(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", str(table), "--target", "good"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{table}: 400 rows, 5 columns\n")
    assert states(out, "colour", "categorical", "numerical", "constant", "target good: binary")


def test_describe_json_is_json(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", str(table), "--target", "good", "--json", "--set", "data.kinds.size=categorical"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n_rows"] == 400
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds["size"] == "categorical"


def test_describe_regression_and_many_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    label = [f"class[{i % 12}]" for i in range(120)]
    pl.DataFrame({"a": rng.integers(0, 3, 120), "value": rng.normal(size=120), "label": label}).write_csv(table)
    assert main(["describe", str(table), "--target", "value"]) == 0
    assert states(capsys.readouterr().out, "target value: regression", "mean")
    assert main(["describe", str(table), "--target", "label"]) == 0
    out = capsys.readouterr().out
    assert states(out, "target label: multiclass", "class[0] 8.3%", "2 more")


def test_settings_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    out = capsys.readouterr().out
    paths = [line.split()[0] for line in out.splitlines() if line.startswith(("  data.", "  split.", "  model."))]
    assert paths == [i.path for i in settings_reference() if not i.path.startswith("train.")]
    assert max(map(len, out.splitlines())) <= PIPE_WIDTH


# --- fit ------------------------------------------------------------------------------------------------------


def test_fit_takes_file_then_set_then_options(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[data]\ntarget = "good"\n[train]\nmax_epochs = 9\nseed = 5\n[model]\nd_embed = 3\nhidden = [4]\n')
    words = ["fit", str(table), "--config", str(file), "--out", str(tmp_path / "run"), "--quiet"]
    words += ["--set", "train.max_epochs=1", "--set", "train.seed=6", "--seed", "7", "--task", "multiclass"]
    assert main([*words, "--device", "cpu"]) == 0
    config = Config.from_toml(tmp_path / "run" / "config.toml")
    assert (config.train.max_epochs, config.train.seed, config.model.d_embed) == (1, 7, 3)
    assert (config.data.target, config.data.task, config.split.seed) == ("good", "multiclass", 0)


def test_quiet_prints_results_and_warnings_only(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(table), "--target", "good", "--out", str(tmp_path / "r"), "--quiet", *QUICK]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("test rows\n")
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == ["warning"]


def test_fit_without_test_rows_shows_validation(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fit", str(table), "--target", "good", "--out", str(tmp_path / "r"), *QUICK]
    assert main([*words, "--set", "split.test=0"]) == 0
    assert capsys.readouterr().out.startswith("validation rows\n")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--set", "model.d_embd=3"], ["model.d_embd", "mdl", "model.d_embed"]),
        (["--set", "d_embed"], ["section.key=value", "'d_embed'"]),
        (["--config", "none.toml"], ["none.toml", "does not exist"]),
        (["--force", "--resume"], ["--force", "--resume"]),
    ],
)
def test_fit_refuses_bad_options(
    table: Path, tmp_path: Path, words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(table), "--target", "good", "--out", str(tmp_path / "run"), *words]) == 2
    assert states(capsys.readouterr().err, "error", *facts)
    assert not (tmp_path / "run").exists()


def test_usage_errors_have_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--bad"]) == 2
    assert "--bad" in capsys.readouterr().err
    assert main(["fit", "t.csv"]) == 2
    assert "--out" in capsys.readouterr().err


def test_existing_run(table: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", str(table), "--target", "good", "--out", str(run), *QUICK]
    assert main(words) == 2
    assert states(capsys.readouterr().err, "error", run, "--force")
    assert main([*words, "--resume"]) == 0
    shown = capsys.readouterr()
    assert states(shown.err, run, "finished")
    assert states(shown.out, run)


# --- evaluate, predict ----------------------------------------------------------------------------------------


def test_evaluate(table: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), str(table), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics == Predictor(run / "bundle").evaluate(table)
    assert main(["evaluate", str(run / "bundle"), str(table)]) == 0
    out = capsys.readouterr().out
    assert f"{metrics['logloss']:.4f}" in out
    assert f"{metrics['auc']:.4f}" in out


def test_evaluate_on_the_training_table_shows_held_out_rows_first(
    table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = json.loads((run / "metrics.json").read_text())["test"]
    everything = Predictor(run / "bundle").evaluate(table)
    for same in (table, save_again(table, tmp_path / "copy.csv.gz")):
        assert main(["evaluate", str(run), str(same)]) == 0
        out, err = capsys.readouterr()
        assert len(err.splitlines()) == 1
        assert states(err, run, same, "trained on")
        assert out.index("test rows") < out.index("all rows")
        line = next(line.split() for line in out.splitlines() if line.split()[:1] == ["logloss"])
        assert line == ["logloss", f"{test['logloss']:.4f}", f"{everything['logloss']:.4f}"]
    assert main(["evaluate", str(run), str(table), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == everything
    assert states(err, "trained on")


def save_again(table: Path, path: Path) -> Path:
    path.write_bytes(gzip.compress(table.read_bytes()))
    return path


def test_evaluate_on_other_tables_says_nothing_of_training(
    table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = table.read_text().splitlines(keepends=True)
    others = {"fewer": lines[:100], "more": [*lines, *lines[1:]], "columns": [f"x,{line}" for line in lines]}
    for name, text in others.items():
        (tmp_path / f"{name}.csv").write_text("".join(text))
        assert main(["evaluate", str(run), str(tmp_path / f"{name}.csv")]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert states(out, "all rows", run)
    (tmp_path / "order.csv").write_text("".join([lines[0], *reversed(lines[1:])]))
    assert main(["evaluate", str(run), str(tmp_path / "order.csv")]) == 0
    out, err = capsys.readouterr()
    assert states(err, "warning", tmp_path / "order.csv", "order")
    assert "test rows" not in out
    assert main(["evaluate", str(run / "bundle"), str(table)]) == 0
    assert "test rows" not in capsys.readouterr().out


def test_equal_warnings_are_printed_once(
    table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spaced.csv").write_text(table.read_text().replace(",", ", "))
    assert main(["evaluate", str(run), str(tmp_path / "spaced.csv")]) == 0
    out, err = capsys.readouterr()
    assert err.count("warning:") == 1
    assert states(err, "spaces", run, "trained on")
    assert "test rows" in out


def test_usage_names_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for words, arguments in {
        "describe": "TABLE",
        "encode": "TABLE...",
        "evaluate": "RUN TABLE",
        "report": "RUN [TABLE]",
        "data info": "NAME",
    }.items():
        assert main([*words.split(), "--help"]) == 0
        assert capsys.readouterr().out.splitlines()[0].endswith(f"{words} [OPTIONS] {arguments}")


def test_a_word_is_a_list_of_one(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "data.exclude=nothing", "--set", "data.missing_values=same"]
    assert main(["describe", str(table), "--target", "good", "--json", *words]) == 0
    column = next(c for c in json.loads(capsys.readouterr().out)["columns"] if c["name"] == "nothing")
    assert (column["kind"], column["missing_share"]) == ("left out", 1.0)


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.PQ"])
def test_predict_writes_the_predictions(
    table: Path, run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / name
    assert main(["predict", str(run), str(table), "--out", str(out), "--keep", "shape,good"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert states(shown.err, "no unknown values", "400 predictions", out)
    kept = pl.read_csv(table, infer_schema=False).select("shape", "good")
    expected = kept.hstack(Predictor(run / "bundle").predict(table))
    found = pl.read_csv(out, schema=expected.schema) if name == "p.csv" else pl.read_parquet(out)
    assert found.columns == ["shape", "good", "prediction", "probability_0", "probability_1"]
    assert found.equals(expected)
    assert [path.name for path in out.parent.iterdir()] == [name]


@pytest.mark.parametrize("model", MODELS)
def test_fit_and_predict_with_every_model(table: Path, tmp_path: Path, model: str) -> None:
    settings = {"train.max_epochs": 1, "train.threads": 1, **small_settings(model)}
    words = ["--model", str(settings.pop("model.name")), "--quiet", "--no-report"]
    words += [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
    run = tmp_path / "run"
    assert main(["fit", str(table), "--target", "good", "--out", str(run), *words]) == 0
    config = Config.from_toml(run / "config.toml")
    assert config.model.name == model
    assert config == config.replace(settings)
    assert main(["predict", str(run), str(table), "--out", str(tmp_path / "p.parquet")]) == 0
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert found.columns == ["prediction", "probability_0", "probability_1"]
    assert found.equals(Predictor(run / "bundle").predict(table))
    assert found["probability_1"].n_unique() > 5


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predict_in_chunks_keeps_order_and_kept_columns(
    run: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = small_frame(1000, seed=1).with_row_index()
    frame.write_parquet(tmp_path / "t.parquet")
    whole = Predictor(run / "bundle").predict(frame)
    small = Predictor(run / "bundle", chunk_rows=64)
    monkeypatch.setattr("fielddep.cli.predict.open_predictor", lambda *_: small)
    out = tmp_path / f"p.{suffix}"
    assert main(["predict", str(run), str(tmp_path / "t.parquet"), "--out", str(out), "--keep", "index"]) == 0
    found = pl.read_csv(out) if suffix == "csv" else pl.read_parquet(out)
    assert found["index"].to_list() == list(range(1000))
    np.testing.assert_allclose(found["probability_1"], whole["probability_1"], atol=1e-6)


def test_predict_to_stdout_reports_unknown_values(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "new.csv"
    table.write_text("shape,colour,size\ndisc,red,1\ncube,mauve,\nring,red,2\ncone,pink,3\n")
    assert main(["predict", str(run), str(table)]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "prediction,probability_0,probability_1"
    assert len(lines) == 5
    for line in lines[1:]:
        assert sum(map(float, line.split(",")[1:])) == pytest.approx(1, abs=1e-5)
    first, second = shown.err.splitlines()
    assert states(first, "colour", "50.00%", "0.00%")
    assert states(second, "size", "0.00%", "25.00%")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--out", "p.xlsx"], [".csv", ".parquet", "p.xlsx"]),
        (["--keep", "shap"], ["--keep", "'shap'", "'shape'"]),
        (["--set", "model.d_embed=3"], ["data.format", "data.delimiter", "data.encoding"]),
        (["--device", "toaster"], ["device", "'toaster'"]),
    ],
)
def test_predict_refuses_bad_options(
    table: Path, run: Path, words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), str(table), *words]) == 2
    shown = capsys.readouterr()
    assert states(shown.err, "error", *facts)
    assert shown.out == ""


def test_predict_refuses_a_kept_column_called_prediction(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_frame(20).with_columns(prediction=pl.lit(1)).write_csv(tmp_path / "t.csv")
    out = tmp_path / "p.csv"
    assert main(["predict", str(run), str(tmp_path / "t.csv"), "--keep", "prediction", "--out", str(out)]) == 2
    assert states(capsys.readouterr().err, "error", "--keep", "'prediction'")
    assert not out.exists()


def test_predict_reads_text_with_given_settings(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("shape~colour~size\ndisc~red~1\n")
    assert main(["predict", str(run), str(tmp_path / "t.csv")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["predict", str(run), str(tmp_path / "t.csv"), "--set", "data.delimiter=~"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_no_run(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("evaluate", "predict", "explain"):
        assert main([command, str(tmp_path / "none"), str(table)]) == 2
        assert states(capsys.readouterr().err, "error", tmp_path / "none")


def test_a_store_is_not_a_run(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    assert main(["encode", str(table), "--target", "good", "--out", str(store), "--quiet"]) == 0
    for command in ("evaluate", "predict", "explain", "report"):
        capsys.readouterr()
        assert main([command, str(store), str(table)]) == 2
        assert states(capsys.readouterr().err, "error", "run", store)


def test_a_damaged_bundle_is_named(table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "bundle"
    copy.mkdir()
    for path in (run / "bundle").iterdir():
        (copy / path.name).write_bytes(path.read_bytes()[: None if path.name == "manifest.json" else -1])
    assert main(["predict", str(copy), str(table)]) == 2
    assert states(capsys.readouterr().err, copy, "cut off")


# --- explain --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model without dependencies."""
    folder = tmp_path_factory.mktemp("fm") / "run"
    words = ["--target", "good", "--model", "fm", "--set", "train.max_epochs=1", "--set", "train.threads=1"]
    assert main(["fit", str(table), "--out", str(folder), "--quiet", *words]) == 0
    return folder


def test_explain_rows(table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "why"
    assert main(["explain", str(run), str(table), "--rows", "3,0-1", "--out", str(out), "--sample", "0"]) == 0
    shown = capsys.readouterr()
    written = sorted(path.name for path in out.iterdir())
    assert states(shown.err, f"{len(written)} files", out)
    numbers = json.loads((out / "rows.json").read_text())
    assert numbers["rows"] == [3, 0, 1]
    probabilities = Predictor(run / "bundle").predict(small_frame())["probability_1"]
    rows = small_frame()
    for place, row in enumerate((3, 0, 1)):
        held = numbers["values"][place]
        assert (held["colour"], held["shape"], held["size"]) == tuple(map(str, rows.row(row)[:3]))
        assert states(shown.out, f"row {row}", f"{probabilities[row]:.4f}")
        losses = [sum(step) for step in numbers["loss"][place]]
        assert f"{losses[0]:.4g} -> {losses[-1]:.4g}" in shown.out
    effects = pl.read_csv(out / "effects.csv")
    assert effects["row"].unique().sort().to_list() == [0, 1, 3]
    assert {"rows.png", "row-3-steps.png", "row-0-weights.png", "learning.png", "dependencies.png"} <= set(written)
    assert not {"importance.csv", "groups.csv", "table_dependencies.csv"} & set(written)


def test_explain_a_table_with_its_target(
    table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "why"
    assert main(["explain", str(run), str(table), "--out", str(out), "--sample", "300", "--groups", "2"]) == 0
    shown = capsys.readouterr()
    assert states(shown.err, "300 of 400 rows", table)
    importance = pl.read_csv(out / "importance.csv")
    assert importance["metric"].unique(maintain_order=True).to_list() == ["logloss", "auc"]
    best = importance["field"][0]
    assert f"{importance['importance'][0]:+.4f} ± {importance['std'][0]:.4f}" in shown.out
    assert best in ("colour", "shape")
    assert len(pl.read_csv(out / "groups.csv")) == 2
    assert "(refinement)" in pl.read_csv(out / "hiding.csv")["field"].to_list()
    assert states(shown.out, "worse without a field", "groups of rows", "calibration")
    assert {"calibration.png", "scores.png", "importance.png", "hiding.png", "groups.png"} <= {
        path.name for path in out.iterdir()
    }


@pytest.mark.parametrize("words", [["--no-importance"], []])
def test_explain_a_table_without_its_target(
    table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    if not words:
        table = tmp_path / "new.csv"
        small_frame(30).drop("good").write_csv(table)
    assert main(["explain", str(run), str(table), "--rows", "2", *words]) == 0
    shown = capsys.readouterr()
    assert states(shown.err, "no importance", "target")
    assert "worse" not in shown.out
    assert "groups of rows" in shown.out
    if not words:
        assert main(["explain", str(run), str(table), "--importance"]) == 2
        assert states(capsys.readouterr().err, "error", "'good'")


def test_explain_the_model(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    assert main(["explain", str(run), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    table = pl.read_csv(out / "dependencies.csv")
    assert table["source"].to_list() == table.columns[1:] == ["colour", "shape", "size"]
    weights = table.drop("source").to_numpy()
    strongest = max((weights[i, j] for i in range(3) for j in range(3) if i != j), key=abs)
    assert f"{strongest:+.4f}" in shown
    assert {path.name for path in out.iterdir()} == {
        *("dependencies.csv", "dependencies.png", "strongest_sources.csv", "learning.csv", "learning.png"),
    }
    assert main(["explain", str(run / "bundle"), "--out", str(tmp_path / "bundle")]) == 0
    assert not (tmp_path / "bundle" / "learning.csv").exists()


def test_explain_values(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--near", "shape=disc", "--near", "colour=red", "--out", str(tmp_path)]
    assert main(["explain", str(run), *words]) == 0
    shown = capsys.readouterr().out
    assert states(shown, "shape", "disc")
    near = pl.read_csv(tmp_path / "nearest.csv")
    assert near["value"].unique(maintain_order=True).to_list() == ["disc", "red"]
    assert f"{near['similarity'][0]:+.3f}" in shown


def test_explain_a_store(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_frame().write_csv(tmp_path / "table.csv")
    store = str(tmp_path / "store")
    assert main(["encode", str(tmp_path / "table.csv"), "--target", "good", "--out", store]) == 0
    assert main(["fit", store, "--out", str(tmp_path / "run"), "--quiet", *QUICK]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "run"), store, "--rows", "5", "--groups", "0"]) == 0
    shown = capsys.readouterr()
    assert "rows of" in shown.err and "(test)" in shown.err
    expected = Predictor(tmp_path / "run" / "bundle").predict(small_frame())["probability_1"][5]
    assert states(shown.out, "row 5", f"{expected:.4f}", "worse without a field")
    assert main(["explain", str(tmp_path / "run"), store, "--part", "train", "--groups", "0"]) == 0
    assert "(train)" in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "run"), store, "--rows", "400"]) == 2
    assert states(capsys.readouterr().err, "row 400", "400 rows")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--rows", "400"], ["row 400", "400 rows"]),
        (["--rows", "0,x"], ["--rows", "'0,x'"]),
        (["--rows", "4-2"], ["--rows", "'4-2'"]),
        (["--rows", "0-1000"], ["--rows", "1,000 rows", "'0-1000'"]),
        (["--out", "x.png"], ["--out", "folder", "x.png"]),
        (["--near", "shape"], ["--near", "FIELD=VALUE", "'shape'"]),
        (["--part", "test"], ["store", "--part"]),
        (["--importance", "--sample", "0"], ["--importance", "--sample 0"]),
    ],
)
def test_explain_refuses(
    table: Path, run: Path, words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(run), str(table), *words]) == 2
    assert states(capsys.readouterr().err, "error", *facts)


def test_explain_a_model_without_dependencies(
    table: Path, plain_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(plain_run)]) == 2
    assert states(capsys.readouterr().err, "mdl", "field dependencies", "fm")
    assert main(["explain", str(plain_run), str(table), "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "dependenc" not in shown
    assert states(shown, "worse without a field")
    names = {path.name for path in tmp_path.iterdir()}
    assert {"effects.csv", "importance.csv", "hiding.csv", "learning.csv", "row-0-effects.png"} <= names
    assert not {"dependencies.csv", "rows.csv", "groups.csv"} & names


def test_explain_without_matplotlib_gives_numbers(
    table: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["explain", str(run), str(table), "--out", str(tmp_path), "--sample", "0"]) == 0
    assert states(capsys.readouterr().err, "Matplotlib", "pip install 'fielddep[plot]'")
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json"}


def test_explain_by_training_rows_with_the_same_values(
    table: Path, run: Path, plain_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "why"
    words = ["--rows", "3,0", "--out", str(out), "--groups", "0"]
    assert main(["explain", str(run), str(table), *words]) == 0
    shown = capsys.readouterr().out
    evidence = pl.read_csv(out / "evidence.csv", schema_overrides={"values": pl.String})
    assert evidence["row"].unique(maintain_order=True).to_list() == [3, 0]
    assert shown.count("what training rows with the same values did") == 2
    for text, effect in evidence.select("text", "effect").iter_rows():
        assert re.search(rf"{re.escape(text)} +{re.escape(f'{effect:+.4f}')}", shown)
    ranking = pl.read_csv(out / "evidence_ranking.csv")
    assert ranking.columns == ["fields", "effect", "seen"]
    assert set(evidence["fields"]) <= set(ranking["fields"])
    assert states(shown, "training rows with the same values move predictions", "400 rows", ranking["fields"][0])
    assert main(["explain", str(plain_run), str(table), "--out", str(tmp_path / "none")]) == 0
    assert "same values" not in capsys.readouterr().out
    assert not list((tmp_path / "none").glob("evidence*"))


# --- interrupt and demo ---------------------------------------------------------------------------------------


def test_interrupt_prints_the_command_that_resumes(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "my run"
    words = ["fit", str(table), "--out", str(out), "--target", "good", "--seed", "3", *QUICK, "--quiet"]
    real = os.kill
    monkeypatch.setattr("fielddep.training.fit.measure", lambda *_: real(os.getpid(), signal.SIGINT))
    # A process started in the background may ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(words) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    lines = capsys.readouterr().err.splitlines()
    assert states(lines[-2], "interrupted", "checkpoint")
    assert lines[-1].startswith(f"  fielddep fit {table} --out '{out}' --target good --seed 3 --set train.max_epochs=2")
    assert lines[-1].endswith("--quiet --resume")


def test_interrupt_before_training(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fielddep.tables.row_stream.read_table", interrupt)
        assert main(["fit", str(table), "--target", "good", "--out", str(tmp_path / "r")]) == 130
    assert states(capsys.readouterr().err, "interrupted", "nothing was written")
    assert not (tmp_path / "r").exists()


def test_demo_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("matplotlib")
    flights = flights_module.load_flights().sample(3000, seed=0)
    monkeypatch.setattr(flights_module, "load_flights", lambda: flights)
    quick = Config().replace(
        {"train.max_epochs": 1, "model.hidden": [8], "train.threads": 1, "data.kinds.flight": "categorical"}
    )
    monkeypatch.setattr(demo_module, "Config", lambda: quick)
    out = tmp_path / "run"
    assert main(["demo", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    for title in ("1. describe", "2. fit", "3. compare", "4. predict", "5. explain", "LightGBM", "base rate"):
        assert title in shown
    assert "never seen" in shown
    assert "ZZ" in shown
    assert (out / "explanation" / "rows.png").read_bytes().startswith(b"\x89PNG")
    assert main(["demo", "--out", str(out)]) == 2
    assert states(capsys.readouterr().err, "--force")
    assert main(["demo", "--out", str(out), "--force"]) == 0


def test_demo_needs_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert main(["demo", "--out", str(tmp_path / "run")]) == 2
    assert states(capsys.readouterr().err, "error", "LightGBM", "pip install")
