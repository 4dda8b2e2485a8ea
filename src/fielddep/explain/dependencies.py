"""Dependencies between fields, of the whole model and of single rows, as numbers.

Shape legend: R rows, S steps of refinement with the start (T + 1), F fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.errors import UserError
from fielddep.explain.field_table import Array, Dependency, FieldDependencies, Leanings
from fielddep.explain.row_values import value_texts
from fielddep.nn.mdl import MDL
from fielddep.nn.refinement import Dependencies

__all__ = [
    "Dependency",
    "Explanation",
    "FieldDependencies",
    "Leanings",
    "dependency_model",
    "explain_rows",
    "global_dependencies",
    "learns_dependencies",
    "refined_blocks",
]

BLOCK_ROWS = 1024
"""Rows that are refined at a time."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The path of refinement of some rows.

    Attributes:
        fields: field names.
        values: what the rows hold, as text, one column a field.
        w_RSFF: W(0) ... W(T) of every row.
        mu_RSF: mu(0) ... mu(T).
        loss_RSF: dependency loss of every field at every step.
        sparsity: lambda.
    """

    fields: tuple[str, ...]
    values: pl.DataFrame
    w_RSFF: Array
    mu_RSF: Array
    loss_RSF: Array
    sparsity: float

    def __len__(self) -> int:
        return len(self.w_RSFF)

    def refined(self, row: int = 0) -> FieldDependencies:
        """mu(T)/lambda * W(T) of a row: what the network sees (times lambda with `dependency_scale = "raw"`)."""
        weight_F = self.mu_RSF[row, -1] / self.sparsity
        return FieldDependencies(fields=self.fields, matrix_FF=self.w_RSFF[row, -1] * weight_F)

    def at_step(self, step: int, row: int = 0) -> FieldDependencies:
        """W(t) of a row, not yet weighted by mu; step -1 is the last."""
        return FieldDependencies(fields=self.fields, matrix_FF=self.w_RSFF[row, step])

    def leanings(self, row: int = 0) -> Leanings:
        """For every field of a row the one that it leans on most after the last step."""
        return self.at_step(-1, row).leanings()

    def to_frame(self) -> pl.DataFrame:
        """One line a row, step and ordered pair of fields: row, step, source, dependent, w, mu, loss.

        `mu` and `loss` are those of the dependent field.
        """
        n_rows, n_steps, n_fields = self.mu_RSF.shape
        row, step, source, dependent = (index.ravel() for index in np.indices((n_rows, n_steps, n_fields, n_fields)))
        names = np.array(self.fields, dtype=object)
        frame = pl.DataFrame(
            {
                "row": row,
                "step": step,
                "source": pl.Series(names[source].tolist(), dtype=pl.String),
                "dependent": pl.Series(names[dependent].tolist(), dtype=pl.String),
                "w": self.w_RSFF.ravel(),
                "mu": self.mu_RSF[row, step, dependent],
                "loss": self.loss_RSF[row, step, dependent],
            }
        )
        return frame.filter(pl.col("source") != pl.col("dependent"))

    def to_json(self) -> dict[str, Any]:
        """Plain values of everything."""
        return {
            "fields": list(self.fields),
            "values": self.values.to_dicts(),
            "sparsity": self.sparsity,
            "w": self.w_RSFF.tolist(),
            "mu": self.mu_RSF.tolist(),
            "loss": self.loss_RSF.tolist(),
        }


def global_dependencies(bundle: Bundle) -> FieldDependencies:
    """W(0): the dependencies that the model starts from in every row.

    Raises:
        UserError: when the model learned no dependencies; so do all functions that refine rows.
    """
    model = dependency_model(bundle)
    matrix_FF = model.refinement.w0_FF.detach().cpu().double().numpy()
    return FieldDependencies(fields=bundle.encoder.schema.field_names, matrix_FF=matrix_FF)


@torch.no_grad()
def explain_rows(bundle: Bundle, rows: EncodedTable, *, values: pl.DataFrame | None = None) -> Explanation:
    """Refine the given rows and keep every step.

    Meant for chosen rows: a row of m fields takes (T + 1) m (m + 2) numbers. `refined_blocks` gives the last step of
    any number of rows.

    Args:
        bundle: a model with dependencies.
        rows: encoded rows.
        values: what the rows hold, see `row_values.cell_texts`; by default as far as their ids tell.
    """
    model = dependency_model(bundle)
    sparsity = model.config.sparsity
    blocks = [list(model.refinement.path(e_BFD)) for e_BFD in _embedded(model, rows)]
    return Explanation(
        fields=bundle.encoder.schema.field_names,
        values=value_texts(bundle.encoder, rows) if values is None else values,
        w_RSFF=_stack([[state.w_BFF for state in path] for path in blocks]),
        mu_RSF=_stack([[state.mu_BF for state in path] for path in blocks]),
        loss_RSF=_stack([[state.loss_BF(sparsity) for state in path] for path in blocks]),
        sparsity=sparsity,
    )


@torch.no_grad()
def refined_blocks(bundle: Bundle, rows: EncodedTable) -> Iterator[Dependencies]:
    """W(T), mu(T) and squared residuals of the rows, some at a time, on the CPU."""
    model = dependency_model(bundle)
    for e_BFD in _embedded(model, rows):
        last = model.refinement(e_BFD)
        yield Dependencies(
            w_BFF=last.w_BFF.cpu(), mu_BF=last.mu_BF.cpu(), squared_residuals_BF=last.squared_residuals_BF.cpu()
        )


def dependency_model(bundle: Bundle) -> MDL:
    """The model of a bundle, ready to refine.

    Raises:
        UserError: when it learned no dependencies.
    """
    model = bundle.model
    if not isinstance(model, MDL):
        raise UserError(
            f"only the model mdl learns field dependencies; given a model {bundle.config.model.name}. Train with "
            "model.name = 'mdl' to explain it"
        )
    if model.config.dependencies == "none":
        raise UserError(
            "this model learned no field dependencies (model.dependencies = 'none'); train with "
            "model.dependencies = 'refined' to explain it"
        )
    return model.eval()


def learns_dependencies(bundle: Bundle) -> bool:
    """Whether `dependency_model` has a model to give."""
    return isinstance(bundle.model, MDL) and bundle.model.config.dependencies != "none"


def _embedded(model: MDL, rows: EncodedTable) -> Iterator[torch.Tensor]:
    """Embedded fields (B, F, D) of the rows, block by block; of no rows one empty block."""
    device = next(model.parameters()).device
    for start in range(0, max(len(rows), 1), BLOCK_ROWS):
        batch = rows.batch(slice(start, start + BLOCK_ROWS)).to(device)
        yield model.fields_of(model.embed(batch.ids_BF, batch.numbers_BN))


def _stack(blocks: list[list[torch.Tensor]]) -> Array:
    stacked: Array = torch.cat([torch.stack(path, dim=1).cpu() for path in blocks]).double().numpy()
    return stacked
