"""Overviews as files: numbers as CSV and JSON, and pictures where Matplotlib is at hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fielddep.explain.curves import LearningCurve
from fielddep.explain.field_table import FieldDependencies
from fielddep.explain.neighbours import NearestValues
from fielddep.explain.overview import RowsOverview, TableOverview, numbered
from fielddep.explain.plot_bars import draw_effects, draw_importance
from fielddep.explain.plot_lines import draw_calibration, draw_learning, draw_scores, draw_weights
from fielddep.explain.plots import MAX_ROWS, draw_dependencies, draw_groups, draw_rows, draw_steps
from fielddep.files import write_atomically, write_json

MAX_DRAWN = 12
"""Rows at most that get pictures of their own."""


class OverviewFolder:
    """A folder that explanations are written into; files of the same name are replaced.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []
        """Names of the files, in the order they were written."""
        self.draws = importlib.util.find_spec("matplotlib") is not None
        """Whether there are pictures; without Matplotlib there are numbers only."""

    def write_model(self, dependencies: FieldDependencies | None, learning: LearningCurve | None) -> None:
        """W(0) with whom each field leans on, and the learning curves."""
        if dependencies is not None:
            self._frame("dependencies.csv", dependencies.to_frame())
            self._frame("leanings.csv", dependencies.leanings().to_frame())
            table = [("whole model, W(0)", dependencies, dependencies.fields)]
            self._draw("dependencies.png", lambda path: draw_dependencies(table, path))
        if learning is not None and learning.evaluations:
            self._frame("learning.csv", learning.to_frame())
            self._draw("learning.png", lambda path: draw_learning(learning, path))

    def write_nearest(self, found: Sequence[NearestValues]) -> None:
        """The nearest values of some values, in one table."""
        frames = [
            near.to_frame().select(
                pl.lit(near.field).alias("field"),
                pl.lit(near.value).alias("value"),
                pl.col("value").alias("near"),
                "similarity",
                "count",
            )
            for near in found
        ]
        self._frame("nearest.csv", pl.concat(frames))

    def write_rows(self, overview: RowsOverview, dependencies: FieldDependencies | None) -> None:
        """Effects and paths of chosen rows; pictures of the first `MAX_DRAWN`."""
        self._frame("effects.csv", overview.effects_frame())
        drawn = list(enumerate(overview.numbers))[:MAX_DRAWN]
        for row, number in drawn:
            self._draw_row(f"row-{number}-effects.png", draw_effects, overview.effects, row, number)
        explanation = overview.explanation
        if explanation is None or dependencies is None:
            return
        self._frame("rows.csv", numbered(explanation.to_frame(), overview.numbers))
        self._json("rows.json", {"rows": list(overview.numbers), **explanation.to_json()})
        for first in range(0, len(drawn), MAX_ROWS):
            rows, numbers = zip(*drawn[first : first + MAX_ROWS], strict=True)
            name = "rows.png" if not first else f"rows-{first // MAX_ROWS + 1}.png"
            self._draw_case(name, dependencies, explanation, rows, numbers)
        for row, number in drawn:
            self._draw_row(f"row-{number}-steps.png", draw_steps, explanation, row, number)
            self._draw_row(f"row-{number}-weights.png", draw_weights, explanation, row, number)

    def write_table(self, overview: TableOverview) -> None:
        """What is told of many rows together."""
        if overview.dependencies is not None:
            self._frame("table_dependencies.csv", overview.dependencies.to_frame())
        if (groups := overview.groups) is not None:
            self._frame("groups.csv", groups.to_frame())
            self._frame("group_dependencies.csv", groups.dependencies_frame())
            self._frame("group_values.csv", groups.values_frame())
            self._draw("groups.png", lambda path: draw_groups(groups, path))
        if (importance := overview.importance) is not None:
            self._frame("importance.csv", importance.to_frame())
            self._draw("importance.png", lambda path: draw_importance(importance, path))
        if (hiding := overview.hiding) is not None:
            self._frame("hiding.csv", hiding.to_frame())
            self._draw("hiding.png", lambda path: draw_importance(hiding, path))
        if (calibration := overview.calibration) is not None:
            self._frame("calibration.csv", calibration.to_frame())
            self._draw("calibration.png", lambda path: draw_calibration(calibration, path))
        if (scores := overview.scores) is not None:
            self._frame("scores.csv", scores.to_frame())
            self._draw("scores.png", lambda path: draw_scores(scores, path))

    def _draw_row(self, name: str, draw: Callable[..., None], numbers: Any, row: int, number: int) -> None:
        self._draw(name, lambda path: draw(numbers, path, row=row, number=number))

    def _draw_case(self, name: str, model: FieldDependencies, explanation: Any, rows: Any, numbers: Any) -> None:
        self._draw(name, lambda path: draw_rows(model, explanation, path, rows=rows, numbers=numbers))

    def _draw(self, name: str, draw: Callable[[Path], None]) -> None:
        if self.draws:
            draw(self.folder / name)
            self.written.append(name)

    def _frame(self, name: str, frame: pl.DataFrame) -> None:
        write_atomically(self.folder / name, frame.write_csv)
        self.written.append(name)

    def _json(self, name: str, value: Any) -> None:
        write_json(self.folder / name, value)
        self.written.append(name)
