"""Explanations: numbers first, drawing second (`plots`, `plot_*`).

Every function takes a `Bundle` and encoded rows (`bundle.encoder.encode(table, with_target=True)`) and gives a small
dataclass with `to_frame()`. What needs dependencies refuses a model without them; the rest is for any model.
"""

from fielddep.explain.curves import (
    CalibrationCurve,
    LearningCurve,
    ScoreDistribution,
    calibration_curve,
    learning_curve,
    score_distribution,
)
from fielddep.explain.dependencies import Explanation, explain_rows, global_dependencies
from fielddep.explain.field_table import Dependency, FieldDependencies, Leanings
from fielddep.explain.groups import RowGroup, RowGroups, group_rows
from fielddep.explain.hiding import Effects, hide_fields, without_refinement
from fielddep.explain.importance import FieldImportance, hiding_importance, permutation_importance
from fielddep.explain.neighbours import NearestValues, nearest_values
from fielddep.explain.scores import ScoredRows, score_rows
from fielddep.explain.table_dependencies import TableDependencies, table_dependencies

__all__ = [
    "CalibrationCurve",
    "Dependency",
    "Effects",
    "Explanation",
    "FieldDependencies",
    "FieldImportance",
    "Leanings",
    "LearningCurve",
    "NearestValues",
    "RowGroup",
    "RowGroups",
    "ScoreDistribution",
    "ScoredRows",
    "TableDependencies",
    "calibration_curve",
    "explain_rows",
    "global_dependencies",
    "group_rows",
    "hide_fields",
    "hiding_importance",
    "learning_curve",
    "nearest_values",
    "permutation_importance",
    "score_distribution",
    "score_rows",
    "table_dependencies",
    "without_refinement",
]
