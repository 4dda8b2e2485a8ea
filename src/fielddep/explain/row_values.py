"""What rows hold, as text for labels: from their cells or, where those are not at hand, as far as their ids tell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder
from fielddep.data.fieldcoder import FieldCoder
from fielddep.data.numeric import MAX_SCALED, QuantileBins, ScaledNumbers
from fielddep.data.vocabulary import FIRST_ID, MISSING, RARE, Vocabulary


def cell_texts(encoder: TableEncoder, table: pl.DataFrame) -> pl.DataFrame:
    """What the rows of a table hold, one column a field; `MISSING` for an empty cell."""
    return pl.DataFrame([coder.cell_texts(table[coder.field.name]).fill_null(MISSING) for coder in encoder.coders])


def value_texts(encoder: TableEncoder, rows: EncodedTable) -> pl.DataFrame:
    """What encoded rows hold, one column a field, as far as ids and numbers tell.

    Numbers have six digits, as more are noise of float32. What an id cannot tell apart is named together: a rare value
    and an empty cell where training held none, a number and all beyond it that are clipped to it.
    """
    ids_RF, numbers_RN = rows.ids_RF.numpy(), rows.numbers_RN.numpy()
    texts = []
    for f, coder in enumerate(encoder.coders):
        if isinstance(coder.coding, ScaledNumbers):
            scaled_R = numbers_RN[:, rows.layout.numerical.index(f)]
            told = _number_texts(coder.coding, ids_RF[:, f], scaled_R)
        else:
            told = _id_texts(coder).gather(ids_RF[:, f])
        texts.append(told.alias(coder.field.name))
    return pl.DataFrame(texts)


def _id_texts(coder: FieldCoder) -> pl.Series:
    """One text per local id, that of the rare id saying all that it stands for in a row."""
    rare = RARE
    if isinstance(coder.coding, QuantileBins) and len(coder.counts) > FIRST_ID:
        rare = MISSING  # no number is rare where there are bins
    elif isinstance(coder.coding, Vocabulary) and not coder.coding.knows_missing:
        rare = f"{RARE} or {MISSING}"
    return pl.concat([pl.Series(coder.field.name, [MISSING, rare]), coder.labels().slice(FIRST_ID)])


def _number_texts(coding: ScaledNumbers, ids_R: npt.NDArray[np.int32], scaled_R: npt.NDArray[np.float32]) -> pl.Series:
    ends = {MAX_SCALED: " or more", -MAX_SCALED: " or less"}
    if not coding.n_missing:
        ends[0.0] = f" or {MISSING}"  # an empty cell is the mean
    numbers = zip(coding.decode(ids_R, scaled_R), scaled_R.tolist(), strict=True)
    return pl.Series([MISSING if x is None else f"{x:.6g}{ends.get(s, '')}" for x, s in numbers], dtype=pl.String)
