"""The peers' side of the speed benchmark, as far as it runs without their environment."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.helpers import states

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "speed"))
pytest.importorskip("lightgbm")

import peers
import peers_call
import peers_local
import shapes
from fielddep.experiments.plan import find_contender

TINY = shapes.Shape(name="tiny", fields={"a": 30, "b": 7, "c": 12}, d_embed=6, batch_rows=32)
QUICK = {"train.max_epochs": 2, "train.eval_every": 1.0, "model.d_embed": 4, "data.crosses": "none"}


def bench_table(n_rows: int = 600) -> peers_local.tables.BenchTable:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, n_rows), rng.integers(0, 5, n_rows)
    frame = pl.DataFrame(
        {"a": [f"a{i}" for i in a], "b": [f"b{i}" for i in b], "y": ((a + b) % 2).astype(np.int8)},
    )
    split = np.resize(np.array(["train"] * 8 + ["validation", "test"]), n_rows)
    return peers_local.tables.BenchTable(
        name="made", frame=frame, target="y", task="binary", split=split, fields=("a", "b")
    )


def test_rows_reach_the_programs_unchanged(tmp_path):
    table = TINY.table(100)
    data = dict(np.load(peers_call.save_rows(tmp_path / "rows.npz", {"train": table})))
    again = peers_local.table_of(data)
    assert again.layout.n_ids == (30, 7, 12)
    assert np.array_equal(again.ids_RF, table.ids_RF)
    assert np.array_equal(again.target_R, table.target_R)


def test_steps_leave_out_the_warm_up_and_the_rest(tmp_path):
    data = dict(np.load(peers_call.save_rows(tmp_path / "rows.npz", {"train": TINY.table(5 * 32 + 7)})))
    found = peers_local.steps(data, 6, 32, warm_up=2)
    assert len(found["seconds"]) == 3
    assert min(found["seconds"]) > 0


def test_the_clock_runs_with_the_training():
    table = bench_table()
    for found in (
        peers_local.best(table, find_contender("mdl").config(QUICK)),
        peers_local.best(table, find_contender("lightgbm").config({"model.num_leaves": 4, "train.threads": 1})),
    ):
        seconds = [point[0] for point in found["curve"]]
        assert seconds == sorted(seconds)
        assert all(0 < loss < 5 for _, loss in found["curve"])
        assert found["rows_per_s"] > 0
    assert found["curve"][-1][1] < found["curve"][0][1]


def test_the_median_training_is_reported():
    def result(seconds: float, loss: float) -> dict:
        curve = [[seconds / 2, loss + 0.1], [seconds, loss], [seconds * 2, loss + 0.2]]
        return {"curve": curve, "rows_per_s": seconds, "prepare_s": 1.5, "peak_mb": 10.0}

    (row,) = peers.best_rows("deepctr-deepfm-256", [result(9.0, 0.1), result(1.0, 0.3), result(4.0, 0.2)])
    assert row == {
        "what": "best", "program": "deepctr-deepfm-256", "rows_per_s": 4.0, "batch_rows": 256, "seconds": 4.0,
        "limit_s": None, "prepare_s": 1.5, "validation_loss": 0.2, "peak_mb": 10.0,
    }  # fmt: skip
    rows = peers.best_rows("lightgbm", [result(2.0, 0.5)])
    assert [row["what"] for row in rows] == ["best", "train"]
    assert "seconds" not in rows[1]


def test_a_program_that_fails_is_left_out(tmp_path, capfd):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    call = peers_call.Caller(python=program, threads=1, limit_s=60)
    assert call("steps", "deepctr-xdeepfm", tmp_path / "rows.npz", None, 4) is None
    assert states(capfd.readouterr().out, "deepctr-xdeepfm", 3)


def test_a_program_is_told_its_rows_and_heard(tmp_path):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho noise\necho "{\\"heard\\": \\"$*\\"}"\n')
    program.chmod(0o755)
    found = peers_call.Caller(python=program, threads=2, limit_s=60)(
        "best", "deepctr-deepfm-256", Path("rows.npz"), None, 16, 5
    )
    words = found["heard"].split()
    assert words[0].endswith("peers_deepctr.py")
    expected = "best --model deepfm --batch-rows 256 --limit-s 60 --data rows.npz --d-embed 16 --seed 5 --threads 2"
    assert " ".join(words[1:]) == expected


def test_tuned_programs_need_chosen_settings():
    assert peers_local.has_settings("fielddep-tuned", "frappe")
    assert peers_local.has_settings("lightgbm-tuned", "flights")
    assert not peers_local.has_settings("lightgbm-tuned", "no-such-table")
    assert peers_local.has_settings("lightgbm", "frappe")
    tuned, plain = (peers_local.config_of(p, "frappe", seed=3, threads=1) for p in ("fielddep-tuned", "fielddep"))
    assert tuned.model != plain.model
    assert tuned.train.seed == plain.train.seed == 3
    assert peers_local.config_of("lightgbm-tuned", "flights", seed=0, threads=1).model.name == "lightgbm"
