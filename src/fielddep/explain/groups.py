"""Groups of rows whose refined dependencies look alike, and what the rows of a group have in common.

Shape legend: R rows, B rows of a block, F fields, P ordered pairs of fields, G groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.errors import ConfigError, TableError
from fielddep.explain.dependencies import dependency_model, refined_blocks
from fielddep.explain.field_table import FieldDependencies
from fielddep.explain.group_values import ValueShare, over_represented
from fielddep.explain.scores import ScoredRows, score_rows

N_GROUPS = 4
MAX_FITTED = 10_000
"""Rows at most from which k-means learns its centres; all rows are then put to the nearest."""
N_STARTS = 5
N_STRONGEST = 5

Patterns = npt.NDArray[np.float32]
Members = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowGroup:
    """Rows with similar dependencies.

    Attributes:
        n_rows: how many.
        share: their share of all rows.
        pattern: mean of mu(T)/lambda * W(T) over them.
        contrast: the same minus the mean over all rows: what sets the group apart.
        values: values that are most over-represented in the group, the clearest first.
        prediction: mean prediction: probability of the positive class of two, of every class of more, or value.
        target: the same of the true targets, shares of classes; None where they are not known.
    """

    n_rows: int
    share: float
    pattern: FieldDependencies
    contrast: FieldDependencies
    values: tuple[ValueShare, ...]
    prediction: dict[str, float]
    target: dict[str, float] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RowGroups:
    """All rows of a table in groups of similar dependencies, the largest group first.

    Attributes:
        groups: the groups, numbered from 0.
        group_R: group of every row.
    """

    groups: tuple[RowGroup, ...]
    group_R: Members

    def __len__(self) -> int:
        return len(self.groups)

    def to_frame(self) -> pl.DataFrame:
        """One line a group: group, n_rows, share, prediction..., target..., as `Predictor.predict` names columns."""
        lines = []
        for number, group in enumerate(self.groups):
            target = {f"target_{name}": value for name, value in (group.target or {}).items()}
            lines.append({"group": number, "n_rows": group.n_rows, "share": group.share, **group.prediction, **target})
        return pl.DataFrame(lines)

    def dependencies_frame(self, n: int = N_STRONGEST) -> pl.DataFrame:
        """The strongest dependencies of every group: group, source, dependent, weight, contrast."""
        lines = [
            (number, entry.source, entry.dependent, entry.weight, _entry(group.contrast, entry.source, entry.dependent))
            for number, group in enumerate(self.groups)
            for entry in group.pattern.strongest(n)
        ]
        return pl.DataFrame(lines, schema=["group", "source", "dependent", "weight", "contrast"], orient="row")

    def values_frame(self) -> pl.DataFrame:
        """The over-represented values of every group: group, field, value, n_rows, share, share_of_all, lift."""
        schema = {"group": pl.Int64, "field": pl.String, "value": pl.String, "n_rows": pl.Int64}
        schema |= {"share": pl.Float64, "share_of_all": pl.Float64, "lift": pl.Float64}
        lines = [
            (number, v.field, v.value, v.n_rows, v.share, v.share_of_all, v.lift)
            for number, group in enumerate(self.groups)
            for v in group.values
        ]
        return pl.DataFrame(lines, schema=schema, orient="row")


def group_rows(
    bundle: Bundle, rows: EncodedTable, *, n_groups: int = N_GROUPS, seed: int = 0, max_fitted: int = MAX_FITTED
) -> RowGroups:
    """Put rows with similar patterns of refined dependencies together, by k-means on mu(T)/lambda * W(T).

    Args:
        bundle: a model with dependencies.
        rows: encoded rows; with targets the groups tell their mean too. Weights are not looked at.
        n_groups: groups at most; fewer where fewer rows differ.
        seed: the same seed gives the same groups.
        max_fitted: rows at most, drawn by chance, from which the centres are learned.

    Raises:
        UserError: when the model learned no dependencies.
        TableError: when there are no rows.
    """
    if n_groups < 1:
        raise ConfigError(f"n_groups must be at least 1; given {n_groups}")
    if not len(rows):
        raise TableError("groups of rows need some rows; given none")
    group_R, mean_GFF = _members(bundle, rows, n_groups, seed, max_fitted)
    sizes_G = np.bincount(group_R)
    mean_FF = np.average(mean_GFF, axis=0, weights=sizes_G)
    scored = score_rows(bundle, rows)
    values = over_represented(bundle, rows, group_R)
    fields = bundle.encoder.schema.field_names
    groups = tuple(
        RowGroup(
            n_rows=int(size),
            share=float(size / len(rows)),
            pattern=FieldDependencies(fields=fields, matrix_FF=mean_GFF[g]),
            contrast=FieldDependencies(fields=fields, matrix_FF=mean_GFF[g] - mean_FF),
            values=values[g],
            prediction=_mean_prediction(scored, group_R == g),
            target=None if scored.target_R is None else _mean_target(scored, group_R == g),
        )
        for g, size in enumerate(sizes_G)
    )
    return RowGroups(groups=groups, group_R=group_R)


def _members(
    bundle: Bundle, rows: EncodedTable, n_groups: int, seed: int, max_fitted: int
) -> tuple[Members, npt.NDArray[np.float64]]:
    """Group of every row, the largest group being 0, and mean patterns (G, F, F)."""
    rng = np.random.default_rng(seed)
    fitted = np.sort(rng.choice(len(rows), min(max_fitted, len(rows)), replace=False))
    learned = np.concatenate(list(_patterns(bundle, rows.take(torch.from_numpy(fitted)))))
    centres = _centres(learned.reshape(len(learned), -1), n_groups, seed)
    found = []
    sums_GFF = np.zeros((len(centres), *learned.shape[1:]))
    for pattern_BFF in _patterns(bundle, rows):
        nearest_B = _nearest(pattern_BFF.reshape(len(pattern_BFF), -1), centres)
        for group in np.unique(nearest_B):
            sums_GFF[group] += pattern_BFF[nearest_B == group].sum(axis=0, dtype=np.float64)
        found.append(nearest_B)
    group_R = np.concatenate(found)
    sizes_G = np.bincount(group_R, minlength=len(centres))
    order = [g for g in np.argsort(-sizes_G, kind="stable") if sizes_G[g]]
    renumbered = np.zeros(len(centres), dtype=np.int64)
    renumbered[order] = np.arange(len(order))
    return renumbered[group_R], sums_GFF[order] / sizes_G[order][:, np.newaxis, np.newaxis]


def _patterns(bundle: Bundle, rows: EncodedTable) -> Iterator[Patterns]:
    """mu(T)/lambda * W(T) of the rows (B, F, F), block by block; the diagonal, which says nothing more, is zero."""
    sparsity = dependency_model(bundle).config.sparsity
    for block in refined_blocks(bundle, rows):
        pattern_BFF: Patterns = (block.w_BFF * (block.mu_BF / sparsity).unsqueeze(1)).numpy()
        n_fields = pattern_BFF.shape[1]
        pattern_BFF[:, np.arange(n_fields), np.arange(n_fields)] = 0.0
        yield pattern_BFF


def _centres(patterns_RP: Patterns, n_groups: int, seed: int) -> npt.NDArray[np.float64]:
    # Imported here, as it takes longer than everything else in this file and few callers want groups.
    from sklearn.cluster import KMeans

    n_different = len({pattern_P.tobytes() for pattern_P in patterns_RP})
    model: Any = KMeans(min(n_groups, n_different), n_init=N_STARTS, random_state=seed)
    centres: npt.NDArray[np.float64] = model.fit(patterns_RP).cluster_centers_.astype(np.float64)
    return centres


def _nearest(patterns_BP: Patterns, centres_GP: npt.NDArray[np.float64]) -> Members:
    """Nearest centre of every row; the squared length of a row is the same for all centres and left out."""
    distances_BG = (centres_GP**2).sum(axis=1) - 2 * patterns_BP.astype(np.float64) @ centres_GP.T
    nearest: Members = distances_BG.argmin(axis=1)
    return nearest


def _mean_prediction(scored: ScoredRows, chosen_R: npt.NDArray[np.bool_]) -> dict[str, float]:
    values = scored.predictions()[chosen_R]
    if scored.target.task == "regression":
        return {"prediction": float(values.mean())}
    return _by_class(scored, values.mean(axis=0))


def _mean_target(scored: ScoredRows, chosen_R: npt.NDArray[np.bool_]) -> dict[str, float]:
    truth = scored.truth()[chosen_R]
    if scored.target.task == "regression":
        return {"prediction": float(truth.mean())}
    return _by_class(scored, np.bincount(truth.astype(np.int64), minlength=len(scored.target.classes)) / len(truth))


def _by_class(scored: ScoredRows, shares: npt.NDArray[np.float64]) -> dict[str, float]:
    named = {f"probability_{label}": float(share) for label, share in zip(scored.target.classes, shares, strict=True)}
    return dict(list(named.items())[1:]) if scored.target.task == "binary" else named


def _entry(table: FieldDependencies, source: str, dependent: str) -> float:
    return float(table.matrix_FF[table.fields.index(source), table.fields.index(dependent)])
