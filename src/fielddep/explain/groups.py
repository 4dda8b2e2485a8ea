"""Groups of rows with similar refined dependencies, and the values that distinguish each group.

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
from fielddep.encoding.target import Target
from fielddep.errors import ConfigError, TableError
from fielddep.explain.curves import ScoredRows, score_rows
from fielddep.explain.dependencies import FieldDependencies, dependency_model, refined_chunks
from fielddep.explain.rows import Floats

N_GROUPS = 4
MAX_FITTED = 10_000
"""K-means learns its centres from at most this many rows; every row then joins the nearest centre."""
N_STARTS = 5
N_STRONGEST = 5
N_VALUES = 5
MIN_ROWS = 5
"""A value must occur in this many rows of a group; fewer may be a coincidence."""
MAX_CHANCE = 0.05
"""Probability that random groups of the same sizes would show any value at all."""
N_NUMBER_BINS = 4

Members = npt.NDArray[np.int64]
Patterns = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ValueShare:
    """A value that is more frequent in a group than in all rows; an interval for numbers.

    `n_rows` and `share` count the rows of the group with this value, `share_of_all` those of the table.
    """

    field: str
    value: str
    n_rows: int
    share: float
    share_of_all: float

    @property
    def lift(self) -> float:
        """How many times as frequent as in all rows."""
        return self.share / self.share_of_all


@dataclass(frozen=True, kw_only=True, eq=False)
class RowGroup:
    """Rows with similar dependencies.

    Attributes:
        n_rows: number of rows.
        share: share of all rows.
        pattern: mean of mu(T)/lambda * W(T).
        contrast: `pattern` minus the mean over all rows.
        values: the most over-represented values, the clearest first.
        prediction: mean prediction: the value, or the probability of the positive class of two, of every class of more.
        target: mean of the true targets in the same form; None if they are unknown.
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
    """All rows of a table in groups of similar dependencies, the largest first; `group_R` has the group of each row."""

    groups: tuple[RowGroup, ...]
    group_R: Members

    def __len__(self) -> int:
        return len(self.groups)

    def to_frame(self) -> pl.DataFrame:
        """One line per group: group, n_rows, share, prediction..., target..., named as by `Predictor.predict`."""
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


def group_rows(bundle: Bundle, rows: EncodedRows, *, n_groups: int = N_GROUPS, seed: int = 0) -> RowGroups:
    """Group rows with similar refined dependencies, by k-means on mu(T)/lambda * W(T).

    There are fewer than `n_groups` if fewer patterns differ. Rows need no targets, and their weights are ignored.

    Raises:
        UserError: if the model learned no dependencies.
        TableError: if there are no rows.
    """
    if n_groups < 1:
        raise ConfigError(f"n_groups must be at least 1, but is {n_groups}")
    if not len(rows):
        raise TableError("there are no rows to group. Give a table with rows")
    group_R, mean_GFF = _members(bundle, rows, n_groups, seed)
    sizes_G = np.bincount(group_R)
    mean_FF = np.average(mean_GFF, axis=0, weights=sizes_G)
    scored = score_rows(bundle, rows)
    predicted = scored.predictions()
    values = over_represented(bundle, rows, group_R)
    fields = dependency_model(bundle).related_names
    groups = tuple(
        RowGroup(
            n_rows=int(size),
            share=float(size / len(rows)),
            pattern=FieldDependencies(fields=fields, matrix_FF=mean_GFF[g]),
            contrast=FieldDependencies(fields=fields, matrix_FF=mean_GFF[g] - mean_FF),
            values=values[g],
            prediction=_named(predicted[group_R == g].mean(axis=0), scored.target),
            target=_mean_target(scored, group_R == g),
        )
        for g, size in enumerate(sizes_G)
    )
    return RowGroups(groups=groups, group_R=group_R)


def _members(bundle: Bundle, rows: EncodedRows, n_groups: int, seed: int) -> tuple[Members, Floats]:
    """Group of every row, the largest group being 0, and mean patterns (G, F, F)."""
    rng = np.random.default_rng(seed)
    fitted = np.sort(rng.choice(len(rows), min(MAX_FITTED, len(rows)), replace=False))
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
    """mu(T)/lambda * W(T) (B, F, F), chunk by chunk, with zeros on the diagonal."""
    for _, pattern_BFF in refined_chunks(bundle, rows):
        yield (pattern_BFF * (1.0 - np.eye(pattern_BFF.shape[1]))).astype(np.float32)


def _centres(patterns_RP: Patterns, n_groups: int, seed: int) -> Floats:
    # Imported here because it is slow to import, and few callers want groups.
    from sklearn.cluster import KMeans

    n_different = len({pattern_P.tobytes() for pattern_P in patterns_RP})
    model: Any = KMeans(min(n_groups, n_different), n_init=N_STARTS, random_state=seed)
    centres: Floats = model.fit(patterns_RP).cluster_centers_.astype(np.float64)
    return centres


