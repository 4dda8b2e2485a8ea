"""Unknown values: how many cells of encoded rows hold a value that the vocabulary does not know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fielddep.encoding.rows import EncodedRows


@dataclass(frozen=True, kw_only=True)
class UnknownReport:
    """How many values of each field were unknown or missing in encoded rows.

    Unknown means not in the vocabulary: never seen in training, or in fewer than `min_count` rows. A list is unknown if
    all of its values are.
    """

    n_rows: int
    unknown: dict[str, int]
    missing: dict[str, int]

    @property
    def unknown_shares(self) -> dict[str, float]:
        """Share of rows with an unknown value, per field."""
        return {name: count / max(self.n_rows, 1) for name, count in self.unknown.items()}

    @property
    def missing_shares(self) -> dict[str, float]:
        """Share of rows with a missing value, per field."""
        return {name: count / max(self.n_rows, 1) for name, count in self.missing.items()}

    def merge(self, other: UnknownReport) -> UnknownReport:
        """The report of both sets of rows together."""
        return UnknownReport(
            n_rows=self.n_rows + other.n_rows,
            unknown={name: count + other.unknown[name] for name, count in self.unknown.items()},
            missing={name: count + other.missing[name] for name, count in self.missing.items()},
        )


def best_ids(rows: EncodedRows, position: int) -> npt.NDArray[np.int32]:
    """The local id of each row's value; the highest of a list, which is a reserved id only if all of them are."""
    if position not in rows.layout.lists:
        return rows.ids_RF[:, position]
    lists = rows.lists_R(position)
    return np.maximum.reduceat(lists.values, lists.offsets[:-1]) if len(lists) else lists.values
