"""A named table of dependencies between fields: which fields explain which, and how much.

Shape legend: R rows, F fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """One entry: how much `source` says about `dependent`."""

    source: str
    dependent: str
    weight: float


@dataclass(frozen=True, kw_only=True)
class Leanings:
    """For every field the one that it leans on most, in the order of the fields."""

    entries: tuple[Dependency, ...]

    def to_frame(self) -> pl.DataFrame:
        """One line a field: field, leans_on, weight."""
        columns = {
            "field": [entry.dependent for entry in self.entries],
            "leans_on": [entry.source for entry in self.entries],
            "weight": [entry.weight for entry in self.entries],
        }
        return pl.DataFrame(columns, schema={"field": pl.String, "leans_on": pl.String, "weight": pl.Float64})


@dataclass(frozen=True, kw_only=True)
class FieldDependencies:
    """A named m x m table; column j tells how field j is expressed by the others.

    Attributes:
        fields: names of rows and columns.
        matrix_FF: coefficients; the diagonal carries no meaning.
    """

    fields: tuple[str, ...]
    matrix_FF: Array

    def strongest(self, n: int = 10) -> list[Dependency]:
        """The entries of largest size, off the diagonal."""
        size_FF = np.abs(self.matrix_FF)
        np.fill_diagonal(size_FF, -1.0)
        order = np.argsort(-size_FF, axis=None, kind="stable")[: min(n, size_FF.size - len(self.fields))]
        return [self._entry(*divmod(int(flat), len(self.fields))) for flat in order]

    def strongest_fields(self, n: int) -> list[int]:
        """Positions of up to n fields that have the strongest entries, in their order."""
        size_FF = np.abs(self.normalized())
        by_strength = np.argsort(-np.maximum(size_FF.max(axis=0), size_FF.max(axis=1)), kind="stable")
        return sorted(by_strength[:n].tolist())

    def part(self, positions: list[int]) -> FieldDependencies:
        """The table of some fields only."""
        names = tuple(self.fields[f] for f in positions)
        return FieldDependencies(fields=names, matrix_FF=self.matrix_FF[np.ix_(positions, positions)])

    def leanings(self) -> Leanings:
        """For every field the one that it leans on most: the entry of largest size in its column."""
        sources = strongest_sources(self.matrix_FF[np.newaxis])[0]
        return Leanings(entries=tuple(self._entry(int(source), field) for field, source in enumerate(sources)))

    def normalized(self) -> Array:
        """Entries divided by the largest off the diagonal, so that all lie in (-1, 1); the diagonal is zero."""
        matrix_FF = self.matrix_FF.copy()
        np.fill_diagonal(matrix_FF, 0.0)
        scaled: Array = matrix_FF / max(float(np.abs(matrix_FF).max()), 1e-300)
        return scaled

    def to_frame(self) -> pl.DataFrame:
        """One row a source, one column a dependent field; the first column is `(source)` if a field is `source`."""
        first = "(source)" if "source" in self.fields else "source"
        columns = {name: self.matrix_FF[:, j] for j, name in enumerate(self.fields)}
        return pl.DataFrame({first: list(self.fields)}).hstack(pl.DataFrame(columns))

    def _entry(self, source: int, dependent: int) -> Dependency:
        weight = float(self.matrix_FF[source, dependent])
        return Dependency(source=self.fields[source], dependent=self.fields[dependent], weight=weight)


def strongest_sources(w_RFF: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
    """For every row and field the position of the field that it leans on most (R, F); of equal ones the first."""
    size_RFF = np.abs(w_RFF)
    n_fields = size_RFF.shape[1]
    size_RFF[:, np.arange(n_fields), np.arange(n_fields)] = -1.0
    sources: npt.NDArray[np.int64] = size_RFF.argmax(axis=1)
    return sources