def _nearest(patterns_BP: Patterns, centres_GP: Floats) -> Members:
    """The nearest centre of every row."""
    # Squared distances without the squared length of the row, which is the same for all centres.
    distances_BG = (centres_GP**2).sum(axis=1) - 2 * patterns_BP.astype(np.float64) @ centres_GP.T
    nearest: Members = distances_BG.argmin(axis=1)
    return nearest


def _mean_target(scored: ScoredRows, chosen_R: npt.NDArray[np.bool_]) -> dict[str, float] | None:
    if scored.target_R is None:
        return None
    target, truth_R = scored.target, scored.truth()[chosen_R]
    if target.task == "regression":
        return _named(truth_R.mean(), target)
    return _named(np.bincount(truth_R.astype(np.int64), minlength=len(target.classes)) / len(truth_R), target)


def _named(means: Any, target: Target) -> dict[str, float]:
    """Means under the column names of `Predictor.predict`; of two classes only the positive one."""
    if target.task == "regression":
        return {"prediction": float(means)}
    shown = slice(1, None) if target.task == "binary" else slice(None)
    return {f"probability_{c}": float(m) for c, m in zip(target.classes[shown], means[shown], strict=True)}


def _entry(table: FieldDependencies, source: str, dependent: str) -> float:
    return float(table.matrix_FF[table.fields.index(source), table.fields.index(dependent)])


def over_represented(
    bundle: Bundle, rows: EncodedRows, group_R: Members, *, n: int = N_VALUES
) -> list[tuple[ValueShare, ...]]:
    """For every group, the values that are more frequent in it than chance explains, over all fields.

    The threshold is strict: random groups of the same sizes would show any value at all with probability `MAX_CHANCE`.
    Values are ordered by how many standard deviations they lie above a random draw of rows.
    """
    n_groups = int(group_R.max()) + 1
    counted = [
        _counts(field_encoder, rows, position, group_R)
        for position, field_encoder in enumerate(bundle.encoder.field_encoders)
    ]
    n_tried = n_groups * sum(int((counts_GV.sum(axis=0) >= MIN_ROWS).sum()) for _, counts_GV in counted)
    found: list[list[tuple[float, ValueShare]]] = [[] for _ in range(n_groups)]
    for field_encoder, (labels, counts_GV) in zip(bundle.encoder.field_encoders, counted, strict=True):
        for group, value, score in _clear_excesses(counts_GV, MAX_CHANCE / max(n_tried, 1)):
            entry = ValueShare(
                field=field_encoder.field.name,
                value=labels[value],
                n_rows=int(counts_GV[group, value]),
                share=float(counts_GV[group, value] / counts_GV[group].sum()),
                share_of_all=float(counts_GV[:, value].sum() / counts_GV.sum()),
            )
            found[group].append((score, entry))
    return [tuple(share for _, share in sorted(entries, key=lambda e: -e[0])[:n]) for entries in found]


def _counts(
    field_encoder: FieldEncoder, rows: EncodedRows, position: int, group_R: Members
) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """Labels of the different values of a field, and how many rows of every group have each; of lists, how often."""
    ids_R = rows.ids_RF[:, position]
    if position in rows.layout.lists:
        lists = rows.lists_R(position)
        ids_R, group_R = lists.values, group_R[lists.row_V]
    labels = field_encoder.labels()
    if isinstance(field_encoder.codec, ScaledNumbers):
        numbers = field_encoder.decode(ids_R, rows.numbers_RN[:, rows.layout.numerical.index(position)])
        bins = QuantileBins.from_counts(*number_counts(numbers), N_NUMBER_BINS)
        ids_R, labels = bins.encode(numbers), bins.labels()
    different, value_R = np.unique(ids_R, return_inverse=True)
    counts_GV = np.zeros((int(group_R.max()) + 1, len(different)), dtype=np.int64)
    np.add.at(counts_GV, (group_R, value_R), 1)
    return labels.gather(different), counts_GV


def _clear_excesses(counts_GV: npt.NDArray[np.int64], max_chance: float) -> Iterator[tuple[int, int, float]]:
    """Group, value and standard score of counts that a random draw of rows reaches with less than this probability."""
    # Imported here because it is slow to import, and few callers want groups.
    from scipy.stats import hypergeom

    size_G, count_V, total = counts_GV.sum(axis=1), counts_GV.sum(axis=0), int(counts_GV.sum())
    group, value = np.nonzero((counts_GV >= MIN_ROWS) & (counts_GV * total > np.outer(size_G, count_V)))
    counts, size, share = counts_GV[group, value], size_G[group], count_V[value] / total
    clear = hypergeom.sf(counts - 1, total, count_V[value], size) < max_chance
    # Never zero: counts above their expectation rule out values and groups that cover all rows.
    variance = size * share * (1 - share) * (total - size) / max(total - 1, 1)
    scores = (counts - size * share) / np.sqrt(variance)
    return zip(group[clear].tolist(), value[clear].tolist(), scores[clear].tolist(), strict=True)
