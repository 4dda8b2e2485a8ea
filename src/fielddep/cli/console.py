"""Consoles of the commands: results on stdout, everything else on stderr. Texts are never read as markup."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Width of tables that are not shown on a terminal."""
METRICS = ("logloss", "auc", "accuracy", "mse", "mae", "calibration_error")
"""Metrics in the order they are shown."""


def console(*, stderr: bool = False) -> Console:
    """A console for now; made anew each time, as the streams of a process may be replaced."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def say(text: str) -> None:
    """One line of log."""
    console(stderr=True).print(text, soft_wrap=True)


def print_error(text: str) -> None:
    """An error that the user can mend."""
    _print_marked("error: ", "bold red", text)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", texts: Collection[str] = ()
) -> None:
    """A table of results.

    Args:
        header: column names.
        rows: cells.
        title: line above.
        texts: columns set flush left, as the first always is; the others hold numbers.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for position, name in enumerate(header):
        table.add_column(name, justify="left" if position == 0 or name in texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    stream = console()
    if title:
        stream.print(title, style="bold", soft_wrap=True)
    stream.print(table)


def print_metrics(columns: Mapping[str, Mapping[str, float]], *, title: str = "") -> None:
    """Metrics of one or more models side by side; one that a set does not have is shown as a dash."""
    found = {name for values in columns.values() for name in values}
    rows = [
        [name, *(f"{values[name]:.4f}" if name in values else "-" for values in columns.values())]
        for name in METRICS
        if name in found
    ]
    print_table(["metric", *columns], rows, title=title)


@contextlib.contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Show what the library warns of while a command runs."""
    logger = logging.getLogger("fielddep")
    handler = _WarningHandler(level=logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _print_marked("warning: ", "yellow", record.getMessage())


def _print_marked(mark: str, style: str, text: str) -> None:
    from rich.text import Text

    console(stderr=True).print(Text(mark, style=style), Text(text), sep="", soft_wrap=True)
