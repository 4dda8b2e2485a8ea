"""Processes: commands that run side by side, so many at a time, each with a log of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fielddep.errors import UserError

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""How long a process may take to end when it is asked to."""
PARENT = "FIELDDEP_PARENT"
"""Variable of the environment that tells a task which process started it."""
_TERMINATIONS = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Requests to terminate; SIGHUP comes when a terminal is closed, and is none on Windows."""
_PR_SET_PDEATHSIG = 1
"""Linux: send me a signal when my parent ends."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A command to run.

    Attributes:
        title: what it does.
        command: its words.
        log: file of all that it prints.
        on_end: told how it ended: None for a success, else the reason.
    """

    title: str
    command: list[str]
    log: Path
    on_end: Callable[[str | None], None]


def run_tasks(tasks: Iterable[Task], *, n_jobs: int = 1, on_begin: Callable[[Task], None] | None = None) -> None:
    """Run all tasks in their order, `n_jobs` at a time. Whatever ends this early ends the processes too.

    Raises:
        UserError: for fewer than one at a time, or a log that cannot be written.
    """
    if n_jobs < 1:
        raise UserError(f"expected at least one process at a time, given {n_jobs}")
    waiting, running = list(tasks), dict[int, tuple[Task, subprocess.Popen[bytes]]]()
    with _termination_raised():
        try:
            while waiting or running:
                while waiting and len(running) < n_jobs:
                    task = waiting.pop(0)
                    if on_begin is not None:
                        on_begin(task)
                    process = _start(task)
                    running[process.pid] = (task, process)
                time.sleep(POLL_SECONDS)
                for pid, (task, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[pid]
                        task.on_end(_reason(task, process.returncode))
        finally:
            _end([process for _, process in running.values()])


def end_with_parent() -> None:
    """Let this process be interrupted when the one that started it as a task ends, be it killed; Linux only.

    A task that ends on its own accord is not touched, nor is a process that is no task.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is None or threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT))
        if os.getppid() != int(parent):  # it ended before it could be watched
            raise KeyboardInterrupt


@contextlib.contextmanager
def _termination_raised() -> Iterator[None]:
    """Let a request to terminate end this process by an exception, so that those it started end too."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled(_TERMINATIONS, stop):
        yield


@contextlib.contextmanager
def _handled(signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle signals; those that are ignored, as by `nohup`, stay ignored."""
    if threading.current_thread() is not threading.main_thread():  # only that one may handle signals
        yield
        return
    heeded = {number: signal.getsignal(number) for number in signals}
    heeded = {number: before for number, before in heeded.items() if before not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in heeded.items():
            signal.signal(number, before)


def _start(task: Task) -> subprocess.Popen[bytes]:
    try:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("wb") as log:
            # In a session of its own it is interrupted once, by `_end`, and not by the terminal too.
            return subprocess.Popen(
                task.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, PARENT: str(os.getpid())},
            )
    except OSError as error:
        raise UserError(f"cannot run {task.title}: {error.strerror or error} ({task.log})") from error


def _reason(task: Task, code: int) -> str | None:
    if code == 0:
        return None
    if code < 0:
        name = signal.Signals(-code).name
        memory = "; perhaps for want of memory" if -code == getattr(signal, "SIGKILL", 0) else ""
        return f"the process was killed ({name}){memory}"
    lines = task.log.read_text("utf-8", errors="replace").strip().splitlines()
    return (lines[-1] if lines else f"ended with code {code}").removeprefix("error: ")


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes, so that they can put their work in order; kill those that take too long.

    Whoever is impatient and interrupts again changes nothing: none may be left behind.
    """
    with _handled((signal.SIGINT, *_TERMINATIONS), lambda number, frame: None):
        for process in processes:
            process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE_SECONDS
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def n_threads(asked: int | None, n_jobs: int) -> int:
    """Threads of each of several processes: what is asked for, else an even share of the processors."""
    return asked or max(1, (os.cpu_count() or 1) // max(1, n_jobs))
