"""Which values are more frequent in a group of rows than elsewhere, and clearly so.

Shape legend: R rows, V different values, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.data.fieldcoder import FieldCoder
from fielddep.data.numeric import QuantileBins, ScaledNumbers

N_VALUES = 5
MIN_ROWS = 5
"""Rows of a group that must hold a value; fewer may be alike by chance."""
MAX_CHANCE = 0.05
"""Probability that random groups of the same sizes show any value at all."""
N_NUMBER_BINS = 4

Floats = npt.NDArray[np.float64]


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


def over_represented(
    bundle: Bundle, rows: EncodedTable, group_R: npt.NDArray[np.int64], *, n: int = N_VALUES
) -> list[tuple[ValueShare, ...]]:
    """For every group the values that are most clearly more frequent in it than by chance, over all fields.

    A random draw of as many rows would hold a value as often with a probability so small that none of all values tried
    is expected to be shown by chance (`MAX_CHANCE`). Those that are left come by the standard deviations that they are
    above such a draw.
    """
    n_groups = int(group_R.max()) + 1
    counted = [_counts(coder, rows, position, group_R) for position, coder in enumerate(bundle.encoder.coders)]
    n_tried = n_groups * sum(int((counts_GV.sum(axis=0) >= MIN_ROWS).sum()) for _, counts_GV in counted)
    found: list[list[tuple[float, ValueShare]]] = [[] for _ in range(n_groups)]
    for coder, (labels, counts_GV) in zip(bundle.encoder.coders, counted, strict=True):
        scores_GV = _standard_scores(counts_GV)
        for group, value in np.argwhere(_chances(counts_GV) < MAX_CHANCE / max(n_tried, 1)).tolist():
            entry = _share(coder.field.name, labels, counts_GV, group, value)
            found[group].append((float(scores_GV[group, value]), entry))
    return [tuple(share for _, share in sorted(entries, key=lambda e: -e[0])[:n]) for entries in found]


def _counts(
    coder: FieldCoder, rows: EncodedTable, position: int, group_R: npt.NDArray[np.int64]
) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """Labels of the different values of a field, and the rows of every group that hold each."""
    labels, value_R = _values(coder, rows, position)
    counts_GV = np.zeros((int(group_R.max()) + 1, len(labels)), dtype=np.int64)
    np.add.at(counts_GV, (group_R, value_R), 1)
    return labels, counts_GV


def _values(coder: FieldCoder, rows: EncodedTable, position: int) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """Labels of the different values of a field, and which of them every row holds."""
    ids_R = rows.ids_RF.numpy()[:, position]
    labels = coder.labels()
    if isinstance(coder.coding, ScaledNumbers):
        numbers = coder.decode(ids_R, rows.numbers_RN.numpy()[:, rows.layout.numerical.index(position)])
        bins = QuantileBins.fit(numbers, N_NUMBER_BINS)
        ids_R, labels = bins.encode(numbers), bins.labels()
    different, value_R = np.unique(ids_R, return_inverse=True)
    return labels.gather(different), value_R


def _chances(counts_GV: npt.NDArray[np.int64]) -> Floats:
    """Probability of a random draw to hold a value as often as a group; 1 where that is rarely, or no more than due."""
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
