"""Rows for tree models: the same encoded rows that the other models get, as columns of codes and numbers.

- A categorical field gives its local ids as codes of categories; 0 (missing) and 1 (rare or unknown) are categories.
- A numerical field gives numbers that keep its order: the standardised number, the number of its quantile bin or the
  paper's bin of a count. A missing number is NaN.
- Crosses are skipped: trees find their own.

Shape legend: R rows, C outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.config.trees import TreeConfig
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.field import FieldEncoder
from fielddep.encoding.rows import EncodedRows
from fielddep.encoding.target import Target
from fielddep.encoding.vocabulary import FIRST_ID, MISSING_ID
from fielddep.observer import Observer
from fielddep.store.shards import StorePart
from fielddep.training.checkpoint import Evaluation
from fielddep.training.prepare import Prepared

EXACT_IN_FLOAT32 = 1 << 24
"""Whole numbers up to this one are float32 numbers."""

Column = npt.NDArray[np.int32] | npt.NDArray[np.float32]
Vector = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TreeColumns:
    """How the columns of encoded rows become those of a tree model.

    Attributes:
        numbers_of: one a field: None for categories, else the number of every local id, NaN for none.
        scaled: place among the standardised numbers of each field that is given as such.
        n_ids: ids of every field.
    """

    numbers_of: tuple[npt.NDArray[np.float32] | None, ...]
    scaled: dict[int, int]
    n_ids: tuple[int, ...]

    @classmethod
    def of(cls, encoder: Encoder) -> TreeColumns:
        """The columns of an encoder's fields."""
        layout = encoder.layout
        return cls(
            numbers_of=tuple(_numbers_of(field_encoder) for field_encoder in encoder.field_encoders),
            scaled={field: place for place, field in enumerate(layout.numerical)},
            n_ids=layout.n_ids[: len(encoder.field_encoders)],
        )

    @property
    def categorical(self) -> list[int]:
        """Places of the fields that hold codes of categories."""
        return [field for field, numbers in enumerate(self.numbers_of) if numbers is None]

    def columns(self, rows: EncodedRows) -> list[Column]:
        """One array a field: int32 codes, or float32 numbers."""
        return [self._column(rows, field) for field in range(len(self.numbers_of))]

    def _column(self, rows: EncodedRows, field: int) -> Column:
        ids_R: npt.NDArray[np.int32] = rows.ids_RF[:, field]
        numbers = self.numbers_of[field]
        if numbers is None:
            return ids_R
        if field not in self.scaled:
            return numbers[ids_R]
        scaled_R = rows.numbers_RN[:, self.scaled[field]]
        return np.where(ids_R == MISSING_ID, np.float32(np.nan), scaled_R)

    def matrix(self, columns: Sequence[Column]) -> npt.NDArray[np.floating]:
        """All columns in one array, of a type that holds every code exactly."""
        exact = all(self.n_ids[field] <= EXACT_IN_FLOAT32 for field in self.categorical)
        matrix = np.empty((len(columns[0]), len(columns)), dtype=np.float32 if exact else np.float64)
        for place, column in enumerate(columns):
            matrix[:, place] = column
        return matrix


@dataclass(frozen=True, kw_only=True)
class TreeTable:
    """All rows of a part in memory.

    Attributes:
        columns: one array a field.
        target: class, or standardised number of a regression.
        weight: weights of the rows, where there are some.
    """

    columns: list[Column]
    target: Vector
    weight: Vector | None

    @classmethod
    def of(cls, columns: TreeColumns, rows: StorePart) -> TreeTable:
        """Read the rows of a part."""
        chunks = list(rows.chunks())
        parts = [columns.columns(chunk) for chunk in chunks]
        targets = [chunk.target_R for chunk in chunks if chunk.target_R is not None]
        weights = [chunk.weight_R for chunk in chunks if chunk.weight_R is not None]
        return cls(
            columns=[np.concatenate(arrays) for arrays in zip(*parts, strict=True)],
            target=np.concatenate(targets),
            weight=np.concatenate(weights) if weights else None,
        )

    def __len__(self) -> int:
        return len(self.target)


def _numbers_of(field_encoder: FieldEncoder) -> npt.NDArray[np.float32] | None:
    """The number of every local id of a numerical field; None for a categorical one."""
    if field_encoder.field.numeric is None:
        return None
    numbers = np.arange(max(len(field_encoder.counts), FIRST_ID), dtype=np.float32)
    if field_encoder.field.numeric == "log2":
        numbers = field_encoder.codec.labels().cast(pl.Float32, strict=False).fill_null(np.nan).to_numpy().copy()
    numbers[:FIRST_ID] = np.nan
    return numbers


TREES_A_LOSS = 25
"""Observers hear of the validation loss once in so many trees."""

Matrix = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TrainedTrees:
    """Trees of one library.

    Attributes:
        columns: how encoded rows become columns.
        predict: raw outputs of columns, with the best number of trees.
        n_parameters: leaves and splits of those trees.
        n_trained: trees trained until early stopping.
        history: validation losses on the way, and the metrics of the best number of trees at the end.
    """

    columns: TreeColumns
    predict: Callable[[list[Any]], Matrix]
    n_parameters: int
    n_trained: int
    history: Sequence[Evaluation] = ()

    def outputs(self, rows: EncodedRows) -> torch.Tensor:
        """Raw outputs (R, C) of encoded rows."""
        return torch.from_numpy(self.predict(self.columns.columns(rows)).reshape(len(rows), -1))


@dataclass(frozen=True, kw_only=True)
class TreeJob:
    """All that a library needs to train trees.

    Attributes:
        data: settings, target and encoder.
        columns: how encoded rows become columns.
        parts: training and validation rows.
        log: hears of every tree and its validation loss.
    """

    data: Prepared
    columns: TreeColumns
    parts: Mapping[str, TreeTable]
    log: TreeLog


class TreeLog:
    """Tells an observer of every tree, and once in a while of the lowest validation loss so far."""

    def __init__(self, target: Target, n_rows: int, observer: Observer) -> None:
        self.n_rows, self.observer = n_rows, observer
        self.unit = target.loss_unit
        self.best = math.inf
        self.n_trees = 0
        self.history: list[Evaluation] = []
        self.started = time.perf_counter()

    def add(self, loss: float) -> None:
        """One more tree; the loss is that of the library, squared errors of standardised targets."""
        self.n_trees += 1
        self.best = min(self.best, loss)
        self.observer.on_step(self.n_trees, self.n_rows, loss * self.unit)
        if self.n_trees % TREES_A_LOSS == 0:
            self.history.append(self.evaluation({"loss": self.best * self.unit}, best=loss <= self.best))
            self.observer.on_evaluation(self.history[-1])

    def evaluation(self, validation: dict[str, float], *, best: bool) -> Evaluation:
        """The state of the training; trees have no learning rate that changes and no loss of batches."""
        seconds = time.perf_counter() - self.started
        return Evaluation(
            step=self.n_trees,
            epoch=float(self.n_trees),
            lr=0.0,
            train_loss=math.nan,
            validation=validation,
            best=best,
            seconds=seconds,
            rows_per_s=self.n_rows * self.n_trees / seconds,
        )


def library_settings(config: TreeConfig) -> dict[str, Any]:
    """The settings that have the library's own names; those that are None are left to it."""
    ours = ("name", "max_trees", "patience")
    return {key: value for key, value in asdict(config).items() if key not in ours and value is not None}
