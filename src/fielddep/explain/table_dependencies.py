"""Refined dependencies over a whole table: how strong they are on average, and on whom each field leans how often.

Shape legend: B rows of a block, F fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.explain.dependencies import dependency_model, refined_blocks
from fielddep.explain.field_table import Array, FieldDependencies, strongest_sources


@dataclass(frozen=True, kw_only=True)
class TableDependencies:
    """What the refined dependencies of many rows have in common.

    Attributes:
        fields: field names.
        n_rows: rows that were refined.
        counts_FF: rows in which field j leans on field i most, by the size of its entries in W(T).
        mean_FF: mean of mu(T)/lambda * W(T).
        size_FF: mean of its size, in which opposite rows do not cancel out.
    """

    fields: tuple[str, ...]
    n_rows: int
    counts_FF: npt.NDArray[np.int64]
    mean_FF: Array
    size_FF: Array

    @property
    def mean(self) -> FieldDependencies:
        """mu(T)/lambda * W(T) of the average row."""
        return FieldDependencies(fields=self.fields, matrix_FF=self.mean_FF)

    @property
    def size(self) -> FieldDependencies:
        """Average size of the entries of mu(T)/lambda * W(T)."""
        return FieldDependencies(fields=self.fields, matrix_FF=self.size_FF)

    def to_frame(self) -> pl.DataFrame:
        """One line an ordered pair: field, leans_on, n_rows, share, mean, size; the most frequent of a field first."""
        leans_on, field = (index.ravel() for index in np.indices(self.counts_FF.shape))
        counts = self.counts_FF.ravel()
        frame = pl.DataFrame(
            {
                "position": field,
                "field": [self.fields[j] for j in field],
                "leans_on": [self.fields[i] for i in leans_on],
                "n_rows": counts,
                "share": counts / max(self.n_rows, 1),
                "mean": self.mean_FF.ravel(),
                "size": self.size_FF.ravel(),
            }
        ).filter(pl.Series(leans_on != field))
        return frame.sort("position", "n_rows", "size", descending=[False, True, True], maintain_order=True).drop(
            "position"
        )


def table_dependencies(bundle: Bundle, rows: EncodedTable) -> TableDependencies:
    """Refine all rows, block by block, and keep sums only: memory does not depend on their number.

    Raises:
        UserError: when the model learned no dependencies.
    """
    fields = bundle.encoder.schema.field_names
    sparsity = dependency_model(bundle).config.sparsity
    n_fields = len(fields)
    counts_FF = np.zeros((n_fields, n_fields), dtype=np.int64)
    mean_FF, size_FF = np.zeros((n_fields, n_fields)), np.zeros((n_fields, n_fields))
    for block in refined_blocks(bundle, rows):
        w_BFF = block.w_BFF.double().numpy()
        refined_BFF = w_BFF * (block.mu_BF.double().numpy() / sparsity)[:, np.newaxis, :]
        np.add.at(counts_FF, (strongest_sources(w_BFF), np.arange(n_fields)), 1)
        mean_FF += refined_BFF.sum(axis=0)
        size_FF += np.abs(refined_BFF).sum(axis=0)
    n_rows = max(len(rows), 1)
    return TableDependencies(
        fields=fields, n_rows=len(rows), counts_FF=counts_FF, mean_FF=mean_FF / n_rows, size_FF=size_FF / n_rows
    )
