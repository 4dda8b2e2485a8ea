"""Dependencies between fields as numbers: of the model, of single rows, and over a table.

Shape legend: R rows, B rows of a chunk, S steps of refinement including the start (T + 1), F fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import UserError
from fielddep.explain.rows import Floats, value_texts
from fielddep.nn.mdl import MDL

CHUNK_ROWS = 1024
"""Rows refined at a time."""


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """One entry: how much `source` says about `dependent`."""

    source: str
    dependent: str
    weight: float


@dataclass(frozen=True, kw_only=True)
class StrongestSources:
    """For every field, in order, the field that says most about it."""

    entries: tuple[Dependency, ...]

    def to_frame(self) -> pl.DataFrame:
        """One row per field: field, strongest_source, weight."""
        lines = [(entry.dependent, entry.source, entry.weight) for entry in self.entries]
        schema = {"field": pl.String, "strongest_source": pl.String, "weight": pl.Float64}
        return pl.DataFrame(lines, schema=schema, orient="row")


@dataclass(frozen=True, kw_only=True)
class FieldDependencies:
    """Named coefficients (F, F): column j expresses field j by the others. The diagonal has no meaning."""

    fields: tuple[str, ...]
    matrix_FF: Floats

    def strongest(self, n: int = 10) -> list[Dependency]:
        """The largest entries by absolute value, off the diagonal."""
        size_FF = np.abs(self.matrix_FF)
        np.fill_diagonal(size_FF, -1.0)
        order = np.argsort(-size_FF, axis=None, kind="stable")[: min(n, size_FF.size - len(self.fields))]
        return [self._entry(*divmod(int(flat), len(self.fields))) for flat in order]

    def strongest_fields(self, n: int) -> list[int]:
        """Positions of up to n fields with the strongest entries, in the order of the table."""
        size_FF = np.abs(self.normalized())
        by_strength = np.argsort(-np.maximum(size_FF.max(axis=0), size_FF.max(axis=1)), kind="stable")
        return sorted(by_strength[:n].tolist())

    def strongest_sources(self) -> StrongestSources:
        """The largest entry of every column."""
        sources = strongest_sources(self.matrix_FF[np.newaxis])[0]
        return StrongestSources(entries=tuple(self._entry(int(source), field) for field, source in enumerate(sources)))

    def part(self, positions: list[int]) -> FieldDependencies:
        """The entries between some of the fields."""
        names = tuple(self.fields[f] for f in positions)
        return FieldDependencies(fields=names, matrix_FF=self.matrix_FF[np.ix_(positions, positions)])

    def normalized(self) -> Floats:
        """Entries divided by the largest one, thus from -1 to 1, with zeros on the diagonal."""
        matrix_FF = self.matrix_FF.copy()
        np.fill_diagonal(matrix_FF, 0.0)
        scaled: Floats = matrix_FF / max(float(np.abs(matrix_FF).max()), 1e-300)
        return scaled

    def to_frame(self) -> pl.DataFrame:
        """One row per source, one column per dependent field; the first is `(source)` if a field is named `source`."""
        first = "(source)" if "source" in self.fields else "source"
        columns = {name: self.matrix_FF[:, j] for j, name in enumerate(self.fields)}
        return pl.DataFrame({first: list(self.fields)}).hstack(pl.DataFrame(columns))

    def _entry(self, source: int, dependent: int) -> Dependency:
        weight = float(self.matrix_FF[source, dependent])
        return Dependency(source=self.fields[source], dependent=self.fields[dependent], weight=weight)


def strongest_sources(w_RFF: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
    """For every row and field, the position of the field that says most about it (R, F); the first of equals."""
    size_RFF = np.abs(w_RFF)
    n_fields = size_RFF.shape[1]
    size_RFF[:, np.arange(n_fields), np.arange(n_fields)] = -1.0
    sources: npt.NDArray[np.int64] = size_RFF.argmax(axis=1)
    return sources


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The refinement of some rows, step by step.

    Attributes:
        fields: field names.
        values: the values of the rows as text, one column per field.
        w_RSFF: W(0) ... W(T).
        mu_RSF: mu(0) ... mu(T).
        loss_RSF: dependency loss of every field.
        sparsity: lambda.
    """

    fields: tuple[str, ...]
    values: pl.DataFrame
    w_RSFF: Floats
    mu_RSF: Floats
    loss_RSF: Floats
    sparsity: float

    def __len__(self) -> int:
        return len(self.w_RSFF)

    def refined(self, row: int = 0) -> FieldDependencies:
        """mu(T)/lambda * W(T) of a row: what the network sees (times lambda with `dependency_scale = "raw"`)."""
        weight_F = self.mu_RSF[row, -1] / self.sparsity
        return FieldDependencies(fields=self.fields, matrix_FF=self.w_RSFF[row, -1] * weight_F)

    def at_step(self, step: int, row: int = 0) -> FieldDependencies:
        """W(t) of a row, without the weights mu; step -1 is the last."""
        return FieldDependencies(fields=self.fields, matrix_FF=self.w_RSFF[row, step])

    def strongest_sources(self, row: int = 0) -> StrongestSources:
        """For every field of a row, the field that says most about it after the last step."""
        return self.at_step(-1, row).strongest_sources()

    def to_frame(self) -> pl.DataFrame:
        """One line per row, step and ordered pair of fields: row, step, source, dependent, w, mu, loss.

        `mu` and `loss` belong to the dependent field.
        """
        n_rows, n_steps, n_fields = self.mu_RSF.shape
        row, step, source, dependent = (index.ravel() for index in np.indices((n_rows, n_steps, n_fields, n_fields)))
        names = pl.Series(self.fields, dtype=pl.String)
        frame = pl.DataFrame(
            {
                "row": row,
                "step": step,
                "source": names.gather(source),
                "dependent": names.gather(dependent),
                "w": self.w_RSFF.ravel(),
                "mu": self.mu_RSF[row, step, dependent],
                "loss": self.loss_RSF[row, step, dependent],
            }
        )
        return frame.filter(pl.col("source") != pl.col("dependent"))

    def to_json(self) -> dict[str, Any]:
        """All attributes as plain values."""
        return {
            "fields": list(self.fields),
            "values": self.values.to_dicts(),
            "sparsity": self.sparsity,
            "w": self.w_RSFF.tolist(),
            "mu": self.mu_RSF.tolist(),
            "loss": self.loss_RSF.tolist(),
        }


