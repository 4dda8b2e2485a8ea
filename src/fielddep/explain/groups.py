"""Groups of rows whose refined dependencies look alike, and the values that set each group apart.

Shape legend: R rows, B rows of a chunk, F fields, P ordered pairs of fields, G groups, V different values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.numbers import QuantileBins, ScaledNumbers, number_counts
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import ConfigError, TableError
from fielddep.explain.curves import ScoredRows, score_rows
from fielddep.explain.dependencies import FieldDependencies, refined_chunks
from fielddep.explain.rows import Floats

N_GROUPS = 4
MAX_FITTED = 10_000
"""Rows at most from which k-means learns its centres; every row then joins the nearest."""
N_STARTS = 5
N_STRONGEST = 5
N_VALUES = 5
MIN_ROWS = 5
"""Rows of a group that must hold a value; fewer may be alike by chance."""
MAX_CHANCE = 0.05
"""Probability that random groups of the same sizes show any value at all."""
N_NUMBER_BINS = 4

Members = npt.NDArray[np.int64]
Patterns = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ValueShare:
    """A value that a group has more often than all rows together.

    Attributes:
        field: the field.
        value: the value, as text; an interval for numbers.
        n_rows: rows of the group that hold it.
        share: share of the group's rows that hold it.
        share_of_all: share of all rows that hold it.
    """

    field: str
    value: str
    n_rows: int
    share: float
    share_of_all: float

    @property
    def lift(self) -> float:
        """How many times more often than in all rows."""
        return self.share / self.share_of_all


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
        target: mean of the true targets in the same form; None where they are not known.
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
    bundle: Bundle, rows: EncodedRows, *, n_groups: int = N_GROUPS, seed: int = 0, max_fitted: int = MAX_FITTED
) -> RowGroups:
    """Put rows with similar patterns of refined dependencies together, by k-means on mu(T)/lambda * W(T).

    Args:
        bundle: a model with dependencies.
        rows: encoded rows, with or without targets; weights are ignored.
        n_groups: groups at most; fewer where fewer rows differ.
        seed: the same seed gives the same groups.
        max_fitted: rows at most, drawn at random, from which the centres are learned.

    Raises:
        UserError: when the model learned no dependencies.
        TableError: when there are no rows.
    """
    if n_groups < 1:
        raise ConfigError(f"n_groups must be at least 1; given {n_groups}")
    if not len(rows):
        raise TableError("there are no rows to group. Give a table with rows")
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


def _members(bundle: Bundle, rows: EncodedRows, n_groups: int, seed: int, max_fitted: int) -> tuple[Members, Floats]:
    """Group of every row, the largest group being 0, and mean patterns (G, F, F)."""
    rng = np.random.default_rng(seed)
    fitted = np.sort(rng.choice(len(rows), min(max_fitted, len(rows)), replace=False))
    learned = np.concatenate(list(_patterns(bundle, rows.take(fitted))))
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


def _patterns(bundle: Bundle, rows: EncodedRows) -> Iterator[Patterns]:
    """mu(T)/lambda * W(T) of the rows (B, F, F), chunk by chunk, with zeros on the diagonal."""
    for _, pattern_BFF in refined_chunks(bundle, rows):
        yield (pattern_BFF * (1.0 - np.eye(pattern_BFF.shape[1]))).astype(np.float32)


def _centres(patterns_RP: Patterns, n_groups: int, seed: int) -> Floats:
    # Imported here, as it takes longer than everything else in this file and few callers want groups.
    from sklearn.cluster import KMeans

    n_different = len({pattern_P.tobytes() for pattern_P in patterns_RP})
    model: Any = KMeans(min(n_groups, n_different), n_init=N_STARTS, random_state=seed)
    centres: Floats = model.fit(patterns_RP).cluster_centers_.astype(np.float64)
    return centres


def _nearest(patterns_BP: Patterns, centres_GP: Floats) -> Members:
    """Nearest centre of every row; the squared length of a row is the same for all centres and not needed."""
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


def _by_class(scored: ScoredRows, shares: Floats) -> dict[str, float]:
    named = {f"probability_{label}": float(share) for label, share in zip(scored.target.classes, shares, strict=True)}
    return dict(list(named.items())[1:]) if scored.target.task == "binary" else named


def _entry(table: FieldDependencies, source: str, dependent: str) -> float:
    return float(table.matrix_FF[table.fields.index(source), table.fields.index(dependent)])


def over_represented(
    bundle: Bundle, rows: EncodedRows, group_R: Members, *, n: int = N_VALUES
) -> list[tuple[ValueShare, ...]]:
    """For every group the values that are most clearly more frequent in it than by chance, over all fields.

    A value is shown where a random draw of as many rows would so rarely hold it as often that random groups would show
    any value at all with a probability of `MAX_CHANCE`. Values come in order of how many standard deviations they are
    above such a draw.
    """
    n_groups = int(group_R.max()) + 1
    counted = [
        _counts(field_encoder, rows, position, group_R)
        for position, field_encoder in enumerate(bundle.encoder.field_encoders)
    ]
    n_tried = n_groups * sum(int((counts_GV.sum(axis=0) >= MIN_ROWS).sum()) for _, counts_GV in counted)
    found: list[list[tuple[float, ValueShare]]] = [[] for _ in range(n_groups)]
    for field_encoder, (labels, counts_GV) in zip(bundle.encoder.field_encoders, counted, strict=True):
        scores_GV = _standard_scores(counts_GV)
        for group, value in np.argwhere(_chances(counts_GV) < MAX_CHANCE / max(n_tried, 1)).tolist():
            entry = _share(field_encoder.field.name, labels, counts_GV, group, value)
            found[group].append((float(scores_GV[group, value]), entry))
    return [tuple(share for _, share in sorted(entries, key=lambda e: -e[0])[:n]) for entries in found]


def _counts(
    field_encoder: FieldEncoder, rows: EncodedRows, position: int, group_R: Members
) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """Labels of the different values of a field, and the rows of every group that hold each."""
    labels, value_R = _values(field_encoder, rows, position)
    counts_GV = np.zeros((int(group_R.max()) + 1, len(labels)), dtype=np.int64)
    np.add.at(counts_GV, (group_R, value_R), 1)
    return labels, counts_GV


def _values(field_encoder: FieldEncoder, rows: EncodedRows, position: int) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """Labels of the different values of a field, and which of them every row holds."""
    ids_R = rows.ids_RF[:, position]
    labels = field_encoder.labels()
    if isinstance(field_encoder.codec, ScaledNumbers):
        numbers = field_encoder.decode(ids_R, rows.numbers_RN[:, rows.layout.numerical.index(position)])
        bins = QuantileBins.from_counts(*number_counts(numbers), N_NUMBER_BINS)
        ids_R, labels = bins.encode(numbers), bins.labels()
    different, value_R = np.unique(ids_R, return_inverse=True)
    return labels.gather(different), value_R


def _chances(counts_GV: npt.NDArray[np.int64]) -> Floats:
    """Probability that a random draw holds a value as often as a group; 1 for few rows, or no more than expected."""
    # Imported here, as it takes longer than everything else in this file and few callers want groups.
    from scipy.stats import hypergeom

    size_G, count_V, total = counts_GV.sum(axis=1), counts_GV.sum(axis=0), int(counts_GV.sum())
    group, value = np.nonzero((counts_GV >= MIN_ROWS) & (counts_GV * total > np.outer(size_G, count_V)))
    chances: Floats = np.ones(counts_GV.shape)
    chances[group, value] = hypergeom.sf(counts_GV[group, value] - 1, total, count_V[value], size_G[group])
    return chances


def _standard_scores(counts_GV: npt.NDArray[np.int64]) -> Floats:
    """Counts in standard deviations of those of a random draw without replacement (hypergeometric)."""
    total = int(counts_GV.sum())
    size_G1 = counts_GV.sum(axis=1, keepdims=True).astype(np.float64)
    share_V = counts_GV.sum(axis=0) / total
    variance_GV = size_G1 * share_V * (1 - share_V) * (total - size_G1) / max(total - 1, 1)
    excess_GV = counts_GV - size_G1 * share_V
    scores: Floats = np.divide(excess_GV, np.sqrt(variance_GV), out=np.zeros_like(excess_GV), where=variance_GV > 0)
    return scores


def _share(field: str, labels: pl.Series, counts_GV: npt.NDArray[np.int64], group: int, value: int) -> ValueShare:
    return ValueShare(
        field=field,
        value=labels[value],
        n_rows=int(counts_GV[group, value]),
        share=float(counts_GV[group, value] / counts_GV[group].sum()),
        share_of_all=float(counts_GV[:, value].sum() / counts_GV.sum()),
    )
