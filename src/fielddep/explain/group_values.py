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
MIN_SCORE = 2.0
"""Standard deviations above chance from which a value counts as over-represented."""
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

    Clear means many standard deviations above what a random draw of as many rows would hold, so a value of two rows
    does not come before one of two thousand.
    """
    n_groups = int(group_R.max()) + 1
    found: list[list[tuple[float, ValueShare]]] = [[] for _ in range(n_groups)]
    for position, coder in enumerate(bundle.encoder.coders):
        labels, value_R = _values(coder, rows, position)
        counts_GV = np.zeros((n_groups, len(labels)), dtype=np.int64)
        np.add.at(counts_GV, (group_R, value_R), 1)
        scores_GV = _standard_scores(counts_GV)
        for group in range(n_groups):
            # More than n of one field cannot be among the n clearest of all fields.
            for value in np.argsort(-scores_GV[group], kind="stable")[:n]:
                score = float(scores_GV[group, value])
                if score >= MIN_SCORE:
                    found[group].append((score, _share(coder.field.name, labels, counts_GV, group, int(value))))
    return [tuple(share for _, share in sorted(entries, key=lambda e: -e[0])[:n]) for entries in found]


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
