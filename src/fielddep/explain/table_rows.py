"""Rows to explain: chosen ones and a sample, from a table or a store of any size, in the ids of a model.

Values that a model never saw are taken as rare, also where it was trained to refuse them: nothing is predicted for
later use here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import polars as pl
import torch

from fielddep.bundle import Bundle
from fielddep.config import DataConfig
from fielddep.data.encoded import EncodedTable
from fielddep.data.encoder import TableEncoder, check_columns
from fielddep.data.readers import read_table, stream_batches
from fielddep.data.row_sample import RowSample, join_rows
from fielddep.data.store.store import Store
from fielddep.data.store.translate import Translation, same_ids, stored_rows
from fielddep.errors import SchemaError, SplitError, TableError
from fielddep.explain.row_values import cell_texts
from fielddep.explain.scores import target_of
from fielddep.predictor import ALL, CHUNK_ROWS, evaluated_part

N_SAMPLE = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class PickedRows:
    """Rows of a table or store.

    Attributes:
        chosen: the rows that were asked for, in that order.
        values: what they hold, one column a field; None where only their ids are known, as in a store.
        sample: a sample, in the order of the table; with targets where the table holds them. None where none was asked.
        n_rows: rows that the sample was drawn from; 0 where none was asked.
        part: of a store the part that the sample was drawn from; else "all".
    """

    chosen: EncodedTable
    values: pl.DataFrame | None
    sample: EncodedTable | None
    n_rows: int
    part: str = ALL


def pick_table_rows(
    bundle: Bundle,
    source: Any,
    reading: DataConfig,
    numbers: Sequence[int],
    *,
    n_sample: int = N_SAMPLE,
    with_target: bool | None = None,
    seed: int = 0,
) -> PickedRows:
    """Read a table once, in bounded memory.

    Args:
        bundle: the model.
        source: anything that `read_table` takes.
        reading: how to read it, see `predictor.reading_for`.
        numbers: rows to choose, counted from 0, each once.
        n_sample: rows at most of the sample; 0 means none, and the table is read no further than the last chosen row.
        with_target: whether the sample has targets; None: where the table holds them.
        seed: seed of the sample.

    Raises:
        TableError: when the table has fewer rows.
        SchemaError: when fields are absent, or the target where it is wanted.
    """
    table = read_table(source, reading, has_target=False)
    columns = table.collect_schema().names()
    encoder = bundle.encoder
    wanted = [name for name in (target_of(bundle).name, encoder.schema.weight) if name is not None]
    known = all(name in columns for name in wanted) if with_target is None else with_target
    needed = [*encoder.schema.field_names, *(wanted if known and n_sample else [])]
    check_columns(columns, needed)
    sample = RowSample(n_sample, seed=seed)
    found: dict[int, EncodedTable] = {}
    values = [cell_texts(encoder, pl.DataFrame(schema=dict.fromkeys(encoder.schema.field_names, pl.String)))]
    n_seen = 0
    for chunk, block in _encoded_chunks(table.select(needed), encoder, with_target=known and n_sample > 0):
        here = [number for number in numbers if n_seen <= number < n_seen + len(block)]
        if here:
            values.append(cell_texts(encoder, chunk[[number - n_seen for number in here]]))
            found |= {number: block.take(torch.tensor([number - n_seen])) for number in here}
        n_seen += len(block)
        if n_sample:
            sample.add(block)
        elif len(found) == len(numbers):
            break
    _check_numbers(numbers, n_seen if len(found) < len(numbers) else None)
    place = {number: at for at, number in enumerate(found)}
    return PickedRows(
        chosen=_in_order(found, numbers, encoder),
        values=pl.concat(values).select(pl.all().gather([place[number] for number in numbers])),
        sample=sample.table,
        n_rows=sample.n_seen,
    )


def pick_store_rows(
    bundle: Bundle,
    store: Store,
    numbers: Sequence[int],
    *,
    n_sample: int = N_SAMPLE,
    with_target: bool | None = None,
    part: str | None = None,
    seed: int = 0,
) -> PickedRows:
    """The same from a store; see `pick_table_rows`.

    Rows are counted within the store, whatever their part. The sample is drawn from one part: test, or validation where
    there are no test rows, as no training on the store has seen them.

    Raises:
        TableError: when the store has fewer rows.
        SchemaError: when the store cannot be told in the ids of the model.
        SplitError: when a part has no rows.
    """
    _check_numbers(numbers, store.n_rows)
    encoder = bundle.encoder
    translation = None if same_ids(store.encoder, encoder) else Translation(store.encoder, encoder, False)
    read = {number: store.read(number, number + 1) for number in numbers}
    found = read if translation is None else {number: translation(row)[0] for number, row in read.items()}
    chosen = _in_order(found, numbers, encoder)
    if not n_sample:
        return PickedRows(chosen=chosen, values=None, sample=None, n_rows=0)
    drawn_from = part or evaluated_part(store)
    if drawn_from != ALL and not store.n_rows_of.get(drawn_from):
        raise SplitError(f"store {store.folder} has no {drawn_from} rows; choose another part")
    known = _same_target(store, bundle) if with_target is None else with_target
    blocks = stored_rows(store, encoder, part=None if drawn_from == ALL else drawn_from, with_target=known)
    sample = RowSample(n_sample, seed=seed)
    for block, _ in blocks:
        sample.add(block)
    return PickedRows(chosen=chosen, values=None, sample=sample.table, n_rows=sample.n_seen, part=drawn_from)


def _encoded_chunks(
    table: pl.LazyFrame, encoder: TableEncoder, *, with_target: bool
) -> Iterator[tuple[pl.DataFrame, EncodedTable]]:
    """Rows as they are and encoded, some at a time."""
    first_row = 0
    for chunk in stream_batches(table, CHUNK_ROWS):
        try:
            yield chunk, encoder.encode(chunk, with_target=with_target, first_row=first_row, handle_unknown="rare")
        except SchemaError as error:
            advice = "; or do without importance (--no-importance)" if with_target else ""
            raise SchemaError(f"{error}{advice}") from None
        first_row += len(chunk)


def _check_numbers(numbers: Sequence[int], n_rows: int | None) -> None:
    beyond = [] if n_rows is None else [number for number in numbers if number >= n_rows]
    if beyond:
        there = f"{n_rows:,} rows, 0 to {n_rows - 1}" if n_rows else "no rows"
        raise TableError(f"row {beyond[0]} is asked for, but the table has {there}")


def _in_order(found: dict[int, EncodedTable], numbers: Sequence[int], encoder: TableEncoder) -> EncodedTable:
    """The chosen rows as one table, without targets."""
    nothing = EncodedTable(
        layout=encoder.layout,
        ids_RF=torch.empty(0, encoder.layout.n_columns, dtype=torch.int32),
        numbers_RN=torch.empty(0, len(encoder.layout.numerical)),
    )
    return reduce(join_rows, (found[number] for number in numbers), nothing)


def _same_target(store: Store, bundle: Bundle) -> bool:
    have, want = store.encoder.schema, bundle.encoder.schema
    assert have.target is not None and want.target is not None
    same_weight = want.weight is None or want.weight == have.weight
    return (have.target.name, have.target.task) == (want.target.name, want.target.task) and same_weight
