"""Learning: from a coded table and the part of every row to an encoder. This is the only way to make a new one.

Almost everything is learned from the different values and the number of rows of each. A measure with too many different
numbers is read chunk by chunk: sums are exact, quantiles come from a sample. With probability 1 - 1e-6, the rank of a
quantile of two million random numbers is off by at most 0.2 % of all numbers (inequality of Dvoretzky, Kiefer and
Wolfowitz).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.settings import Config, DataConfig
from fielddep.encoding.coded import CodedTable
from fielddep.encoding.crosses import Cross, Ids, PairCounts, cross_positions, find_crosses
from fielddep.encoding.encoder import ColumnTables, Encoder, bad_weight
from fielddep.encoding.field import Codec, FieldEncoder, field_texts, learn_vocabulary
from fielddep.encoding.numbers import Moments, QuantileBins, ScaledNumbers, default_n_bins, number_counts
from fielddep.encoding.schema import Field, build_schema, candidate_names, make_field, plan_field
from fielddep.encoding.split import PART_NAMES, ReadParts, count_parts
from fielddep.encoding.target import Target, infer_target
from fielddep.encoding.values import as_number, distinct_values, try_numbers
from fielddep.errors import SchemaError

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def learn_encoder(table: CodedTable, config: Config, parts: ReadParts, n_train: int) -> Encoder:
    """Learn schema, vocabularies, bins, scales and crosses from training rows.

    Every row must have a target, see `with_target.coded_with_target`.

    Raises:
        SchemaError: for an unusable target or weight, text in a numerical column, or fewer than two fields.
    """
    data = config.data
    assert data.target is not None
    counts = count_codes(table, parts)
    target = _learn_target(table, config, counts, parts, n_train)
    if data.weight is not None:
        _check_weights(table, data.weight, parts)
    schema = build_schema(_plan(table, config, counts), target, config)
    field_encoders = tuple(_learn_field(table, field, config, counts, parts, n_train) for field in schema.fields)
    encoder = Encoder(
        schema=schema,
        field_encoders=field_encoders,
        missing_values=data.missing_values,
        handle_unknown=data.handle_unknown,
    )
    return replace(encoder, crosses=_learn_crosses(table, encoder, config, parts, n_train))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowCounts:
    """Rows of each code, for every column of mode "codes": training rows, and all rows."""

    train: Mapping[str, Counts]
    all: Mapping[str, Counts]

    def merge(self, other: RowCounts) -> RowCounts:
        """The counts of both sets of rows together."""
        return RowCounts(
            train={name: counts + other.train[name] for name, counts in self.train.items()},
            all={name: counts + other.all[name] for name, counts in self.all.items()},
        )


def count_codes(table: CodedTable, parts: ReadParts) -> RowCounts:
    """Count the rows of each code in one pass."""
    columns = [column for column in table.columns.values() if column.mode == "codes"]
    every = {column.name: np.zeros(len(column.values), dtype=np.int64) for column in columns}
    held_out = {name: np.zeros_like(counts) for name, counts in every.items()}
    for start, stop in table.chunks():
        # Most rows train, so it is cheaper to count all rows and subtract the others.
        rows = np.flatnonzero(parts(start, stop))
        for name, counts in every.items():
            codes_R = table.codes(name, start, stop)
            counts += np.bincount(codes_R, minlength=len(counts))
            held_out[name] += np.bincount(codes_R[rows], minlength=len(counts))
    return RowCounts(train={name: counts - held_out[name] for name, counts in every.items()}, all=every)


def _counted(table: CodedTable, name: str, counts: Counts) -> pl.DataFrame:
    """Values that occur in the counted rows (value), with the rows of each (n)."""
    seen = pl.Series(counts > 0)
    return pl.DataFrame({"value": table.columns[name].values.filter(seen), "n": counts[counts > 0]})


# --- target and weight ----------------------------------------------------------------------------------------


def _learn_target(table: CodedTable, config: Config, counts: RowCounts, parts: ReadParts, n_train: int) -> Target:
    data, name = config.data, config.data.target
    assert name is not None
    if table.columns[name].mode == "numbers":
        moments = _moments(table, name, parts)
        return Target(name=name, task="regression", mean=moments.mean, scale=moments.std)
    trained = _counted(table, name, counts.train[name])
    # Classes come from all rows, so a class that occurs in validation rows only is not an error.
    values = _counted(table, name, counts.all[name])["value"].alias(name)
    if data.task == "regression" or try_numbers(values, data.missing_values) is not None:
        table.check_numbers(name)
    target = infer_target(values, data.task, data.missing_values, n_rows=table.n_rows)
    infer_target(trained["value"].alias(name), data.task, data.missing_values, n_rows=n_train)
    if target.task == "regression":
        numbers = as_number(trained["value"].alias(name), data.missing_values)
        distinct, n_rows, _ = number_counts(numbers, trained["n"].to_numpy())
        moments = Moments.of(distinct, n_rows)
        return replace(target, mean=moments.mean, scale=moments.std)
    return target


def _check_weights(table: CodedTable, name: str, parts: ReadParts) -> None:
    """Refuse weights that are missing, negative, or 0 in all rows of a part."""
    table.check_numbers(name)
    column = table.columns[name]
    if column.mode == "numbers":
        return  # checked row by row when they are encoded
    weights = as_number(column.values, column.missing_values).fill_null(-1.0).to_numpy()
    counts = count_parts(table, name, parts)
    bad = (weights < 0) & counts.any(axis=0)
    if bad.any():
        row = table.first_row(name, bad)
        raise bad_weight(name, row)
    for part, rows in zip(PART_NAMES, counts, strict=True):
        if rows.any() and not rows[weights > 0].any():
            raise SchemaError(f"all {part} rows have weight 0; give some rows of each part a weight above 0")


# --- fields ---------------------------------------------------------------------------------------------------


def _plan(table: CodedTable, config: Config, counts: RowCounts) -> dict[str, Field | str]:
    planned: dict[str, Field | str] = {}
    for name in candidate_names(list(table.columns), config):
        column = table.columns[name]
        if column.mode == "skipped":
            planned[name] = column.reason or "it has one value per row"
        elif column.mode == "numbers":
            # It looked like a measure when it was read; otherwise it would have codes.
            planned[name] = make_field(name, "numerical", config.data)
        else:
            planned[name] = plan_field(name, _counted(table, name, counts.train[name]), config.data)
    return planned


def _learn_field(
    table: CodedTable, field: Field, config: Config, counts: RowCounts, parts: ReadParts, n_train: int
) -> FieldEncoder:
    if table.columns[field.name].mode == "numbers":
        return _learn_numbers(table, field, config.data, parts, n_train)
    if field.kind == "numerical":
        table.check_numbers(field.name)
    trained = _counted(table, field.name, counts.train[field.name])
    counted = _counted(table, field.name, counts.all[field.name]) if config.data.counts_from == "all" else None
    return FieldEncoder.from_counts(field, trained, config.data, counted)


# --- measures kept as numbers ---------------------------------------------------------------------------------


def _learn_numbers(table: CodedTable, field: Field, config: DataConfig, parts: ReadParts, n_train: int) -> FieldEncoder:
    codec: Codec
    if field.numeric == "scale":
        moments = _moments(table, field.name, parts)
        codec = ScaledNumbers.of(moments, n_train - moments.n_rows)
    elif field.numeric == "quantile":
        codec = _quantile_bins(table, field.name, parts, config.n_bins or default_n_bins(n_train))
    else:
        counted_rows = _numbers(table, field.name, None if config.counts_from == "all" else parts)
        texts = (field_texts(field, numbers, config.missing_values) for numbers in counted_rows)
        codec = learn_vocabulary(field, pl.concat(map(distinct_values, texts)), config)
    return FieldEncoder(field=field, codec=codec, missing_values=config.missing_values)


def _sample_numbers(table: CodedTable, name: str, parts: ReadParts) -> Floats:
    """About `sample_rows` known numbers of training rows, or all if there are fewer."""
    n_known = sum(len(numbers) - numbers.null_count() for numbers in _numbers(table, name, parts))
    share = table.sizes.sample_rows / max(n_known, 1)
    found = []
    for chunk, numbers in enumerate(_numbers(table, name, parts)):
        known = numbers.drop_nulls().to_numpy()
        if share < 1:
            known = known[np.random.default_rng([0, chunk]).random(len(known)) < share]
        found.append(known)
    return np.concatenate([np.empty(0), *found])


def _moments(table: CodedTable, name: str, parts: ReadParts) -> Moments:
    moments = Moments()
    for numbers in _numbers(table, name, parts):
        moments = moments.merge(Moments.of(numbers.drop_nulls().to_numpy()))
    return moments


def _numbers(table: CodedTable, name: str, parts: ReadParts | None) -> Iterator[pl.Series]:
    for start, stop in table.chunks():
        numbers = table.numbers(name, start, stop)
        yield numbers if parts is None else numbers.filter(pl.Series(parts(start, stop) == 0))


def _quantile_bins(table: CodedTable, name: str, parts: ReadParts, n_bins: int) -> QuantileBins:
    distinct, counts = np.unique(_sample_numbers(table, name, parts), return_counts=True)
    bins = QuantileBins.from_counts(distinct, counts, 1, n_bins)
    counts = np.zeros(len(bins.counts), dtype=np.int64)
    for numbers in _numbers(table, name, parts):
        counts += np.bincount(bins.encode(numbers), minlength=len(counts))
    return QuantileBins(edges=bins.edges, counts=counts)


# --- crosses --------------------------------------------------------------------------------------------------


def _learn_crosses(
    table: CodedTable, encoder: Encoder, config: Config, parts: ReadParts, n_train: int
) -> tuple[Cross, ...]:
    data, n_ids, names = config.data, encoder.layout.n_ids, encoder.schema.field_names
    if data.crosses == "none":
        return ()
    tables = ColumnTables(table, encoder)
    if data.crosses == "auto":
        pairs = find_crosses(n_train, n_ids, _TrainingRows(tables=tables, parts=parts).take)
    else:
        pairs = [cross_positions(pair, names) for pair in data.crosses]
    counters = [PairCounts(n_ids, pair) for pair in pairs]
    wanted = sorted({position for pair in pairs for position in pair})
    for start, stop in table.chunks() if pairs else ():
        ids_RF = np.zeros((stop - start, len(names)), dtype=np.int32)
        for position in wanted:
            ids_RF[:, position] = tables.ids(position, start, stop)
        ids_RF = ids_RF[parts(start, stop) == 0]
        for counter in counters:
            counter.add(ids_RF)
    return tuple(counter.cross(data.cross_min_count) for counter in counters)


@dataclass(frozen=True, kw_only=True)
class _TrainingRows:
    """Training rows, by their number among training rows."""

    tables: ColumnTables
    parts: ReadParts

    def take(self, rows: Counts | slice) -> tuple[Ids, Floats]:
        """Ids and targets of ascending row numbers, or of all for `slice(None)`."""
        ids, targets, before = [], [], 0
        for start, stop in self.tables.table.chunks():
            train = np.flatnonzero(self.parts(start, stop) == 0)
            wanted = train
            if not isinstance(rows, slice):
                first, last = np.searchsorted(rows, [before, before + len(train)])
                wanted = train[rows[first:last] - before]
            before += len(train)
            columns = [self.tables.ids(f, start, stop)[wanted] for f in range(self.tables.encoder.layout.n_fields)]
            ids.append(np.stack(columns, axis=1))
            targets.append(self.tables.target(start, stop)[wanted])
        return np.concatenate(ids), np.concatenate(targets)
