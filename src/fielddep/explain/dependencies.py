"""Dependencies between fields, of the whole model and of single rows, as numbers.

Shape legend: R rows, S steps of refinement with the start (T + 1), F fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.bundle import Bundle
from fielddep.data.encoded import EncodedTable
from fielddep.errors import UserError
from fielddep.nn.mdl import MDL

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """One entry: how much `source` says about `dependent`."""

    source: str
    dependent: str
    weight: float


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
        return [
            Dependency(source=self.fields[i], dependent=self.fields[j], weight=float(self.matrix_FF[i, j]))
            for i, j in (divmod(int(flat), len(self.fields)) for flat in order)
        ]

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
    """W(0): the dependencies that the model starts from in every row."""
    model = _mdl(bundle)
    matrix_FF = model.refinement.w0_FF.detach().cpu().double().numpy()
    return FieldDependencies(fields=bundle.encoder.schema.field_names, matrix_FF=matrix_FF)


@torch.no_grad()
def explain_rows(bundle: Bundle, rows: EncodedTable) -> Explanation:
    """Refine the given rows and keep every step."""
    model = _mdl(bundle)
    sparsity = model.config.sparsity
    device = next(model.parameters()).device
    batch = rows.batch(slice(None)).to(device)
    path = list(model.refinement.path(model.fields_of(model.embed(batch.ids_BF, batch.numbers_BN))))
    values = bundle.encoder.decode(rows)
    texts = values.select(pl.all().cast(pl.String).fill_null("<missing>"))
    return Explanation(
        fields=bundle.encoder.schema.field_names,
        values=texts,
        w_RSFF=_stack([state.w_BFF for state in path]),
        mu_RSF=_stack([state.mu_BF for state in path]),
        loss_RSF=_stack([state.loss_BF(sparsity) for state in path]),
        sparsity=sparsity,
    )


def _stack(steps: list[torch.Tensor]) -> Array:
    stacked: Array = torch.stack(steps, dim=1).cpu().double().numpy()
    return stacked


def _mdl(bundle: Bundle) -> MDL:
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
    return model
