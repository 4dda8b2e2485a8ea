"""Everything at once: all explanations of chosen rows, and of a sample of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.errors import UserError
from fielddep.explain.curves import CalibrationCurve, ScoreDistribution, calibration_curve, score_distribution
from fielddep.explain.dependencies import Explanation, explain_rows, learns_dependencies
from fielddep.explain.groups import N_GROUPS, RowGroups, group_rows
from fielddep.explain.hiding import Effects, hide_fields, refines, without_refinement
from fielddep.explain.importance import N_REPEATS, FieldImportance, hiding_importance, permutation_importance
from fielddep.explain.scores import score_rows
from fielddep.explain.table_dependencies import TableDependencies, table_dependencies

MAX_CHOSEN = 1000
"""Rows that are explained one by one, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsOverview:
    """What can be told of chosen rows.

    Attributes:
        numbers: what the rows are called, in the order of the others.
        effects: what each prediction loses when a field is hidden.
        refinement: what it loses without refinement; None for a model that does not refine.
        explanation: the path of refinement; None for a model without dependencies.
    """

    numbers: tuple[int, ...]
    effects: Effects
    refinement: Effects | None
    explanation: Explanation | None

    def effects_frame(self) -> pl.DataFrame:
        """Effects of fields and of refinement, with the numbers of the rows."""
        parts = [self.effects] if self.refinement is None else [self.effects, self.refinement]
        return numbered(pl.concat([part.to_frame() for part in parts]), self.numbers).sort("row", maintain_order=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOverview:
    """What can be told of many rows together; what the model or the rows do not allow is None.

    Attributes:
        n_rows: how many rows.
        dependencies: refined dependencies over the rows.
        groups: rows with similar dependencies.
        importance: permutation importance of every field.
        hiding: what metrics lose when a field is hidden, or without refinement.
        calibration: predictions beside what happened.
        scores: predicted probabilities of each class.
    """

    n_rows: int
    dependencies: TableDependencies | None
    groups: RowGroups | None
    importance: FieldImportance | None
    hiding: FieldImportance | None
    calibration: CalibrationCurve | None
    scores: ScoreDistribution | None


def overview_rows(
    bundle: Bundle, rows: EncodedTable, numbers: Sequence[int], *, values: pl.DataFrame | None = None
) -> RowsOverview:
    """All explanations of some rows, at most `MAX_CHOSEN`. Any model.

    Args:
        bundle: the model.
        rows: encoded rows.
        numbers: what the rows are called.
        values: what the rows hold, see `row_values.cell_texts`; by default as far as their ids tell.
    """
    if len(rows) > MAX_CHOSEN:
        raise UserError(f"at most {MAX_CHOSEN:,} rows can be explained one by one; given {len(rows):,}; choose fewer")
    return RowsOverview(
        numbers=tuple(numbers),
        effects=hide_fields(bundle, rows, values=values),
        refinement=without_refinement(bundle, rows, values=values) if refines(bundle) else None,
        explanation=explain_rows(bundle, rows, values=values) if learns_dependencies(bundle) else None,
    )


def overview_table(
    bundle: Bundle, rows: EncodedTable, *, n_groups: int = N_GROUPS, n_repeats: int = N_REPEATS, seed: int = 0
) -> TableOverview:
    """All explanations of many rows; those that need the target only where the rows have it. Any model.

    Args:
        bundle: the model.
        rows: encoded rows, a sample of a long table.
        n_groups: groups of rows at most; 0 leaves them out.
        n_repeats: shuffles of every field for the permutation importance.
        seed: seed of groups and shuffles.
    """
    known = rows.target_R is not None and len(rows) > 0
    related = learns_dependencies(bundle) and len(rows) > 0
    scored = score_rows(bundle, rows) if known else None
    return TableOverview(
        n_rows=len(rows),
        dependencies=table_dependencies(bundle, rows) if related else None,
        groups=group_rows(bundle, rows, n_groups=n_groups, seed=seed) if related and n_groups else None,
        importance=permutation_importance(bundle, rows, n_repeats=n_repeats, seed=seed) if known else None,
        hiding=hiding_importance(bundle, rows) if known else None,
        calibration=None if scored is None else calibration_curve(scored),
        scores=None if scored is None or scored.target.task == "regression" else score_distribution(scored),
    )


def numbered(frame: pl.DataFrame, numbers: Sequence[int]) -> pl.DataFrame:
    """A frame whose column `row` holds the numbers of rows instead of their positions."""
    return frame.with_columns(pl.Series("row", numbers, dtype=pl.Int64).gather(frame["row"]))
