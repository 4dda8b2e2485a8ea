"""All explanations of chosen rows and of a sample of a table, and their files.

Numbers are written as CSV and JSON, pictures only if Matplotlib is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import UserError
from fielddep.explain.curves import (
    CalibrationCurve,
    LearningCurve,
    ScoreDistribution,
    calibration_curve,
    score_distribution,
    score_rows,
)
from fielddep.explain.dependencies import (
    Explanation,
    FieldDependencies,
    TableDependencies,
    explain_rows,
    learns_dependencies,
    table_dependencies,
)
from fielddep.explain.evidence import EvidenceRanking, RowEvidence, rank_evidence, row_evidence, uses_evidence
from fielddep.explain.groups import N_GROUPS, RowGroups, group_rows
from fielddep.explain.heat_maps import MAX_ROWS, draw_dependencies, draw_groups, draw_rows, draw_steps
from fielddep.explain.hiding import Effects, hide_fields, refines, without_refinement
from fielddep.explain.importance import N_REPEATS, FieldImportance, hiding_importance, permutation_importance
from fielddep.explain.members import Members, row_members
from fielddep.explain.neighbours import NearestValues
from fielddep.explain.plots import (
    draw_calibration,
    draw_effects,
    draw_importance,
    draw_learning,
    draw_scores,
    draw_weights,
)
from fielddep.tables.files import write_atomically, write_json

MAX_CHOSEN = 1000
"""Rows that are explained one by one, at most."""
MAX_DRAWN = 12
"""Rows with pictures of their own, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsOverview:
    """All explanations of chosen rows, in the order of `numbers`."""

    numbers: tuple[int, ...]
    effects: Effects
    refinement: Effects | None  # None for a model that does not refine
    explanation: Explanation | None  # None for a model without dependencies
    evidence: RowEvidence | None = None  # None for a model without it
    members: Members | None = None  # None for a model that is not a blend

    def effects_frame(self) -> pl.DataFrame:
        """Effects of fields and of refinement, with row numbers."""
        parts = [self.effects] if self.refinement is None else [self.effects, self.refinement]
        frames = pl.concat([part.to_frame() for part in parts], how="diagonal")  # refinement has no values of lists
        return numbered(frames, self.numbers).sort("row", maintain_order=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOverview:
    """All explanations of many rows together; None for what the model or the rows do not allow."""

    n_rows: int
    dependencies: TableDependencies | None
    groups: RowGroups | None
    importance: FieldImportance | None
    hiding: FieldImportance | None
    calibration: CalibrationCurve | None
    scores: ScoreDistribution | None
    evidence: EvidenceRanking | None = None


def overview_rows(
    bundle: Bundle, rows: EncodedRows, numbers: Sequence[int], *, values: pl.DataFrame | None = None
) -> RowsOverview:
    """All explanations of at most `MAX_CHOSEN` rows with these row numbers. For `values`, see `hide_fields`."""
    if len(rows) > MAX_CHOSEN:
        raise UserError(f"at most {MAX_CHOSEN:,} rows can be explained one by one, but {len(rows):,} were given")
    return RowsOverview(
        numbers=tuple(numbers),
        effects=hide_fields(bundle, rows, values=values),
        refinement=without_refinement(bundle, rows, values=values) if refines(bundle) else None,
        explanation=explain_rows(bundle, rows, values=values) if learns_dependencies(bundle) else None,
        evidence=row_evidence(bundle, rows) if uses_evidence(bundle) else None,
        members=row_members(bundle, rows),
    )


def overview_table(
    bundle: Bundle, rows: EncodedRows, *, n_groups: int = N_GROUPS, n_repeats: int = N_REPEATS, seed: int = 0
) -> TableOverview:
    """All explanations of many rows, such as a sample of a long table; some need the target.

    `n_groups` may be 0, and `n_repeats` are the shuffles of every field for the permutation importance.
    """
    has_target = rows.target_R is not None and len(rows) > 0
    has_dependencies = learns_dependencies(bundle) and len(rows) > 0
    scored = score_rows(bundle, rows) if has_target else None
    return TableOverview(
        n_rows=len(rows),
        dependencies=table_dependencies(bundle, rows) if has_dependencies else None,
        groups=group_rows(bundle, rows, n_groups=n_groups, seed=seed) if has_dependencies and n_groups else None,
        importance=permutation_importance(bundle, rows, n_repeats=n_repeats, seed=seed) if has_target else None,
        hiding=hiding_importance(bundle, rows) if has_target else None,
        calibration=None if scored is None else calibration_curve(scored),
        scores=None if scored is None or scored.target.task == "regression" else score_distribution(scored),
        evidence=rank_evidence(bundle, rows, seed=seed) if uses_evidence(bundle) and len(rows) else None,
    )


def numbered(frame: pl.DataFrame, numbers: Sequence[int]) -> pl.DataFrame:
    """A frame with row numbers instead of positions in the column `row`."""
    return frame.with_columns(pl.Series("row", numbers, dtype=pl.Int64).gather(frame["row"]))


class OverviewFolder:
    """A folder of explanations, created if absent; files with the same name are replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []
        """Names of the files, in the order they were written."""
        self.draws = importlib.util.find_spec("matplotlib") is not None
        """Whether pictures are drawn, which needs Matplotlib."""

    def write_model(self, dependencies: FieldDependencies | None, learning: LearningCurve | None) -> None:
        """W(0), the strongest source of each field, and the learning curves."""
        self._write("dependencies", dependencies, draw_dependencies)
        self._write("strongest_sources", None if dependencies is None else dependencies.strongest_sources())
        self._write("learning", learning if learning is not None and learning.evaluations else None, draw_learning)

    def write_nearest(self, found: Sequence[NearestValues]) -> None:
        """The neighbours of some values in one table."""
        frames = [
            near.to_frame().select(
                field=pl.lit(near.field), value=pl.lit(near.value), near="value", similarity="similarity", count="count"
            )
            for near in found
        ]
        self._frame("nearest.csv", pl.concat(frames))

    def write_rows(self, overview: RowsOverview, dependencies: FieldDependencies | None) -> None:
        """Effects, evidence and refinement of chosen rows, with pictures of the first `MAX_DRAWN`."""
        self._frame("effects.csv", overview.effects_frame())
        if overview.evidence is not None:
            self._frame("evidence.csv", numbered(overview.evidence.to_frame(), overview.numbers))
        if overview.members is not None:
            self._frame("members.csv", numbered(overview.members.to_frame(), overview.numbers))
        drawn = list(enumerate(overview.numbers))[:MAX_DRAWN]
        for row, number in drawn:
            self._draw(f"row-{number}-effects.png", draw_effects, overview.effects, row=row, number=number)
        explanation = overview.explanation
        if explanation is None or dependencies is None:
            return
        self._frame("rows.csv", numbered(explanation.to_frame(), overview.numbers))
        write_json(self.folder / "rows.json", {"rows": list(overview.numbers), **explanation.to_json()})
        self.written.append("rows.json")
        for first in range(0, len(drawn), MAX_ROWS):
            rows, numbers = zip(*drawn[first : first + MAX_ROWS], strict=True)
            name = "rows.png" if not first else f"rows-{first // MAX_ROWS + 1}.png"
            self._draw(name, draw_rows, dependencies, explanation, rows=rows, numbers=numbers)
        for row, number in drawn:
            self._draw(f"row-{number}-steps.png", draw_steps, explanation, row=row, number=number)
            self._draw(f"row-{number}-weights.png", draw_weights, explanation, row=row, number=number)

    def write_table(self, overview: TableOverview) -> None:
        """Explanations of many rows together."""
        self._write("table_dependencies", overview.dependencies)
        self._write("groups", overview.groups, draw_groups)
        if overview.groups is not None:
            self._frame("group_dependencies.csv", overview.groups.dependencies_frame())
            self._frame("group_values.csv", overview.groups.values_frame())
        self._write("importance", overview.importance, draw_importance)
        self._write("hiding", overview.hiding, draw_importance)
        self._write("evidence_ranking", overview.evidence)
        self._write("calibration", overview.calibration, draw_calibration)
        self._write("scores", overview.scores, draw_scores)

    def _write(self, name: str, found: Any, draw: Callable[..., None] | None = None) -> None:
        """The table and the picture of a result, if there is one."""
        if found is not None:
            self._frame(f"{name}.csv", found.to_frame())
            if draw is not None:
                self._draw(f"{name}.png", draw, found)

    def _draw(self, name: str, draw: Callable[..., None], *numbers: Any, **options: Any) -> None:
        if self.draws:
            draw(*numbers, self.folder / name, **options)
            self.written.append(name)

    def _frame(self, name: str, frame: pl.DataFrame) -> None:
        write_atomically(self.folder / name, frame.write_csv)
        self.written.append(name)
