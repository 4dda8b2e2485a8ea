"""What commands print: results on stdout, everything else on stderr. Text is never read as markup.

A grid that is wider than the terminal becomes several tables below each other.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from typer.core import TyperCommand

from fielddep.config.metrics import in_order

if TYPE_CHECKING:
    from rich.console import Console

    from fielddep.experiments.rendering import Cell, Grid

PIPE_WIDTH = 160
"""Width of tables outside a terminal."""
PADDING = 3
"""Characters next to a cell: blanks around it and what divides it from the next."""


def console(*, stderr: bool = False) -> Console:
    """A new console each time, because the streams of a process may be replaced."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def log(text: str) -> None:
    """Print one log line."""
    console(stderr=True).print(text, soft_wrap=True)


class PlainCommand(TyperCommand):
    """A command whose usage shows arguments as TABLE, where Typer writes {TABLE}."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Options and arguments, as in the first line of `--help`."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


def print_error(text: str) -> None:
    """Print an error that the user can fix."""
    _print_marked("error: ", "bold red", text)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", texts: Collection[str] = ()
) -> None:
    """Print a table of results; the first column and `texts` are flush left, the others hold numbers."""
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
    """Print metrics of one or more models next to each other, with a dash for a missing one."""
    found = dict.fromkeys(name for values in columns.values() for name in values)
    rows = [
        [name, *(f"{values[name]:.4f}" if name in values else "-" for values in columns.values())]
        for name in in_order(found)
    ]
    print_table(["metric", *columns], rows, title=title)


@contextlib.contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings of the library while a command runs, each once."""
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
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.seen:
            self.seen.add(message)
            _print_marked("warning: ", "yellow", message)


def _print_marked(mark: str, style: str, text: str) -> None:
    from rich.text import Text

    console(stderr=True).print(Text(mark, style=style), Text(text), sep="", soft_wrap=True)


def print_grid(grid: Grid) -> None:
    """Caption, one or more tables with the best in bold, and notes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    stream = console()
    stream.print(grid.caption, style="bold", soft_wrap=True)
    for places in columns_by_width(grid, stream.width):
        table = Table(box=box.SIMPLE_HEAD)
        for place in places:
            least = _column_width(grid, place) - PADDING  # or a long heading takes room from figures
            justify: Literal["left", "right"] = "right" if place else "left"
            table.add_column(grid.header[place], justify=justify, overflow="fold", min_width=least)
        for row in grid.rows:
            cells = [row[place] for place in places]
            table.add_row(*(Text(_shown(cell), style="bold" if cell.bold else "") for cell in cells))
        stream.print(table)
    for note in grid.notes:
        stream.print(note, soft_wrap=True)


def columns_by_width(grid: Grid, width: int) -> list[list[int]]:
    """Positions of the columns of each table; the first column, which names the rows, is in all of them."""
    tables: list[list[int]] = []
    free = 0
    for place in range(1, len(grid.header)):
        needed = _column_width(grid, place)
        if not tables or needed > free:
            tables.append([0])
            free = width - 1 - _column_width(grid, 0)
        tables[-1].append(place)
        free -= needed
    return tables or [[0]]


def _column_width(grid: Grid, place: int) -> int:
    """Characters that a column needs; its heading may break between words."""
    words = grid.header[place].split()
    return max(map(len, [*words, *(_shown(row[place]) for row in grid.rows)]), default=0) + PADDING


def _shown(cell: Cell) -> str:
    return cell.text + ("*" if cell.star else "")
