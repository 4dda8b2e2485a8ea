"""Commands side by side: their order, how many at a time, how they end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fielddep.errors import UserError
from fielddep.experiments.processes import Task, n_threads, run_tasks


def task(folder: Path, title: str, code: str, ended: list[tuple[str, str | None]]) -> Task:
    return Task(
        title=title,
        command=[sys.executable, "-S", "-c", code],
        log=folder / "logs" / f"{title}.log",
        on_end=lambda reason: ended.append((title, reason)),
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('fine')", None),
        ("import sys; print('loading'); sys.exit('error: no such file')", "no such file"),
        ("import os; os._exit(3)", "ended with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "the process was killed (SIGKILL); perhaps for want of memory"),
    ],
)
def test_how_a_process_ended_is_told(code: str, reason: str | None, tmp_path: Path) -> None:
    ended: list[tuple[str, str | None]] = []
    run_tasks([task(tmp_path, "a", code, ended)])
    assert ended == [("a", reason)]


def test_tasks_run_in_order_and_not_more_than_allowed_at_a_time(tmp_path: Path) -> None:
    ended: list[tuple[str, str | None]] = []
    begun: list[str] = []

    def begin(task: Task) -> None:
        begun.append(task.title)
        assert len(begun) - len(ended) <= 2

    tasks = [task(tmp_path, name, "import time; time.sleep(0.1)", ended) for name in "abcd"]
    run_tasks(tasks, n_jobs=2, on_begin=begin)
    assert begun == list("abcd")
    assert sorted(ended) == [(name, None) for name in "abcd"]


@pytest.fixture
def heeded_interrupts() -> Iterator[None]:
    """A test run in the background of a shell inherits that interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_interrupt_ends_the_processes(number: int, error: type[BaseException], tmp_path: Path) -> None:
    def interrupt(task: Task) -> None:
        if task.title == "b":
            deadline = time.monotonic() + 60
            while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(os.getpid(), number)

    path = tmp_path / "pid"
    code = (
        f"import os, time; open({str(path) + '.new'!r}, 'w').write(str(os.getpid())); "
        f"os.rename({str(path) + '.new'!r}, {str(path)!r}); time.sleep(600)"
    )
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(error):
        run_tasks([task(tmp_path, name, code, []) for name in "ab"], n_jobs=2, on_begin=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_process_at_a_time_is_refused() -> None:
    with pytest.raises(UserError, match="at least one process"):
        run_tasks([], n_jobs=0)


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [n_threads(3, 2), n_threads(None, 3), n_threads(None, 20)] == [3, 2, 1]
