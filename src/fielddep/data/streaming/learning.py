"""Learning: from an interned table and the parts of its rows to the encoder that `TableEncoder.fit` gives in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from fielddep.config import Config
from fielddep.data.cross_search import find_crosses_of
from fielddep.data.crosses import Cross, Ids, PairCounts
from fielddep.data.encoder import TableEncoder, cross_positions
from fielddep.data.fieldcoder import FieldCoder
from fielddep.data.numeric import mean_and_std_of_counts
from fielddep.data.schema import Field, build_schema, candidate_names, make_field, plan_field
from fielddep.data.splits import absent_warnings
from fielddep.data.store.store import PART_NAMES
from fielddep.data.streaming.code_tables import ColumnTables
from fielddep.data.streaming.interned import InternedTable
from fielddep.data.streaming.number_summary import ReadMarks, fit_numbers, stream_mean_and_std
from fielddep.data.target import Target, infer_target, missing_target
from fielddep.data.values import as_number, canonical, try_numbers
from fielddep.errors import SchemaError

log = logging.getLogger(__name__)

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowCounts:
    """Rows of each code, for every column that is kept as codes.

    Attributes:
        train: of training rows.
        all: of all rows.
        by_part: of each part, shape (codes, 3); for target and weight only.
    """

    train: dict[str, Counts]
    all: dict[str, Counts]
    by_part: dict[str, Counts]


def count_codes(table: InternedTable, marks: ReadMarks, by_part: Sequence[str]) -> RowCounts:
    """Count the rows of each code in one pass."""
    names = [column.name for column in table.columns.values() if column.mode == "codes"]
    every = {name: np.zeros(len(table.columns[name].values), dtype=np.int64) for name in names}
    held_out = {name: np.zeros_like(counts) for name, counts in every.items()}
    parts = {name: np.zeros((len(every[name]), len(PART_NAMES)), dtype=np.int64) for name in by_part if name in every}
    for start, stop in table.spans():
        marks_R = marks(start, stop)
        rows = np.flatnonzero(marks_R)
        for name in names:
            codes_R = table.codes(name, start, stop)
            every[name] += np.bincount(codes_R, minlength=len(every[name]))
            held_out[name] += np.bincount(codes_R[rows], minlength=len(every[name]))
            if name in parts:
                both = codes_R.astype(np.int64) * len(PART_NAMES) + marks_R
                parts[name] += np.bincount(both, minlength=parts[name].size).reshape(parts[name].shape)
    train = {name: counts - held_out[name] for name, counts in every.items()}
    return RowCounts(train=train, all=every, by_part=parts)


def learn_encoder(table: InternedTable, config: Config, marks: ReadMarks, n_train: int) -> TableEncoder:
    """Schema, vocabularies, bins, scales and crosses from training rows.

    Raises:
        SchemaError: for an unusable target or weight, values that are no numbers where numbers are said to be, or
            fewer than two fields.
    """
    data = config.data
    assert data.target is not None
    counts = count_codes(table, marks, [name for name in (data.target, data.weight) if name is not None])
    target = _learn_target(table, config, counts, marks, n_train)
    if data.weight is not None:
        _check_weights(table, data.weight, counts)
    schema = build_schema(_plan(table, config, counts), target, config)
    coders = tuple(_learn_field(table, field, config, counts, marks, n_train) for field in schema.fields)
    encoder = TableEncoder(
        schema=schema, coders=coders, missing_values=data.missing_values, handle_unknown=data.handle_unknown
    )
    return replace(encoder, crosses=_learn_crosses(table, encoder, config, marks, n_train))


def _counted(table: InternedTable, name: str, counts: Counts) -> pl.DataFrame:
    """Values that some of the counted rows hold, with the rows of each."""
    seen = pl.Series(counts > 0)
    return pl.DataFrame({"value": table.columns[name].values.filter(seen), "n": counts[counts > 0]})


# --- target and weight ----------------------------------------------------------------------------------------


def _learn_target(table: InternedTable, config: Config, counts: RowCounts, marks: ReadMarks, n_train: int) -> Target:
    data, name = config.data, config.data.target
    assert name is not None
    if table.columns[name].mode == "numbers":
        _refuse_missing_numbers(table, name)
        mean, scale = stream_mean_and_std(table, name, marks)
        return Target(name=name, task="regression", mean=mean, scale=scale)
    _refuse_missing_codes(table, name, counts.all[name])
    trained = _counted(table, name, counts.train[name])
    # All labels of the table are known beforehand, so a class seen in validation only is no surprise.
    values = _counted(table, name, counts.all[name])["value"].alias(name)
    if data.task == "regression" or try_numbers(values, data.missing_values) is not None:
        table.check_numbers(name)
    target = infer_target(values, data.task, data.missing_values, n_rows=table.n_rows)
    infer_target(trained["value"].alias(name), data.task, data.missing_values, n_rows=n_train)
    if target.task == "regression":
        numbers = as_number(trained["value"].alias(name), data.missing_values).to_numpy()
        mean, scale = mean_and_std_of_counts(numbers, trained["n"].to_numpy())
        return replace(target, mean=mean, scale=scale)
    _warn_of_absent_classes(table, name, counts.by_part[name])
    return target


def _refuse_missing_numbers(table: InternedTable, name: str) -> None:
    n_missing, first_row = 0, 0
    for start, stop in table.spans():
        missing = table.numbers(name, start, stop).is_null()
        if missing.any() and not n_missing:
            first_row = start + int(missing.arg_true()[0])
        n_missing += int(missing.sum())
    if n_missing:
        raise missing_target(name, n_missing, first_row)


def _refuse_missing_codes(table: InternedTable, name: str, counts: Counts) -> None:
    """Refuse missing targets; what "NA" and the like mean depends on whether the others are numbers, as in memory."""
    column, seen = table.columns[name], counts > 0
    values = column.values.filter(pl.Series(seen))
    numbers = try_numbers(values, column.missing_values)
    known = canonical(values, column.missing_values) if numbers is None else numbers
    missing = np.zeros(len(counts), dtype=np.bool_)
    missing[seen] = known.is_null().to_numpy()
    if missing.any():
        raise missing_target(name, int(counts[missing].sum()), table.first_row(name, missing))


def _warn_of_absent_classes(table: InternedTable, name: str, by_part: Counts) -> None:
    labels = canonical(table.columns[name].values)
    classes = labels.drop_nulls().unique().sort()
    absent = {}
    for part, counts in zip(PART_NAMES, by_part.T, strict=True):
        present = labels.filter(pl.Series(counts > 0)).drop_nulls().unique()
        if counts.any():
            absent[part] = classes.filter(~classes.is_in(present.implode())).to_list()
    for warning in absent_warnings(name, absent):
        log.warning("%s", warning)


def _check_weights(table: InternedTable, name: str, counts: RowCounts) -> None:
    """Refuse weights that are missing, negative, or 0 in all rows of a part."""
    table.check_numbers(name)
    column = table.columns[name]
    if column.mode == "numbers":
        return  # looked at row by row when they are encoded
    weights = as_number(column.values, column.missing_values).fill_null(-1.0).to_numpy()
    bad = (weights < 0) & (counts.all[name] > 0)
    if bad.any():
        row = table.first_row(name, bad)
        raise SchemaError(f"weights {name!r} must be 0 or more, none missing; see row {row} (counted from 0)")
    for part, rows in zip(PART_NAMES, counts.by_part[name].T, strict=True):
        if rows.any() and not rows[weights > 0].any():
            raise SchemaError(f"all {part} rows have weight 0; give some rows of each part a weight above 0")


# --- fields ---------------------------------------------------------------------------------------------------


def _plan(table: InternedTable, config: Config, counts: RowCounts) -> dict[str, Field | str]:
    planned: dict[str, Field | str] = {}
    for name in candidate_names(list(table.columns), config):
        column = table.columns[name]
        if column.mode == "left out":
            planned[name] = column.reason or "it has one value per row"
        elif column.mode == "numbers":
            # It looked like a measure when it was read, or it would have codes.
            planned[name] = make_field(name, "numerical", config.data)
        else:
            planned[name] = plan_field(name, _counted(table, name, counts.train[name]), config.data)
    return planned


def _learn_field(
    table: InternedTable, field: Field, config: Config, counts: RowCounts, marks: ReadMarks, n_train: int
) -> FieldCoder:
    if table.columns[field.name].mode == "numbers":
        return fit_numbers(table, field, config.data, marks, n_train)
    if field.kind == "numerical":
        table.check_numbers(field.name)
    trained = _counted(table, field.name, counts.train[field.name])
    everything = config.data.counts_from == "all"
    counted = _counted(table, field.name, counts.all[field.name]) if everything else None
    return FieldCoder.from_counts(field, trained, config.data, counted)


# --- crosses --------------------------------------------------------------------------------------------------


def _learn_crosses(
    table: InternedTable, encoder: TableEncoder, config: Config, marks: ReadMarks, n_train: int
) -> tuple[Cross, ...]:
    data, n_ids, names = config.data, encoder.layout.n_ids, encoder.schema.field_names
    if data.crosses == "none":
        return ()
    tables = ColumnTables(table, encoder)
    if data.crosses == "auto":
        sample = _TrainingRows(table=table, tables=tables, marks=marks)
        pairs = find_crosses_of(n_train, n_ids, sample.take)
    else:
        pairs = [cross_positions(pair, names) for pair in data.crosses]
    counters = [PairCounts(n_ids, pair) for pair in pairs]
    wanted = sorted({position for pair in pairs for position in pair})
    for start, stop in table.spans() if pairs else ():
        ids_RF = np.zeros((stop - start, len(names)), dtype=np.int32)
        for position in wanted:
            ids_RF[:, position] = tables.ids(position, start, stop)
        ids_RF = ids_RF[marks(start, stop) == 0]
        for counter in counters:
            counter.add(ids_RF)
    return tuple(counter.cross(data.cross_min_count) for counter in counters)


@dataclass(frozen=True, kw_only=True)
class _TrainingRows:
    """Training rows by their number among training rows."""

    table: InternedTable
    tables: ColumnTables
    marks: ReadMarks

    def take(self, rows: npt.NDArray[np.int64] | slice) -> tuple[Ids, Floats]:
        """Ids and targets of ascending row numbers, or of all."""
        ids, targets = [], []
        for start, stop, wanted in self._places(rows):
            ids.append(self.tables.field_ids(start, stop, wanted))
            targets.append(self.tables.target(start, stop)[wanted])
        return np.concatenate(ids), np.concatenate(targets)

    def _places(self, rows: npt.NDArray[np.int64] | slice) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
        before = 0
        for start, stop in self.table.spans():
            train = np.flatnonzero(self.marks(start, stop) == 0)
            if isinstance(rows, slice):
                yield start, stop, train
            else:
                first, last = np.searchsorted(rows, [before, before + len(train)])
                yield start, stop, train[rows[first:last] - before]
            before += len(train)
