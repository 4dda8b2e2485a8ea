"""Processes: functions called in parallel, each in its own process with its own log.

Each has its own peak memory, and one that is killed does not affect the others. All of them end with the process that
started them, however that one ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Generic, TypeVar

from fielddep.errors import UserError

T = TypeVar("T")

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""How long a process may take to end when asked to."""
PARENT = "FIELDDEP_PARENT"
"""Environment variable that names the parent of a child process."""
_TERMINATIONS = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Requests to terminate; SIGHUP comes when a terminal is closed, and does not exist on Windows."""
_PR_SET_PDEATHSIG = 1
"""Linux: send me a signal when my parent ends."""
_CHILD = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from fielddep.experiments.processes import call_in_child; call_in_child()"
)
"""What a child runs. It has its parent's module path, and never imports the parent's main script."""


@dataclass(frozen=True, kw_only=True)
class Task(Generic[T]):
    """A function to call in its own process.

    Attributes:
        title: what it does.
        call: the function with its arguments, picklable.
        log: file of everything it prints.
        on_end: called with the outcome as soon as it is known.
    """

    title: str
    call: Callable[[], T]
    log: Path
    on_end: Callable[[Outcome[T]], None] = lambda outcome: None


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[T]):
    """How a task ended: what the function returned, or why it failed; `started` is False if it never ran."""

    value: T | None = None
    failure: str | None = None
    started: bool = True


def run_tasks(
    tasks: Sequence[Task[T]],
    *,
    n_jobs: int = 1,
    on_begin: Callable[[Task[T]], None] = lambda task: None,
    may_start: Callable[[], bool] = lambda: True,
) -> list[Outcome[T]]:
    """Run tasks in order, `n_jobs` at a time, and return their outcomes in the same order.

    Once `may_start` says no, no other task starts. If this is interrupted or fails, the running processes end too.

    Raises:
        UserError: there is less than one process at a time, or a log cannot be written.
    """
    if n_jobs < 1:
        raise UserError(f"expected at least one process at a time, given {n_jobs}")
    waiting, running = list(range(len(tasks))), dict[int, _Child]()
    outcomes: dict[int, Outcome[T]] = {}
    with _handled(_TERMINATIONS, _stop):
        try:
            while waiting or running:
                if not may_start():
                    waiting.clear()
                while waiting and len(running) < n_jobs:
                    at = waiting.pop(0)
                    on_begin(tasks[at])
                    running[at] = _Child.start(tasks[at])
                time.sleep(POLL_SECONDS)
                for at, child in list(running.items()):
                    if child.process.poll() is not None:
                        del running[at]
                        outcomes[at] = child.outcome()
                        child.task.on_end(outcomes[at])
        finally:
            _end(list(running.values()))
    return [outcomes.get(at, Outcome(started=False)) for at in range(len(tasks))]


@dataclass(frozen=True, kw_only=True)
class _Child:
    """A process, and the file it writes its outcome to."""

    task: Task[Any]
    process: subprocess.Popen[bytes]
    answer: IO[bytes]

    @classmethod
    def start(cls, task: Task[Any]) -> _Child:
        try:
            task.log.parent.mkdir(parents=True, exist_ok=True)
            answer = tempfile.TemporaryFile()  # noqa: SIM115  closed with the outcome
            with task.log.open("wb") as log:
                # A session of its own: Ctrl-C then reaches it once, through `_end`, and not from the terminal too.
                process = subprocess.Popen(
                    [sys.executable, "-c", _CHILD],
                    stdin=subprocess.PIPE,
                    stdout=answer,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, PARENT: str(os.getpid())},
                )
        except OSError as error:
            raise UserError(f"cannot run {task.title}: {error.strerror or error} ({task.log})") from error
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:  # it may have been killed already
            stream.write(pickle.dumps(sys.path) + pickle.dumps(task.call))
        return cls(task=task, process=process, answer=answer)

    def outcome(self) -> Outcome[Any]:
        """How it ended. A written outcome counts, whatever happened to the process afterwards."""
        with self.answer:
            self.answer.seek(0)
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                found: Outcome[Any] = pickle.load(self.answer)
                return found
        return Outcome(failure=_reason(self.task, self.process.returncode))


def call_in_child() -> None:
    """Read a function from the standard input, call it, and write its outcome to the standard output."""
    end_with_parent()
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # prints of the function go to the log
        try:
            outcome = Outcome(value=pickle.load(sys.stdin.buffer)())
        except Exception as error:
            traceback.print_exc()
            outcome = Outcome(failure=reason_of(error))
        pickle.dump(outcome, answer)


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}".rstrip(": ")


def end_with_parent() -> None:
    """Have this child process interrupted when its parent ends, even by a kill (Linux only)."""
    parent = os.environ.pop(PARENT, None)
    if parent is None or threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a shell
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT))
        if os.getppid() != int(parent):  # it ended before it could be watched
            raise KeyboardInterrupt


def _stop(number: int, frame: FrameType | None) -> None:
    """End this process by an exception, so that its children are ended too."""
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _handled(signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals by a function; those that are ignored, as with `nohup`, stay ignored."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return
    replaced = {number: signal.getsignal(number) for number in signals}
    replaced = {number: before for number, before in replaced.items() if before not in (signal.SIG_IGN, None)}
    for number in replaced:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in replaced.items():
            signal.signal(number, before)


def _reason(task: Task[Any], code: int) -> str:
    """Why a process ended without an outcome."""
    if code < 0:
        name = signal.Signals(-code).name
        memory = "; perhaps it ran out of memory" if -code == getattr(signal, "SIGKILL", 0) else ""
        return f"the process was killed ({name}){memory}"
    lines = task.log.read_text("utf-8", errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"ended with code {code}").removeprefix("error: ")


def _end(children: list[_Child]) -> None:
    """Interrupt processes, so that they can clean up; kill those that take too long.

    Further interrupts are ignored meanwhile, because no process may be left behind.
    """
    with _handled((signal.SIGINT, *_TERMINATIONS), lambda number, frame: None):
        for child in children:
            child.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE_SECONDS
        for child in children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.answer.close()
