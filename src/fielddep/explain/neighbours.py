"""Neighbours: the values of a field whose embeddings point in the same direction as that of a given value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.numbers import ScaledNumbers
from fielddep.encoding.vocabulary import FIRST_ID, RARE_ID
from fielddep.errors import SchemaError, UserError
from fielddep.explain.rows import Floats
from fielddep.wording import did_you_mean

MAX_SPELLINGS = 100_000
"""Similar spellings are looked for among this many of the most frequent values."""

Embeddings = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestValues:
    """The values of a field most similar to one of them, the nearest first.

    Attributes:
        field: the field.
        value: the value as in the vocabulary, which has intervals for binned numbers.
        count: training rows with this value.
        values: the nearest other values.
        similarities: their cosines, from -1 to 1; 0 if an embedding is zero.
        counts: training rows with each; rare values have learned little.
    """

    field: str
    value: str
    count: int
    values: tuple[str, ...]
    similarities: tuple[float, ...]
    counts: tuple[int, ...]

    def to_frame(self) -> pl.DataFrame:
        """One line per value: value, similarity, count."""
        columns = {"value": self.values, "similarity": self.similarities, "count": self.counts}
        return pl.DataFrame(columns, schema={"value": pl.String, "similarity": pl.Float64, "count": pl.Int64})


def nearest_values(bundle: Bundle, field: str, value: object, *, n: int = 10) -> NearestValues:
    """The values of a field most similar to a given one, by the cosine of their embeddings.

    Args:
        bundle: a model with an embedding per value.
        field: name of a field.
        value: a value of any type, any number within a bin, or None for missing.
        n: values at most, not counting the reserved ids for missing and rare values.

    Raises:
        SchemaError: for an unknown field or value; it suggests similar spellings.
        UserError: if the model or the field has no embedding per value.
    """
    labels, counts, table_VD = value_embeddings(bundle, field)
    field_encoder = bundle.encoder.field_encoders[bundle.encoder.schema.field_names.index(field)]
    if isinstance(field_encoder.codec, ScaledNumbers):
        raise UserError(
            f"field {field!r} enters the model as a number, so its values have no embeddings. Train with "
            f"data.numeric.{field} = 'quantile' to compare bins"
        )
    own = _id_of(field_encoder, labels, value)
    similarity = _cosines(table_VD, own)
    similarity[[own, *range(FIRST_ID)]] = -np.inf
    order = np.argsort(-similarity, kind="stable")[: min(n, int(np.isfinite(similarity).sum()))]
    return NearestValues(
        field=field,
        value=labels[own],
        count=int(counts[own]),
        values=tuple(labels[int(v)] for v in order),
        similarities=tuple(similarity[order].tolist()),
        counts=tuple(counts[order].tolist()),
    )


def value_embeddings(bundle: Bundle, field: str) -> tuple[pl.Series, npt.NDArray[np.int64], Embeddings]:
    """Label, number of training rows and embedding of every id of a field.

    Raises:
        SchemaError: if there is no such field.
        UserError: if the model has no embedding per value.
    """
    labels = bundle.encoder.values(field)
    position = bundle.encoder.schema.field_names.index(field)
    table = dict(bundle.model.tables()).get("embedding")
    if table is None or table.rows_I is not None:
        raise UserError(
            f"the model {bundle.config.model.name} has no embedding per value, so values cannot be compared"
        )
    start = bundle.encoder.layout.offsets[position]
    embeddings: Embeddings = table.weight.detach()[start : start + len(labels)].cpu().numpy()
    return labels, bundle.encoder.counts[position], embeddings


def _id_of(field_encoder: FieldEncoder, labels: pl.Series, value: object) -> int:
    """Local id of a known value, or of a label of a reserved id or a bin."""
    spelled = labels.index_of(value) if isinstance(value, str) else None
    if spelled is not None:
        return int(spelled)
    own = int(field_encoder.encode(pl.Series(field_encoder.field.name, [value], strict=False)).ids[0])
    if own != RARE_ID or value is None:
        return own
    advice = did_you_mean(value, labels[FIRST_ID : FIRST_ID + MAX_SPELLINGS], what="frequent values")
    raise SchemaError(f"field {field_encoder.field.name!r} had no value {value!r} in training; {advice}")


def _cosines(table_VD: Embeddings, own: int) -> Floats:
    wide_VD = table_VD.astype(np.float64)
    sizes_V = np.linalg.norm(wide_VD, axis=1)
    products_V = wide_VD @ wide_VD[own]
    scale_V = sizes_V * sizes_V[own]
    cosines: Floats = np.divide(products_V, scale_V, out=np.zeros_like(products_V), where=scale_V > 0)
    return cosines
