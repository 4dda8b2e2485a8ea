"""Progress: a bar on a terminal, lines elsewhere, nothing if quiet."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fielddep.cli.progress import ProgressBar, progress
from fielddep.observer import JobResult, Observer, Observers
from fielddep.training.fit import fit
from fielddep.training.prepare import prepare
from tests.conftest import quick_config, small_frame
from tests.helpers import states


def bar_of(text: io.StringIO, *, terminal: bool) -> ProgressBar:
    return ProgressBar(Console(file=text, force_terminal=terminal, width=200))


class Refresh(Observer):
    """Draws the bar after every step, because such a short training would end before the next refresh."""

    def __init__(self, bar: ProgressBar) -> None:
        self.bar = bar

    def on_step(self, step: int, n_rows: int, loss: float) -> None:
        self.bar.live.refresh()


def test_a_training_on_a_terminal() -> None:
    text = io.StringIO()
    bar = bar_of(text, terminal=True)
    with bar.live:
        fit(small_frame(), quick_config(train__batch_size=20), observer=Observers(bar, Refresh(bar)))
    assert states(text.getvalue(), "epoch 1/4", "epoch 4/4", "rows/s")
    assert "loss 0." in text.getvalue() and "validation 0." in text.getvalue()


def test_elsewhere_one_line_per_evaluation() -> None:
    text = io.StringIO()
    bar = bar_of(text, terminal=False)
    with bar.live:
        history = fit(small_frame(), quick_config(model__direct="none"), observer=bar).history
    lines = text.getvalue().splitlines()
    assert len(lines) == len(history)
    assert states(lines[0], f"logloss {history[0].validation['logloss']:.4f}")
    assert lines[0].endswith("*")


def test_a_resumed_training_starts_within_its_epoch() -> None:
    bar = bar_of(io.StringIO(), terminal=False)
    prepared = prepare(small_frame(), quick_config(train__batch_size=40))
    n_rows = len(prepared.parts["train"])
    bar.on_prepared(prepared)
    bar.on_part("", -(-n_rows // 40), 4)
    bar.on_step(-(-n_rows // 40) + 2, 40, 0.5)
    (task,) = bar.live.tasks
    assert (task.completed, task.total, task.description) == (2, -(-n_rows // 40), "epoch 2/4")


def test_stages_are_logged_once() -> None:
    text = io.StringIO()
    bar = bar_of(text, terminal=False)
    for stage, n_rows, share in [("read", 10, None), ("read", 20, 0.5), ("split", 0, 0.0), ("encode", 20, 1.0)]:
        bar.on_stage(stage, n_rows, share)
    assert len(text.getvalue().splitlines()) == 3
    assert bar.live.tasks[0].completed == 1.0


def test_jobs() -> None:
    text = io.StringIO()
    bar = bar_of(text, terminal=False)
    bar.on_plan("runs", 2, 3)
    bar.on_job("fm seed 0", None)
    assert bar.live.tasks[0].description == "fm seed 0"
    bar.on_job("fm seed 0", JobResult(state="complete", metrics={"auc": 0.75, "logloss": 0.5}, seconds=61.0))
    bar.on_job("fm seed 1", JobResult(state="failed", reason="no memory"))
    plan, complete, failed = text.getvalue().splitlines()
    assert states(plan, "2 runs", "3 done")
    assert states(complete, "fm seed 0", "logloss 0.5000", "auc 0.7500", "1 min 1 s")
    assert states(failed, "fm seed 1", "failed", "no memory")
    assert (bar.live.tasks[0].completed, bar.live.tasks[0].total) == (5, 5)


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(True) as observer:
        fit(small_frame(), quick_config(), observer=observer)
    assert capsys.readouterr() == ("", "")
