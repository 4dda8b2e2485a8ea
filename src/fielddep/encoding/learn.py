"""Learning: from a coded table and the part of every row to an encoder. This is the only way to make a new one.

Almost everything is learned from the different values and the number of rows of each. A measure with too many different
numbers is read chunk by chunk: sums are exact, quantiles come from a sample. With probability 1 - 1e-6, the rank of a
quantile of two million random numbers is off by at most 0.2 % of all numbers (inequality of Dvoretzky, Kiefer and
Wolfowitz).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config.settings import Config
from fielddep.encoding.coded import CodedTable
from fielddep.encoding.column_tables import ColumnTables
from fielddep.encoding.crosses import Cross, Ids, PairCounts, cross_positions, find_crosses
from fielddep.encoding.dates import ISO, PARTS, read_times
from fielddep.encoding.encoder import Encoder, bad_weight
from fielddep.encoding.field import (
    FieldCells,
    FieldEncoder,
    learn_vocabulary,
    text_counts,
)
from fielddep.encoding.kinds import infer_kind, may_be_ordered
from fielddep.encoding.learn_numbers import TargetSums, learn_numbers, moments_of, read_cells
from fielddep.encoding.measures import ValueTargets, count_halves, half_of_rows
from fielddep.encoding.numbers import Moments, number_counts
from fielddep.encoding.parts import count_parts
from fielddep.encoding.schema import Field, Plan, build_schema, candidate_names, known_kind, make_field, plan_field
from fielddep.encoding.split import PART_NAMES, ReadParts
from fielddep.encoding.target import Target, infer_target, target_score
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
    sums = TargetSums(table, target, parts)
    schema = build_schema(_plan(table, config, counts, parts, sums), target, config)
    encoder = Encoder(
        schema=schema,
        field_encoders=_learn_fields(table, schema.fields, config, counts, parts, n_train, sums),
        missing_values=data.missing_values,
        handle_unknown=data.handle_unknown,
    )
    encoder = replace(encoder, related=_choose_related(table, encoder, config, parts))
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


def _counted(values: pl.Series, counts: Counts) -> pl.DataFrame:
    """Values, given by code, that occur in the counted rows (value), with the rows of each (n)."""
    return pl.DataFrame({"value": values.filter(pl.Series(counts > 0)), "n": counts[counts > 0]})


# --- target and weight ----------------------------------------------------------------------------------------


def _learn_target(table: CodedTable, config: Config, counts: RowCounts, parts: ReadParts, n_train: int) -> Target:
    data, name = config.data, config.data.target
    assert name is not None
    if table.columns[name].mode == "numbers":
        moments = moments_of(table, partial(table.numbers, name), parts)
        return Target(name=name, task="regression", mean=moments.mean, scale=moments.std)
    trained = _counted(table.columns[name].values, counts.train[name])
    # Classes come from all rows, so a class that occurs in validation rows only is not an error.
    values = _counted(table.columns[name].values, counts.all[name])["value"].alias(name)
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


def _plan(table: CodedTable, config: Config, counts: RowCounts, parts: ReadParts, sums: TargetSums) -> dict[str, Plan]:
    planned: dict[str, Plan] = {}
    for name in candidate_names(list(table.columns), config):
        column = table.columns[name]
        if column.mode == "skipped":
            planned[name] = column.reason or "it has one value per row"
        elif column.is_date and column.date_format is not None:
            known = replace(config.data, date_formats={name: column.date_format})
            planned[name] = plan_field(name, _typical_dates(table, name, parts), known)
        elif column.mode == "numbers":
            # It looked like a measure when it was read; otherwise it would have codes.
            planned[name] = (make_field(name, "numerical", config.data),)
        else:
            trained = _counted(column.values, counts.train[name])
            if known_kind(name, config.data) is None:
                choice = infer_kind(trained["value"].alias(name), config.data.missing_values, trained)
                trained = sums.add_to(trained, name, counts.train[name] > 0) if may_be_ordered(choice) else trained
            planned[name] = plan_field(name, trained, config.data, column.values)
    return planned


def _typical_dates(table: CodedTable, name: str, parts: ReadParts) -> pl.DataFrame:
    """A few dates of training rows (value), each as one row (n): the earliest, and two that differ for every part."""
    found = []
    for dates in read_cells(table, partial(table.typed_cells, name), parts):
        times = read_times(dates, ISO)
        differ = (times.part(part).is_first_distinct() & dates.is_not_null() for part in PARTS)
        found += [dates.filter(dates == dates.min()).head(1), *(dates.filter(first).head(2) for first in differ)]
    return distinct_values(pl.concat(found)).with_columns(n=pl.lit(1, dtype=pl.Int64))


def _learn_fields(
    table: CodedTable,
    fields: Sequence[Field],
    config: Config,
    counts: RowCounts,
    parts: ReadParts,
    n_train: int,
    sums: TargetSums,
) -> tuple[FieldEncoder, ...]:
    """Encoders of all fields; those that share values have one vocabulary, counted over all of them."""
    cells = FieldCells(lambda name: table.columns[name].values, config.data.missing_values)
    learned: dict[str, FieldEncoder] = {}
    for field in fields:
        owner = field.shares or field.name
        sharing = [other for other in fields if owner in (other.name, other.shares)]
        if len(sharing) == 1:
            learned[field.name] = _learn_field(table, field, config, counts, parts, n_train, cells, sums)
        else:
            of = counts.all if config.data.counts_from == "all" else counts.train
            texts = [
                text_counts(other, _counted(cells.of(other), of[other.column]), config.data.missing_values)
                for other in sharing
            ]
            own = next(other for other in sharing if other.name == owner)
            codec = learn_vocabulary(own, pl.concat(texts), config.data)
            learned[field.name] = FieldEncoder(field=field, codec=codec, missing_values=config.data.missing_values)
    return tuple(learned.values())


def _learn_field(
    table: CodedTable,
    field: Field,
    config: Config,
    counts: RowCounts,
    parts: ReadParts,
    n_train: int,
    cells: FieldCells,
    sums: TargetSums,
) -> FieldEncoder:
    if table.columns[field.column].mode == "numbers":
        return learn_numbers(table, field, config.data, parts, n_train, sums)
    if field.kind == "numerical" and field.part is None:
        table.check_numbers(field.column)
    values = cells.of(field)
    trained = _counted(values, counts.train[field.column])
    if field.numeric == "quantile" and config.data.n_bins is None:
        trained = sums.add_to(trained, field.column, counts.train[field.column] > 0)
    counted = _counted(values, counts.all[field.column]) if config.data.counts_from == "all" else None
    return FieldEncoder.from_counts(field, trained, config.data, counted)


# --- wide tables ----------------------------------------------------------------------------------------------


def _choose_related(table: CodedTable, encoder: Encoder, config: Config, parts: ReadParts) -> tuple[int, ...] | None:
    """Of more than `data.max_related` fields, those whose values explain most of rows they were not counted on."""
    n_ids, at_most = encoder.layout.n_ids, config.data.max_related
    if len(n_ids) <= at_most:
        return None
    assert encoder.schema.target is not None
    tables, score = ColumnTables(table, encoder), target_score(encoder.schema.target)
    found = [np.zeros((4, n)) for n in n_ids]
    for start, stop in table.chunks():
        train = parts(start, stop) == 0
        score_R, second_R = score(tables.target(start, stop)[train]), half_of_rows(start, stop)[train]
        for f, counts_4V in enumerate(found):
            counts_4V += count_halves(tables.ids(f, start, stop)[train], score_R, second_R, n_ids[f])
    gains = [ValueTargets.centred(counts_4V).gain(np.arange(counts_4V.shape[1])) for counts_4V in found]
    return tuple(sorted(np.argsort(-np.array(gains), kind="stable")[:at_most].tolist()))


# --- crosses --------------------------------------------------------------------------------------------------

MAX_CROSSED = 320
"""Fields whose pairs are all tried as crosses; of more fields, only those that are related to each other."""


def _learn_crosses(
    table: CodedTable, encoder: Encoder, config: Config, parts: ReadParts, n_train: int
) -> tuple[Cross, ...]:
    data, n_ids, names = config.data, encoder.layout.n_ids, encoder.schema.field_names
    if data.crosses == "none":
        return ()
    tables = ColumnTables(table, encoder)
    if data.crosses == "auto":
        plain = tuple(f for f in range(len(names)) if f not in encoder.layout.lists)
        if len(plain) > MAX_CROSSED and encoder.related is not None:
            plain = tuple(f for f in plain if f in encoder.related)
        rows = _TrainingRows(tables=tables, parts=parts, fields=plain)
        found = find_crosses(n_train, [n_ids[f] for f in plain], rows.take)
        pairs = [(plain[left], plain[right]) for left, right in found]
    else:
        pairs = [cross_positions(pair, names) for pair in data.crosses]
        _refuse_lists(pairs, encoder)
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


def _refuse_lists(pairs: Sequence[tuple[int, int]], encoder: Encoder) -> None:
    of_lists = [f for pair in pairs for f in pair if f in encoder.layout.lists]
    if of_lists:
        name = encoder.schema.field_names[of_lists[0]]
        raise SchemaError(
            f"a cross joins fields with one value per row; {name!r} has several. Remove it in data.crosses"
        )


@dataclass(frozen=True, kw_only=True)
class _TrainingRows:
    """Training rows, by their number among training rows, with the ids of some fields."""

    tables: ColumnTables
    parts: ReadParts
    fields: tuple[int, ...]

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
            columns = [self.tables.ids(f, start, stop)[wanted] for f in self.fields]
            ids.append(np.stack(columns, axis=1) if columns else np.empty((len(wanted), 0), dtype=np.int32))
            targets.append(self.tables.target(start, stop)[wanted])
        return np.concatenate(ids), np.concatenate(targets)