def global_dependencies(bundle: Bundle) -> FieldDependencies:
    """W(0): the dependencies from which refinement starts in every row.

    Raises:
        UserError: if the model learned no dependencies. All functions that refine rows raise it too.
    """
    model = dependency_model(bundle)
    matrix_FF = model.refinement.w0_FF.detach().cpu().double().numpy()
    return FieldDependencies(fields=model.related_names, matrix_FF=matrix_FF)


@torch.no_grad()
def explain_rows(bundle: Bundle, rows: EncodedRows, *, values: pl.DataFrame | None = None) -> Explanation:
    """Refine a few rows and keep every step, (T + 1) m (m + 2) numbers per row of m fields.

    For many rows, `refined_chunks` gives the last step only. `values` are the values as text, from `rows.cell_texts`;
    the default shows them as far as the ids do.
    """
    model = dependency_model(bundle)
    sparsity = model.config.sparsity
    paths = [list(model.refinement.path(e_BFD)) for e_BFD in _embedded(model, rows)]
    return Explanation(
        fields=model.related_names,
        values=(value_texts(bundle.encoder, rows) if values is None else values).select(model.related_names),
        w_RSFF=_stack([[state.w_BFF for state in path] for path in paths]),
        mu_RSF=_stack([[state.mu_BF for state in path] for path in paths]),
        loss_RSF=_stack([[state.loss_BF(sparsity) for state in path] for path in paths]),
        sparsity=sparsity,
    )


@torch.no_grad()
def refined_chunks(bundle: Bundle, rows: EncodedRows) -> Iterator[tuple[Floats, Floats]]:
    """W(T) and mu(T)/lambda * W(T), each (B, F, F), chunk by chunk."""
    model = dependency_model(bundle)
    for e_BFD in _embedded(model, rows):
        last = model.refinement(e_BFD)
        w_BFF, mu_BF = last.w_BFF.cpu().double().numpy(), last.mu_BF.cpu().double().numpy()
        yield w_BFF, w_BFF * (mu_BF / model.config.sparsity)[:, np.newaxis, :]


