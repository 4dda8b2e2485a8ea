"""Memory of an encoding: it grows with the different values of a table, not with its rows.

What this does not catch: growth of less than a few bytes a row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

CODE = """
import sys
from fielddep.config.settings import Config
from fielddep.tables import delimited as delimited_rows
from fielddep.store.build import build_store

delimited_rows.CHUNK_BYTES = 1 << 20  # so that the smaller table has many blocks too
settings = {"data.target": "good", "data.crosses": "none", "data.evidence": "none"}
build_store(sys.argv[1], Config().replace(settings), sys.argv[2])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
ROWS, TIMES = 1_000_000, 4
BYTES_A_ROW = 8
"""Growth that is let pass; the text has about 30 bytes a row, and would take many more in memory."""


def peak_kb(table: Path, store: Path) -> int:
    done = subprocess.run([sys.executable, "-c", CODE, str(table), str(store)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, size, ROWS) for name, size in (("a", 9), ("b", 500), ("c", 50_000), ("d", 30))}
    table = pl.DataFrame({**columns, "e": rng.normal(size=ROWS).round(2), "good": rng.integers(0, 2, ROWS)})
    text = table.write_csv().encode()
    header, _, rows = text.partition(b"\n")
    (tmp_path / "once.csv").write_bytes(text)
    with (tmp_path / "often.csv").open("wb") as file:
        file.write(header + b"\n")
        for _ in range(TIMES):
            file.write(rows)
    once = peak_kb(tmp_path / "once.csv", tmp_path / "a")
    often = peak_kb(tmp_path / "often.csv", tmp_path / "b")
    assert (often - once) * 1024 < BYTES_A_ROW * ROWS * (TIMES - 1)
