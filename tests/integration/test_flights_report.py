"""The report of a model of 327,346 real flights is quick to make and small enough to send.

Time is that of the processor, of all threads together: how busy the machine is does not matter. What it does not catch:
a report that waits. Measured were 3 seconds and 5 MB, most of it Plotly's own script.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fielddep.artifacts.run import REPORT
from fielddep.cli import main
from fielddep.datasets.flights import N_ROWS, TARGET, load_flights
from fielddep.errors import MissingExtraError

MAX_SECONDS = 20
MAX_BYTES = 8_000_000
QUICK = ("train.max_epochs=1", "train.eval_every=1", "train.threads=1", "data.crosses=none", "model.d_embed=8")


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """All flights as a file."""
    try:
        frame = load_flights()
    except MissingExtraError as error:
        pytest.skip(str(error))
    frame.write_parquet(tmp_path / "flights.parquet")
    return tmp_path / "flights.parquet"


def test_the_report_of_all_flights_is_small_and_quick(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly", reason="Plotly is not installed; pip install 'fielddep[report]'")
    run = flights.parent / "run"
    words = [word for text in QUICK for word in ("--set", text)]
    assert main(["fit", str(flights), "--target", TARGET, "--out", str(run), "--quiet", "--no-report", *words]) == 0
    assert not (run / REPORT).exists()
    capsys.readouterr()
    start = time.process_time()
    assert main(["report", str(run), str(flights)]) == 0
    seconds = time.process_time() - start
    assert capsys.readouterr().out.startswith(f"{N_ROWS // 10 + 1:,} test rows")
    assert seconds < MAX_SECONDS
    assert 1_000_000 < (run / REPORT).stat().st_size < MAX_BYTES
