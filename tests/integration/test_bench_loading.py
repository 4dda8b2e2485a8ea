"""The benchmark of loading: a small run from store to figures. The figures themselves are not judged here."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "speed" / "loading.py"


def test_a_small_run(tmp_path: Path) -> None:
    out = tmp_path / "loading.csv"
    words = ["--shape", "frappe", "--rows", "20000", "--steps", "2", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--out", str(out), "--scratch", str(tmp_path)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["source"] for row in rows] == ["store", "in-memory"]
    for row in rows:
        assert (row["shape"], row["rows"], row["batch_rows"], row["threads"]) == ("frappe", "20000", "2048", "1")
        assert 0 < float(row["ms_per_batch"]) < float(row["ms_per_step"]) * 10
        share = float(row["ms_per_batch"]) / float(row["ms_per_step"])
        assert abs(float(row["share"]) - share) < 0.01 * share + 1e-4
    assert [path.name for path in tmp_path.iterdir()] == ["loading.csv"], "the store is removed"
