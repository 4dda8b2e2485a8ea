"""Explanations: numbers first, pictures second (`plots`, `heat_maps`).

Every function takes a `Bundle` and encoded rows (`bundle.encoder.encode(table, with_target=True)[0]`) and returns a
small dataclass with `to_frame()`. Functions that need dependencies or evidence refuse models without them; all others
work for any model.
"""

from fielddep.explain.curves import calibration_curve, learning_curve, score_distribution, score_rows
from fielddep.explain.dependencies import explain_rows, global_dependencies, table_dependencies
from fielddep.explain.evidence import rank_evidence, row_evidence, uses_evidence
from fielddep.explain.groups import group_rows
from fielddep.explain.hiding import hide_fields, without_refinement
from fielddep.explain.importance import hiding_importance, permutation_importance
from fielddep.explain.members import row_members
from fielddep.explain.neighbours import nearest_values

__all__ = [
    "calibration_curve",
    "explain_rows",
    "global_dependencies",
    "group_rows",
    "hide_fields",
    "hiding_importance",
    "learning_curve",
    "nearest_values",
    "permutation_importance",
    "rank_evidence",
    "row_evidence",
    "row_members",
    "score_distribution",
    "score_rows",
    "table_dependencies",
    "uses_evidence",
    "without_refinement",
]
