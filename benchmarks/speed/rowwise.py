"""One row at a time through `Predictor`: read, encode, refine, predict.

The bundle knows as many values per field as the shape has ids, so looking one up costs as much as in practice. A value
is a text of nine characters, like the hashed values of Avazu and Criteo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import numpy as np
import polars as pl
import torch

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.rows import Inputs, Layout
from fielddep.encoding.schema import Field, Schema
from fielddep.encoding.vocabulary import FIRST_ID, Vocabulary
from fielddep.nn import build_model
from fielddep.nn.model import FieldModel
from programs import TARGET, config_of, plain_kernels
from shapes import Shape
from textbook import TextbookMDL

N_ROWS = 1_000
WARM_UP_ROWS = 100
N_COUNTED_ROWS = 10_000_000

Answer = Callable[[pl.DataFrame], pl.DataFrame]


def value_texts(field: int, ranks: np.ndarray) -> list[str]:
    """Texts of the values of a field; they differ, because multiplying by an odd number is one-to-one."""
    mixed = (ranks.astype(np.uint64) * 2_654_435_761 + 97 * field) % 2**32
    return [f"v{number:08x}" for number in mixed.tolist()]


def encoder_of(shape: Shape) -> Encoder:
    """An encoder that knows every value of the shape."""
    fields = tuple(Field(name=name, kind="categorical") for name in shape.fields)
    field_encoders = []
    for position, (field, counts) in enumerate(zip(fields, shape.counts(N_COUNTED_ROWS), strict=True)):
        whole = np.maximum(np.round(counts), 1).astype(np.int64)
        values = pl.Series("value", value_texts(position, np.arange(len(whole))))
        vocabulary = Vocabulary(values=values, counts=np.concatenate([[1] * FIRST_ID, whole]))
        field_encoders.append(FieldEncoder(field=field, codec=vocabulary, missing_values=("",)))
    schema = Schema(fields=fields, target=TARGET)
    return Encoder(schema=schema, field_encoders=tuple(field_encoders), missing_values=("",), handle_unknown="rare")


def one_row_frames(shape: Shape, n_rows: int) -> list[pl.DataFrame]:
    """Rows of the shape, each as a frame with the texts of its values."""
    ids_RF = shape.table(n_rows, seed=2).ids_RF
    columns = {name: value_texts(f, ids_RF[:, f]) for f, name in enumerate(shape.fields)}
    return [pl.DataFrame({name: [texts[row]] for name, texts in columns.items()}) for row in range(n_rows)]


class _TextbookInBundle(FieldModel):
    """The textbook form where `Predictor` expects a model."""

    def __init__(self, layout: Layout, shape: Shape) -> None:
        super().__init__(layout, n_outputs=1)
        self.model = TextbookMDL(n_ids=layout.n_ids_total, n_fields=layout.n_fields, d_embed=shape.d_embed)

    def own_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits (B, 1)."""
        logits_B: torch.Tensor = self.model(inputs.ids_BF)
        return logits_B.unsqueeze(1)


def answers(shape: Shape, names: list[str]) -> dict[str, Answer]:
    """How each program answers a frame of one row."""
    encoder, config = encoder_of(shape), config_of(shape)
    found: dict[str, Answer] = {}
    if {"fielddep", "fielddep-plain"} & set(names):
        ours = Predictor(Bundle(config=config, encoder=encoder, model=build_model(encoder.layout, 1, config.model)))
        switches: Mapping[str, Callable[[], AbstractContextManager[object]]]
        switches = {"fielddep": nullcontext, "fielddep-plain": plain_kernels}
        found |= {name: _switched(ours, switch) for name, switch in switches.items() if name in names}
    if "textbook" in names:
        model = cast(FieldModel, _TextbookInBundle(encoder.layout, shape))
        found["textbook"] = Predictor(Bundle(config=config, encoder=encoder, model=model)).predict
    return found


def _switched(predictor: Predictor, switch: Callable[[], AbstractContextManager[object]]) -> Answer:
    def answer(row: pl.DataFrame) -> pl.DataFrame:
        with switch():
            return predictor.predict(row)

    return answer
