"""Bad input: a clear message, exit code 2, nothing lost. And odd input that must simply work."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import Run
from fielddep.cli import main
from tests.conftest import small_frame
from tests.helpers import states

QUICK = ["--set", "train.max_epochs=2", "--set", "model.hidden=[8]", "--set", "model.d_embed=4"]
QUICK += ["--set", "train.threads=1", "--quiet"]
Capture = pytest.CaptureFixture[str]


def fit(table: Path, out: Path, *words: str, target: str = "good") -> int:
    return main(["fit", str(table), "--target", target, "--out", str(out), *QUICK, *words])


def refused(table: Path, capsys: Capture, *words: str, target: str = "good") -> str:
    """The message of a fit that must be refused, with nothing written."""
    out = table.parent / "run"
    assert fit(table, out, *words, target=target) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert not out.exists()
    last = shown.err.splitlines()[-1]
    assert last.startswith("error: ")
    return last.removeprefix("error: ")


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def save(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


# --- files ----------------------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path, capsys: Capture) -> None:
    assert states(refused(tmp_path / "none.csv", capsys), tmp_path / "none.csv", "does not exist")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.tsv", "t"])
def test_empty_file(tmp_path: Path, name: str, capsys: Capture) -> None:
    assert states(refused(write(tmp_path / name, ""), capsys), tmp_path / name, "empty")


def test_blank_file(tmp_path: Path, capsys: Capture) -> None:
    assert states(refused(write(tmp_path / "t.csv", "\n\n"), capsys), tmp_path / "t.csv", "empty")


def test_header_only(tmp_path: Path, capsys: Capture) -> None:
    table = write(tmp_path / "t.csv", "colour,shape,good\n")
    assert states(refused(table, capsys), table, "no rows")
    save(small_frame(0), tmp_path / "t.parquet")
    assert states(refused(tmp_path / "t.parquet", capsys), tmp_path / "t.parquet", "no rows")


@pytest.mark.parametrize(("row", "n_cells"), [("red,disc", 2), ("red,disc,1,9", 4)])
def test_row_with_too_few_or_too_many_cells(tmp_path: Path, row: str, n_cells: int, capsys: Capture) -> None:
    lines = ["colour,shape,good", *["red,disc,0", "blue,cube,1"] * 20]
    lines[17] = row
    message = refused(write(tmp_path / "t.csv", "\n".join(lines) + "\n"), capsys)
    assert states(message, tmp_path / "t.csv", "line 18", 3, n_cells)


def test_wrong_delimiter(tmp_path: Path, capsys: Capture) -> None:
    table = tmp_path / "t.csv"
    small_frame(50).write_csv(table, separator=";")
    message = refused(table, capsys, "--set", "data.delimiter=,")
    assert states(message, "semicolon", "data.delimiter = ';'")
    assert fit(table, tmp_path / "found") == 0
    capsys.readouterr()
    small_frame(50).write_csv(table, separator="~")
    assert "'good'" in refused(table, capsys)


def test_duplicate_column_names(tmp_path: Path, capsys: Capture) -> None:
    table = write(tmp_path / "t.csv", "colour,colour,good\nred,disc,0\nblue,cube,1\n")
    assert states(refused(table, capsys), "column names", "'colour'")


def test_text_that_is_not_utf8(tmp_path: Path, capsys: Capture) -> None:
    lines = small_frame(60).with_columns(colour=pl.col("colour").replace("red", "röt")).write_csv()
    table = write(tmp_path / "t.csv", lines.encode("latin-1"))
    message = refused(table, capsys)
    assert states(message, "line", "data.encoding")
    assert fit(table, tmp_path / "latin", "--set", "data.encoding=latin-1") == 0
    values = Bundle.load(tmp_path / "latin" / "bundle").encoder.values("colour")
    assert "röt" in values.to_list()


def test_cut_off_parquet(tmp_path: Path, capsys: Capture) -> None:
    table = save(small_frame(), tmp_path / "t.parquet")
    table.write_bytes(table.read_bytes()[:-100])
    assert states(refused(table, capsys), table, "cannot be read")


# --- target ---------------------------------------------------------------------------------------------------


def test_target_absent(tmp_path: Path, capsys: Capture) -> None:
    table = save(small_frame(50), tmp_path / "t.csv")
    message = refused(table, capsys, target="god")
    assert states(message, "data.target", "'god'", "'good'")


def test_target_not_given(tmp_path: Path, capsys: Capture) -> None:
    table = save(small_frame(50), tmp_path / "t.csv")
    assert main(["fit", str(table), "--out", str(tmp_path / "run")]) == 2
    assert states(capsys.readouterr().err, "error", "data.target", "--target", "colour, shape, size, good")


def test_target_constant(tmp_path: Path, capsys: Capture) -> None:
    table = save(small_frame(50).with_columns(good=pl.lit(1)), tmp_path / "t.csv")
    assert states(refused(table, capsys), "target 'good'", "50 rows", "'1'")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_target_with_missing_values(tmp_path: Path, suffix: str, capsys: Capture) -> None:
    good = pl.when(pl.int_range(pl.len()).is_in([7, 9])).then(None).otherwise(pl.col("good"))
    table = save(small_frame(50).with_columns(good=good.alias("good")), tmp_path / f"t.{suffix}")
    message = refused(table, capsys)
    assert states(message, "target 'good'", "2 missing", "row 7")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    "labels", [("no", "yes"), (False, True), (0, 1), (-1, 1), (1, 2), ("b", "a"), (0.5, 1.5)], ids=str
)
def test_labels_of_any_kind_work_and_come_back(
    tmp_path: Path, labels: tuple[object, object], suffix: str, capsys: Capture
) -> None:
    frame = small_frame(200)
    good = pl.Series("good", [labels[i] for i in frame["good"]])
    table = save(frame.with_columns(good), tmp_path / f"t.{suffix}")
    assert fit(table, tmp_path / "run") == 0
    predicted = tmp_path / f"p.{suffix}"
    assert main(["predict", str(tmp_path / "run"), str(table), "--out", str(predicted)]) == 0
    found = pl.read_csv(predicted) if suffix == "csv" else pl.read_parquet(predicted)
    spelled = ["false" if x is False else "true" if x is True else x for x in sorted(labels)]  # type: ignore[type-var]
    names = spelled if suffix == "csv" else sorted(labels)  # type: ignore[type-var]
    assert found.columns == ["prediction", *(f"probability_{name}" for name in names)]
    assert set(found["prediction"].unique()) == set(labels)
    assert found["prediction"].dtype == good.dtype
    likelier = found[:, 2] > found[:, 1]
    assert found["prediction"].to_list() == [sorted(labels)[x] for x in likelier]  # type: ignore[type-var]
    assert main(["evaluate", str(tmp_path / "run"), str(table), "--json"]) == 0


def test_an_unknown_label_at_evaluation(tmp_path: Path, capsys: Capture) -> None:
    assert fit(save(small_frame(), tmp_path / "t.csv"), tmp_path / "run") == 0
    other = save(small_frame(20).with_columns(good=pl.lit(7)), tmp_path / "other.csv")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), str(other)]) == 2
    assert states(capsys.readouterr().err, "target 'good'", "'0'", "'1'", "'7'")


def test_validation_without_a_class(tmp_path: Path, capsys: Capture) -> None:
    frame = small_frame(200).sort("good")
    n_zero = int((frame["good"] == 0).sum())
    part = ["validation"] * 20 + ["train"] * (n_zero - 20 + 50) + ["test"] * (200 - n_zero - 50)
    table = save(frame.with_columns(part=pl.Series(part)), tmp_path / "t.csv")
    words = ["--set", "split.method=column", "--set", "split.column=part"]
    assert fit(table, tmp_path / "run", *words) == 0
    assert states(capsys.readouterr().err, "warning", "validation", "class '1'")
    metrics = Run.open(tmp_path / "run").metrics
    assert set(metrics["validation"]) == {"logloss", "calibration_error", "loss"}
    assert all(np.isfinite(v) for values in metrics.values() for v in values.values())


# --- values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numeric", ["scale", "quantile", "log2"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_infinite_numbers_are_refused(tmp_path: Path, suffix: str, numeric: str, capsys: Capture) -> None:
    size = pl.when(pl.int_range(pl.len()) == 3).then(float("inf")).otherwise(pl.col("size").abs())
    table = save(small_frame(80).with_columns(size=size), tmp_path / f"t.{suffix}")
    words = ["--set", f"data.numeric={numeric}", "--set", "split.test=0", "--set", "data.kinds.size=numerical"]
    message = refused(table, capsys, *words)
    assert states(message, "column 'size'", "finite numbers", "row", "inf", "data.missing_values")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_infinite_targets_are_refused(tmp_path: Path, suffix: str, capsys: Capture) -> None:
    value = pl.when(pl.int_range(pl.len()) == 3).then(float("-inf")).otherwise(pl.col("size"))
    table = save(small_frame(80).with_columns(value=value), tmp_path / f"t.{suffix}")
    message = refused(table, capsys, target="value")
    assert states(message, "column 'value'", "finite numbers", "row 3", "-inf")


@pytest.mark.parametrize("numeric", ["scale", "quantile"])
def test_nan_numbers_are_missing(tmp_path: Path, numeric: str, capsys: Capture) -> None:
    size = pl.when(pl.int_range(pl.len()) % 4 == 3).then(float("nan")).otherwise(pl.col("size"))
    table = save(small_frame(80).with_columns(size=size), tmp_path / "t.parquet")
    assert fit(table, tmp_path / "run", "--set", f"data.numeric={numeric}") == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(table)]) == 0
    shown = capsys.readouterr()
    assert states(shown.err, "size", "0.00%", "25.00%")
    assert "nan" not in shown.out.lower()


def test_a_category_of_10000_characters(tmp_path: Path, capsys: Capture) -> None:
    long = "x" * 10_000
    table = save(small_frame(100).with_columns(pl.col("colour").replace("red", long)), tmp_path / "t.csv")
    assert fit(table, tmp_path / "run") == 0
    assert long in Bundle.load(tmp_path / "run" / "bundle").encoder.values("colour").to_list()
    assert main(["describe", str(table), "--target", "good"]) == 0
    assert states(capsys.readouterr().out, "10000 characters")
    assert main(["predict", str(tmp_path / "run"), str(table)]) == 0
    assert "no unknown values" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_field_that_is_all_missing(tmp_path: Path, suffix: str, capsys: Capture) -> None:
    table = save(small_frame(100).with_columns(empty=pl.lit(None, pl.String)), tmp_path / f"t.{suffix}")
    assert fit(table, tmp_path / "run") == 0
    assert states(capsys.readouterr().err, "warning", "'empty'", "missing")
    schema = Bundle.load(tmp_path / "run" / "bundle").encoder.schema
    assert schema.field_names == ("colour", "shape", "size")
    assert fit(table, tmp_path / "kept", "--set", 'data.fields=["colour", "shape", "empty"]') == 0
    assert main(["predict", str(tmp_path / "kept"), str(table)]) == 0


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_integers_beyond_2_to_the_53_are_exact(tmp_path: Path, suffix: str) -> None:
    frame = small_frame(200)
    # As floats these neighbours would all be one number.
    user = pl.Series("user", [2**60 + (g + 2 * (i % 3)) for i, g in enumerate(frame["good"])])
    table = save(frame.with_columns(user), tmp_path / f"t.{suffix}")
    assert fit(table, tmp_path / "run", "--set", "data.kinds.user=categorical") == 0
    values = Bundle.load(tmp_path / "run" / "bundle").encoder.values("user").to_list()
    assert {str(2**60 + k) for k in range(6)} <= set(values)


def test_large_integers_are_taken_for_categories_by_themselves(tmp_path: Path) -> None:
    user = pl.Series("user", [2**60 + i % 6 for i in range(200)])
    table = save(small_frame(200).with_columns(user), tmp_path / "t.parquet")
    assert fit(table, tmp_path / "run") == 0
    encoder = Bundle.load(tmp_path / "run" / "bundle").encoder
    assert {f.name: f.kind for f in encoder.schema.fields}["user"] == "categorical"
    assert {str(2**60 + k) for k in range(6)} <= set(encoder.values("user").to_list())


def test_one_field_is_not_enough(tmp_path: Path, capsys: Capture) -> None:
    table = save(small_frame(50).select("colour", "good"), tmp_path / "t.csv")
    assert states(refused(table, capsys), "two fields", "colour")


def test_a_field_absent_at_predict_time_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert fit(save(small_frame(), tmp_path / "t.csv"), tmp_path / "run") == 0
    other = save(small_frame(20).rename({"shape": "Shape"}).drop("size"), tmp_path / "other.csv")
    capsys.readouterr()
    out = tmp_path / "p.csv"
    assert main(["predict", str(tmp_path / "run"), str(other), "--out", str(out)]) == 2
    message = capsys.readouterr().err
    assert "'Shape'" in message
    assert states(message, "'shape'", "'size'")
    assert not out.exists()


# --- disk full ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if not made or made.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_disk_full_while_training_keeps_the_old_run(tmp_path: Path, small_disk: Path, capsys: Capture) -> None:
    table = save(small_frame(), tmp_path / "t.csv")
    plain = ("--set", "model.direct=none")
    assert fit(table, small_disk / "run", *plain) == 0
    old = files(small_disk / "run")
    capsys.readouterr()
    assert fit(table, small_disk / "run", "--force", *plain, "--set", "model.hidden=[400, 400]") == 2
    message = capsys.readouterr().err
    assert states(message, "error", "cannot write", "No space left on device")
    assert "Traceback" not in message
    assert {k: v for k, v in files(small_disk / "run").items() if not k.startswith("checkpoint/")} == old
    assert main(["evaluate", str(small_disk / "run"), str(table)]) == 0


def test_disk_full_while_predicting_keeps_the_old_file(tmp_path: Path, small_disk: Path, capsys: Capture) -> None:
    assert fit(save(small_frame(), tmp_path / "t.csv"), tmp_path / "run") == 0
    noise = pl.Series("noise", np.random.default_rng(0).normal(size=50_000))
    big = save(small_frame(50_000).with_columns(noise), tmp_path / "big.parquet")
    capsys.readouterr()
    for name in ("p.csv", "p.parquet"):
        out = write(small_disk / name, "the old file")
        assert main(["predict", str(tmp_path / "run"), str(big), "--out", str(out), "--keep", "noise"]) == 2
        message = capsys.readouterr().err
        assert states(message, "error", out, "untouched")
        assert out.read_text() == "the old file"
        assert list(small_disk.iterdir()) == [out]
        out.unlink()


@pytest.mark.parametrize("failing", ["checkpoint.safetensors", "history.jsonl", "metrics.json", "manifest.json"])
def test_disk_full_at_any_file(tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    table = save(small_frame(), tmp_path / "t.csv")
    out = tmp_path / "run"
    assert fit(table, out) == 0
    old = files(out)
    real = os.fsync

    def full(handle: int) -> None:
        if failing in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        capsys.readouterr()
        assert fit(table, out, "--force", "--seed", "1") == 2
    message = capsys.readouterr().err
    assert states(message, "error", "cannot write", "No space left on device")
    assert {k: v for k, v in files(out).items() if not k.startswith("checkpoint/")} == old
    assert fit(table, out, "--resume", "--seed", "1") == 0
    assert Run.open(out).config.train.seed == 1
    assert fit(table, tmp_path / "straight", "--seed", "1") == 0
    assert files(out / "bundle") == files(tmp_path / "straight" / "bundle")


# --- interrupt ------------------------------------------------------------------------------------------------


def start(command: list[str]) -> subprocess.Popen[str]:
    """A process that can be interrupted even where this one was told to ignore interrupts."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_interrupt_while_training_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    table = save(small_frame(3000), tmp_path / "t.csv")
    out = tmp_path / "run"
    words = ["fit", str(table), "--target", "good", "--out", str(out), "--set", "train.max_epochs=200"]
    words += ["--set", "train.patience=1000", "--set", "train.threads=1", "--set", "model.hidden=[8]"]
    process = start([sys.executable, "-m", "fielddep", *words])
    history = out / "checkpoint" / "history.jsonl"
    deadline = time.monotonic() + 60
    while (
        process.poll() is None
        and not (history.exists() and history.read_text().count("\n") >= 2)
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr
    said = stderr.splitlines()
    assert states(said[-2], "interrupted", "checkpoint")
    command = shlex.split(said[-1])
    assert command[:2] == ["fielddep", "fit"]
    assert command[-1] == "--resume"
    assert (out / "checkpoint" / "checkpoint.safetensors").is_file()
    epochs = [json.loads(line)["epoch"] for line in history.read_text().splitlines()]
    # The same command goes on; fewer epochs would be another setting and are refused.
    assert main([*words, "--resume", "--set", "train.max_epochs=3"]) == 2
    second = start([sys.executable, "-m", *command])
    assert second.stderr is not None
    first_line = next(line for line in second.stderr if line.startswith("epoch "))
    second.send_signal(signal.SIGINT)
    second.communicate()
    assert second.returncode == 130
    # The last evaluation is done again only if the interrupt came before its checkpoint.
    assert float(first_line.split()[1]) >= round(epochs[-1], 2)
