"""Tables on a terminal that is too narrow for them."""

from __future__ import annotations

import pytest

from fielddep.cli.console import columns_by_width, print_grid
from fielddep.experiments.rendering import Cell, Grid

GRID = Grid(
    caption="flights",
    header=("model", "logloss", "AUC", "peak memory (MB)"),
    rows=(
        (Cell(text="mdl"), Cell(text="0.1053 ± 0.0041", bold=True), Cell(text="0.9881"), Cell(text="1,234 ± 5")),
        (Cell(text="fm"), Cell(text="0.1100 ± 0.0001", star=True), Cell(text="0.9870"), Cell(text="321 ± 5")),
    ),
    notes=("a note",),
)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (49, [[0, 1, 2, 3]]),
        (48, [[0, 1, 2], [0, 3]]),
        (30, [[0, 1], [0, 2, 3]]),
        (5, [[0, 1], [0, 2], [0, 3]]),  # a column that fits nowhere still has a table
    ],
)
def test_columns_that_do_not_fit_go_below(width: int, expected: list[list[int]]) -> None:
    assert columns_by_width(GRID, width) == expected


@pytest.mark.parametrize("width", [28, 30, 36, 37, 48, 49, 80])
def test_no_figure_is_broken(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_grid(GRID)
    printed = capsys.readouterr().out
    assert "a note" in printed
    for row in GRID.rows:
        for cell in row:
            assert cell.text in printed


def test_a_grid_of_names_alone() -> None:
    names = Grid(caption="names", header=("model",), rows=((Cell(text="mdl"),),))
    assert columns_by_width(names, 80) == [[0]]


def test_a_long_heading_takes_no_room_from_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heading = "a heading of many short words"
    cells = (Cell(text="mdl"), Cell(text="1"), Cell(text="280,880 ± 11,402"))
    grid = Grid(caption="c", header=("model", heading, "b"), rows=(cells,))
    monkeypatch.setenv("COLUMNS", "42")
    print_grid(grid)
    assert "280,880 ± 11,402" in capsys.readouterr().out
