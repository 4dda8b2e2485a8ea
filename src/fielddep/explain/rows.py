"""Rows to explain: picked from a table or store of any size, and their values as text.

Values that the model never saw count as rare, even if it was trained to refuse them, because nobody acts on the
predictions for these rows.

Shape legend: R rows, F fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import ALL, CHUNK_ROWS, Predictor, default_part, read_options
from fielddep.config.data import DataConfig
from fielddep.encoding.encoder import Encoder, check_columns
from fielddep.encoding.field import FieldCells, FieldEncoder, joined_labels
from fielddep.encoding.numbers import MAX_SCALED, QuantileBins, ScaledNumbers
from fielddep.encoding.rows import EncodedRows, sample_rows
from fielddep.encoding.target import Target
from fielddep.encoding.vocabulary import FIRST_ID, MISSING, RARE, Vocabulary
from fielddep.errors import SchemaError, TableError
from fielddep.store.store import Store
from fielddep.tables.row_stream import RowStream, open_rows

N_SAMPLE = 10_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class PickedRows:
    """Chosen rows in the order asked for, without targets, and a sample in the order of the table."""

    chosen: EncodedRows
    values: pl.DataFrame | None  # values of the chosen rows as text; None for a store, which knows ids only
    sample: EncodedRows | None  # None if there are no rows, or no sample was asked for
    n_rows: int  # rows from which the sample was drawn
    part: str = ALL  # the part of a store from which it was drawn


def pick_rows(
    bundle: Bundle,
    source: Any,
    numbers: Sequence[int],
    *,
    config: DataConfig | None = None,
    n_sample: int = N_SAMPLE,
    with_target: bool | None = None,
    part: str | None = None,
    seed: int = 0,
) -> PickedRows:
    """Chosen rows and a sample of all rows, in bounded memory.

    Args:
        bundle: the model.
        source: a store, or any table that `read_table` takes.
        numbers: row numbers to choose, counted from 0 over all parts, each once.
        config: how to read the table; by default like the training table.
        n_sample: rows of the sample at most. With 0, a table is read no further than the last chosen row.
        with_target: whether the sample has targets; None: if the table has them.
        part: the part of a store to sample; by default its test rows, or its validation rows if it has none.
        seed: seed of the sample.

    Raises:
        TableError: if a row does not exist.
        SchemaError: if a field is absent, or the target although it is wanted.
        SplitError: if the part has no rows.
        StoreError: if the store was encoded for another model.
    """
    device = str(next(bundle.model.parameters()).device)
    values = None
    if isinstance(source, Store):
        chosen = _stored_rows(source, numbers, bundle.encoder)
        with_target = with_target is not False
    else:
        bundle = replace(bundle, encoder=replace(bundle.encoder, handle_unknown="rare"))
        table = open_rows(source, read_options(bundle, config or bundle.config.data), has_target=False)
        if with_target is None:
            wanted = {target_of(bundle).name, bundle.encoder.schema.weight} - {None}
            with_target = wanted <= set(table.schema.names())
        cells = _gathered(table, numbers, bundle.encoder.schema.columns)
        chosen, values = bundle.encoder.encode(cells)[0], cell_texts(bundle.encoder, cells)
    if not n_sample:
        return PickedRows(chosen=chosen, values=values, sample=None, n_rows=0)
    part = part or default_part(source)
    chunks = Predictor(bundle, device=device).encoded(source, config, with_target=with_target, part=part)
    try:
        sample = sample_rows((chunk for chunk, _ in chunks), n_sample, seed=seed)
    except SchemaError as error:
        advice = ", or skip what needs the target (--no-importance)" if with_target else ""
        raise SchemaError(f"{error}{advice}") from None
    return PickedRows(chosen=chosen, values=values, sample=sample.table, n_rows=sample.n_seen, part=part)


def _stored_rows(store: Store, numbers: Sequence[int], encoder: Encoder) -> EncodedRows:
    """The rows with these numbers; training rows have the evidence of a new row, as if they came from a table."""
    _check_numbers(numbers, store.n_rows)
    store.check_encoder(encoder)
    rows = EncodedRows.concat([EncodedRows.empty(store.layout), *(store.read(n, n + 1) for n in numbers)])
    return encoder.as_new(rows)


def _gathered(table: RowStream, numbers: Sequence[int], columns: tuple[str, ...]) -> pl.DataFrame:
    """The rows with these numbers, in that order; reading stops at the last of them."""
    check_columns(table.schema.names(), columns)
    found: dict[int, pl.DataFrame] = {}
    n_seen = 0
    for chunk in table.frames(columns, CHUNK_ROWS) if numbers else ():
        found |= {number: chunk[number - n_seen] for number in numbers if n_seen <= number < n_seen + len(chunk)}
        n_seen += len(chunk)
        if len(found) == len(numbers):
            break
    else:
        _check_numbers(numbers, n_seen)
    none = table.schema.to_frame().select(columns)
    return pl.concat([none, *(found[number] for number in numbers)], how="vertical_relaxed")


def _check_numbers(numbers: Sequence[int], n_rows: int) -> None:
    beyond = [number for number in numbers if number >= n_rows]
    if beyond:
        there = f"{n_rows:,} rows, numbered from 0 to {n_rows - 1}" if n_rows else "no rows"
        raise TableError(f"row {beyond[0]} does not exist: the table has {there}")


def target_of(bundle: Bundle) -> Target:
    """What the model predicts."""
    target = bundle.encoder.schema.target
    assert target is not None  # no model is trained without one
    return target


def cell_texts(encoder: Encoder, table: pl.DataFrame) -> pl.DataFrame:
    """The values of a table as text, one column per field; `MISSING` for an empty cell.

    A part of a date has the complete date, as it is in the table.
    """
    cells = FieldCells(table.__getitem__, encoder.missing_values)
    return pl.DataFrame(
        [c.cell_texts(table[c.field.column], cells.of(c.field)).fill_null(MISSING) for c in encoder.field_encoders]
    )


def value_texts(encoder: Encoder, rows: EncodedRows) -> pl.DataFrame:
    """The values of encoded rows as text, one column per field, as far as ids and numbers show them.

    Numbers have six digits, because more are noise of float32. Values with the same id share a text: rare values and
    empty cells if training had none, or a number and all others that are clipped to it.
    """
    texts = []
    for f, field_encoder in enumerate(encoder.field_encoders):
        ids_R = rows.ids_RF[:, f]
        if f in rows.layout.lists:
            shown = joined_labels(id_texts(field_encoder), rows.lists_R(f))
        elif isinstance(field_encoder.codec, ScaledNumbers):
            shown = _number_texts(field_encoder.codec, ids_R, rows.numbers_RN[:, rows.layout.numerical.index(f)])
        else:
            shown = id_texts(field_encoder).gather(ids_R)
        texts.append(shown.alias(field_encoder.field.name))
    return pl.DataFrame(texts)


def id_texts(field_encoder: FieldEncoder) -> pl.Series:
    """One text per local id; that of the rare id names everything it stands for."""
    if isinstance(field_encoder.codec, ScaledNumbers):
        return field_encoder.labels()
    rare = RARE
    if isinstance(field_encoder.codec, QuantileBins) and len(field_encoder.counts) > FIRST_ID:
        rare = MISSING  # every number has a bin, so none is rare
    elif isinstance(field_encoder.codec, Vocabulary) and not field_encoder.codec.has_missing:
        rare = f"{RARE} or {MISSING}"
    return pl.concat([pl.Series(field_encoder.field.name, [MISSING, rare]), field_encoder.labels().slice(FIRST_ID)])


def _number_texts(codec: ScaledNumbers, ids_R: npt.NDArray[np.int32], scaled_R: npt.NDArray[np.float32]) -> pl.Series:
    ends = {MAX_SCALED: " or more", -MAX_SCALED: " or less"}
    if not codec.n_missing:
        ends[0.0] = f" or {MISSING}"  # an empty cell is the mean
    numbers = zip(codec.decode(ids_R, scaled_R), scaled_R.tolist(), strict=True)
    return pl.Series([MISSING if x is None else f"{x:.6g}{ends.get(s, '')}" for x, s in numbers], dtype=pl.String)
