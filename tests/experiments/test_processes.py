"""Functions in processes side by side: their order, how many at a time, what they return and how they end."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fielddep.errors import UserError
from fielddep.experiments import processes
from fielddep.experiments.processes import Outcome, Task, run_tasks


def task(folder: Path, title: str, code: str, ended: list[tuple[str, str | None]] | None = None) -> Task[None]:
    def end(outcome: Outcome[None]) -> None:
        if ended is not None:
            ended.append((title, outcome.failure))

    return Task(title=title, call=partial(exec, code, {}), log=folder / "logs" / f"{title}.log", on_end=end)


def says_its_number(path: Path) -> str:
    """Code of a process that writes its number into a file and goes on for long."""
    new = f"{path}.new"
    write = f"open({new!r}, 'w').write(str(os.getpid())); os.rename({new!r}, {str(path)!r})"
    return f"import os, time; {write}; time.sleep(600)"


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('fine')", None),
        ("import sys; print('loading'); sys.exit('error: no such file')", "no such file"),
        ("raise ValueError('no rows')", "ValueError: no rows"),
        ("from fielddep.errors import UserError; raise UserError('no rows')", "no rows"),
        ("import os; os._exit(3)", "3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_how_a_process_ended_is_told(code: str, reason: str | None, tmp_path: Path) -> None:
    ended: list[tuple[str, str | None]] = []
    [outcome] = run_tasks([task(tmp_path, "a", code, ended)])
    assert ended == [("a", outcome.failure)]
    assert outcome.failure is None if reason is None else reason in str(outcome.failure)


def test_values_are_returned_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    texts = ["[1, 2]", "'x' * 10**6", "print('noise') or 3"]
    tasks = [Task(title=text, call=partial(eval, text), log=tmp_path / f"{at}") for at, text in enumerate(texts)]
    assert [outcome.value for outcome in run_tasks(tasks, n_jobs=3)] == [[1, 2], "x" * 10**6, 3]
    assert (tmp_path / "2").read_text() == "noise\n"


def test_a_value_counts_whatever_happens_to_the_process_afterwards(tmp_path: Path) -> None:
    code = "(__import__('atexit').register(__import__('os').kill, __import__('os').getpid(), 9), 'value')[1]"
    [outcome] = run_tasks([Task(title="a", call=partial(eval, code), log=tmp_path / "log")])
    assert (outcome.value, outcome.failure) == ("value", None)


def test_a_child_finds_modules_where_its_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("only_here").double
    assert run_tasks([Task(title="a", call=partial(double, 4), log=tmp_path / "log")])[0].value == 8


def test_tasks_run_in_order_and_not_more_than_allowed_at_a_time(tmp_path: Path) -> None:
    ended: list[tuple[str, str | None]] = []
    begun: list[str] = []

    def begin(task: Task[None]) -> None:
        begun.append(task.title)
        assert len(begun) - len(ended) <= 2

    tasks = [task(tmp_path, name, "import time; time.sleep(0.1)", ended) for name in "abcd"]
    run_tasks(tasks, n_jobs=2, on_begin=begin)
    assert begun == list("abcd")
    assert sorted(ended) == [(name, None) for name in "abcd"]


@pytest.fixture
def heeded_signals() -> Iterator[None]:
    """Run in the background of a shell a test inherits that interrupts are ignored, under `nohup` that hangups are."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)],
)
def test_an_interrupt_ends_the_processes(number: int, error: type[BaseException], tmp_path: Path) -> None:
    def interrupt(task: Task[None]) -> None:
        if task.title == "b":
            wait_for(tmp_path / "pid")
            os.kill(os.getpid(), number)

    code = says_its_number(tmp_path / "pid")
    before = signal.getsignal(number)
    with pytest.raises(error):
        run_tasks([task(tmp_path, name, code) for name in "ab"], n_jobs=2, on_begin=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert signal.getsignal(number) is before


@pytest.fixture
def ignored_hangups() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("ignored_hangups")
def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    ended: list[tuple[str, str | None]] = []
    tasks = [task(tmp_path, name, "import time; time.sleep(0.1)", ended) for name in "ab"]
    run_tasks(tasks, on_begin=lambda task: os.kill(os.getpid(), signal.SIGHUP))
    assert ended == [("a", None), ("b", None)]


@pytest.mark.usefixtures("heeded_signals")
def test_a_second_interrupt_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not heed an interrupt is killed, though the user interrupts while that is waited for."""
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    path = tmp_path / "pid"

    def interrupt(task: Task[None]) -> None:
        if task.title == "b":
            wait_for(path)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            raise KeyboardInterrupt

    code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {says_its_number(path)}"
    with pytest.raises(KeyboardInterrupt):
        run_tasks([task(tmp_path, name, code) for name in "ab"], n_jobs=2, on_begin=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_a_task_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    parent = (
        "from functools import partial; from pathlib import Path; "
        "from fielddep.experiments.processes import Task, run_tasks; "
        f"call = partial(exec, {says_its_number(path)!r}); "
        f"run_tasks([Task(title='a', call=call, log=Path({str(tmp_path / 'log')!r}))])"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        wait_for(path)
        process.kill()
    number, deadline = int(path.read_text()), time.monotonic() + 60
    while is_running(number) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(number)


def is_running(number: int) -> bool:
    """Whether there is such a process; one that ended may wait for whoever inherited it."""
    try:
        return "State:\tZ" not in Path(f"/proc/{number}/status").read_text("utf-8")
    except OSError:
        return False


def test_no_process_at_a_time_is_refused() -> None:
    with pytest.raises(UserError, match="0"):
        run_tasks([], n_jobs=0)