def dependency_model(bundle: Bundle) -> MDL:
    """The model of a bundle, in evaluation mode; a `UserError` if it learned no dependencies."""
    model = bundle.model
    if not isinstance(model, MDL):
        raise UserError(
            f"only the model mdl learns field dependencies, but this model is {bundle.config.model.name}. Train with "
            "model.name = 'mdl'"
        )
    if model.config.dependencies == "none":
        raise UserError(
            "this model learned no field dependencies (model.dependencies = 'none'). Train with "
            "model.dependencies = 'refined'"
        )
    return model.eval()


def learns_dependencies(bundle: Bundle) -> bool:
    """Whether `dependency_model` accepts the bundle."""
    return isinstance(bundle.model, MDL) and bundle.model.config.dependencies != "none"


def _embedded(model: MDL, rows: EncodedRows) -> Iterator[torch.Tensor]:
    """Embedded fields (B, F, D), chunk by chunk; one empty chunk if there are no rows."""
    device = next(model.parameters()).device
    for start in range(0, max(len(rows), 1), CHUNK_ROWS):
        yield model.fields_of(model.embed(rows.batch(slice(start, start + CHUNK_ROWS)).to(device).inputs))


def _stack(paths: list[list[torch.Tensor]]) -> Floats:
    stacked: Floats = torch.cat([torch.stack(path, dim=1).cpu() for path in paths]).double().numpy()
    return stacked


def weight_range(share_SF: Floats) -> tuple[float, float]:
    """Limits of an axis of mu/lambda (S, F), wide enough to keep tiny differences small."""
    even = 1 / share_SF.shape[1]
    low, high = min(even, float(share_SF.min())), max(even, float(share_SF.max()))
    room = 0.04 * (high - low) + 0.04 * even
    return low - room, high + room


@dataclass(frozen=True, kw_only=True)
class TableDependencies:
    """Refined dependencies over many rows.

    Attributes:
        fields: field names.
        n_rows: number of rows.
        counts_FF: rows in which field i is the strongest source of field j, by W(T).
        mean_FF: mean of mu(T)/lambda * W(T).
        size_FF: mean of its absolute value, in which rows of opposite sign do not cancel out.
    """

    fields: tuple[str, ...]
    n_rows: int
    counts_FF: npt.NDArray[np.int64]
    mean_FF: Floats
    size_FF: Floats

    def to_frame(self) -> pl.DataFrame:
        """One line per ordered pair: field, source, n_rows, share, mean, size. The most frequent source comes first."""
        source, field = (index.ravel() for index in np.indices(self.counts_FF.shape))
        names, counts = pl.Series(self.fields, dtype=pl.String), self.counts_FF.ravel()
        frame = pl.DataFrame(
            {
                "position": field,
                "field": names.gather(field),
                "source": names.gather(source),
                "n_rows": counts,
                "share": counts / max(self.n_rows, 1),
                "mean": self.mean_FF.ravel(),
                "size": self.size_FF.ravel(),
            }
        ).filter(pl.Series(source != field))
        order = frame.sort("position", "n_rows", "size", descending=[False, True, True], maintain_order=True)
        return order.drop("position")


def table_dependencies(bundle: Bundle, rows: EncodedRows) -> TableDependencies:
    """Refine any number of rows, keeping sums only."""
    fields = dependency_model(bundle).related_names
    n_fields = len(fields)
    counts_FF = np.zeros((n_fields, n_fields), dtype=np.int64)
    mean_FF, size_FF = np.zeros((2, n_fields, n_fields))
    for w_BFF, refined_BFF in refined_chunks(bundle, rows):
        np.add.at(counts_FF, (strongest_sources(w_BFF), np.arange(n_fields)), 1)
        mean_FF += refined_BFF.sum(axis=0)
        size_FF += np.abs(refined_BFF).sum(axis=0)
    n_rows = max(len(rows), 1)
    return TableDependencies(
        fields=fields, n_rows=len(rows), counts_FF=counts_FF, mean_FF=mean_FF / n_rows, size_FF=size_FF / n_rows
    )
