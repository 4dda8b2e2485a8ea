"""Rows with one field changed: hidden, or its values shuffled among the rows.

Cells are encoded one by one, so changing ids and numbers of a field is the same as changing its raw values and
encoding anew. Crosses of the field are looked up again from the changed ids.

Shape legend: R rows, F fields and crosses.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder


def hide_field(encoder: TableEncoder, rows: EncodedTable, position: int) -> EncodedTable:
    """Rows in which one field is missing, as if its cells were empty.

    The encoder decides what an empty cell is: the missing id; the rare id where training held no missing value, as
    nothing trained the missing id; the mean of a number given as `value x vector`.
    """
    empty = encoder.coders[position].encode(pl.Series([None], dtype=pl.String))
    ids_R = np.repeat(empty.ids, len(rows))
    return _with_field(
        encoder, rows, position, ids_R, None if empty.numbers is None else empty.numbers.repeat(len(rows))
    )


def permute_field(
    encoder: TableEncoder, rows: EncodedTable, position: int, order_R: npt.NDArray[np.int64]
) -> EncodedTable:
    """Rows in which one field has the values of other rows: row r gets the value of row `order_R[r]`."""
    numbers_R = None
    if position in rows.layout.numerical:
        numbers_R = rows.numbers_RN.numpy()[order_R, rows.layout.numerical.index(position)]
    return _with_field(encoder, rows, position, rows.ids_RF.numpy()[order_R, position], numbers_R)


def _with_field(
    encoder: TableEncoder,
    rows: EncodedTable,
    position: int,
    ids_R: npt.NDArray[np.int32],
    numbers_R: npt.NDArray[np.float32] | None,
) -> EncodedTable:
    ids_RF = rows.ids_RF.numpy().copy()
    ids_RF[:, position] = ids_R
    for column, cross in enumerate(encoder.crosses, start=len(encoder.coders)):
        if position in (cross.left, cross.right):
            ids_RF[:, column] = cross.encode(ids_RF)
    numbers_RN = rows.numbers_RN
    if numbers_R is not None:
        numbers_RN = numbers_RN.clone()
        numbers_RN[:, rows.layout.numerical.index(position)] = torch.from_numpy(numbers_R)
    return replace(rows, ids_RF=torch.from_numpy(ids_RF), numbers_RN=numbers_RN)
