"""Features of rows for other models: what a trained model looks up and computes before it predicts.

Shape legend: R rows, N features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.rows import EncodedRows
from fielddep.errors import UserError
from fielddep.nn.embedding import EmbeddingTable
from fielddep.nn.mdl import MDL
from fielddep.nn.model import BATCH_ROWS

_NO_FEATURES = ("first_order", "shift", "direct.numbers.embedding")
"""Tables of weights per output, which are no embeddings, and of a direct network, which is not the model itself."""


def feature_names(bundle: Bundle) -> list[str]:
    """Names of the columns of `row_features`: `colour_e0`, ..., then `colour -> shape`, ... for MDL.

    Raises:
        UserError: the model has no embeddings.
    """
    fields = _fields(bundle)
    size = sum(table.weight.shape[1] for table in _tables(bundle))
    embedded = [f"{field}_e{d}" for field in fields for d in range(size)]
    if not isinstance(bundle.model, MDL):
        return embedded
    places = (divmod(place, len(fields)) for place in bundle.model.dependency_inputs_Q.tolist())
    return embedded + [f"{fields[source]} -> {fields[dependent]}" for source, dependent in places]


def row_features(bundle: Bundle, rows: EncodedRows) -> npt.NDArray[np.float64]:
    """Embedding of every field of every row and, for MDL, the refined dependencies mu_j/lambda * w_ij (R, N).

    The dependencies are those that the network sees, so by default all pairs of different fields.

    Raises:
        UserError: the model has no embeddings.
    """
    tables, model, n_fields = _tables(bundle), bundle.model.eval(), len(_fields(bundle))
    found = []
    for start in range(0, max(len(rows), 1), BATCH_ROWS):
        inputs = rows.batch(slice(start, start + BATCH_ROWS)).to(model.bias.device).inputs
        with torch.no_grad():
            if isinstance(model, MDL):
                features = [model.embed(inputs)[:, :n_fields].flatten(1), model.dependency_values(inputs)]
            else:
                features = [torch.cat([table(inputs)[:, :n_fields] for table in tables], dim=2).flatten(1)]
        found.append(torch.cat(features, dim=1).cpu().numpy())
    return np.concatenate(found).astype(np.float64)


def _fields(bundle: Bundle) -> tuple[str, ...]:
    """Fields whose embeddings are features: in a wide table, those that MDL relates to each other."""
    return bundle.model.related_names if isinstance(bundle.model, MDL) else bundle.encoder.schema.field_names


def _tables(bundle: Bundle) -> list[EmbeddingTable]:
    tables = [table for name, table in bundle.model.tables() if name not in _NO_FEATURES]
    if not tables:
        raise UserError(
            f"features come from embeddings, and the model {bundle.config.model.name} has none. Use another model, "
            "such as mdl or fm"
        )
    return tables
