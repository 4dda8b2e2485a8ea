"""Grids on the terminal: the best in bold, and columns that do not fit beside each other below each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fielddep.cli.console import console

if TYPE_CHECKING:
    from rich.text import Text

    from fielddep.experiments.grid import Cell, Grid

_PADDING = 3
"""Characters beside a cell: blanks around it and what divides it from the next."""


def print_grid(grid: Grid) -> None:
    """Caption, as many tables as the width asks for, notes."""
    from rich import box
    from rich.table import Table

    stream = console()
    stream.print(grid.caption, style="bold", soft_wrap=True)
    for places in columns_by_width(grid, stream.width):
        table = Table(box=box.SIMPLE_HEAD)
        for place in places:
            least = _column_width(grid, place) - _PADDING  # else a long heading takes room from figures
            justify: Literal["left", "right"] = "right" if place else "left"
            table.add_column(grid.header[place], justify=justify, overflow="fold", min_width=least)
        for row in grid.rows:
            table.add_row(*(_text(row[place]) for place in places))
        stream.print(table)
    for note in grid.notes:
        stream.print(note, soft_wrap=True)


def columns_by_width(grid: Grid, width: int) -> list[list[int]]:
    """Places of the columns of each table; the first column, which names the rows, stands in every one."""
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
    """Characters that a column needs; its heading may be broken between words."""
    words = grid.header[place].split()
    return max(map(len, [*words, *(_shown(row[place]) for row in grid.rows)]), default=0) + _PADDING


def _shown(cell: Cell) -> str:
    return cell.text + ("*" if cell.star else "")


def _text(cell: Cell) -> Text:
    from rich.text import Text

    return Text(_shown(cell), style="bold" if cell.bold else "")
